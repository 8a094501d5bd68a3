"""The client's picture of the swarm, over a DHT that is played."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import math
from types import SimpleNamespace
from typing import Any

import pytest

from swarmlab.bridge import compat

compat.apply()

from hivemind.p2p import PeerID  # noqa: E402
from hivemind.utils import MSGPackSerializer, get_dht_time  # noqa: E402
from petals.server.handler import TransformerConnectionHandler  # noqa: E402
from petals.utils.ping import ping_parallel  # noqa: E402

from swarmlab.bridge.inference import router as router_module  # noqa: E402
from swarmlab.bridge.inference import views as views_module  # noqa: E402
from swarmlab.bridge.inference.router import Router  # noqa: E402
from swarmlab.recovery.failure import Attempt, Cause, PeerFailed  # noqa: E402
from swarmlab.recovery.routing import Hop, Need, NoRoute  # noqa: E402
from swarmlab.recovery.settings import RecoverySettings  # noqa: E402
from swarmlab.types import Span  # noqa: E402
from tests.bridge import virtual_time  # noqa: E402

SETTINGS = RecoverySettings()
NEED = Need(replay_tokens=10, future_steps=10, cache_tokens=100)
WHOLE = Span(0, 2)
A, B, C = (PeerID(b"\x12\x20" + bytes([number]) * 32) for number in (1, 2, 3))
ONLINE = 2


class Dht:
    """Answers what the router asks of its DHT node."""

    def __init__(self) -> None:
        self.servers: dict[PeerID | str, float] = {}  # peer -> seconds until its record lapses
        self.rtt_s: dict[PeerID, float] = {}
        self.n_reads = 0
        self.pinged: list[list[PeerID]] = []
        self.error: Exception | None = None
        self.answers, self.pongs, self.delay_s = True, True, 0.0

    async def run_coroutine(self, question: Any, return_future: bool) -> Any:
        assert return_future
        if question.func is ping_parallel:
            (targets,) = question.args
            self.pinged.append(targets)
            if not self.pongs:
                await asyncio.Event().wait()
            return {peer: self.rtt_s.get(peer, math.inf) for peer in targets}
        self.n_reads += 1
        if self.error is not None:
            raise self.error
        if not self.answers:
            await asyncio.Event().wait()
        await asyncio.sleep(self.delay_s)
        return await question(None, self)

    async def get_many(self, keys: list[str], *_: Any, **__: Any) -> dict[str, Any]:
        details = {"start_block": 0, "end_block": len(keys)}
        value = {
            peer if isinstance(peer, str) else peer.to_base58(): SimpleNamespace(
                value=(ONLINE, 10.0, details), expiration_time=get_dht_time() + seconds
            )
            for peer, seconds in self.servers.items()
        }
        return {key: SimpleNamespace(value=value) for key in keys}


class Manager:
    """As much of petals' RemoteSequenceManager as the router uses."""

    def __init__(self, dht: Dht) -> None:
        self.dht = dht
        self.block_uids = ["tiny.0", "tiny.1"]
        self.allowed_servers: list[PeerID] | None = None
        self.blocked_servers: list[PeerID] | None = None
        self.state = SimpleNamespace(p2p=None)

    def __len__(self) -> int:
        return len(self.block_uids)

    def get_request_metadata(self, method: str, uids: str, peer_id: PeerID) -> dict | None:
        return {"asked": (method, uids, peer_id)}


class Fixture:
    def __init__(self) -> None:
        self.dht = Dht()
        self.manager = Manager(self.dht)
        manager: Any = self.manager
        self.router = Router(manager, SETTINGS)

    async def chosen(self, patience_s: float = 0.0) -> PeerID:
        """Who is to serve everything."""
        deadline_s = asyncio.get_running_loop().time() + patience_s
        (hop,) = await self.router.chain(WHOLE, NEED, deadline_s)
        return PeerID.from_base58(hop.peer_id)

    def blame(self, peer: PeerID, cause: Cause) -> Attempt:
        attempt = Attempt(peer.to_base58(), "0:2", cause, "")
        self.router.blame(attempt)
        return attempt


