"""What the orchestrator makes of a machine that answers late, or sends what it cannot use; the machine is played."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from swarmlab.errors import SwarmFailed
from swarmlab.swarm.remote import NoAnswer, NodeLost, RemoteNursery

GONE_S = 20.0
FACTS = {"address": "10.1.0.2", "gpus": [], "hostname": "far", "temp_dir": "/tmp/far", "boot_id": "another"}


class Played:
    """Says one piece of news after the other; an exception is raised, and at the end the machine is lost."""

    def __init__(self, news: Iterable[Any]) -> None:
        self.news, self.limits = list(news), {}

    def __call__(self, method: str, *_args: Any, limit_s: float = 60.0, **_options: Any) -> Any:
        self.limits[method] = limit_s
        if method == "news":
            if not self.news:
                raise NodeLost("over")
            found = self.news.pop(0)
            if isinstance(found, Exception):
                raise found
            return found
        return {"facts": FACTS, "clock": 0.0, "spawn": 7, "wait_ready": 1.0}.get(method)


def followed(run_dir: Path, *news: Any) -> tuple[Played, list[int | None]]:
    """What was heard of the death of process 7, once all the news has been taken."""
    heard: list[int | None] = []
    call = Played([{"exits": [(7, 3)], "files": {}} if one == "death" else one for one in news])
    nursery = RemoteNursery("far", call, run_dir, lambda child: heard.append(child.status), deadline_s=45.0)
    nursery.spawn("kind", "a1", {}, run_dir / "a1.log", channel=False, env={})
    nursery._follower.join(GONE_S)
    assert not nursery._follower.is_alive()
    return call, heard


def test_a_machine_that_answers_late_is_not_taken_for_lost(tmp_path):
    _, heard = followed(tmp_path, NoAnswer("busy"), NoAnswer("busy"), "death")
    assert heard == [3]  # its own status, not that of a machine that is gone


def test_a_row_that_was_cut_off_hides_no_death_and_is_kept(tmp_path):
    whole = json.dumps({"mono_s": 1.0, "kind": "step"}).encode()
    rows = {"events/a1.jsonl": b'{"mono_s": 1.0, "ki' + whole + b"\n" + whole + b"\n"}
    _, heard = followed(tmp_path, {"exits": [], "files": rows}, "death")
    assert heard == [3]
    broken, good = (tmp_path / "events/a1.jsonl").read_bytes().splitlines()
    assert broken.startswith(b'{"mono_s": 1.0, "ki')
    assert json.loads(good)["mono_s"] != 1.0  # on our clock


def test_a_folder_that_takes_no_logs_hides_no_death(tmp_path):
    (tmp_path / "logs").write_text("a file where the folder should be")
    _, heard = followed(tmp_path, {"exits": [], "files": {"logs/a1.log": b"line\n"}}, "death")
    assert heard == [3]


def test_every_wait_has_a_limit(tmp_path):
    call, _ = followed(tmp_path, "death")
    assert call.limits["facts"] == 45.0  # starting an agent may take as long as anything may take to start
    nursery = RemoteNursery("far", call, tmp_path, lambda _: None)
    nursery.wait_ready(100.0)
    nursery.stop()
    assert call.limits["wait_ready"] > 100.0
    assert call.limits["stop"] < 60.0


def test_a_machine_that_never_answers_is_told_by_name(tmp_path):
    def silent(*_args: Any, **_options: Any) -> Any:
        raise NoAnswer("no answer to facts within 45 s")

    with pytest.raises(SwarmFailed, match="machine far is gone: no answer to facts"):
        RemoteNursery("far", silent, tmp_path, lambda _: None)
