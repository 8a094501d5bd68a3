"""Records of the DHT become a view, whatever they say."""

from __future__ import annotations

import asyncio
import math
import pickle
from functools import partial
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarmlab.bridge import compat

compat.apply()

from swarmlab.bridge import snapshot  # noqa: E402
from swarmlab.bridge.snapshot import RawRecord, view_from_records  # noqa: E402
from swarmlab.swarm.bootstrap import view_from_json  # noqa: E402
from swarmlab.types import MAX_THROUGHPUT_TPS, Intent, ServerState, Span  # noqa: E402

NOW = 1000.0
JOINING, ONLINE = 1, 2


def announce(peer, blocks, expires=NOW + 30, state=ONLINE, tps=10.0, **details):
    """What petals writes for a server that holds ``blocks``."""
    blocks = list(blocks)
    details = {"start_block": min(blocks), "end_block": max(blocks) + 1, **details}
    return [RawRecord(block, peer, (state, tps, details), expires) for block in blocks]


def spans(records, n_blocks=16):
    view, _ = view_from_records(records, n_blocks, NOW)
    return {record.peer_id: record.span for record in view.servers}


def test_an_announcement_becomes_a_record():
    details = {"inference_rps": 55.5, "cache_tokens_left": 4096, "next_pings": {"b": 0.25, "dead": math.inf}}
    view, problems = view_from_records(announce("a", range(3, 7), **details), 16, NOW)
    (record,) = view.servers
    assert (record.peer_id, record.span, record.state) == ("a", Span(3, 7), ServerState.ONLINE)
    assert (record.throughput_tps, record.inference_tps, record.cache_tokens_left) == (10.0, 55.5, 4096)
    assert dict(record.next_pings_s) == {"b": 0.25}
    assert record.expires_at_s == NOW + 30
    assert not problems
    assert view.seen_at_s == NOW


def test_old_records_of_a_peer_that_moved_are_not_joined_to_the_new_ones():
    moved = announce("a", range(4, 8), NOW + 10) + announce("a", range(12, 16), NOW + 30)
    assert spans(moved) == spans(moved[::-1]) == {"a": Span(12, 16)}


def test_a_hole_inside_the_stated_span_is_a_lost_record():
    records = [record for record in announce("a", range(2, 8)) if record.block not in (4, 5)]
    assert spans(records) == {"a": Span(2, 8)}


def test_even_one_record_left_tells_the_whole_span():
    assert spans(announce("a", range(2, 8))[-1:]) == {"a": Span(2, 8)}


def test_without_a_stated_span_the_blocks_of_the_newest_announcement_are_joined():
    def bare(peer, block, expires):
        return RawRecord(block, peer, (ONLINE, 5.0), expires)

    old = [bare("a", block, NOW + 5) for block in (0, 1)]
    new = [bare("a", block, NOW + 9) for block in (6, 8)]
    assert spans(old + new) == {"a": Span(6, 9)}


def test_the_newest_state_counts_even_if_it_is_offline():
    records = announce("a", range(4), NOW + 10) + announce("a", range(4), NOW + 20, state=0)
    view, _ = view_from_records(records, 4, NOW)
    assert view.servers[0].state is ServerState.OFFLINE
    assert view.serving() == ()
    assert view.uncovered() == (0, 1, 2, 3)


def test_expired_records_are_gone():
    assert spans(announce("a", range(4), NOW) + announce("b", range(4), NOW + 0.1)) == {"b": Span(0, 4)}


def test_a_boast_is_cut_and_told():
    view, problems = view_from_records(announce("a", [0], tps=1e300), 1, NOW)
    assert view.servers[0].throughput_tps == MAX_THROUGHPUT_TPS
    assert len(problems) == 1