@pytest.fixture
def play():
    """Runs a coroutine function on a fixture, in virtual time."""

    def run(script: Any) -> None:
        with virtual_time.clock_of_the_loop(router_module, views_module):
            virtual_time.run(script(Fixture()))

    return run


def test_a_view_is_read_again_only_when_it_is_old(play):
    async def script(fixture: Fixture) -> None:
        fixture.dht.servers = {A: 1e6}
        for _ in range(3):
            assert await fixture.chosen() == A
        assert fixture.dht.n_reads == 1
        fixture.dht.servers = {B: 1e6}
        await asyncio.sleep(SETTINGS.view_max_age_s + 1)
        assert await fixture.chosen() == B
        assert fixture.dht.n_reads == 2

    play(script)


def test_while_steps_go_on_no_recovery_waits_for_a_view(play):
    async def script(fixture: Fixture) -> None:
        loop = asyncio.get_running_loop()
        fixture.dht.servers = {A: 1e6}
        await fixture.chosen()
        fixture.dht.delay_s = 3.0
        for second in range(200):
            fixture.router.keep_fresh()  # as after every step
            await asyncio.sleep(1)
            before_s = loop.time()
            assert await fixture.chosen() == A
            assert loop.time() == before_s, f"it waited after {second} s"
        assert fixture.dht.n_reads <= 2 + 200 / SETTINGS.view_age_s

    play(script)


def test_the_return_of_a_server_that_is_avoided_is_known_before_it_is_needed(play):
    async def script(fixture: Fixture) -> None:
        loop = asyncio.get_running_loop()
        fixture.dht.servers = {A: 1e6, B: 1e6}
        first = await fixture.chosen()
        fixture.blame(first, Cause.BROKEN)
        second = await fixture.chosen()
        fixture.dht.servers[first] = 2e6  # it is back, and says so
        fixture.dht.delay_s = 0.2
        for _ in range(8):
            fixture.router.keep_fresh()
            await asyncio.sleep(1)
        assert fixture.dht.n_reads == 2, "nobody is avoided any more"
        fixture.blame(second, Cause.BROKEN)
        before_s = loop.time()
        assert await fixture.chosen() == first
        assert loop.time() == before_s

    play(script)


def test_a_view_that_cannot_be_renewed_stays(play):
    async def script(fixture: Fixture) -> None:
        fixture.dht.servers = {A: 1e6}
        await fixture.chosen()
        fixture.dht.error = RuntimeError("the DHT is ill")
        await asyncio.sleep(SETTINGS.view_age_s + 1)
        fixture.router.keep_fresh()
        await asyncio.sleep(1)
        assert await fixture.chosen() == A

    play(script)


def test_a_new_session_begins_with_what_another_of_the_client_knows(play):
    async def script(fixture: Fixture) -> None:
        fixture.dht.servers, fixture.dht.rtt_s = {A: 1e6, B: 1e6}, {A: 0.5, B: 0.1}
        await fixture.chosen()
        await asyncio.sleep(1)  # for the pings
        fixture.dht.answers = False  # as when one of its nodes hangs
        before_s = asyncio.get_running_loop().time()
        fixture.router = Router(fixture.manager, SETTINGS)  # pyright: ignore[reportArgumentType]
        assert await fixture.chosen() == B
        assert asyncio.get_running_loop().time() == before_s

    play(script)


def test_sessions_of_one_client_share_reads_and_views(play):
    async def script(fixture: Fixture) -> None:
        manager: Any = fixture.manager
        dht: Any = fixture.dht
        dht.servers, dht.delay_s = {A: 1e6}, 1.0
        other = Router(manager, SETTINGS)
        asked = [fixture.chosen(), other.chain(WHOLE, NEED, 0.0)]
        await asyncio.gather(*asked)
        assert fixture.dht.n_reads == 1
        await asyncio.sleep(SETTINGS.view_age_s + 1)
        for router in (fixture.router, other):
            router.keep_fresh()
        await asyncio.sleep(2)
        assert fixture.dht.n_reads == 2
        assert other.view is fixture.router.view

    play(script)


