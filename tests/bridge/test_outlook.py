"""What a server sees of its swarm, with a DHT that answers as the test wants."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from swarmlab.bridge import compat

compat.apply()

from swarmlab.bridge import outlook as module  # noqa: E402
from swarmlab.bridge.events import EventLog, read_events  # noqa: E402
from swarmlab.bridge.outlook import Outlook  # noqa: E402
from swarmlab.placement.policy import Server  # noqa: E402
from swarmlab.types import Intent, ServerRecord, Span, SwarmView  # noqa: E402

OLD, MOVE = Span(0, 2), Intent(Span(2, 4), 1.0)
ME = Server("me", 2, 10.0, OLD)
WEAK, TWIN = ServerRecord("weak", Span(2, 4), 1.0), ServerRecord("twin", OLD, 10.0)


class Stage:
    """The DHT answers with what is in ``answers``, the last of it again and again; errors are raised."""

    def __init__(self, tmp_path, *answers):
        self.answers, self.path = list(answers), tmp_path / "events"
        self.stopping = threading.Event()
        port: Any = SimpleNamespace(view=self._view)
        self.outlook = Outlook(port, "m", 4, EventLog(self.path), self.stopping)

    def _view(self, prefix, n_blocks):
        assert (prefix, n_blocks) == ("m", 4)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


def view(*records):
    return SwarmView(4, records, 2.0)


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch):
    monkeypatch.setattr(module, "RETRY_S", 0.0)


def test_a_dht_that_fails_once_is_asked_again(tmp_path):
    stage = Stage(tmp_path, TimeoutError("slow"), view(TWIN))
    assert stage.outlook.look_patiently(2) == view(TWIN)
    assert "slow" in read_events(stage.path)[0][0]["line"]


def test_one_that_does_not_answer_is_no_view_and_an_objection(tmp_path):
    stage = Stage(tmp_path, TimeoutError())
    assert stage.outlook.look_patiently() is None
    assert stage.outlook.objections(ME, OLD, MOVE, view(TWIN, WEAK))((0, 1)) == "the swarm cannot be seen"
    assert len(read_events(stage.path)[0]) == 1 + module.TRIES
    with pytest.raises(TimeoutError):
        stage.outlook.look()


def test_a_server_that_is_to_end_does_not_wait_for_another_try(tmp_path):
    stage = Stage(tmp_path, TimeoutError())
    stage.stopping.set()
    assert stage.outlook.look_patiently(100) is None
    assert len(read_events(stage.path)[0]) == 1


def test_each_time_it_is_asked_it_looks_anew(tmp_path):
    stage = Stage(tmp_path, view(TWIN, WEAK), view(WEAK))
    ask = stage.outlook.objections(ME, OLD, MOVE, view(TWIN, WEAK))
    assert ask((0, 1)) is None
    assert "nobody else serves" in (ask((0, 1)) or "")
