"""``with deploy(spec, run_dir) as swarm``: a real swarm, torn down whatever happens."""

from __future__ import annotations

import signal
import threading
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from swarmlab.swarm.machine import make_temp_dir, remove_temp_dir
from swarmlab.swarm.running import Swarm
from swarmlab.swarm.spec import validate

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import FrameType

    from swarmlab.swarm.running import OnState
    from swarmlab.swarm.spec import SwarmSpec


@contextmanager
def deploy(
    spec: SwarmSpec, run_dir: Path, *, on_state: OnState | None = None, wait: bool = True, whole: bool = True
) -> Iterator[Swarm]:
    """Start a swarm, and tear it down at the end of the block: normal end, exception, Ctrl-C or SIGTERM.

    If the orchestrator itself is killed, the processes notice and leave.

    :param run_dir: logs go to its folder ``logs``
    :param on_state: told of every change of a process's state
    :param wait: whether to return only when all servers are ready
    :param whole: whether to refuse a spec that leaves blocks unheld
    :raises BadInput: before anything is started
    :raises SwarmFailed: if a process does not start; the last lines of its log are in the message
    """
    validate(spec, whole=whole)
    with ExitStack() as stack:
        stack.enter_context(_sigterm_raises())
        temp_dir = make_temp_dir()
        stack.callback(remove_temp_dir, temp_dir)
        swarm = Swarm(spec, run_dir.resolve(), temp_dir, on_state or (lambda *_: None))
        stack.callback(swarm.close)
        swarm.start()
        if wait:
            swarm.wait_ready()
        yield swarm


@contextmanager
def _sigterm_raises() -> Iterator[None]:
    """SIGTERM unwinds the stack as Ctrl-C does, so that the swarm is torn down (main thread only).

    Whoever has a handler of their own keeps it.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return

    def leave(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    previous = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
