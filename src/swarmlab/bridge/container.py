"""The part of a server that computes: petals' container, whose blocks come and go while it runs.

``Shelf`` is what the rest of the server sees of it: the blocks outlive the container that serves them.
"""

from __future__ import annotations

import gc
import multiprocessing
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from petals.data_structures import UID_DELIMITER
from petals.server.server import ModuleContainer, RuntimeWithDeduplicatedPools

from swarmlab.bridge.front import BlockHandler, Front

SHUTDOWN_S = 10.0


class BlockContainer(ModuleContainer):
    """Handlers, queues and the runtime, for all blocks of a model; ``run`` and ``is_healthy`` are petals' own.

    :param server: petals' ``Server``, for its settings
    """

    def __init__(self, server: Any) -> None:
        threading.Thread.__init__(self, name="container", daemon=True)
        self._prefix, self._device = server.dht_prefix, server.device
        self._blocks: set[int] = set()
        self.front = Front(server)
        queues = [multiprocessing.Queue() for _ in range(server.num_handlers)]
        self.conn_handlers = [
            BlockHandler(
                server.dht,
                self.front.faces,
                presence=self.front.presence,
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
        if self._device.type == "cuda":
            torch.cuda.empty_cache()

    def sessions_on(self, blocks: Iterable[int]) -> int:
        """How many sessions use them now, as far as can be told: the most on any one of them."""
        return self.front.presence.sessions_on(blocks)

    def shutdown(self) -> None:
        """End handlers and runtime. The modules are left as they are, for the next container if there is one."""
        self.ready.clear()
        for handler in self.conn_handlers:
            handler.shutdown()
        self.runtime.shutdown()

    def _uid(self, block: int) -> str:
        return f"{self._prefix}{UID_DELIMITER}{block}"


class Shelf:
    """The blocks of a server, whichever container serves them. Safe from any thread.

    :param make: makes a container without blocks
    """

    def __init__(self, make: Callable[[], BlockContainer]) -> None:
        self._make, self._lock = make, threading.Lock()
        self.container = make()

    @property
    def blocks(self) -> frozenset[int]:
        with self._lock:
            return self.container.blocks

    def modules(self) -> dict[int, torch.nn.Module]:
        with self._lock:
            return self.container.modules()

    def add(self, modules: Mapping[int, torch.nn.Module]) -> None:
        """See :meth:`BlockContainer.add`."""
        with self._lock:
            self.container.add(modules)

    def remove(self, blocks: Iterable[int]) -> None:
        """See :meth:`BlockContainer.remove`."""
        with self._lock:
            self.container.remove(blocks)

    def sessions_on(self, blocks: Iterable[int]) -> int:
        """See :meth:`BlockContainer.sessions_on`."""
        return self.container.sessions_on(blocks)

    def start(self) -> None:
        """:raises Exception: if the container does not come up"""
        self.container.run_in_background(await_ready=True)

    @property
    def is_healthy(self) -> bool:
        return self.container.is_healthy()

    def heal(self) -> None:
        """A new container round the same blocks, for one of which a process has died."""
        with self._lock:
            modules = self.container.modules()
            # a process that died may have taken a lock of a queue along: what waits for it is left behind
            end = threading.Thread(target=self.container.shutdown, name="old container", daemon=True)
            end.start()
            end.join(SHUTDOWN_S)
            fresh = self._make()
            fresh.add(modules)
            self.container = fresh
        self.start()

    def shutdown(self) -> None:
        self.container.shutdown()
