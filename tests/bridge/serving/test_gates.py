from __future__ import annotations

import threading
from pathlib import Path

from swarmlab.bridge.serving.gates import Gates


def test_an_open_gate_is_passed_at_once_and_says_that_the_server_was_there(tmp_path):
    assert Gates(tmp_path / "gates").pass_through("decided") < 1.0
    assert (tmp_path / "gates" / "decided.reached").exists()


def test_a_closed_gate_holds_until_it_is_opened(tmp_path):
    hold = tmp_path / "decided.hold"
    hold.touch()
    passed = threading.Event()

    def go():
        Gates(tmp_path).pass_through("decided")
        passed.set()

    thread = threading.Thread(target=go, daemon=True)
    thread.start()
    while not (tmp_path / "decided.reached").exists():
        assert thread.is_alive()
    assert not passed.is_set()
    hold.unlink()
    assert passed.wait(30)


def test_a_gate_that_nobody_opens_does_not_hold_for_ever(tmp_path):
    (tmp_path / "decided.hold").touch()
    assert Gates(tmp_path).pass_through("decided", hold_s=0.05) >= 0.05


def test_without_a_folder_there_are_no_gates():
    assert Gates(None).pass_through("decided") == 0.0


def test_a_disk_that_takes_no_file_stops_nobody(tmp_path, monkeypatch):
    def full(*_args, **_kwargs):
        raise OSError(28, "No space left on device")

    gates = Gates(tmp_path)
    monkeypatch.setattr(Path, "touch", full)
    assert gates.pass_through("here") >= 0.0
