"""Recording a swarm: what is refused, and names that cannot be traced back."""

from __future__ import annotations

import pytest

from swarmlab.errors import BadInput
from swarmlab.judges.record_dht import summarize
from swarmlab.scenarios.record_dht import Pseudonyms, build_record_dht
from swarmlab.settings import load
from swarmlab.types import ServerRecord, Span, SwarmView

PEERS = "initial_peers=[/ip4/127.0.0.1/tcp/9/p2p/QmQ9QNpJiEBjFn5W5k1ppxdihBwZuvWMRhApwDEWSovXix]"


@pytest.mark.parametrize(
    ("overrides", "field"),
    [
        ([], "initial_peers"),
        (["initial_peers=[127.0.0.1]"], "initial_peers"),
        (["initial_peers=[/ip4/127.0.0.1/tcp/9/p2p/Qm]"], "initial_peers"),
        ([PEERS, "recorder.every_s=0"], r"recorder\.every_s"),
    ],
)
def test_a_recording_needs_a_swarm(overrides, field):
    with pytest.raises(BadInput, match=field):
        build_record_dht(load(["+exp=record_dht", *overrides])[0])


def test_what_is_recorded_follows_from_the_settings():
    experiment = build_record_dht(load(["+exp=record_dht", PEERS, "minutes=2", "dht_prefix=m"])[0])
    assert (experiment.duration_s, experiment.every_s, experiment.prefix) == (120.0, 10.0, "m")


def test_hashed_names_are_the_same_within_a_run_only():
    view = SwarmView(
        4,
        (
            ServerRecord("Qmabc", Span(0, 2), 1.0, next_pings_s={"Qmdef": 0.1}),
            ServerRecord("Qmdef", Span(2, 4), 1.0),
        ),
    )
    hide = Pseudonyms()
    first, second = hide.view(view), hide.view(view)
    assert first == second
    assert "Qm" not in str(first)
    assert [record.span for record in sorted(first.servers, key=lambda one: one.span)] == [
        Span(0, 2),
        Span(2, 4),
    ]
    pinged = next(record for record in first.servers if record.next_pings_s)
    assert set(pinged.next_pings_s) == {hide.name("Qmdef")} <= {record.peer_id for record in first.servers}
    assert Pseudonyms().view(view) != first


def test_the_summary_counts_servers_and_gaps():
    online, joining = (
        {"peer_id": p, "span": [i, i + 2], "state": s}
        for p, i, s in (("a", 0, "online"), ("b", 2, "joining"))
    )
    looks = [
        {"n_blocks": 4, "seen_at_s": 10.0, "servers": [online, joining], "problems": 1},
        {"n_blocks": 4, "seen_at_s": 20.0, "servers": [online], "problems": 0},
    ]
    found = summarize(looks)
    assert (found["looks"], found["recorded_s"], found["servers"], found["servers_least"]) == (2, 10.0, 2, 1)
    assert (found["blocks_unserved_most"], found["problems"]) == (2, 1)
    assert summarize([])["servers"] == 0
