"""Named points of a server's life at which an orchestrator may make it wait. Files only: a killed server is no loss.

No petals here, so that it can be tested alone.
"""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

POLL_S = 0.02
HOLD_S = 120.0  # no gate holds a server for longer: whoever closed it may be gone


class Gates:
    """The gates of one server; ``<point>.hold`` in the folder closes one.

    :param folder: made if it is not there; None: there are no gates
    """

    def __init__(self, folder: Path | str | None) -> None:
        self._folder = None if folder is None else Path(folder)
        if self._folder is not None:
            self._folder.mkdir(parents=True, exist_ok=True)

    def pass_through(self, point: str, hold_s: float = HOLD_S) -> float:
        """Say that the server is here (``<point>.reached``), and wait while the gate is closed.

        :returns: seconds waited
        """
        if self._folder is None:
            return 0.0
        with suppress(OSError):  # a full disk: the orchestrator waits in vain, the server must not
            (self._folder / f"{point}.reached").touch()
        hold, started = self._folder / f"{point}.hold", time.monotonic()
        while hold.exists() and time.monotonic() - started < hold_s:
            time.sleep(POLL_S)
        return time.monotonic() - started
