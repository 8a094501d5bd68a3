"""The policy that does what a file says, and the options of our server."""

from __future__ import annotations

import json

import numpy as np
import pytest

from swarmlab.bridge import compat

compat.apply()

from swarmlab.bridge.serving.options import options_of  # noqa: E402
from swarmlab.bridge.serving.told import Told  # noqa: E402
from swarmlab.errors import BadInput  # noqa: E402
from swarmlab.placement.policy import Server  # noqa: E402
from swarmlab.types import Span, SwarmView  # noqa: E402

RNG, VIEW = np.random.default_rng(0), SwarmView(16, ())


def test_it_goes_where_the_file_says_and_stays_when_it_is_there(tmp_path):
    told = Told(str(tmp_path / "told"))
    here = Server("me", 4, 1.0, Span(0, 4))
    assert told.choose(VIEW, Server("me", 4, 1.0), RNG).target == Span(0, 4)
    assert not told.reconsider(VIEW, here, None, RNG).moved
    (tmp_path / "told").write_text("2:6\n")
    assert told.choose(VIEW, Server("me", 4, 1.0), RNG).target == Span(2, 6)
    decision = told.reconsider(VIEW, here, None, RNG)
    assert (decision.moved, decision.old, decision.target) == (True, Span(0, 4), Span(2, 6))
    there = Server("me", 4, 1.0, Span(2, 6))
    assert not told.reconsider(VIEW, there, None, RNG).moved


@pytest.mark.parametrize("text", ["", "x", "4", "6:2", "-1:3", "1:2:3", "0:3", "2:7", "14:18", "99:103"])
def test_a_file_that_says_nothing_moves_nobody(tmp_path, text):
    (tmp_path / "told").write_text(text)
    here, told = Server("me", 4, 1.0, Span(0, 4)), Told(str(tmp_path / "told"))
    assert not told.reconsider(VIEW, here, None, RNG).moved
    assert told.choose(VIEW, Server("me", 4, 1.0), RNG).target == Span(0, 4)


def test_options_are_strings_on_the_way_and_values_here():
    settings = json.dumps({"grace_s": 7.5, "price": {"horizon_s": 50.0}})
    given = {"policy": "swarmlab", "policy_settings": settings, "reload": "in_place", "drain_s": "3", "seed": "4",
             "mean_choice_delay_s": "0.25", "visible_s": "0.5", "load_deadline_s": "9", "argv": []}  # fmt: skip
    options = options_of(given)
    policy = options.policy
    assert (policy.name, policy.mean_choice_delay_s) == ("swarmlab", 0.25)
    assert vars(policy)["grace_s"] == 7.5
    assert vars(policy)["price"].horizon_s == 50.0
    assert (options.reload, options.drain_s, options.seed) == ("in_place", 3.0, 4)
    assert (options.visible_s, options.load_deadline_s) == (0.5, 9.0)
    assert options_of({}).policy.name == "swarmlab"
    assert options_of({"policy": "told", "told_path": "x"}).policy.name == "told"


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"reload": "fast"}, "reload"),
        ({"drain_s": "-1"}, "drain_s"),
        ({"drain_s": "soon"}, "drain_s"),
        ({"load_deadline_s": "inf"}, "load_deadline_s"),
        ({"policy": "best"}, "policy"),
        ({"policy_settings": '{"speed": 1}'}, "speed"),
        ({"policy_settings": "{grace_s: 1}"}, "policy_settings"),
        ({"policy_settings": "[1]"}, "policy_settings"),
        ({"policy": "told"}, "told_path"),
        ({"mean_choice_delay_s": "-1"}, "mean_choice_delay_s"),
        ({"seed": "x"}, "seed"),
        ({"seed": "-1"}, "seed"),
        ({"store_max_bytes": "10GB"}, "store_max_bytes"),
        ({"store_max_bytes": "0"}, "store_max_bytes"),
    ],
)
def test_an_option_that_cannot_be_is_named(wrong, field):
    with pytest.raises(BadInput, match=field):
        options_of(wrong)