def test_another_client_begins_with_nothing(play):
    async def script(fixture: Fixture) -> None:
        fixture.dht.servers = {A: 1e6}
        await fixture.chosen()
        other: Any = Manager(fixture.dht)
        assert Router(other, SETTINGS).view is None

    play(script)


def test_an_old_view_is_not_kept_waiting_for_by_a_dht_that_hangs(play):
    async def script(fixture: Fixture) -> None:
        loop = asyncio.get_running_loop()
        fixture.dht.servers = {A: 1e6}
        await fixture.chosen()
        await asyncio.sleep(SETTINGS.view_max_age_s + 1)
        fixture.dht.answers, before_s = False, loop.time()
        assert await fixture.chosen() == A
        assert loop.time() - before_s == pytest.approx(SETTINGS.renew_view_s)
        assert SETTINGS.renew_view_s < SETTINGS.read_view_s

    play(script)


def test_an_old_view_without_a_route_is_read_again_with_patience(play):
    async def script(fixture: Fixture) -> None:
        fixture.dht.servers = {A: 1e6}
        await fixture.chosen()
        await asyncio.sleep(SETTINGS.view_max_age_s + 1)
        fixture.dht.servers = {B: 1e6}
        fixture.dht.delay_s = 3.0
        fixture.blame(A, Cause.BROKEN)
        assert await fixture.chosen(60.0) == B

    play(script)


def test_petals_lists_of_allowed_and_blocked_servers_hold(play):
    async def script(fixture: Fixture) -> None:
        fixture.dht.servers = {A: 1e6, B: 1e6, C: 1e6}
        fixture.manager.allowed_servers, fixture.manager.blocked_servers = [A, B], [A]
        assert await fixture.chosen() == B
        view = fixture.router.view
        assert view is not None
        assert [record.peer_id for record in view.servers] == [B.to_base58()]

    play(script)


def test_records_of_peers_that_cannot_exist_are_ignored(play):
    async def script(fixture: Fixture) -> None:
        fixture.dht.servers = {"0 is not base58": 1e6, "": 1e6, A: 1e6}
        assert await fixture.chosen() == A

    play(script)


def test_an_old_view_is_used_when_the_dht_fails(play):
    async def script(fixture: Fixture) -> None:
        fixture.dht.servers = {A: 1e6}
        await fixture.chosen()
        fixture.dht.error = RuntimeError("the DHT is ill")
        await asyncio.sleep(SETTINGS.view_max_age_s + 1)
        assert await fixture.chosen() == A
        assert fixture.dht.n_reads == 2

    play(script)


@pytest.mark.parametrize("error", [RuntimeError("the DHT is ill"), None])
def test_without_any_view_there_is_no_route_and_the_wait_is_bounded(play, error):
    async def script(fixture: Fixture) -> None:
        fixture.dht.error, fixture.dht.answers = error, False
        began_s = asyncio.get_running_loop().time()
        with pytest.raises(NoRoute) as caught:
            await fixture.chosen(30.0)
        assert caught.value.missing == (0, 1)
        took_s = asyncio.get_running_loop().time() - began_s
        assert 20.0 <= took_s <= 30.0 + SETTINGS.read_view_s

    play(script)


def test_a_read_that_is_never_answered_is_given_up_for_another(play):
    async def script(fixture: Fixture) -> None:
        fixture.dht.servers = {A: 1e6}
        fixture.dht.answers = False
        asyncio.get_running_loop().call_later(1.0, lambda: setattr(fixture.dht, "answers", True))
        assert await fixture.chosen(60.0) == A
        assert fixture.dht.n_reads == 2

    play(script)


