"""A swarm of fake servers in one event loop, behind the streams and messages of the real client.

The servers follow petals 2.2.0 (server/handler.py, block_functions.py, backend.py): a cache per stream, the first
request states ``max_length``, rows are reordered before a step is appended, deep prompts are added to a request's
first tokens at every block, a repeated ``step_id`` is skipped, one error ends the stream. A block's output at a
position depends on all positions of its row before it, chaotically and exactly: any input that is wrong, missing,
doubled, out of order or for another block changes all later outputs beyond doubt.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import importlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import torch
from hivemind.compression import deserialize_torch_tensor, serialize_torch_tensor
from hivemind.p2p import P2P, PeerID
from hivemind.utils import MSGPackSerializer
from petals.utils.packaging import unpack_args_kwargs

from swarmlab.bridge.inference import router, views
from swarmlab.recovery.settings import RecoverySettings
from swarmlab.types import ServerRecord, Span, SwarmView

runtime_pb2: Any = importlib.import_module("hivemind.proto.runtime_pb2")  # its names are made at run time
p2pd_pb2: Any = importlib.import_module("hivemind.proto.p2pd_pb2")
Message = Any  # of runtime_pb2

HIDDEN = 2
COMPUTE_S, CONNECT_S, PROBE_S, DHT_S = 0.01, 0.002, 0.003, 0.01
ANNOUNCE_S, RECORD_S = 60.0, 120.0
BACKOFF_S = 5.0  # libp2p at the client does not dial a peer again so soon after a dial that failed
STEP_TIMEOUT_S, SESSION_TIMEOUT_S = 300.0, 1800.0
# how long a resumed server goes on with what it had before it notices that the client is gone
ZOMBIE_S = 0.05

Action = Callable[["Server"], Any]


def run_block(block: int, state: np.ndarray, inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Outputs [batch, tokens, hidden] of one block, and its new state [batch, hidden]."""
    outputs = np.empty_like(inputs)
    for token in range(inputs.shape[1]):
        state = (1.9 * state + 3.1 * inputs[:, token] + 0.37 * (block + 1)) % 1.0
        outputs[:, token] = state
    return outputs, state


class Reference:
    """The same blocks in one place that never fails; it can take steps back."""

    def __init__(self, n_blocks: int, batch: int) -> None:
        self._before: list[tuple[int, list[np.ndarray]]] = []
        self._batch = batch
        self.position = 0
        self._states = [np.zeros((batch, HIDDEN)) for _ in range(n_blocks)]

    @property
    def n_steps(self) -> int:
        return len(self._before)

    def preview(
        self, inputs: np.ndarray, prompts: np.ndarray | None, hypo_ids: np.ndarray | None
    ) -> tuple[np.ndarray, list[np.ndarray]]:
        """Outputs of a step and the states after it, without taking it."""
        states, hidden = [], inputs
        for block, state in enumerate(self._states):
            hidden = hidden.copy()
            if prompts is not None:
                hidden[:, : prompts.shape[2]] += prompts[block]
            hidden, after = run_block(block, state if hypo_ids is None else state[hypo_ids], hidden)
            states.append(after)
        return hidden, states

    def commit(self, n_tokens: int, states: list[np.ndarray]) -> None:
        self._before.append((self.position, self._states))
        self.position += n_tokens
        self._states = states

    def position_of(self, n_steps: int) -> int:
        return self._before[n_steps][0] if n_steps < self.n_steps else self.position

    def rewind(self, n_steps: int) -> None:
        if n_steps < self.n_steps:
            self.position, self._states = self._before[n_steps]
            del self._before[n_steps:]


class PipeWriter:
    """The sending end of a pipe in memory, as much of asyncio's StreamWriter as is used."""

    def __init__(self, target: asyncio.StreamReader) -> None:
        self._target = target
        self.closed = False

    @property
    def transport(self) -> PipeWriter:
        return self

    def write(self, data: bytes | memoryview) -> None:
        if not self.closed:
            self._target.feed_data(bytes(data))

    async def drain(self) -> None:
        if self.closed:
            raise ConnectionResetError("the pipe is closed")

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._target.feed_eof()

    abort = close


