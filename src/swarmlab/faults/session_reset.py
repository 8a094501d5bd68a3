"""The orchestrator's side of servers that lose messages (``swarmlab.bridge.faulty_server``)."""

from __future__ import annotations

import json
import secrets
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Chances:
    """How often a server loses a message, and with it the session.

    :param cell: name of what is being measured; repeated in every line of the log
    :param request: probability that a received request is lost
    :param reply: probability that a reply is lost
    """

    cell: str
    request: float
    reply: float
    seed: int


class ResetControl:
    """The files of one server's switch.

    :param folder: where they live; absolute, it must exist
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.switch_path = folder / f"{name}.switch.json"
        self.log_path = folder / f"{name}.resets.jsonl"
        self._read_bytes = 0

    @property
    def server_options(self) -> dict[str, str]:
        """What the server's process must be told."""
        return {"switch_path": str(self.switch_path), "log_path": str(self.log_path)}

    def set(self, chances: Chances) -> None:
        """From the next message on; the server's draws begin anew."""
        draft = self.switch_path.with_suffix(f".{secrets.token_hex(3)}")
        draft.write_text(json.dumps(asdict(chances)), encoding="utf-8")
        draft.replace(self.switch_path)

    def clear(self) -> None:
        """Nothing is lost any more."""
        self.switch_path.unlink(missing_ok=True)

    def news(self) -> list[dict[str, Any]]:
        """Lines of the log that have not been read yet; a line under way is left for the next time."""
        if not self.log_path.exists():
            return []
        with self.log_path.open("rb") as log:
            log.seek(self._read_bytes)
            data = log.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._read_bytes += len(whole)
        return [json.loads(line) for line in whole.splitlines()]


def is_confirmed(line: dict[str, Any]) -> bool:
    """Whether a ``confirm`` line shows that the session's attention cache is gone.

    A session that is lost with its first request has none yet, and a request without a session never has one.
    """
    return line["after_bytes"] < line["before_bytes"] or line["before_bytes"] == 0