@pytest.mark.parametrize(
    "value",
    [
        None, 7, "online", (), (ONLINE,), (9, 1.0), (ONLINE, None), (ONLINE, -1.0), (ONLINE, math.nan),
        (ONLINE, math.inf), (ONLINE, "5"), (True, 1.0), ([], 1.0), (ONLINE, 10**400),
    ],
)  # fmt: skip
def test_a_senseless_record_is_skipped_and_told(value):
    good = announce("good", range(2))
    view, problems = view_from_records([RawRecord(0, "bad", value, NOW + 99), *good], 2, NOW)
    assert [record.peer_id for record in view.servers] == ["good"]
    assert len(problems) == 1
    assert "bad" in problems[0]


@pytest.mark.parametrize("stated", [(5, 3), (0, 99), (3, 4), ("0", "2"), (None, 2), (-1, 2), (True, 2)])
def test_a_senseless_span_counts_as_none_stated(stated):
    record = RawRecord(0, "a", (ONLINE, 1.0, {"start_block": stated[0], "end_block": stated[1]}), NOW + 1)
    assert spans([record], n_blocks=4) == {"a": Span(0, 1)}


def moving(peer="a", serves=(0, 4), wants=(2, 6), since=NOW - 5, expires=NOW + 30):
    """What our server writes that serves one span and is going to another, and an old block of it that is offline."""
    said = snapshot.move_to_details(Span(*serves), Span(*wants), since)
    new = [block for block in range(*wants) if block not in range(*serves)]
    joining = [
        RawRecord(
            block, peer, (JOINING, 10.0, {"start_block": wants[0], "end_block": wants[1], **said}), expires
        )
        for block in new
    ]
    left = RawRecord(9, peer, (0, 10.0, {}), expires)
    return [left, *joining, *announce(peer, range(*serves), expires, **said)]


def test_a_server_that_prepares_a_move_is_online_where_it_serves_and_has_an_intent():
    view, problems = view_from_records(moving(), 16, NOW)
    (record,) = view.servers
    assert (record.span, record.state) == (Span(0, 4), ServerState.ONLINE)
    assert record.intent == Intent(Span(2, 6), NOW - 5)
    assert not problems


@given(st.permutations(moving()), st.integers(1, 7))
def test_any_record_of_it_but_the_offline_one_tells_all(records, n_lost):
    left = [record for record in records[n_lost - 1 :] if record.value[0]]
    if left:
        view, _ = view_from_records(left, 16, NOW)
        assert view.servers[0].span == Span(0, 4)
        assert view.servers[0].intent == Intent(Span(2, 6), NOW - 5)


@pytest.mark.parametrize(
    "wrong",
    [
        {"wants": (0, 4)}, {"wants": (12, 20)}, {"since": math.nan}, {"since": math.inf}, {"since": "now"},
        {"since": NOW + 60}, {"since": NOW - 10_000}, {"since": True},
    ],
)  # fmt: skip
def test_a_senseless_intent_is_none(wrong):
    view, _ = view_from_records(moving(**wrong), 16, NOW)
    assert view.servers[0].intent is None
    assert view.servers[0].span == Span(0, 4)


def test_an_intent_that_is_withdrawn_or_lapsed_is_gone():
    later = moving(expires=NOW + 20) + announce("a", range(4), NOW + 30)
    assert view_from_records(later, 16, NOW)[0].servers[0].intent is None
    gone = moving() + announce("a", range(4), NOW + 40, state=0)
    assert view_from_records(gone, 16, NOW)[0].servers[0].intent is None


def test_petals_sees_a_server_that_prepares_a_move_where_it_serves():
    """Neither a client (ONLINE only) nor a server (JOINING too) takes the blocks that it loads for served."""
    from hivemind.p2p import PeerID
    from petals.data_structures import RemoteModuleInfo, ServerInfo
    from petals.data_structures import ServerState as PetalsState
    from petals.utils.dht import compute_spans

    for serves, wants in (((0, 4), (2, 6)), ((4, 8), (2, 6)), ((4, 8), (9, 13))):
        infos = [RemoteModuleInfo(f"m.{block}", {}) for block in range(16)]
        peer = PeerID(b"peer")
        for record in moving(serves=serves, wants=wants):
            infos[record.block].servers[peer] = ServerInfo.from_tuple(record.value)
        for state in (PetalsState.JOINING, PetalsState.ONLINE):
            span = compute_spans(infos, min_state=state)[peer]
            assert (span.start, span.end) == serves


