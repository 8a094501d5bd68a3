"""What our server says of itself, with a stand-in for the DHT that keeps what hivemind would keep."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from swarmlab.bridge import compat

compat.apply()

from hivemind.p2p import PeerID  # noqa: E402
from hivemind.utils import get_dht_time  # noqa: E402
from petals.data_structures import ModelInfo, ServerInfo  # noqa: E402
from petals.data_structures import ServerState as PetalsState  # noqa: E402

from swarmlab.bridge.serving.announcer import Announcer, Statement  # noqa: E402
from swarmlab.bridge.snapshot import RawRecord, view_from_records  # noqa: E402
from swarmlab.types import Intent, ServerState, Span  # noqa: E402


class FakeDht:
    """Stores as hivemind does: a record goes in if it lives longer than the one that is there."""

    num_workers = 4

    def __init__(self):
        self.peer_id = PeerID(b"me")
        self.records: dict[tuple[str, str], tuple[Any, float]] = {}
        self.order: list[tuple[str, int]] = []
        self.deaf = False

    def run_coroutine(self, coro, return_future=False):
        assert not return_future
        if self.deaf:
            raise TimeoutError
        return asyncio.run(coro(None, self))

    async def store_many(self, keys, values, expiration_time, subkeys, num_workers):
        assert num_workers == len(keys)
        done = {}
        for key, value, subkey in zip(keys, values, subkeys, strict=True):
            known = self.records.get((key, subkey))
            done[key] = known is None or expiration_time > known[1]
            if done[key]:
                self.records[key, subkey] = (value, expiration_time)
                self.order.append((key, value[0] if isinstance(value, tuple) else -1))
        return done

    def view(self):
        raw = [
            RawRecord(int(key.split(".")[1]), subkey, value, expires)
            for (key, subkey), (value, expires) in self.records.items()
            if key.startswith("m.")
        ]
        return view_from_records(raw, 16, get_dht_time())[0]

    def me(self):
        return self.view().get(self.peer_id.to_base58())


def made(dht, online=None, wants=(0, 4), expiration=30.0):
    info = ServerInfo(PetalsState.JOINING, 10.0, torch_dtype="float32")
    config = SimpleNamespace(hidden_size=64, num_key_value_groups=1, num_hidden_layers=16)
    server = SimpleNamespace(
        block_config=config, dht_prefix="m", server_info=info, model_info=ModelInfo(num_blocks=16),
        update_period=10.0, expiration=expiration,
    )  # fmt: skip
    cache = SimpleNamespace(bytes_left=1024)
    intent = None if wants is None else Intent(Span(*wants), get_dht_time())
    return Announcer(server, dht, cache, Statement(online, intent))


def going(start, end):
    return Intent(Span(start, end), get_dht_time())


@pytest.fixture
def dht():
    return FakeDht()


def test_a_server_that_joins_is_joining_and_then_online(dht):
    announcer = made(dht)
    announcer.say(Statement(None, going(0, 4)))
    assert (dht.me().span, dht.me().state, dht.me().intent) == (Span(0, 4), ServerState.JOINING, None)
    assert announcer.say(Statement(Span(0, 4)))
    assert (dht.me().span, dht.me().state) == (Span(0, 4), ServerState.ONLINE)
    assert dht.me().cache_tokens_left == 1024 // (64 * 4)


@pytest.mark.parametrize("target", [(2, 6), (8, 12)])
def test_a_move_is_an_intent_then_the_new_span_and_never_both(dht, target):
    announcer = made(dht)
    announcer.say(Statement(Span(0, 4)))
    announcer.say(Statement(Span(0, 4), going(*target)))
    assert (dht.me().span, dht.me().state) == (Span(0, 4), ServerState.ONLINE)
    assert dht.me().intent.span == Span(*target)
    announcer.say(Statement(Span(*target)))
    assert (dht.me().span, dht.me().intent) == (Span(*target), None)
    online = {key for (key, _), (value, _) in dht.records.items() if value[0] == PetalsState.ONLINE.value}
    assert online == {f"m.{block}" for block in range(*target)}


def test_what_is_left_is_offline_before_anything_else_is_online(dht):
    announcer = made(dht)
    announcer.say(Statement(Span(0, 4)))
    dht.order.clear()
    announcer.say(Statement(Span(8, 12)))
    states = [state for _, state in dht.order]
    assert states == [0] * 4 + [2] * 4


def test_an_intent_that_is_withdrawn_is_gone_for_all(dht):
    announcer = made(dht)
    announcer.say(Statement(Span(0, 4), going(2, 6)))
    announcer.say(Statement(Span(0, 4)))
    assert (dht.me().span, dht.me().intent) == (Span(0, 4), None)
    assert dht.records["m.5", dht.peer_id.to_base58()][0][0] == PetalsState.OFFLINE.value


def test_a_dht_that_does_not_answer_is_no_error_and_is_told_the_next_time(dht):
    announcer = made(dht)
    announcer.say(Statement(Span(0, 4)))
    dht.deaf = True
    assert not announcer.say(Statement(Span(2, 6)))
    dht.deaf = False
    assert announcer.say(Statement(Span(2, 6)))
    assert dht.me().span == Span(2, 6)
    assert dht.records["m.0", dht.peer_id.to_base58()][0][0] == PetalsState.OFFLINE.value


def test_blocks_left_are_said_to_be_offline_until_their_old_record_has_lapsed(dht):
    announcer = made(dht, expiration=0.2)
    announcer.say(Statement(Span(0, 4)))
    until_s = get_dht_time() + 0.2
    while get_dht_time() < until_s:
        announcer.say(Statement(Span(2, 6)))
    dht.order.clear()
    announcer.say(Statement(Span(2, 6)))
    assert {key for key, _ in dht.order} == {"m.2", "m.3", "m.4", "m.5"}


def test_a_server_that_has_said_goodbye_says_nothing_more(dht):
    announcer = made(dht)
    announcer.say(Statement(Span(0, 4), going(2, 6)))
    announcer.go_offline()
    assert dht.me().state is ServerState.OFFLINE
    announcer.say(Statement(Span(0, 4)))
    assert dht.me().state is ServerState.OFFLINE


def test_a_server_without_any_blocks_has_nothing_to_say(dht):
    with pytest.raises(ValueError, match="nothing to say"):
        made(dht, online=None, wants=None)


def test_while_it_cannot_serve_it_is_joining_where_it_was_whatever_else_is_said(dht):
    announcer = made(dht)
    announcer.say(Statement(Span(0, 4)))
    announcer.serving = False
    announcer.say_again()
    assert (dht.me().span, dht.me().state, dht.me().intent) == (Span(0, 4), ServerState.JOINING, None)
    move = going(2, 6)
    announcer.say(Statement(Span(0, 4), move))
    assert (dht.me().span, dht.me().state) == (Span(0, 4), ServerState.JOINING)
    announcer.serving = True
    announcer.say_again()
    assert (dht.me().span, dht.me().state, dht.me().intent) == (Span(0, 4), ServerState.ONLINE, move)


def test_one_that_ends_while_it_cannot_serve_is_offline_and_says_no_more(dht):
    announcer = made(dht)
    announcer.say(Statement(Span(0, 4)))
    announcer.serving = False
    announcer.say_again()
    announcer.go_offline()
    announcer.serving = True
    assert announcer.say_again()
    assert dht.me().state is ServerState.OFFLINE
