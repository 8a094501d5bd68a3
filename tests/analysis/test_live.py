from __future__ import annotations

import io

from rich.console import Console

from swarmlab.analysis.live import Live, Server, frame_of_view
from swarmlab.analysis.live_view import bar, render, strip
from swarmlab.types import ServerRecord, ServerState, Span, SwarmView
from tests.analysis.test_timeline import FAILOVER, FAULT, RELOAD


def server(name, state, t, start=None, end=None, arm="petals", **more):
    return {"t": t, "arm": arm, "server": name, "state": state, "start": start, "end": end, **more}


def block(index, t, served=None, announced=1.0, arm="petals"):
    row = {"t": t, "arm": arm, "scenario": "gap", "block": index, "announced_tps": announced}
    return row if served is None else {**row, "served_tps": served}


def shown(frame, width=100):
    printed = io.StringIO()
    Console(file=printed, width=width, color_system=None).print(render(frame, width))
    return printed.getvalue()


def test_the_last_row_of_a_server_and_of_a_block_counts():
    live = Live()
    live.take("servers", server("a", "joining", 1.0, 0, 2))
    live.take("servers", server("a", "online", 2.0, 1, 3))
    for index, tps in enumerate((5.0, 0.0, 7.0)):
        live.take("blocks", block(index, 3.0, served=1.0))
        live.take("blocks", block(index, 4.0, served=tps))
    frame = live.frame("run")
    assert frame.servers == (Server("a", "online", 1, 3),)
    assert (frame.blocks_tps, frame.unit) == ((5.0, 0.0, 7.0), "tokens/s served")
    assert frame.title == "run, 4 s, gap, petals"


def test_without_a_sample_of_blocks_the_servers_that_serve_are_counted():
    live = Live()
    live.take("servers", server("a", "starting", 1.0, detail="pid 7, blocks 0:2"))
    live.take("servers", server("a", "online", 2.0, detail="after 3 s"))
    live.take("servers", server("b", "starting", 2.0, detail="pid 8, blocks 1:4"))
    frame = live.frame("run")
    assert (frame.blocks_tps, frame.unit) == ((1.0, 1.0, 0.0, 0.0), "servers per block")


def test_another_arm_has_a_swarm_of_its_own():
    live = Live()
    live.take("servers", server("a", "online", 1.0, 0, 4))
    live.take("blocks", block(3, 1.0))
    live.take("servers", server("b", "online", 2.0, 0, 2, arm="swarmlab"))
    frame = live.frame("run")
    assert [one.name for one in frame.servers] == ["b"]
    assert len(frame.blocks_tps) == 2


def test_moves_faults_failovers_and_outcomes_are_counted_and_the_last_are_told():
    live = Live()
    for kind, row in (("faults", FAULT), ("failovers", FAILOVER), ("reloads", RELOAD)):
        live.take(kind, row)
    live.take("sessions", {"t": 6.0, "outcome": "identical"})
    live.take(
        "balance", {"t": 6.0, "arm": "petals", "swarm_tps": 123.0, "quality_optimal": 0.5, "n_moving": 1}
    )
    for t in range(20):
        live.take("steps", {"t": 6.0 + t})
    frame = live.frame("run")
    assert frame.numbers["client steps/s"] == "1"
    assert {
        "faults": "1",
        "failovers": "1",
        "reloads": "1",
        "ended": "1 identical",
    }.items() <= frame.numbers.items()
    text = shown(frame, 140)
    for part in ("kill of c", "went on through 8:12", "for nothing", "swarm tokens/s: 123"):
        assert part in text


def test_the_strip_tells_weak_from_strong_without_colour_and_an_unserved_block_most_of_all():
    text = strip((0.0, 1.0, 10.0, 10.0, 40.0), 80)
    assert text.plain == "x░▓▓█"
    assert strip((10.0, 0.0, 10.0, 10.0), 2).plain == "x▓"  # of several blocks in a character the weakest


def test_a_bar_lies_where_the_span_is():
    assert bar(Server("a", "online", 1, 3), 4, 80).plain == " ━━ "
    assert bar(Server("a", "starting"), 4, 80).plain == ""


def test_it_fits_a_narrow_terminal_and_many_servers():
    servers = tuple(ServerRecord(f"peer{i:04}", Span(i % 300, i % 300 + 20), 5.0) for i in range(400))
    text = shown(frame_of_view(SwarmView(400, servers), "swarm"), 60)
    assert max(map(len, text.splitlines())) <= 60
    assert "and 376 more" in text


def test_a_look_at_a_dht_counts_only_servers_that_serve():
    servers = (
        ServerRecord("Qmserving1", Span(0, 2), 10.0, cache_tokens_left=64, expires_at_s=130.0),
        ServerRecord("Qmloading1", Span(1, 3), 10.0, ServerState.JOINING, expires_at_s=130.0),
    )
    frame = frame_of_view(SwarmView(3, servers, 100.0), "swarm", problems=2)
    assert frame.blocks_tps == (10.0, 10.0, 0.0)
    assert frame.numbers["blocks that nobody serves"] == "1"
    assert frame.numbers["records left out or mended"] == "2"
    text = shown(frame, 130)
    assert "joining" in text
    assert "cache 64, record expires in 30 s" in text


def test_an_empty_swarm_is_shown_too():
    assert "nobody" in shown(frame_of_view(SwarmView(3, ()), "swarm"))
    assert "run" in shown(Live().frame("run"))
