"""Whether a server loses what it receives or answers: chances and a seed that the orchestrator sets in a file.

No petals here, so that the draws can be tested alone. The orchestrator's side is ``swarmlab.faults.session_reset``.
"""

from __future__ import annotations

import json
import random
import time
from pathlib import Path
from typing import Any

REQUEST, REPLY = "request", "reply"


class ResetSwitch:
    """Draws, for each message, whether it is lost; off as long as there is no file.

    :param path: JSON with ``cell`` (a name), ``request`` and ``reply`` (probabilities) and ``seed``; may be replaced
        at any time, and the draws then begin anew
    :param log_path: gets one JSON line for each message that is lost (``inject``) and one when the session that it
        belonged to is gone (``confirm``)
    :param stream: tells processes with the same switch apart, so that each has draws of its own
    """

    def __init__(self, path: Path, log_path: Path, stream: int = 0) -> None:
        self._path, self._log_path, self._stream = path, log_path, stream
        self._stamp: tuple[int, int] | None = None
        self._plan: dict[str, Any] | None = None
        self._random = random.Random()
        self._n_draws = 0

    def loses(self, message: str) -> bool:
        """Whether this message is lost.

        :param message: ``request`` or ``reply``
        """
        self._refresh()
        if self._plan is None:
            return False
        self._n_draws += 1
        return self._random.random() < self._plan[message]

    def log(self, stage: str, **fields: Any) -> None:
        """Append a line to the log, at once for whoever reads it."""
        row = {"stage": stage, "at_s": time.monotonic(), "cell": (self._plan or {}).get("cell"), **fields}
        with self._log_path.open("a", encoding="utf-8") as log:
            log.write(json.dumps({**row, "n_draws": self._n_draws, "stream": self._stream}) + "\n")

    def _refresh(self) -> None:
        try:
            found = self._path.stat()
        except FileNotFoundError:
            self._stamp = self._plan = None
            return
        stamp = (found.st_ino, found.st_mtime_ns)
        if stamp != self._stamp:
            self._stamp, self._n_draws = stamp, 0
            plan: dict[str, Any] = json.loads(self._path.read_text(encoding="utf-8"))
            self._plan = plan
            self._random.seed(f"{plan['seed']} {plan['cell']} {self._path.name} {self._stream}")
