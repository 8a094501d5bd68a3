"""The chain chosen is the cheapest of all chains."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarmlab.recovery.routing import Hop, Need, NoRoute, cheapest_chain, hop_cost_s
from swarmlab.types import ServerRecord, ServerState, Span, SwarmView

NEED = Need(replay_tokens=100, future_steps=50, cache_tokens=200)


@st.composite
def views(draw):
    n_blocks = draw(st.integers(1, 5))
    servers = []
    for index in range(draw(st.integers(0, 5))):
        start = draw(st.integers(0, n_blocks - 1))
        servers.append(
            ServerRecord(
                f"peer{index}",
                Span(start, draw(st.integers(start + 1, n_blocks))),
                throughput_tps=draw(st.sampled_from((0.0, 5.0, 500.0))),
                state=draw(st.sampled_from(ServerState)),
                inference_tps=draw(st.sampled_from((None, 0.0, 20.0, 200.0))),
                cache_tokens_left=draw(st.sampled_from((None, 0, 1000, 10**6))),
            )
        )
    return SwarmView(n_blocks, tuple(servers))


needs = st.builds(Need, st.sampled_from((0, 10, 5000)), st.sampled_from((0, 1, 500)), st.just(200))
rtts = st.dictionaries(
    st.sampled_from([f"peer{i}" for i in range(5)]), st.sampled_from((0.001, 0.2, float("inf")))
)


def all_chains(records, start, end, before=None):
    """Every way to walk from ``start`` to ``end``; two pieces at one server are one piece."""
    if start == end:
        yield ()
    for record in records:
        if start in record.span and record.peer_id != before:
            for until in range(start + 1, min(record.span.end, end) + 1):
                for rest in all_chains(records, until, end, record.peer_id):
                    yield (Hop(record.peer_id, Span(start, until)), *rest)


def cost_s(view, chain, need, rtt_s):
    total = 0.0
    for hop in chain:
        record = view.get(hop.peer_id)
        total += hop_cost_s(record, hop.span.length, need, rtt_s.get(hop.peer_id))
    return total


@given(views(), needs, rtts, st.sets(st.sampled_from([f"peer{i}" for i in range(5)]), max_size=2), st.data())
def test_no_chain_is_cheaper(view, need, rtt_s, excluded, data):
    start = data.draw(st.integers(0, view.n_blocks - 1))
    span = Span(start, data.draw(st.integers(start + 1, view.n_blocks)))
    usable = [r for r in view.servers if r.state is ServerState.ONLINE and r.peer_id not in excluded]
    costs = [cost_s(view, chain, need, rtt_s) for chain in all_chains(usable, span.start, span.end)]
    if not costs:
        with pytest.raises(NoRoute) as caught:
            cheapest_chain(view, span, need, rtt_s=rtt_s, excluded=excluded)
        assert caught.value.missing == tuple(b for b in span if not any(b in r.span for r in usable))
        holders = [r for r in view.serving() if any(b in r.span for b in caught.value.missing)]
        assert set(caught.value.avoided) == {r.peer_id for r in holders}
        assert set(caught.value.avoided) <= excluded
        return
    chain = cheapest_chain(view, span, need, rtt_s=rtt_s, excluded=excluded)
    assert [hop.span.start for hop in chain] == [span.start, *(hop.span.end for hop in chain[:-1])]
    assert chain[-1].span.end == span.end
    for hop in chain:
        record = view.get(hop.peer_id)
        assert record is not None
        assert record.state is ServerState.ONLINE
        assert hop.peer_id not in excluded
        assert record.span.covers(hop.span)
    assert cost_s(view, chain, need, rtt_s) == pytest.approx(min(costs))


def server(peer, start, end, **fields):
    return ServerRecord(peer, Span(start, end), **{"throughput_tps": 100.0, **fields})


def test_a_server_is_not_left_for_its_price_and_joined_again_at_once():
    # each piece alone has room in the cache and all of it has not: as one hop it is what it is
    view = SwarmView(3, (server("a", 0, 3, cache_tokens_left=1000), server("b", 0, 1, inference_tps=0.1)))
    (hop,) = cheapest_chain(view, Span(0, 3), NEED, rtt_s={})
    assert (hop.peer_id, hop.span) == ("a", Span(0, 3))


def test_loading_servers_are_never_routed_to():
    view = SwarmView(4, (server("a", 0, 4, state=ServerState.JOINING),))
    with pytest.raises(NoRoute) as caught:
        cheapest_chain(view, Span(0, 4), NEED, rtt_s={})
    assert caught.value.avoided == ()


def test_a_long_history_prefers_a_fast_replacement_to_a_near_one():
    near = server("near", 0, 8, throughput_tps=10.0, inference_tps=10.0)
    fast = server("fast", 0, 8, throughput_tps=1000.0, inference_tps=10.0)
    rtt_s = {"near": 0.001, "fast": 0.2}
    view = SwarmView(8, (near, fast))
    short, long = replace(NEED, replay_tokens=0), replace(NEED, replay_tokens=5000)
    assert cheapest_chain(view, Span(0, 8), short, rtt_s=rtt_s)[0].peer_id == "near"
    assert cheapest_chain(view, Span(0, 8), long, rtt_s=rtt_s)[0].peer_id == "fast"


def test_ties_are_broken_the_same_way_whatever_the_order():
    servers = [server(peer, 0, 4) for peer in "cab"]
    for order in (servers, servers[::-1]):
        chain = cheapest_chain(SwarmView(4, tuple(order)), Span(0, 4), NEED, rtt_s={})
        assert chain == (Hop("a", Span(0, 4)),)


def test_a_server_that_failed_before_is_used_only_where_that_saves_much():
    rtt_s = {"failed": 0.001, "far": 0.1}
    view = SwarmView(4, (server("failed", 0, 4), server("far", 0, 4)))
    suspects = {"failed"}
    assert cheapest_chain(view, Span(0, 4), NEED, rtt_s=rtt_s)[0].peer_id == "failed"
    chain = cheapest_chain(view, Span(0, 4), NEED, rtt_s=rtt_s, suspects=suspects)
    assert chain[0].peer_id == "far"
    assert cheapest_chain(view.without(["far"]), Span(0, 4), NEED, rtt_s=rtt_s, suspects=suspects)


def test_a_server_without_room_for_the_cache_is_the_last_choice():
    view = SwarmView(4, (server("full", 0, 4, cache_tokens_left=10), server("roomy", 0, 4)))
    rtt_s = {"full": 0.001, "roomy": 0.1}
    assert cheapest_chain(view, Span(0, 4), NEED, rtt_s=rtt_s)[0].peer_id == "roomy"
