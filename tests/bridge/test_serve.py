from __future__ import annotations

import os
import signal

import pytest

from swarmlab.bridge import compat

compat.apply()

from swarmlab.bridge import serve, server  # noqa: E402
from swarmlab.placement.registry import POLICIES  # noqa: E402


def test_our_options_are_taken_out_and_the_rest_is_left_to_petals():
    argv = ["model", "--num_blocks", "4", "--reload", "in_place", "--drain_s", "3", "--new_swarm"]
    assert serve.parsed(argv) == {
        "reload": "in_place",
        "drain_s": "3",
        "argv": ["model", "--num_blocks", "4", "--new_swarm"],
    }


def test_petals_options_are_not_mistaken_for_beginnings_of_ours():
    argv = ["model", "--sto", "x"]
    assert serve.parsed(argv)["argv"] == argv


def test_an_option_that_cannot_be_ends_with_code_2_before_anything_starts(capsys):
    assert serve.main(["model", "--reload", "fast"]) == 2
    assert "reload" in capsys.readouterr().err


@pytest.mark.parametrize("argv", [[], ["--num_blocks", "2"], ["/no/such/folder", "--num_blocks", "2"]])
def test_without_a_model_nothing_starts(argv, capsys):
    with pytest.raises(SystemExit) as end:
        serve.main(argv)
    assert end.value.code == 2
    assert "MODEL" in capsys.readouterr().err


def test_help_names_all_of_them(capsys):
    with pytest.raises(SystemExit):
        serve.parsed(["--help"])
    told = capsys.readouterr().out
    assert all(f"--{name} " in told for options in serve.OPTIONS.values() for name in options)


def test_the_fields_of_each_policy_can_be_listed(capsys):
    with pytest.raises(SystemExit) as end:
        serve.parsed(["--policy_fields"])
    assert end.value.code == 0
    told = dict(line.split(": ") for line in capsys.readouterr().out.splitlines())
    assert told.keys() == POLICIES.keys()
    assert "grace_s" in told["swarmlab"]


def test_a_service_manager_may_end_it_in_order(monkeypatch):
    """Unasked, Python dies of SIGTERM on the spot, and its handlers and DHT process stay."""
    ended = []

    def serve_until_told(_args, _channel):
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            signal.pause()
        finally:
            ended.append("offline")

    monkeypatch.setattr(server, "server", serve_until_told)
    before = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(SystemExit) as end:
            serve.main(["model", "--num_blocks", "2"])
    finally:
        signal.signal(signal.SIGTERM, before)
    assert end.value.code == 143
    assert ended == ["offline"]
