"""What is summed up once for all, told by a bound, or changed in place equals its definition, server by server."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swarmlab.placement import doubts
from swarmlab.placement.everybody import MAX_OVER_MEDIAN, OVERDUE_SHARE, everybody_of
from swarmlab.placement.grace import missing, remember, unseen
from swarmlab.placement.memory import Gone, Memory, Vanished
from swarmlab.placement.situation import Situation, situation
from swarmlab.types import Intent, ServerRecord, ServerState, Span, SwarmView

N_BLOCKS, NOW_S = 6, 100.0
NAMES = [f"s{i}" for i in range(9)]
ME = "s4"


@st.composite
def spans(draw: st.DrawFn) -> Span:
    start = draw(st.integers(0, N_BLOCKS - 1))
    return Span(start, draw(st.integers(start + 1, N_BLOCKS)))


def intents() -> st.SearchStrategy[Intent]:
    return st.builds(Intent, spans(), st.integers(0, 3).map(float))


@st.composite
def records(draw: st.DrawFn, name: str) -> ServerRecord:
    return ServerRecord(
        name,
        draw(spans()),
        draw(st.sampled_from([0.0, 0.1, 1.0, 2.5, 1e4])),
        draw(st.sampled_from([ServerState.ONLINE] * 3 + [ServerState.JOINING, ServerState.OFFLINE])),
        expires_at_s=draw(st.sampled_from([NOW_S + 10, NOW_S + 60, NOW_S + 120])),
        intent=draw(st.none() | intents()),
        movable=draw(st.booleans()),
    )


@st.composite
def views(draw: st.DrawFn) -> SwarmView:
    names = draw(st.lists(st.sampled_from(NAMES), unique=True))
    return SwarmView(N_BLOCKS, tuple(draw(records(name)) for name in names), seen_at_s=NOW_S)


@st.composite
def memories(draw: st.DrawFn) -> Memory:
    others = [name for name in NAMES if name != ME]
    vanished = draw(st.lists(st.sampled_from(others), unique=True, max_size=4))
    gone = draw(
        st.lists(st.sampled_from([name for name in others if name not in vanished]), unique=True, max_size=3)
    )
    return Memory(
        last_view=draw(st.none() | views()),
        vanished=tuple(Vanished(draw(records(name)), 90.0) for name in vanished),
        gone=tuple(Gone(name, NOW_S + 60) for name in sorted(gone)),
    )


def plain_situation(view: SwarmView, memory: Memory, intent: Intent | None) -> dict[str, object]:
    """The same from the definitions of its parts, one server after another."""
    shown = [record for record in view.servers if record.state is not ServerState.OFFLINE]
    tps = sorted(record.throughput_tps for record in shown)
    cap = MAX_OVER_MEDIAN * tps[(len(tps) - 1) // 2] if tps else np.inf
    cap = cap if cap > 0 else np.inf
    longest_s = max([record.expires_at_s - NOW_S for record in shown], default=0.0)
    gone, lost = (
        {item.peer_id for item in memory.gone},
        {one.record.peer_id: one.record for one in memory.vanished},
    )
    committed_tps, serving_tps = np.zeros(N_BLOCKS), np.zeros(N_BLOCKS)
    committed, gathered, staying = (np.zeros(N_BLOCKS, dtype=int) for _ in range(3))
    movable = []
    for record in shown:
        rate, goes = min(record.throughput_tps, cap), record.intent
        online = record.state is ServerState.ONLINE
        counts = record.peer_id != ME and record.peer_id not in gone
        first = goes is not None and counts and (
            intent is None or (goes.announced_at_s, record.peer_id) < (intent.announced_at_s, ME)
        )  # fmt: skip
        movable.append(online and record.movable and not first and record.peer_id not in gone)
        if not counts:
            continue
        sure = online and record.expires_at_s - NOW_S >= OVERDUE_SHARE * longest_s
        for block in range(N_BLOCKS):
            if sure and block in record.span:
                serving_tps[block] += rate
                staying[block] += not first or block in goes.span  # type: ignore[union-attr]
        whole = lost.pop(record.peer_id, record)  # cut: the whole counts, as it was known
        will = goes.span if first else whole.span  # type: ignore[union-attr]
        committed_tps[will.start : will.end] += rate if first else min(whole.throughput_tps, cap)
        committed[will.start : will.end] += 1
        will = goes.span if goes is not None else whole.span
        gathered[will.start : will.end] += 1
    for record in lost.values():
        span = record.span
        committed_tps[span.start : span.end] += min(record.throughput_tps, cap)
        committed[span.start : span.end] += 1
        gathered[span.start : span.end] += 1
    return {
        "committed_tps": committed_tps, "committed": committed, "gathered": gathered, "serving_tps": serving_tps,
        "staying": staying, "movable": movable,
    }  # fmt: skip


def same(found: Situation, plain: dict[str, object]) -> None:
    for name in ("committed", "gathered", "staying", "movable"):
        assert list(getattr(found, name)) == list(plain[name]), name  # type: ignore[call-overload]
    for name in ("committed_tps", "serving_tps"):
        assert getattr(found, name) == pytest.approx(plain[name], rel=1e-9, abs=1e-6), name


@settings(max_examples=200)
@given(views(), memories(), st.none() | intents())
def test_a_situation_is_what_its_parts_say(view: SwarmView, memory: Memory, intent: Intent | None):
    same(situation(view, ME, memory, intent), plain_situation(view, memory, intent))


@st.composite
def cut_views(draw: st.DrawFn) -> tuple[SwarmView, SwarmView]:
    """A swarm as it is, and a read of it in which spans lack blocks at their ends, or are missing altogether."""
    names = draw(st.lists(st.sampled_from(NAMES), unique=True))
    whole = SwarmView(N_BLOCKS, tuple(draw(records(name)) for name in names), seen_at_s=NOW_S)
    shown = []
    for record in whole.servers:
        length = record.span.length
        start = record.span.start + draw(st.integers(0, length))
        end = draw(st.integers(start, record.span.end))
        to = draw(st.integers(0, N_BLOCKS - length))
        intent = draw(st.none() | st.just(Intent(Span(to, to + length), float(draw(st.integers(0, 3))))))
        if start < end:
            shown.append(replace(record, span=Span(start, end), intent=intent))
    return whole, SwarmView(N_BLOCKS, tuple(shown), seen_at_s=NOW_S + 5)


@settings(max_examples=200)
@given(cut_views(), st.none() | intents())
def test_a_server_never_counts_for_more_than_it_can_hold(
    reads: tuple[SwarmView, SwarmView], intent: Intent | None
):
    memory = None
    for view in reads:
        memory = remember(view, memory, grace_s=90.0, own_peer=ME)
    found, view = situation(reads[1], ME, memory, intent), reads[0]
    others = [one for one in view.servers if one.peer_id != ME and one.state is not ServerState.OFFLINE]
    blocks = sum(one.span.length for one in others)
    assert found.committed.sum() == found.gathered.sum() == blocks
    most_tps = sum(one.throughput_tps * one.span.length for one in others)
    assert found.committed_tps.sum() <= most_tps * (1 + 1e-9)


@given(views(), memories(), memories())
def test_what_one_reader_finds_changes_nothing_for_the_next(view: SwarmView, one: Memory, other: Memory):
    before = situation(SwarmView(N_BLOCKS, view.servers, NOW_S), ME, one, None)
    situation(view, ME, other, Intent(Span(0, 1), 1.0))
    situation(view, "s1", other, None)
    after = situation(view, ME, one, None)
    for name in ("committed_tps", "committed", "gathered", "serving_tps", "staying", "movable"):
        assert getattr(before, name).tolist() == getattr(after, name).tolist()


@settings(max_examples=200)
@given(views(), memories())
def test_a_doubt_matters_where_a_share_of_some_block_is_in_doubt(view: SwarmView, memory: Memory):
    changes, vanished = unseen(view, memory)
    doubtful, total = np.zeros(N_BLOCKS), np.zeros(N_BLOCKS)
    lost = [item.record for item in (*changes.items, *vanished)]
    for record in (*everybody_of(view).overdue, *lost):
        doubtful[record.span.start : record.span.end] += record.throughput_tps
    for record in (*(one for one in view.servers if one.state is not ServerState.OFFLINE), *lost):
        total[record.span.start : record.span.end] += record.throughput_tps
    noise = 1e-9 * total
    surely = bool(((doubtful > noise) & (doubtful >= doubts.MATTERS * total + noise)).any())
    maybe = bool(((doubtful > 0) & (doubtful >= doubts.MATTERS * total - noise)).any())
    found = doubts.matters(view, memory)
    assert surely <= found <= maybe
    if not found:
        assert doubts.whom_to_ask(view, memory, ME) == ()
    elif missing(view, memory, ME):
        assert doubts.whom_to_ask(view, memory, ME)


@given(views(), views())
def test_records_in_order_make_the_same_view_unchecked(view: SwarmView, other: SwarmView):
    unchecked = SwarmView.in_order(N_BLOCKS, view.servers, NOW_S)
    assert unchecked == view
    assert (unchecked == other) == (view == other)
