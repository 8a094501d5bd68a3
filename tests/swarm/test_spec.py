"""A swarm that cannot work is refused by the field that is wrong, before anything starts."""

from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from swarmlab.channel import MAX_SOCKET_PATH_BYTES
from swarmlab.errors import BadInput
from swarmlab.swarm import machine
from swarmlab.swarm import spec as spec_module
from swarmlab.swarm.deploy import deploy
from swarmlab.swarm.ports import HOST
from swarmlab.swarm.spec import ServerSpec, SwarmSpec, memory_bytes, validate
from swarmlab.types import Span


@pytest.fixture
def model(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    return tmp_path


@pytest.fixture
def good(model):
    return SwarmSpec(model, "prefix", 8, (ServerSpec("a", Span(0, 4)), ServerSpec("b", Span(4, 8))))


def refused(spec, **options):
    with pytest.raises(BadInput) as error:
        validate(spec, **options)
    return error.value


def test_a_good_spec_passes(good):
    validate(good)
    validate(replace(good, servers=(ServerSpec("a", Span(0, 4)), ServerSpec("b", n_blocks=4))))


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"model_path": Path("models/tiny")}, "swarm.model_path"),
        ({"model_path": Path("/no/such/folder")}, "swarm.model_path"),
        ({"dht_prefix": "with.dot"}, "swarm.dht_prefix"),
        ({"dht_prefix": ""}, "swarm.dht_prefix"),
        ({"n_blocks": 0}, "swarm.n_blocks"),
        ({"update_period_s": 0.0}, "swarm.update_period_s"),
        ({"start_deadline_s": -1.0}, "swarm.start_deadline_s"),
        ({"expiration_s": 10.0, "update_period_s": 10.0}, "swarm.expiration_s"),
        ({"num_handlers": 0}, "swarm.num_handlers"),
        ({"servers": ()}, "swarm.servers"),
    ],
)
def test_senseless_options_are_refused(good, change, field):
    assert refused(replace(good, **change)).field == field


@pytest.mark.parametrize(
    ("second", "field"),
    [
        (ServerSpec("b", Span(4, 9)), "swarm.servers[1].end"),
        (ServerSpec("b"), "swarm.servers[1]"),
        (ServerSpec("b", Span(4, 8), n_blocks=4), "swarm.servers[1]"),
        (ServerSpec("b", n_blocks=9), "swarm.servers[1].n_blocks"),
        (ServerSpec("b", n_blocks=0), "swarm.servers[1].n_blocks"),
        (ServerSpec("b", Span(4, 8), throughput_tps=0.0), "swarm.servers[1].throughput_tps"),
        (ServerSpec("b", Span(4, 8), throughput_tps=float("nan")), "swarm.servers[1].throughput_tps"),
        (ServerSpec("b", Span(4, 8), throughput_tps=float("inf")), "swarm.servers[1].throughput_tps"),
        (ServerSpec("b", Span(4, 8), port=80), "swarm.servers.port"),
        (ServerSpec("b", Span(4, 8), port=99999), "swarm.servers.port"),
        (ServerSpec("a", Span(4, 8)), "swarm.servers.name"),
        (ServerSpec("../b", Span(4, 8)), "swarm.servers.name"),
        (ServerSpec("", Span(4, 8)), "swarm.servers.name"),
    ],
)
def test_senseless_servers_are_refused(good, second, field):
    assert refused(replace(good, servers=(good.servers[0], second))).field == field


def test_a_gap_is_named_by_its_first_block(good):
    gap = replace(good, servers=(ServerSpec("a", Span(0, 3)), ServerSpec("b", Span(4, 8))))
    assert "gap at block 3" in str(refused(gap))
    validate(gap, whole=False)
    validate(replace(gap, servers=(*gap.servers, ServerSpec("c", n_blocks=1))))


def test_a_port_that_somebody_listens_on_is_refused(good):
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        taken.listen()
        port = taken.getsockname()[1]
        spec = replace(good, servers=(replace(good.servers[0], port=port), good.servers[1]))
        assert refused(spec).value == port
    validate(spec)


def test_one_port_for_two_servers_is_refused(good):
    port = 20999
    assert (
        refused(replace(good, servers=tuple(replace(server, port=port) for server in good.servers))).value
        == port
    )


def test_too_little_memory_is_refused_with_the_estimate(good, monkeypatch):
    needed = memory_bytes(good)
    for available, enough in ((needed, True), (needed - 1, False)):
        monkeypatch.setattr(
            spec_module.psutil,
            "virtual_memory",
            lambda available=available: SimpleNamespace(available=available),
        )
        if enough:
            validate(good)
        else:
            assert "GiB" in str(refused(good))


def test_memory_grows_with_servers_and_weights(good):
    fat = replace(good, block_bytes=2**30)
    assert memory_bytes(fat) - memory_bytes(good) == 8 * 2**30
    assert memory_bytes(good) > memory_bytes(replace(good, servers=good.servers[:1]))


def test_nothing_is_started_or_written_for_a_bad_spec(good, tmp_path):
    run_dir = tmp_path / "run"
    with pytest.raises(BadInput), deploy(replace(good, n_blocks=9), run_dir):
        pytest.fail("a swarm with a gap was started")
    assert not run_dir.exists()


def test_a_long_folder_for_temporary_files_is_not_used_for_sockets(monkeypatch, tmp_path):
    long = tmp_path / ("x" * 80)
    long.mkdir()
    monkeypatch.setattr(machine.tempfile, "tempdir", str(long))
    folder = machine.make_temp_dir()
    machine.remove_temp_dir(folder)
    assert folder.parent != long
    assert len(f"{folder}/99999/torch-shm-dir-123456/manager.sock") <= MAX_SOCKET_PATH_BYTES
    monkeypatch.setattr(machine.os, "access", lambda *_: False)
    with pytest.raises(BadInput, match="TMPDIR"):
        machine.make_temp_dir()