@dataclass
class Connection:
    """One open stream, seen from both ends."""

    to_server: PipeWriter
    to_client: PipeWriter
    task: asyncio.Task[None]

    def cut(self) -> None:
        self.task.cancel()
        self.to_client.close()


class Server:
    """One server; all faults are plain method calls."""

    def __init__(self, swarm: FakeSwarm, name: str, span: Span) -> None:
        self.swarm, self.name, self.span = swarm, name, span
        self.peer_id = PeerID(b"\x12\x20" + hashlib.sha256(name.encode()).digest())
        self.alive, self.hung, self.stuck, self.busy = True, False, False, False
        self.slow_s = 0.0
        self.refusals: list[str] = []
        self.max_batch_tokens, self.max_length = 2048, 2048
        self.pushes: dict[str, asyncio.Queue[Message]] = {}
        self.n_caches = self.n_requests = 0
        self._connections: list[Connection] = []
        self._wake = asyncio.Event()
        self._dial_again_at_s = 0.0
        self._announced_at_s, self._announced = swarm.now_s, span

    def kill(self) -> None:
        """As SIGKILL of the whole process group."""
        self._announce_if_due()
        self.alive = self.hung = self.stuck = False
        self._cut_all()

    def restart(self, span: Span | None = None) -> None:
        """Come back with the same identity, perhaps with other blocks."""
        self.kill()
        self.alive, self.span = True, span or self.span
        self.announce()

    def move(self, span: Span) -> None:
        """Serve other blocks before the swarm has heard of it."""
        self._announce_if_due()
        self.span = span
        self._cut_all()

    def hang(self) -> None:
        """As SIGSTOP: streams stay open, nothing is answered, probes included."""
        self._announce_if_due()
        self.hung = self.alive

    def stick(self) -> None:
        """The runtime is stuck: requests are not answered, probes are."""
        self.stuck = self.alive

    def resume(self) -> None:
        self.hung = self.stuck = False
        self._wake.set()
        self._wake = asyncio.Event()

    def break_streams(self) -> None:
        """The connections end; the server lives."""
        self._cut_all()

    def announce(self) -> None:
        self._announced_at_s, self._announced = self.swarm.now_s, self.span

    def record(self) -> ServerRecord | None:
        """What the DHT has of this server now."""
        self._announce_if_due()
        expires_at_s = self._announced_at_s + RECORD_S
        if expires_at_s <= self.swarm.now_s:
            return None
        return ServerRecord(
            self.peer_id.to_base58(), self._announced, throughput_tps=100.0, expires_at_s=expires_at_s
        )

    def _announce_if_due(self) -> None:
        if self.alive and not self.hung and self.swarm.now_s - self._announced_at_s >= ANNOUNCE_S:
            self.announce()

    def _cut_all(self) -> None:
        for connection in self._connections:
            connection.cut()
        self._connections = []
        self.resume()

    async def accept(self) -> tuple[asyncio.StreamReader, PipeWriter]:
        """The client's ends of a new stream."""
        if self.swarm.now_s < self._dial_again_at_s:
            raise RuntimeError("failed to dial: all dials failed\n  * [/ip4/127.0.0.1/tcp/7] dial backoff")
        await self._unless(lambda: self.hung)
        if not self.alive:
            self._dial_again_at_s = self.swarm.now_s + BACKOFF_S
            raise RuntimeError(
                "failed to dial: all dials failed\n  * [/ip4/127.0.0.1/tcp/7] connection refused"
            )
        client_reader, server_reader = asyncio.StreamReader(), asyncio.StreamReader()
        to_server, to_client = PipeWriter(server_reader), PipeWriter(client_reader)
        task = asyncio.create_task(self._handle(server_reader, to_client))
        self._connections.append(Connection(to_server, to_client, task))
        self.swarm.track(self._connections[-1])
        return client_reader, to_server

    async def _unless(self, stopped: Callable[[], bool]) -> None:
        while stopped() and self.alive:
            await self._wake.wait()

    async def _running(self) -> None:
        await self._unless(lambda: self.hung or self.stuck)

    async def _handle(self, reader: asyncio.StreamReader, writer: PipeWriter) -> None:
        requests: asyncio.Queue[Message] = asyncio.Queue()
        processing = asyncio.create_task(self._answer(requests, writer))
        reading = asyncio.create_task(self._read(reader, requests))
        try:
            await asyncio.wait({processing, reading}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            processing.cancel()
            reading.cancel()
            writer.close()

    async def _read(self, reader: asyncio.StreamReader, requests: asyncio.Queue) -> None:
        while True:
            try:
                request, _ = await P2P.receive_protobuf(runtime_pb2.ExpertRequest, reader)
            except asyncio.IncompleteReadError:
                await self._unless(lambda: self.hung)
                await asyncio.sleep(ZOMBIE_S)
                return
            requests.put_nowait(request)

    async def _answer(self, requests: asyncio.Queue, writer: PipeWriter) -> None:
        try:
            await asyncio.wait_for(self._inference(requests, writer), SESSION_TIMEOUT_S)
        except Exception as error:  # noqa: BLE001 - the client is told, whatever it is
            with contextlib.suppress(ConnectionError):
                await _send(p2pd_pb2.RPCError(message=str(error)), writer)

    async def _inference(self, requests: asyncio.Queue, writer: PipeWriter) -> None:
        try:
            first = await asyncio.wait_for(requests.get(), STEP_TIMEOUT_S)
        except TimeoutError:
            return
        await self._running()
        blocks = self._blocks(first.uid)
        metadata: Any = MSGPackSerializer.loads(first.metadata)
        max_length = metadata.get("max_length")
        assert isinstance(max_length, int), f"metadata must contain int max_length, got {max_length}"
        if max_length > self.max_length:
            raise ValueError(f"Cannot allocate KV cache for {max_length} tokens, max = {self.max_length}")
        if self.busy:
            seconds = metadata.get("alloc_timeout", 0.0)
            await asyncio.sleep(seconds)
            raise RuntimeError(f"Could not allocate 12345 within {seconds} seconds")
        self.n_caches += 1
        session_id = metadata["session_id"]
        assert session_id not in self.pushes, f"session id {session_id} is not unique"
        pushed = self.pushes[session_id] = asyncio.Queue()
        try:
            cache = _Cache(self, blocks, max_length, metadata["args_structure"])
            await self._steps(first, requests, pushed, cache, writer)
        finally:
            del self.pushes[session_id]
            self.n_caches -= 1

    async def _steps(
        self,
        first: Message,
        requests: asyncio.Queue,
        pushed: asyncio.Queue,
        cache: _Cache,
        writer: PipeWriter,
    ) -> None:
        done: set[str] = set()
        request = first
        while request.tensors:
            metadata: Any = MSGPackSerializer.loads(request.metadata)
            if metadata["step_id"] not in done:
                done.add(metadata["step_id"])
                outputs = await self._compute(cache, request)
                if not cache.had_prompts:
                    self.swarm.push(first, outputs, metadata)
                await _send(runtime_pb2.ExpertResponse(tensors=[outputs]), writer)
            incoming = await _first_of(requests.get, pushed.get, timeout_s=STEP_TIMEOUT_S)
            if incoming is None:
                return
            request = incoming

    async def _compute(self, cache: _Cache, request: Message) -> Message:
        self.n_requests += 1
        self.swarm.moment(self)
        await self._running()
        seconds, self.slow_s = COMPUTE_S + self.slow_s, 0.0
        await asyncio.sleep(seconds)
        await self._running()
        if self.refusals:
            raise RuntimeError(self.refusals.pop(0))
        outputs = cache.step(request)
        self.swarm.moment(self)
        await self._running()
        return outputs

    def _blocks(self, uids: str) -> range:
        blocks = [int(uid.rpartition(".")[2]) for uid in uids.split()]
        for block in blocks:
            if block not in self.span:
                raise RuntimeError(f"Remote peer does not serve model.{block}")
        return range(blocks[0], blocks[-1] + 1)


class _Cache:
    """The attention caches of one stream."""

    def __init__(self, server: Server, blocks: range, max_length: int, structure: Any) -> None:
        self._server, self._blocks, self._max_length, self._structure = server, blocks, max_length, structure
        self._states: list[np.ndarray] | None = None
        self._length = 0
        self.had_prompts = False

    def step(self, request: Message) -> Message:
        tensors = [deserialize_torch_tensor(tensor) for tensor in request.tensors]
        (inputs, prompts, hypo_ids), _ = unpack_args_kwargs(tensors, self._structure)
        hidden, n_tokens = inputs.numpy(), inputs.shape[1]
        if self._length + n_tokens > self._max_length:
            raise ValueError(
                f"Maximum length exceeded: prefix {self._length} + current {n_tokens}"
                f" exceeds pre-allocated maximum {self._max_length}"
            )
        if hidden.shape[0] * n_tokens > self._server.max_batch_tokens:
            limit = self._server.max_batch_tokens
            raise ValueError(f"Task size greater than max_batch_size ({limit}), it can't be processed")
        self.had_prompts = prompts.numel() > 0
        if self.had_prompts and len(prompts) != len(self._blocks):
            raise ValueError(f"Received {len(prompts)} prompts for {len(self._blocks)} backends")
        if self._states is None:
            self._states = [np.zeros((hidden.shape[0], HIDDEN)) for _ in self._blocks]
        states = []
        for index, (block, state) in enumerate(zip(self._blocks, self._states, strict=True)):
            hidden = hidden.copy()
            if self.had_prompts:
                hidden[:, : prompts.shape[2]] += prompts[index].numpy()
            hidden, after = run_block(block, state[hypo_ids.numpy()] if hypo_ids.numel() else state, hidden)
            states.append(after)
        self._states, self._length = states, self._length + n_tokens
        return serialize_torch_tensor(torch.from_numpy(hidden))


async def _send(message: Message, writer: PipeWriter) -> None:
    await P2P.send_protobuf(message, cast(asyncio.StreamWriter, writer))


async def _first_of(*sources: Callable[[], Awaitable[Any]], timeout_s: float) -> Any:
    """What the first source brings; what others have ready as well stays with them."""
    tasks = [asyncio.ensure_future(source()) for source in sources]
    try:
        done, _ = await asyncio.wait(tasks, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        if not done:
            return None
        first = next(task for task in tasks if task in done)
        return first.result()
    finally:
        for task in tasks:
            task.cancel()


class FakeSwarm:
    """The servers, the DHT, and a plan of what happens when.

    *Moments* count what the client can see happen: a dial, a request that arrives, a request that is computed.
    Faults and interrupts are planned for the n-th moment from now, so that they hit any phase of a recovery.
    """

    def __init__(self, n_blocks: int, spans: list[Span]) -> None:
        self.n_blocks = n_blocks
        self.servers = [Server(self, f"server-{index}", span) for index, span in enumerate(spans)]
        self.dht_answers = True
        self.push_delays_s = [0.0]
        self.n_pushes = 0
        self._plan: dict[int, list[Action]] = {}
        self.n_moments = 0
        self._connections: list[Connection] = []
        self._pushing: set[asyncio.Task] = set()

    @property
    def now_s(self) -> float:
        return asyncio.get_running_loop().time()

    @property
    def n_open_streams(self) -> int:
        """Streams that the client has not let go of."""
        return sum(not connection.to_server.closed for connection in self._connections)

    @property
    def n_caches(self) -> int:
        return sum(server.n_caches for server in self.servers)

    def after(self, n_moments: int, action: Action) -> None:
        """Have ``action`` done to the server at which the n-th moment from now takes place."""
        self._plan.setdefault(self.n_moments + n_moments, []).append(action)

    def forget_plans(self) -> None:
        self._plan = {}

    def moment(self, server: Server) -> None:
        self.n_moments += 1
        for action in self._plan.pop(self.n_moments, []):
            action(server)

    def track(self, connection: Connection) -> None:
        self._connections.append(connection)

    def add(self, span: Span) -> Server:
        self.servers.append(Server(self, f"server-{len(self.servers)}", span))
        return self.servers[-1]

    def server_of(self, peer_id: PeerID) -> Server:
        return next(server for server in self.servers if server.peer_id == peer_id)

    def view(self) -> SwarmView:
        records = (server.record() for server in self.servers)
        return SwarmView(self.n_blocks, tuple(record for record in records if record is not None), self.now_s)

    def heal(self) -> None:
        """Everybody is back and well, and the swarm knows it."""
        self.forget_plans()
        self.dht_answers = True
        for server in self.servers:
            server.busy, server.slow_s, server.refusals = False, 0.0, []
            server.resume()
            if not server.alive:
                server.restart()
            server.announce()

    def push(self, first: Message, outputs: Message, metadata: dict) -> None:
        """What a server does with ``next_servers``: send its outputs on, some time.

        As petals' servers after 2.2.0, with the other tensors of the stream's first request.
        """
        if not metadata.get("next_servers"):
            return
        (peer, session_id, start, end), *rest = metadata["next_servers"]
        told = {**metadata, "session_id": session_id, "next_servers": rest, "pushed": True}
        message = runtime_pb2.ExpertRequest(
            uid=" ".join(f"model.{block}" for block in range(start, end)),
            tensors=[outputs, *first.tensors[1:]],
            metadata=MSGPackSerializer.dumps(told),
        )
        delay_s = self.push_delays_s[self.n_pushes % len(self.push_delays_s)]
        self.n_pushes += 1
        task = asyncio.create_task(self._deliver(PeerID.from_base58(peer), session_id, message, delay_s))
        self._pushing.add(task)
        task.add_done_callback(self._pushing.discard)

    async def _deliver(self, peer_id: PeerID, session_id: str, message: Message, delay_s: float) -> None:
        await asyncio.sleep(delay_s)
        queue = self.server_of(peer_id).pushes.get(session_id)
        if queue is not None:
            queue.put_nowait(message)

    async def call_binary_stream_handler(self, peer_id: PeerID, _name: str) -> tuple[None, Any, Any]:
        """The part of hivemind's P2P by which streams are opened."""
        server = self.server_of(peer_id)
        await asyncio.sleep(CONNECT_S)
        self.moment(server)
        return (None, *await server.accept())


def fake_router(swarm: FakeSwarm, settings: RecoverySettings, manager: Any = None) -> router.Router:
    """The client's own router over a fake swarm: only what goes over the network is replaced.

    :param manager: of the client's other sessions; None for a client of its own
    """

    class FakeViews(views.Views):
        async def _read(self) -> SwarmView:
            await asyncio.sleep(DHT_S if swarm.dht_answers else 1000.0)
            view = self.newest = replace(swarm.view(), seen_at_s=swarm.now_s)
            return view

    class FakeRouter(
        router.Router
    ):  # made here, so that a broken variant of the router is used where there is one
        async def probe(self, peer_id: PeerID) -> bool:
            self.look_for_others()
            server = swarm.server_of(peer_id)
            await asyncio.sleep(settings.probe_s if server.hung else PROBE_S)
            return server.alive and not server.hung

        async def compression(self, peer_id: PeerID, block: int) -> int:  # noqa: ARG002
            return runtime_pb2.CompressionType.NONE

        def _make_views(self, manager: Any, settings: RecoverySettings) -> views.Views:
            return FakeViews(manager, settings)

    of_client: Any = Manager(swarm) if manager is None else manager
    return FakeRouter(of_client, settings)


class Manager:
    """As much of petals' RemoteSequenceManager as the router uses."""

    def __init__(self, swarm: FakeSwarm) -> None:
        self.block_uids = [f"model.{block}" for block in range(swarm.n_blocks)]
        self.state = SimpleNamespace(p2p=swarm)
        self.allowed_servers = self.blocked_servers = None

    def __len__(self) -> int:
        return len(self.block_uids)

    def get_request_metadata(self, *_args: Any, **_kwargs: Any) -> dict:
        return {"points": 0}
