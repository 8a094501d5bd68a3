"""Clients of the simulation beside those of a real swarm: how long they stand still when servers are killed."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from swarmlab.analysis.rebalance import KINDS
from swarmlab.analysis.sim_vs_real import load_seconds, timeline
from swarmlab.record.load import load_run
from swarmlab.scenarios import sim_vs_real
from swarmlab.settings import ROOT
from swarmlab.sim.client_settings import SimClients
from swarmlab.sim.scripted import play
from swarmlab.swarm.rebalancing import RebalanceSettings

SEEDS, ROOM = 10, 1.5
# As in the real run: three clients, short sessions, servers whose process dies and refuses at once, near views.
CLIENTS = SimClients(
    n_clients=3, n_sites=3, prompt_tokens=20, new_tokens=50, step_tps=3000.0, rtt_min_s=0.0, rtt_max_s=0.002,
    view_age_s=2.0, detect_s=0.0,
)  # fmt: skip
BEFORE_S = sim_vs_real.BEFORE_S


@pytest.mark.parametrize("arm", ["petals", "recheck", "pinned", "appendix_d", "swarmlab"])
def test_the_longest_stall_of_the_real_clients_is_among_the_simulated_ones(arm, monkeypatch):
    run = load_run(ROOT / "results" / "tables" / "rebalance_under_load")
    history = {kind: run.history(kind) for kind in KINDS}
    known = {entry.name for entry in fields(RebalanceSettings)}
    settings = RebalanceSettings(
        **{name: value for name, value in run.config["rebalance"].items() if name in known}
    )
    n_blocks = 1 + max(row["block"] for row in run.history("blocks"))
    seconds = load_seconds(history, settings.scaled(settings.choice_delay_s))
    happened, zero_s = timeline(history, arm)
    began = {
        row["scenario"]: BEFORE_S + row["t"] - zero_s
        for row in run.history("phases")
        if (row["arm"], row["moment"]) == (arm, "begin")
    }
    monkeypatch.setattr(
        sim_vs_real,
        "play",
        lambda sim, *rest: play(replace(sim, clients=CLIENTS, warm_up_s=BEFORE_S), *rest),
    )
    experiment = sim_vs_real.SimVsReal([arm], settings, n_blocks, None, None, {}, 0)
    longest = []
    for seed in range(SEEDS):
        events = experiment._simulate(arm, happened, seconds, seed)
        stalls = [
            (event.t_s - event.fields["total_s"], event.fields["total_s"])
            for event in events
            if event.kind in ("failovers", "openings")
        ]
        in_gap = [total_s for at_s, total_s in stalls if began["gap"] <= at_s < began["wide_joins"]]
        longest.append(max(in_gap, default=0.0))
    real_s = max(
        row["step_s_max"]
        for row in run.history("sessions")
        if row["arm"] == arm and row["scenario"] in ("gap", "wide_joins")
    )
    assert min(longest) / ROOM <= real_s <= ROOM * max(longest), (
        f"{real_s:.1f} s, simulated {sorted(longest)}"
    )
