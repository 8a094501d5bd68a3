from __future__ import annotations

import math

import pytest

from swarmlab.errors import BadInput
from swarmlab.swarm.rebalancing import RebalanceSettings, check_rebalance


def test_the_defaults_are_sound_and_scale():
    settings = RebalanceSettings()
    check_rebalance(settings)
    assert settings.scaled(60.0) == 4.0


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("time_scale", 0.0),
        ("time_scale", math.nan),
        ("read_delay_s", -1.0),
        ("balance_quality", 1.5),
        ("expiration_s", 60.0),
        ("lost_s", 90.0),
        ("clients", -1),
        ("simulations", 0),
    ],
)
def test_what_cannot_be_is_refused_by_name(field, value):
    with pytest.raises(BadInput) as refused:
        check_rebalance(RebalanceSettings(**{field: value}))
    assert refused.value.field in (f"rebalance.{field}", "rebalance.update_period_s")
