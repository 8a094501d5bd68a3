"""What clients of simulated swarms got, on rows made by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from swarmlab.analysis.clients import SHOWN, measure_clients, summed_up_clients
from swarmlab.analysis.plots.clients import clients_figure
from swarmlab.judges import simulated

ARMS = ("petals", "swarmlab")


def at(t, repeat=0, arm="petals", **more):
    return {"scenario": "few_clients", "arm": arm, "repeat": repeat, "t": t, **more}


def delivered(t, tokens, **where):
    return at(t, tokens=tokens, seconds=60.0, clients=2, clients_seeking=0, **where)


@pytest.fixture
def history():
    return {
        "delivered": [
            delivered(60.0, 7777),  # within the warm-up
            delivered(120.0, 600),
            delivered(180.0, 400),
            *(delivered(t, 900, arm="swarmlab") for t in (120.0, 180.0)),
            *(delivered(120.0, 500, repeat=1, arm=arm) for arm in ARMS),
        ],
        "sessions": [
            at(50.0, outcome="failed"),
            at(100.0, outcome="finished"),
            at(110.0, outcome="finished"),
            at(120.0, outcome="finished"),
            at(130.0, outcome="failed"),
        ],
        "failovers": [at(40.0, total_s=99.0, reroute_s=99.0), at(100.0, total_s=2.0, reroute_s=0.0)],
        "openings": [at(130.0, total_s=10.0, reroute_s=6.0)],
    }


def test_every_metric_by_hand(history):
    history["delivered"] = [row for row in history["delivered"] if row["repeat"] == 0]
    found = summed_up_clients(measure_clients(history, warm_up_s=60.0))["few_clients"]["petals"]
    wanted = {
        "delivered_tps": 1000 / 120,
        "tokens": 1000,
        "sessions": 4,
        "sessions_failed": 1,
        "sessions_failed_share": 0.25,
        "servers_lost": 1,
        "stalls": 2,
        "stalls_per_1000_tokens": 2.0,
        "stall_s_p50": 6.0,
        "stall_s_p95": pytest.approx(9.6),
        "stalled_share": 12 / 240,
        "seeking_share": 6 / 240,
        "swarmlab_delivered_over_this": pytest.approx(1.8),
    }
    assert {name: found[name] for name in wanted} == wanted
    assert found["delivered_tps_low"] is None, "one population has no interval"


def test_several_populations(history):
    found = summed_up_clients(measure_clients(history, warm_up_s=60.0))["few_clients"]["petals"]
    assert found["delivered_tps"] == pytest.approx((1000 / 120 + 500 / 60) / 2)
    assert found["swarmlab_delivered_over_this"] == pytest.approx((15 + 500 / 60) / (1000 / 120 + 500 / 60))
    assert found["delivered_tps_low"] <= found["delivered_tps"] <= found["delivered_tps_high"]
    assert found["stall_s_p50"] == 6.0, "nobody stalled in the other one"


def test_without_clients_there_is_nothing():
    assert measure_clients({"delivered": [], "sessions": []}, warm_up_s=0.0) == {}
    assert clients_figure([], {"few": {"petals": {"repeats": 1}}}, {}) is None


def test_the_figure_has_every_metric(history):
    measured = summed_up_clients(measure_clients(history, warm_up_s=60.0))
    scenarios = {
        name: {arm: {"repeats": 2, **row} for arm, row in arms.items()} for name, arms in measured.items()
    }
    scenarios["few"] = {"petals": {"repeats": 2}}
    figure = clients_figure(history["delivered"], scenarios, {"id": "r", "world": "simulated"})
    assert figure is not None
    labels = [axes.get_xlabel() for axes in figure.axes]
    assert len(labels) == 1 + len(SHOWN), "a scenario without clients has no column"
    assert all(any(words in label for label in labels) for words in SHOWN.values())


@pytest.mark.parametrize(("quiet", "suffixes"), [([], {""}), (["few"], {"", "tokens"})])
def test_where_all_scenarios_have_clients_theirs_is_the_figure(history, monkeypatch, quiet, suffixes):
    drawn = []
    monkeypatch.setattr(
        simulated, "balance_figure", lambda _, scenarios, __: drawn.append(list(scenarios)) or "balance"
    )
    monkeypatch.setattr(simulated, "clients_figure", lambda *_: "clients")
    scenarios: dict[str, Any] = {name: {"petals": {"repeats": 1}} for name in quiet}
    scenarios["few_clients"] = {"petals": {"repeats": 1, "delivered_tps": 1.0}}
    run: Any = SimpleNamespace(history=lambda kind: history.get(kind, []), info={})
    figures = simulated.draw(run, {"scenarios": scenarios})
    assert set(figures) == suffixes
    assert drawn == ([quiet] if quiet else []), "of those with clients the balance says nothing new"
