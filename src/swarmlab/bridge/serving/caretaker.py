"""Keeps an eye on the processes of a server, and gives it new ones for requests when one of those has died."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any

from swarmlab.bridge.events import EventLog
from swarmlab.bridge.p2p_leftovers import remove_leftovers
from swarmlab.bridge.serving.announcer import Announcer
from swarmlab.bridge.serving.dht_port import DhtPort
from swarmlab.bridge.serving.handler import BlockHandler
from swarmlab.bridge.serving.shelf import Shelf

TICK_S = 1.0  # between two looks at whether the handlers are alive
TELL_S = 1.0  # what telling the swarm may delay new handlers; a DHT that is slower hears of it later


class Caretaker:
    """While handlers are replaced the server announces itself as joining: it holds its blocks and does not serve.

    :param stopping: set when the server is to end
    """

    def __init__(
        self, shelf: Shelf, announcer: Announcer, port: DhtPort, events: EventLog, stopping: threading.Event
    ) -> None:
        self._shelf, self._announcer = shelf, announcer
        self._port, self._events, self._stopping = port, events, stopping

    def wait(self, wait_s: float, is_due: Callable[[], bool]) -> bool:
        """Wait, also less if something is due; True if the server is to end.

        :raises Exception: as :meth:`look_after`
        """
        until_s = time.monotonic() + wait_s
        while (left_s := until_s - time.monotonic()) > 0:
            if self._stopping.wait(min(left_s, TICK_S)):
                return True
            self.look_after()
            if is_due():
                return False
        return self._stopping.is_set()

    def beside(self, work: Callable[[], Any]) -> Any:
        """The result of ``work``, done in a thread.

        :raises Exception: whatever ``work`` raises, or as :meth:`look_after`
        """
        done: Future[Any] = Future()

        def run() -> None:
            try:
                done.set_result(work())
            except BaseException as error:  # noqa: BLE001 - raised again where it is waited for
                done.set_exception(error)

        threading.Thread(target=run, name="mover", daemon=True).start()
        while not done.done():
            wait([done], TICK_S)
            self.look_after()
        return done.result()

    def look_after(self) -> None:
        """New handlers where one has died.

        :raises ConnectionError: without the process through which all others reach this server: it has to end
        :raises RuntimeError: if no handlers can be started any more, likewise
        """
        if not self._port.is_alive():
            raise ConnectionError("the DHT's process has died")
        if not self._shelf.is_healthy:
            if self._announcer.serving:
                self._announce(serving=False)
            with self._port.still():
                if not self._shelf.heal():
                    return
            self._forget_the_dead()
        if not self._announcer.serving and self._shelf.is_proven:
            self._announce(serving=True)

    def _forget_the_dead(self) -> None:
        try:
            remove_leftovers(self._port, BlockHandler)
        except Exception as error:  # noqa: BLE001 - some streams then meet the dead handler, and are tried again
            self._events.log(
                "warning", f"the dead handler may still be known: {type(error).__name__}: {error}"
            )
        self._announcer.memory_cache = self._shelf.container.front.memory_cache
        self._events.log("warning", "a handler has died, all were started anew; the blocks stayed")

    def _announce(self, *, serving: bool) -> None:
        self._announcer.serving = serving
        self._events.log("info", "announced as serving again" if serving else "announced as not serving now")
        telling = threading.Thread(target=self._announcer.say_again, name="announcement", daemon=True)
        telling.start()
        telling.join(TELL_S)