def test_it_waits_for_a_server_to_appear(play):
    async def script(fixture: Fixture) -> None:
        asyncio.get_running_loop().call_later(20.0, lambda: fixture.dht.servers.update({A: 1e6}))
        began_s = asyncio.get_running_loop().time()
        assert await fixture.chosen(60.0) == A
        assert asyncio.get_running_loop().time() - began_s <= 20.0 + SETTINGS.retry_max_s

    play(script)


@pytest.mark.parametrize(
    "cause",
    [
        Cause.BROKEN,
        Cause.UNREACHABLE,
        Cause.HUNG,
        Cause.STUCK,
        Cause.REFUSED,
        Cause.BUSY,
        Cause.BACKOFF,
        Cause.STALE,
        Cause.UNABLE,
    ],
)
def test_who_failed_is_avoided(play, cause):
    async def script(fixture: Fixture) -> None:
        fixture.dht.servers = {A: 1e6, B: 1e6}
        first = await fixture.chosen()
        fixture.blame(first, cause)
        assert await fixture.chosen() != first

    play(script)


def test_who_was_renewed_is_not(play):
    async def script(fixture: Fixture) -> None:
        fixture.dht.servers = {A: 1e6, B: 1e6}
        first = await fixture.chosen()
        fixture.blame(first, Cause.RENEWED)
        assert await fixture.chosen() == first

    play(script)


def test_the_last_holder_is_tried_again_when_its_ban_is_over(play):
    async def script(fixture: Fixture) -> None:
        fixture.dht.servers = {A: 1e6}
        await fixture.chosen()
        fixture.dht.servers = {A: 0.5e6}  # an older record: no sign of life
        fixture.blame(A, Cause.BROKEN)
        began_s = asyncio.get_running_loop().time()
        assert await fixture.chosen(60.0) == A
        assert asyncio.get_running_loop().time() - began_s >= SETTINGS.ban_s

    play(script)


def test_the_last_holder_is_used_at_once_if_it_only_forgot_the_session(play):
    async def script(fixture: Fixture) -> None:
        fixture.dht.servers = {A: 1e6}
        await fixture.chosen()
        fixture.dht.servers = {A: 0.5e6}  # an older record: no sign of life
        fixture.blame(A, Cause.RESET)
        began_s = asyncio.get_running_loop().time()
        assert await fixture.chosen(60.0) == A
        assert asyncio.get_running_loop().time() - began_s < SETTINGS.retry_s

    play(script)


def test_another_holder_is_preferred_to_one_that_forgot_the_session(play):
    async def script(fixture: Fixture) -> None:
        fixture.dht.servers = {A: 1e6, B: 1e6}
        first = await fixture.chosen()
        fixture.blame(first, Cause.RESET)
        assert await fixture.chosen() != first

    play(script)


def test_a_failure_told_twice_counts_once(play):
    async def script(fixture: Fixture) -> None:
        fixture.dht.servers = {A: 1e6}
        await fixture.chosen()
        attempt = fixture.blame(A, Cause.BROKEN)
        for _ in range(5):  # by the span that broke, by a repair, by the step ...
            fixture.router.blame(attempt)
        began_s = asyncio.get_running_loop().time()
        fixture.dht.servers = {A: 0.5e6}  # an older record: no sign of life
        assert await fixture.chosen(60.0) == A
        assert asyncio.get_running_loop().time() - began_s <= SETTINGS.ban_s + SETTINGS.retry_max_s

    play(script)


def test_a_dht_that_is_slow_does_not_keep_anybody_from_a_server_whose_ban_is_over(play):
    async def script(fixture: Fixture) -> None:
        loop = asyncio.get_running_loop()
        fixture.dht.servers = {A: 1e6}
        await fixture.chosen()
        fixture.dht.servers = {A: 0.5e6}  # an older record: no sign of life
        fixture.blame(A, Cause.BROKEN)
        await asyncio.sleep(SETTINGS.ban_s - 1)
        fixture.dht.answers = False
        before_s = loop.time()
        assert await fixture.chosen(60.0) == A
        assert loop.time() - before_s < 1 + SETTINGS.retry_max_s
        assert SETTINGS.read_view_s > 1 + SETTINGS.retry_max_s - 1  # as long as the read alone may take

    play(script)


