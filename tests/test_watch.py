from __future__ import annotations

import json
import sys
import threading

import pytest

from swarmlab import watch
from swarmlab.errors import BadInput
from swarmlab.record.rundir import RunDir
from tests.analysis.histories import default_run


@pytest.fixture
def run_dir(tmp_path):
    created = RunDir.create(
        tmp_path, "failover", config={}, argv=[], overrides=[], seed=0, world="real", arms=[], model={}
    )  # fmt: skip
    default_run().save(created.path)
    return created


def test_one_frame_of_a_stored_run(run_dir, capsys):
    run_dir.finish("complete")
    assert watch.main([str(run_dir.path), "--once"]) == 0
    printed = capsys.readouterr().out
    assert "failover" in printed
    assert "failovers: 6" in printed


def test_a_run_that_goes_on_is_followed_to_its_end(run_dir, capsys):
    """It would never return if it did not notice the end."""
    watching = threading.Thread(target=watch.main, args=([str(run_dir.path), "--every", "0.1"],), daemon=True)
    watching.start()
    run_dir.history.write(
        "faults", "swarmlab", at_s=run_dir.history.start_s + 500, scenario="later", fault="kill", target="z",
        span_start=None, stage="confirm", at_token=None, ok=True, detail="gone",
    )  # fmt: skip
    run_dir.finish("complete")
    watching.join(30)
    assert not watching.is_alive()
    assert "kill of z" in capsys.readouterr().out


GOOD = "/ip4/127.0.0.1/tcp/9/p2p/QmQ9QNpJiEBjFn5W5k1ppxdihBwZuvWMRhApwDEWSovXix"


@pytest.mark.parametrize(
    "arguments",
    [
        ["nowhere", "--once"], ["a", "b", "--once"], ["--once"], ["nowhere", "--every", "soon"],
        ["nowhere", "--every", "0"], ["nowhere", "--every", "nan"], [GOOD, "--blocks", "0"],
        ["/ip4/127.0.0.1/tcp/9/p2p/Qm"], ["/ip4/127.0.0.1/tcp/9"], [GOOD.replace("127", "999")],
        [GOOD.replace("/9/", "/99999/")], [GOOD.replace("ip4", "ip6")], [GOOD, "b"],
    ],
)  # fmt: skip
def test_what_is_no_run_is_bad_input_in_one_line(arguments, capsys, monkeypatch):
    """An address that is none is refused before libp2p is asked."""
    monkeypatch.setitem(sys.modules, "swarmlab.bridge.dht_reader", None)
    try:
        code = watch.main(arguments)
    except SystemExit as leaving:  # argparse
        code = leaving.code
    assert code == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert error.startswith("swarmlab: ")


def test_a_damaged_run_is_bad_input(run_dir, capsys):
    (run_dir.path / "run.json").write_text(json.dumps([1]))
    assert watch.main([str(run_dir.path), "--once"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_the_only_model_of_a_swarm_needs_no_name():
    assert watch._model(lambda: {"llama": 80}, None, None) == ("llama", 80)
    assert watch._model(lambda: {"llama": 80, "bloom": 70}, "bloom", None) == ("bloom", 70)
    assert watch._model(lambda: pytest.fail("nobody was to be asked"), "_private", 8) == ("_private", 8)


@pytest.mark.parametrize(("announced", "prefix"), [({}, None), ({"a": 1, "b": 2}, None), ({"a": 1}, "b")])
def test_a_model_that_is_not_clear_is_bad_input_and_those_known_are_named(announced, prefix):
    with pytest.raises(BadInput) as refused:
        watch._model(lambda: announced, prefix, None)
    assert all(name in str(refused.value) for name in announced)


def test_a_damaged_row_is_left_out_and_counted(run_dir, capsys):
    with (run_dir.path / "history" / "decisions.jsonl").open("a") as file:
        file.write('{"t": 1.0, "arm": "petals", "server": "a"}\n{"t": "soon", "moved": true}\n')
    run_dir.finish("complete")
    assert watch.main([str(run_dir.path), "--once"]) == 0
    printed = capsys.readouterr().out
    assert "damaged rows left out: 2" in printed
    assert "failovers: 6" in printed


@pytest.mark.parametrize("pattern", ["*.jsonl", ""])
def test_a_run_whose_history_was_removed_is_bad_input(run_dir, capsys, pattern):
    run_dir.finish("complete")
    history = run_dir.path / "history"
    for file in history.glob("*.jsonl"):
        file.unlink()
    if not pattern:
        history.rmdir()
    assert watch.main([str(run_dir.path), "--once"]) == 2
    assert "history/" in capsys.readouterr().err


def test_a_run_that_has_just_begun_has_no_rows_yet(tmp_path, capsys):
    begun = RunDir.create(
        tmp_path / "begun", "failover", config={}, argv=[], overrides=[], seed=0, world="real", arms=[], model={}
    )  # fmt: skip
    assert watch.main([str(begun.path), "--once"]) == 0
    assert "failover" in capsys.readouterr().out
