"""What a server sees of its swarm, with a DHT that answers as the test wants."""

from __future__ import annotations

import threading
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from swarmlab.bridge import compat

compat.apply()

from swarmlab.bridge.events import EventLog, read_events  # noqa: E402
from swarmlab.bridge.serving import first_look  # noqa: E402
from swarmlab.bridge.serving import outlook as module  # noqa: E402
from swarmlab.bridge.serving.outlook import Outlook  # noqa: E402
from swarmlab.placement.memory import Gone, Memory  # noqa: E402
from swarmlab.placement.none import NoBalancing  # noqa: E402
from swarmlab.placement.policy import Server  # noqa: E402
from swarmlab.placement.swarmlab import Swarmlab  # noqa: E402
from swarmlab.placement.testimony import Answer, Answers  # noqa: E402
from swarmlab.types import Decision, Intent, ServerRecord, Span, SwarmView  # noqa: E402

OLD, MOVE = Span(0, 2), Intent(Span(2, 4), 1.0)
ME = Server("me", 2, 10.0, OLD)
WEAK, TWIN = ServerRecord("weak", Span(2, 4), 1.0), ServerRecord("twin", OLD, 10.0)


class Stage:
    """The DHT answers with what is in ``answers``, the last of it again and again; errors are raised."""

    def __init__(self, tmp_path, *answers):
        self.answers, self.path = list(answers), tmp_path / "events"
        self.stopping = threading.Event()
        self.testimony: Any = Answers({"d": Answer.REFUSED, "weak": Answer.SERVES})
        self.questions = []
        port: Any = SimpleNamespace(view=self._view, ask=self._ask)
        self.outlook = Outlook(port, "m", 4, EventLog(self.path), self.stopping)

    def _view(self, prefix, n_blocks):
        assert (prefix, n_blocks) == ("m", 4)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _ask(self, records, prefix):
        assert prefix == "m"
        self.questions.append([record.peer_id for record in records])
        if isinstance(self.testimony, Exception):
            raise self.testimony
        return self.testimony


def view(*records, at_s=2.0):
    return SwarmView(4, records, at_s)


def decided(intent=None, **more):
    return Decision(True, OLD, MOVE.span, 1.0, 0.0, "fake", "", intent=intent, **more)


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch):
    monkeypatch.setattr(module, "RETRY_S", 0.0)
    monkeypatch.setattr(module, "POLL_S", 0.0)
    monkeypatch.setattr(first_look, "FIRST_WAIT_S", 0.0)


def test_a_dht_that_fails_once_is_asked_again(tmp_path):
    stage = Stage(tmp_path, TimeoutError("slow"), view(TWIN))
    assert stage.outlook.look_patiently(2) == view(TWIN)
    assert "slow" in read_events(stage.path)[0][0]["line"]


def test_one_that_does_not_answer_is_no_view_and_an_objection(tmp_path):
    stage = Stage(tmp_path, TimeoutError())
    assert stage.outlook.look_patiently() is None
    assert (
        stage.outlook.objections(ME, OLD, decided(), MOVE, view(TWIN, WEAK))((0, 1))
        == "the swarm cannot be seen"
    )
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
    ask = stage.outlook.objections(ME, OLD, decided(), MOVE, view(TWIN, WEAK))
    assert ask((0, 1)) is None
    assert "nobody else serves" in (ask((0, 1)) or "")


SOLE = ServerRecord("d", Span(2, 4), 5.0)
KNOWN = Memory(last_view=view(TWIN, WEAK, SOLE, at_s=1.0))


def test_a_policy_that_wants_to_know_gets_what_servers_in_doubt_say(tmp_path):
    stage = Stage(tmp_path, view())
    memory = stage.outlook.ask(Swarmlab(), view(TWIN, WEAK), ME, KNOWN)
    assert memory == replace(KNOWN, testimony=stage.testimony)
    assert stage.questions == [["d", "twin", "weak"]]


def test_nobody_is_asked_if_nobody_is_in_doubt_or_the_policy_does_not_care(tmp_path):
    stage = Stage(tmp_path, view())
    assert stage.outlook.ask(Swarmlab(), view(TWIN, WEAK, SOLE), ME, KNOWN) is KNOWN
    assert stage.outlook.ask(NoBalancing(), view(TWIN, WEAK), ME, KNOWN) is KNOWN
    assert not stage.questions