def test_a_dial_is_given_more_time_after_each_failure_and_none_for_who_answered_no_ping(play):
    async def script(fixture: Fixture) -> None:
        fixture.dht.servers, fixture.dht.rtt_s = {A: 1e6, B: 1e6}, {A: 0.1, B: math.inf}
        await fixture.chosen()
        await asyncio.sleep(1)
        to_a, to_b = (Hop(peer.to_base58(), WHOLE) for peer in (A, B))
        assert fixture.router.dial_patience_s(to_a) == pytest.approx(1.0)
        assert fixture.router.dial_patience_s(to_b) == SETTINGS.hedge_s
        for doubled_s in (2.0, 4.0, 8.0, SETTINGS.connect_s):
            await asyncio.sleep(1)
            fixture.router.blame(Attempt(A.to_base58(), "0:2", Cause.UNREACHABLE, f"{doubled_s}"))
            assert fixture.router.dial_patience_s(to_a) == pytest.approx(doubled_s)
        assert fixture.router.dial_patience_s(to_b) == SETTINGS.connect_s, "nobody else is left"

    play(script)


def test_praise_and_pardon_end_a_ban(play):
    async def script(fixture: Fixture) -> None:
        fixture.dht.servers = {A: 1e6, B: 1e6}
        first = await fixture.chosen()
        fixture.blame(first, Cause.BROKEN)
        fixture.router.praise(first.to_base58(), asyncio.get_running_loop().time())
        assert await fixture.chosen() == first
        fixture.blame(first, Cause.REFUSED)
        fixture.router.pardon({first.to_base58()})
        assert await fixture.chosen() == first

    play(script)


def test_when_nobody_can_ever_help_it_says_so_at_once(play):
    async def script(fixture: Fixture) -> None:
        fixture.dht.servers = {A: 1e6, B: 1e6}
        await fixture.chosen()
        fixture.blame(A, Cause.UNABLE)
        fixture.blame(B, Cause.UNABLE)
        began_s = asyncio.get_running_loop().time()
        with pytest.raises(NoRoute) as caught:
            await fixture.chosen(100.0)
        assert set(caught.value.avoided) == {A.to_base58(), B.to_base58()}
        assert asyncio.get_running_loop().time() - began_s < 1.0

    play(script)


def test_near_servers_are_preferred_and_unreachable_ones_pinged_again(play):
    async def script(fixture: Fixture) -> None:
        fixture.dht.servers = {A: 1e6, B: 1e6}
        fixture.dht.rtt_s = {A: math.inf, B: 0.5}
        await fixture.chosen()
        await asyncio.sleep(1.0)
        assert await fixture.chosen() == B
        fixture.dht.rtt_s = {A: 0.001, B: 0.5}
        await asyncio.sleep(SETTINGS.view_max_age_s + 1)
        await fixture.chosen()
        await asyncio.sleep(1.0)
        assert await fixture.chosen() == A
        assert set(fixture.dht.pinged[0]) == {A, B}
        assert fixture.dht.pinged[1:] == [[A]]

    play(script)


def test_a_ping_that_is_never_answered_does_not_end_all_later_ones(play, caplog):
    async def script(fixture: Fixture) -> None:
        fixture.dht.servers = {A: 1e6, B: 1e6}
        fixture.dht.pongs = False
        await fixture.chosen()
        await asyncio.sleep(SETTINGS.view_max_age_s + 1)
        fixture.dht.pongs, fixture.dht.rtt_s = True, {A: 0.5, B: 0.001}
        await fixture.chosen()
        await asyncio.sleep(1.0)
        assert len(fixture.dht.pinged) == 2
        assert await fixture.chosen() == B

    play(script)
    gc.collect()
    assert "never retrieved" not in caplog.text


