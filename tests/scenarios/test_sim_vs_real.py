"""What +exp=sim_vs_real says before it starts a swarm, and of runs that it cannot compare with."""

from __future__ import annotations

import pytest

from swarmlab.errors import BadInput
from swarmlab.scenarios.rebalance_build import build_sim_vs_real
from swarmlab.settings import ROOT, load

TABLES = ROOT / "results" / "tables"


def built(*overrides):
    return build_sim_vs_real(load(["+exp=sim_vs_real", *overrides])[0])


def test_the_first_line_says_that_a_swarm_is_started_how_long_that_takes_and_what_to_do_instead(tmp_path):
    experiment = built(f"models_dir={tmp_path}")
    first, *others = experiment.describe().splitlines()
    assert experiment.real is not None
    assert first.startswith(f"Starts a real swarm first, about {experiment.real.minutes} minute(s)")
    assert experiment.real.minutes > 5
    assert "rebalance.run_dir=RUN_DIR" in first
    assert others[-1] == "Then 40 simulations of each arm"


def test_a_stored_run_starts_none():
    experiment = built(f"rebalance.run_dir={TABLES / 'rebalance'}")
    assert experiment.real is None
    assert experiment.describe().splitlines()[0].endswith("rebalance; no server is started")


@pytest.mark.parametrize(
    ("folder", "allowed"),
    [
        ("/nosuch", "the folder of a run, with its run.json"),
        ("", "the folder of a run, with its run.json"),
        ("scale", "this one is of scale"),
    ],
)
def test_a_run_that_it_cannot_compare_with_is_refused_by_the_name_that_was_typed(folder, allowed):
    path = str(TABLES / folder) if folder else ""
    with pytest.raises(BadInput, match=allowed) as refused:
        built(f"rebalance.run_dir={path}")
    assert (refused.value.field, refused.value.value) == ("rebalance.run_dir", path)
