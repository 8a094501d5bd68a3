"""The nursery on its own: what a child finds, what the orchestrator is told, what is left (nothing)."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from pathlib import Path

import psutil
import pytest

from swarmlab.channel import ChannelClosed
from swarmlab.errors import SwarmFailed
from swarmlab.swarm.local import Child, Nursery

KINDS = Path(__file__).parent / "extra_kinds"

pytestmark = pytest.mark.swarm


@pytest.fixture(scope="module")
def nursery(tmp_path_factory):
    temp_dir = Path(tempfile.mkdtemp(prefix="swarmlab-test-"))
    patch = pytest.MonkeyPatch()
    patch.setenv("PYTHONPATH", str(KINDS))
    patch.setenv("SWARMLAB_TEST_KINDS", str(KINDS))
    nursery = Nursery(temp_dir, tmp_path_factory.mktemp("nursery") / "nursery.log", {}, lambda _: None)
    patch.undo()
    nursery.wait_ready(60)
    yield nursery
    nursery.stop()
    assert not temp_dir.exists()


def spawn(nursery: Nursery, kind: str, tmp_path: Path, **args) -> Child:
    return nursery.spawn(
        f"kinds_for_tests:{kind}", kind, args, tmp_path / "log", channel=True, env={"GIVEN": "yes"}
    )


def test_child_has_its_own_session_log_folder_and_sockets(nursery, tmp_path):
    child = spawn(nursery, "describe", tmp_path, status=7, word="hello")
    found = child.channel(20).recv(20)
    assert found["pid"] == found["pgid"] == found["sid"] == child.pid == child.pgid
    assert found["cwd"] == found["temp_dir"]
    assert found["socket_prefix"] == f"/unix{found['temp_dir']}/"
    assert found["env"] == "yes"
    assert found["args"] == {"status": 7, "word": "hello"}
    assert found["n_threads"] == 1
    assert child.wait(10) == 7
    assert set(found["fds"]) == {"/dev/null", str(tmp_path / "log")}
    assert {"this goes to the log", "so does this"} <= set((tmp_path / "log").read_text().splitlines())


def test_the_fixed_name_of_a_socket_fits_into_the_limit(nursery, tmp_path):
    child = spawn(nursery, "describe", tmp_path, status=0)
    prefix = child.channel(20).recv(20)["socket_prefix"].removeprefix("/unix")
    assert len(prefix + "p2pclient-0123456789a.sock") < 100


def test_exit_is_reported_when_the_whole_group_is_gone(nursery, tmp_path):
    child = spawn(nursery, "leave_helper", tmp_path, status=3)
    helper = child.channel(20).recv(20)["helper"]
    assert child.wait(10) == 3
    assert not psutil.pid_exists(helper)
    assert not psutil.pid_exists(child.pid)


def test_signal_reaches_the_group_and_says_whether_it_was_there(nursery, tmp_path):
    child = spawn(nursery, "wait", tmp_path)
    child.channel(20).recv(20)
    assert nursery.signal("wait", signal.SIGKILL)
    assert child.wait(10) == -signal.SIGKILL
    assert not nursery.signal("wait", signal.SIGKILL)
    with pytest.raises(ChannelClosed):
        child.channel().recv(1)


def test_sockets_of_a_killed_child_go_with_it(nursery, tmp_path):
    """Over a long run with many restarts they would pile up by the hundred."""
    names = ["p2pd-x.sock", "pymp-x/listener-x", "torch-shm-dir-x/manager.sock"]
    child = spawn(nursery, "leave_sockets", tmp_path, names=names)
    temp_dir = Path(child.channel(20).recv(20)["temp_dir"])
    assert all((temp_dir / name).is_socket() for name in names)
    nursery.signal("leave_sockets", signal.SIGKILL)
    assert child.wait(10) == -signal.SIGKILL
    assert [(temp_dir / name).exists() for name in names] == [False, False, True]  # torch removes its own


def test_sigterm_ends_a_child_in_order(nursery, tmp_path):
    child = spawn(nursery, "wait", tmp_path)
    child.channel(20).recv(20)
    assert nursery.signal("wait", signal.SIGTERM, leader_only=True)
    assert child.wait(10) == 128 + signal.SIGTERM


def test_talk_goes_both_ways(nursery, tmp_path):
    channel = spawn(nursery, "chatter", tmp_path, until=3).channel(20)
    for number in range(3):
        channel.send({"number": number})
        assert channel.recv(10) == {"number": number}


@pytest.mark.parametrize("kind", ["no_such_module", "children:no_such_function"])
def test_unknown_kind_fails_with_a_traceback_in_its_log(nursery, tmp_path, kind):
    child = nursery.spawn(kind, "unknown", {}, tmp_path / "log", channel=True, env={})
    with pytest.raises(ChannelClosed, match="ended before it connected"):
        child.channel(20)
    assert child.wait(10) == 1
    assert "no_such" in (tmp_path / "log").read_text()


def test_a_bad_request_harms_nobody(nursery, tmp_path):
    answer = nursery.request("no_such_op")
    assert not answer["ok"]
    assert "no_such_op" in answer["error"]
    with pytest.raises(SwarmFailed, match="cannot make a key"):
        nursery.identity(tmp_path / "no" / "such" / "folder")
    spawn(nursery, "describe", tmp_path, status=0).channel(20).recv(20)


def test_a_key_file_is_made_once_and_its_peer_id_is_kept(nursery, tmp_path):
    first = nursery.identity(tmp_path / "key")
    assert first == nursery.identity(tmp_path / "key") != nursery.identity(tmp_path / "other")


def test_a_nursery_that_cannot_start_shows_its_log(tmp_path, monkeypatch):
    spoilt = tmp_path / "spoilt"
    (spoilt / "hivemind").mkdir(parents=True)
    (spoilt / "hivemind/__init__.py").write_text("raise RuntimeError('no hivemind today')")
    monkeypatch.setenv("PYTHONPATH", str(spoilt))
    temp_dir = Path(tempfile.mkdtemp(prefix="swarmlab-test-"))
    nursery = Nursery(temp_dir, tmp_path / "log", {}, lambda _: None)
    try:
        with pytest.raises(SwarmFailed, match="no hivemind today"):
            nursery.wait_ready(60)
    finally:
        nursery.stop()
        shutil.rmtree(temp_dir, ignore_errors=True)
    assert not psutil.pid_exists(nursery.pid)


def test_this_process_is_not_the_parent_of_children(nursery, tmp_path):
    child = spawn(nursery, "wait", tmp_path)
    child.channel(20).recv(20)
    assert psutil.Process(child.pid).ppid() == nursery.pid != os.getpid()
    nursery.signal("wait", signal.SIGKILL)
    child.wait(10)