def test_if_nobody_can_be_asked_the_grace_time_counts(tmp_path):
    stage = Stage(tmp_path, view())
    stage.testimony = TimeoutError("slow")
    assert stage.outlook.ask(Swarmlab(), view(TWIN, WEAK), ME, KNOWN) is KNOWN
    assert "slow" in read_events(stage.path)[0][0]["line"]


def test_it_sees_holes_between_checks_only_for_a_policy_that_asks(tmp_path):
    stage = Stage(tmp_path, view(TWIN))
    assert stage.outlook.must_check(Swarmlab(), ME, None)
    assert not stage.outlook.must_check(NoBalancing(), ME, None)
    assert not Stage(tmp_path, view(TWIN, WEAK)).outlook.must_check(Swarmlab(), ME, None)
    assert not Stage(tmp_path, TimeoutError()).outlook.must_check(Swarmlab(), ME, None)


def test_before_a_move_that_was_not_announced_it_waits_until_it_finds_its_announcement(tmp_path):
    own = ServerRecord("me", OLD, 10.0, intent=MOVE)
    rival = ServerRecord("rival", OLD, 10.0, intent=Intent(MOVE.span, 0.5))
    decision = decided(MOVE, check_again_s=60.0)
    stage = Stage(tmp_path, view(TWIN), view(TWIN), view(TWIN, own), TimeoutError("asked too often"))
    assert stage.outlook.objections(ME, OLD, decision, MOVE, view(TWIN))((0, 1)) is None
    late = Stage(tmp_path, view(TWIN, rival), view(TWIN, rival, own))
    why = late.outlook.objections(ME, OLD, decision, MOVE, view(TWIN))((0, 1))
    assert why is not None
    assert "filled the gap" in why


def test_an_announcement_that_is_never_found_is_believed_after_its_time(tmp_path):
    stage = Stage(tmp_path, view(TWIN), view(TWIN, at_s=62.0))
    ask = stage.outlook.objections(ME, OLD, decided(MOVE, check_again_s=60.0), MOVE, view(TWIN))
    assert ask((0, 1)) is None


def test_a_server_that_is_known_to_be_gone_fills_no_gap(tmp_path):
    dead = replace(SOLE, expires_at_s=9.0)
    stage = Stage(tmp_path, view(TWIN, dead))
    decision = decided(memory=Memory(gone=(Gone("d", 9.0),)))
    assert stage.outlook.objections(ME, OLD, decision, MOVE, view(TWIN, dead))((0, 1)) is None


def test_a_server_that_has_announced_itself_since_it_was_gone_fills_the_gap(tmp_path):
    dead = ServerRecord("d", MOVE.span, 10.0, expires_at_s=9.0)
    stage = Stage(tmp_path, view(TWIN, replace(dead, expires_at_s=99.0)))
    decision = decided(memory=Memory(gone=(Gone("d", 9.0),)))
    why = stage.outlook.objections(ME, OLD, decision, MOVE, view(TWIN, dead))((0, 1))
    assert why is not None
    assert "filled the gap" in why


FULL = (TWIN, ServerRecord("peer", Span(2, 4), 5.0))


def test_who_joins_looks_again_when_the_dht_is_slow_or_shows_too_little(tmp_path):
    stage = Stage(tmp_path, TimeoutError("slow"), view(), view(TWIN), view(*FULL))
    assert stage.outlook.look_to_join() == view(*FULL)
    rows = [row for row in read_events(stage.path)[0] if "before joining" in row["line"]]
    assert [row["blocks_of_nobody"] for row in rows] == [[0, 1, 2, 3], [2, 3], []]


def test_the_first_of_a_swarm_joins_one_that_is_empty(tmp_path):
    stage = Stage(tmp_path, view())
    assert stage.outlook.look_to_join() == view()


def test_who_has_seen_the_same_holes_twice_joins_what_it_saw_last(tmp_path):
    before = view(TWIN, ServerRecord("z", Span(2, 3), 5.0))  # z died between the first look and the second
    stage = Stage(tmp_path, before, view(TWIN), view(TWIN))
    assert stage.outlook.look_to_join() == view(TWIN)


def test_who_never_sees_the_swarm_ends_with_a_reason_after_a_few_looks(tmp_path):
    stage = Stage(tmp_path, TimeoutError("slow"))
    with pytest.raises(ConnectionError, match="6 looks"):
        stage.outlook.look_to_join()


def test_who_is_told_to_end_looks_no_more(tmp_path):
    stage = Stage(tmp_path, TimeoutError("slow"))
    stage.stopping.set()
    with pytest.raises(ConnectionError, match="1 looks"):
        stage.outlook.look_to_join()
