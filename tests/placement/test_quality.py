"""Three flavours of balance quality, each with its own denominator."""

from __future__ import annotations

import re

import numpy as np
import pytest

from swarmlab.placement.petals import Petals
from swarmlab.placement.policy import Server
from swarmlab.placement.quality import appendix_d_quality, optimal_quality, petals_quality
from swarmlab.types import ServerRecord, Span, SwarmView
from tests.placement.views import random_view

# A 0:4 t2, B 0:4 t1, C 4:5 t0.5 (cause R3): 0.5 now, 1.5 with B on 1:5
VIEW = SwarmView(
    5,
    (
        ServerRecord("a", Span(0, 4), 2.0),
        ServerRecord("b", Span(0, 4), 1.0),
        ServerRecord("c", Span(4, 5), 0.5),
    ),
)


def test_the_optimum_is_the_denominator_and_its_bound_is_kept():
    quality = optimal_quality(VIEW, time_limit_s=10)
    assert (quality.flavour, quality.present_tps, quality.reachable_tps) == ("optimal", 0.5, 1.5)
    assert quality.share == pytest.approx(1 / 3)
    assert quality.bound_tps == pytest.approx(1.5)
    assert optimal_quality(VIEW).reachable_tps == 1.5


def test_petals_quality_is_the_one_in_its_reason():
    quality = petals_quality(VIEW, "a", np.random.RandomState(0))
    assert quality is not None
    decision = Petals().reconsider(VIEW, Server("a", 4, 2.0, Span(0, 4)), None, np.random.RandomState(0))
    stated = re.search(r"([\d.]+)%", decision.reason)
    assert stated is not None
    assert float(stated[1]) == pytest.approx(100 * quality.share, abs=0.05)
    assert petals_quality(VIEW, "c", np.random.RandomState(0)) is None  # it is at its best place
    assert petals_quality(VIEW, "nobody", np.random.RandomState(0)) is None


def test_no_flavour_exceeds_one_or_the_optimum():
    rng = np.random.default_rng(0)
    for seed in range(100):
        view = random_view(rng, max_blocks=12, max_servers=6)
        best = optimal_quality(view, kicks=50)
        paper = appendix_d_quality(view, np.random.RandomState(seed))
        assert 0 <= best.share <= 1
        assert 0 <= paper.share <= 1
        assert paper.reachable_tps <= best.bound_tps * (1 + 1e-6)


def test_a_swarm_that_can_serve_nothing_is_not_out_of_balance():
    view = SwarmView(4, (ServerRecord("a", Span(0, 2), 1.0),))
    assert optimal_quality(view).share == 1.0
    assert appendix_d_quality(view, np.random.RandomState(0)).share == 1.0
