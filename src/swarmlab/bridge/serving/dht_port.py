"""The DHT as several threads of one server may use it: one sender at a time, and no question waits for ever."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from hivemind.utils import get_dht_time

from swarmlab.bridge import snapshot
from swarmlab.bridge.serving import inquiry
from swarmlab.placement.testimony import Answers
from swarmlab.types import ServerRecord, SwarmView

ANSWER_S = 30.0


class DhtPort:
    """Stands in for hivemind's DHT where petals takes one.

    :param answer_s: how long a question may take; peers that hang cost seconds each
    """

    def __init__(self, dht: Any, answer_s: float = ANSWER_S) -> None:
        self._dht, self._answer_s = dht, answer_s
        self._lock = threading.Lock()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._dht, name)

    def run_coroutine(self, coro: Any, return_future: bool = False) -> Any:
        """As hivemind's.

        :raises TimeoutError: if the answer takes too long (where it is waited for)
        :raises ConnectionError: if the DHT's process has died
        """
        if not self._dht.is_alive():
            raise ConnectionError("the DHT's process has died")
        with self._lock:  # the pipe to the DHT's process mixes up messages of two threads
            future = self._dht.run_coroutine(coro, return_future=True)
        return future if return_future else future.result(self._answer_s)

    @contextmanager
    def still(self) -> Iterator[None]:
        """Nobody sends meanwhile: for forking, and for a child that sends through the same pipe."""
        with self._lock:
            yield

    def view(self, prefix: str, n_blocks: int) -> SwarmView:
        """The swarm as the DHT shows it now, on the DHT's clock.

        :raises TimeoutError: if the DHT does not answer
        """
        records = self.run_coroutine(partial(snapshot.read_records, prefix=prefix, n_blocks=n_blocks))
        return snapshot.view_from_records(records, n_blocks, get_dht_time())[0]

    def ask(self, records: Sequence[ServerRecord], prefix: str) -> Answers:
        """What servers say themselves about their blocks.

        :raises TimeoutError: if the DHT does not answer
        """
        spans = {record.peer_id: record.span for record in records}
        question = partial(inquiry.ask_all, spans=spans, prefix=prefix, limits=inquiry.Limits())
        return Answers(self.run_coroutine(question))