class Stub:
    """A server's unary calls.

    :param answer: an error is raised; None is a server that never answers
    """

    def __init__(self, answer: Any) -> None:
        self._answer = answer
        self.asked: list[str] = []

    async def rpc_info(self, request: Any, timeout: float | None = None) -> Any:  # noqa: ASYNC109 - hivemind's
        self.asked.append(request.uid)
        if self._answer is None:
            await asyncio.wait_for(asyncio.Event().wait(), timeout)
        if isinstance(self._answer, Exception):
            raise self._answer
        return SimpleNamespace(serialized_info=MSGPackSerializer.dumps(self._answer))


@pytest.fixture
def stub(monkeypatch):
    def install(answer: Any) -> Stub:
        made = Stub(answer)
        monkeypatch.setattr(TransformerConnectionHandler, "get_stub", lambda *_: made)
        return made

    return install


async def seconds_of(question: Any) -> float:
    """How long until it is given up."""
    began_s = asyncio.get_running_loop().time()
    with contextlib.suppress(PeerFailed):
        await question
    return asyncio.get_running_loop().time() - began_s


def test_a_server_has_more_time_for_small_questions_after_each_failure(play, stub):
    stub(None)

    async def script(fixture: Fixture) -> None:
        router = fixture.router
        for times in (1, 2, 4, 8):
            assert await seconds_of(router.probe(A)) == pytest.approx(times * SETTINGS.probe_s)
            asked_s = min(times * SETTINGS.first_reply_s, SETTINGS.hard_floor_s)
            assert await seconds_of(router.compression(A, 1)) == pytest.approx(asked_s)
            fixture.blame(A, Cause.HUNG)
        assert await seconds_of(router.probe(B)) == pytest.approx(SETTINGS.probe_s)
        for _ in range(100):
            fixture.blame(A, Cause.HUNG)
        assert await seconds_of(router.probe(A)) == pytest.approx(SETTINGS.hard_floor_s)
        router.praise(A.to_base58(), asyncio.get_running_loop().time())
        assert await seconds_of(router.probe(A)) == pytest.approx(SETTINGS.probe_s)

    play(script)


@pytest.mark.parametrize(
    ("answer", "alive"), [({}, True), (TimeoutError(), False), (ConnectionError(), False)]
)
def test_a_probe_is_any_answer(play, stub, answer, alive):
    stub(answer)

    async def script(fixture: Fixture) -> None:
        assert await fixture.router.probe(A) is alive

    play(script)


def test_the_compression_is_asked_once(play, stub):
    schema = [[SimpleNamespace(compression=2).__dict__]]
    made = stub({"inference_schema": schema})

    async def script(fixture: Fixture) -> None:
        monkey: Any = {"inference_schema": [[SimpleNamespace(compression=2)]]}
        made._answer = monkey
        other = Router(fixture.manager, SETTINGS)  # pyright: ignore[reportArgumentType]
        for router in (fixture.router, other):  # two sessions of a client
            assert await router.compression(A, 1) == 2
        assert made.asked == ["tiny.1"]

    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(MSGPackSerializer, "dumps", lambda info: info)
        patches.setattr(MSGPackSerializer, "loads", lambda info: info)
        play(script)


@pytest.mark.parametrize("answer", [TimeoutError(), {}, {"inference_schema": []}, ["not", "a", "dict"]])
def test_who_cannot_say_its_compression_has_failed(play, stub, answer):
    stub(answer)

    async def script(fixture: Fixture) -> None:
        with pytest.raises(PeerFailed) as caught:
            await fixture.router.compression(A, 1)
        assert caught.value.attempt.cause is Cause.UNREACHABLE
        assert caught.value.attempt.peer_id == A.to_base58()

    play(script)


def test_names_and_metadata_of_a_request(play):
    async def script(fixture: Fixture) -> None:
        assert fixture.router.n_blocks == 2
        assert fixture.router.uids(WHOLE) == "tiny.0 tiny.1"
        assert fixture.router.request_metadata(Span(1, 2), A) == {"asked": ("rpc_inference", "tiny.1", A)}

    play(script)