scalars = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.binary(max_size=5)
)
anything = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12) | st.integers(), inner, max_size=4)
    ),
    max_leaves=8,
)
details = st.fixed_dictionaries(
    {},
    optional=dict.fromkeys(
        ("start_block", "end_block", "inference_rps", "cache_tokens_left", "next_pings", "adapters"), anything
    )
    | {
        snapshot.MOVE_KEY: anything
        | st.fixed_dictionaries(
            {
                "serves": anything | st.tuples(st.integers(-1, 6), st.integers(0, 7)),
                "wants": anything | st.tuples(st.integers(-1, 6), st.integers(0, 7)),
                "since_s": anything | st.floats(NOW - 20, NOW + 20),
            }
        )
    },
)
petals_like = st.tuples(
    st.integers(-1, 4) | anything, st.floats() | st.integers() | anything, details | anything
)
raw_records = st.builds(
    RawRecord,
    block=st.integers(-2, 8),
    peer_id=st.sampled_from(["a", "b", "c"]) | anything,
    value=petals_like | anything,
    expires_at_s=st.floats(NOW - 5, NOW + 5) | anything,
)


@given(st.lists(raw_records, max_size=12))
def test_nothing_that_a_record_says_raises(records):
    view, problems = view_from_records(records, 6, NOW)
    assert len({record.peer_id for record in view.servers}) == len(view.servers)
    assert all(record.span.end <= 6 and record.expires_at_s > NOW for record in view.servers)
    assert len(problems) <= 2 * len(records)


@given(st.lists(raw_records, max_size=12))
def test_what_comes_out_is_at_most_what_some_record_said(records):
    """Nobody appears whom no record named, nobody is ONLINE whom no record called so."""
    view, _ = view_from_records(records, 6, NOW)
    for record in view.servers:
        sources = [
            raw
            for raw in records
            if raw.peer_id == record.peer_id and raw.expires_at_s == record.expires_at_s
        ]
        assert sources
        # a JOINING record may say beside that its server is ONLINE elsewhere
        assert any(
            snapshot.STATES.get(raw.value[0]) is record.state
            or (raw.value[0] == JOINING and snapshot.MOVE_KEY in raw.value[2])
            for raw in sources
        )


@given(
    st.permutations(
        announce("a", range(4), NOW + 9) + announce("a", range(2, 6), NOW + 7) + announce("b", [1])
    )
)
def test_the_order_of_records_does_not_matter(records):
    assert spans(records, 6) == {"a": Span(0, 4), "b": Span(1, 2)}


@given(st.lists(raw_records, max_size=8))
def test_a_view_survives_the_way_to_the_orchestrator(records):
    import json

    view, _ = view_from_records(records, 6, NOW)
    assert view_from_json(json.loads(json.dumps(snapshot.view_to_json(view)))) == view


class FakeNode:
    """Answers like hivemind's DHTNode: a value per key, or None."""

    def __init__(self, found):
        self.found = found

    async def get_many(self, keys, sufficient_expiration_time, num_workers):  # noqa: ARG002
        assert sufficient_expiration_time == math.inf, (
            "anything less may return records that are not the newest"
        )
        return {key: self.found.get(key) for key in keys}


def test_the_read_keeps_each_records_own_expiration():
    def entry(value, expires):
        return SimpleNamespace(value=value, expiration_time=expires)

    node = FakeNode(
        {
            "m.0": entry({"a": entry((2, 1.0), 5.0), "b": entry((1, 2.0), 6.0)}, 6.0),
            "m.1": entry("spoilt", 9.0),
            "m.2": None,
        }
    )
    read = partial(snapshot.read_records, prefix="m", n_blocks=3)
    records = asyncio.run(pickle.loads(pickle.dumps(read))(None, node))
    assert records == [RawRecord(0, "a", (2, 1.0), 5.0), RawRecord(0, "b", (1, 2.0), 6.0)]
