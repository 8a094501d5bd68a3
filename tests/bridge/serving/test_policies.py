from __future__ import annotations

import pytest

from swarmlab.bridge.serving.policies import policy_of
from swarmlab.errors import BadInput
from swarmlab.placement.moves import Price
from swarmlab.placement.petals import Petals
from swarmlab.placement.recheck import Recheck
from swarmlab.placement.swarmlab import Swarmlab


def test_a_policy_without_settings_is_the_default_one():
    assert policy_of("swarmlab") == Swarmlab()


def test_settings_reach_the_policy_and_the_values_in_it():
    settings = '{"grace_s": 7.5, "price": {"horizon_s": 50}}'
    assert policy_of("swarmlab", settings) == Swarmlab(grace_s=7.5, price=Price(horizon_s=50))
    nested = policy_of("recheck", '{"original": {"balance_quality": 0.5}, "time_scale": 12}')
    assert nested == Recheck(Petals(balance_quality=0.5), time_scale=12)


@pytest.mark.parametrize(
    ("name", "settings", "field"),
    [
        ("bloom", None, "policy"),
        ("petals", '{"quality": 1}', "petals.quality"),
        ("swarmlab", '{"price": {"horizon": 1}}', "swarmlab.price.horizon"),
        ("recheck", '{"time_scale": 0}', "recheck.time_scale"),
    ],
)
def test_what_there_is_not_is_refused_by_name(name, settings, field):
    with pytest.raises(BadInput) as refused:
        policy_of(name, settings)
    assert refused.value.field == field
