"""The part of a server that computes: petals' container, whose blocks come and go while it runs.

Handlers, queues and the runtime, for all blocks of a model. ``swarmlab.bridge.serving.shelf`` keeps the blocks when
one of its processes dies and another container takes over.
"""

from __future__ import annotations

import gc
import multiprocessing
import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from petals.data_structures import UID_DELIMITER
from petals.server.server import ModuleContainer, RuntimeWithDeduplicatedPools

from swarmlab.bridge.serving import heap
from swarmlab.bridge.serving.front import Front
from swarmlab.bridge.serving.handler import BlockHandler

START_S = 60.0  # a machine that does much else takes seconds for each handler
SHUTDOWN_S, LAST_WORDS_S = 10.0, 1.0
POLL_S = 0.02


class BlockContainer(ModuleContainer):
    """``is_healthy`` is petals' own.

    :param server: petals' ``Server``, for its settings
    """

    def __init__(self, server: Any) -> None:
        threading.Thread.__init__(self, name="container", daemon=True)
        self._prefix, self._device = server.dht_prefix, server.device
        self._blocks: set[int] = set()
        self._failed: Exception | None = None
        self._stopping = threading.Event()
        self.front = Front(server)
        queues = [multiprocessing.Queue() for _ in range(server.num_handlers)]
        self.conn_handlers = [
            BlockHandler(
                server.dht,
                self.front.faces,
                presence=self.front.presence,
                held=self.front.held,
                adapters=server.server_info.adapters,
                dht_prefix=server.dht_prefix,
                handler_event_queues=queues,
                handler_index=index,
                inference_max_length=server.inference_max_length,
                request_timeout=server.request_timeout,
                session_timeout=server.session_timeout,
                step_timeout=server.step_timeout,
                quant_type=server.quant_type,
            )
            for index in range(server.num_handlers)
        ]
        self.runtime = RuntimeWithDeduplicatedPools(
            {"": self.front.template},
            device=None,
            prefetch_batches=server.prefetch_batches,
            sender_threads=server.sender_threads,
            stats_report_interval=server.stats_report_interval,
        )

    @property
    def blocks(self) -> frozenset[int]:
        """Those that are held."""
        return frozenset(self._blocks)

    def modules(self) -> dict[int, torch.nn.Module]:
        return {block: self.front.held.module(self._uid(block)) for block in sorted(self._blocks)}

    def add(self, modules: Mapping[int, torch.nn.Module]) -> None:
        """Serve these blocks from now on."""
        for block, module in modules.items():
            self.front.held.add(self._uid(block), module)
            self._blocks.add(block)
            self.front.presence.set_held(block, held=True)

    def remove(self, blocks: Iterable[int]) -> None:
        """Stop serving these blocks and free their memory; sessions that use them fail at their next step."""
        for block in blocks:
            self.front.presence.set_held(block, held=False)
            self._blocks.discard(block)
            self.front.held.remove(self._uid(block))
        gc.collect()
        heap.trim()
        if self._device.type == "cuda":
            torch.cuda.empty_cache()

    def sessions_on(self, blocks: Iterable[int]) -> int:
        """How many sessions use them now, as far as can be told: the most on any one of them."""
        return self.front.presence.sessions_on(blocks)

    def start_within(self, deadline_s: float) -> None:
        """Take requests from now on.

        :raises TimeoutError: at the deadline
        :raises RuntimeError: if a handler does not come up; in either case :meth:`stop` is to be called
        """
        until_s = time.monotonic() + deadline_s
        self.start()
        while not self.ready.wait(POLL_S):
            if self._failed is not None:
                raise RuntimeError(f"a handler did not come up: {self._failed}") from self._failed
            if time.monotonic() > until_s:
                raise TimeoutError(f"the handlers did not come up within {deadline_s:.0f} s")

    def run(self) -> None:
        """Of the thread: as petals', but a handler that cannot start is noticed."""
        try:
            # one after another: each asks the DHT's process something as it starts, through one pipe
            for handler in self.conn_handlers:
                self._start_handler(handler)
        except Exception as error:  # noqa: BLE001 - told where it is waited for
            self._failed = error
        else:
            self.runtime.run()

    def _start_handler(self, handler: BlockHandler) -> None:
        if not self._stopping.is_set():
            handler.run_in_background(await_ready=False)
        while not self._stopping.wait(POLL_S):
            if handler.ready.done():
                return handler.wait_until_ready(0)
            if not handler.is_alive():
                raise RuntimeError(f"its process died at once, exit status {handler.exitcode}")
        raise InterruptedError("the container is to stop")

    def shutdown(self) -> None:
        """Ask handlers and runtime to end; may take for ever, see :meth:`stop`."""
        self.ready.clear()
        for handler in self.conn_handlers:
            handler.shutdown()
        self.runtime.shutdown()

    def stop(self, within_s: float = SHUTDOWN_S) -> None:
        """End in bounded time, whatever state the processes are in; the blocks are kept.

        A process that died may have taken the lock of a queue along: a thread that waits for it is left behind. A
        handler that does not end is killed, as the p2p daemon would go on sending it requests.
        """
        self._stopping.set()
        shutdown = threading.Thread(target=self.shutdown, name="end of a container", daemon=True)
        shutdown.start()
        shutdown.join(within_s)
        if self.is_alive():
            self.join(LAST_WORDS_S)
        for handler in self.conn_handlers:
            if handler.is_alive():
                handler.kill()
                handler.join(LAST_WORDS_S)

    def forget(self) -> None:
        """Keep nothing in memory, blocks nor attention caches, even if a thread was left behind."""
        self._blocks.clear()
        self.front.forget()

    def _uid(self, block: int) -> str:
        return f"{self._prefix}{UID_DELIMITER}{block}"
