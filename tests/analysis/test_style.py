"""Every arm looks the same everywhere, and no two things alike."""

from __future__ import annotations

from itertools import combinations

import pytest

from swarmlab.analysis.style import ARM_STYLES, PLACEMENT_STYLES, style_of

SAME_RULE = ("appendix_d", "appendix_d_20")  # its p is 20 % on real servers
ARMS = [arm for arm in {**ARM_STYLES, **PLACEMENT_STYLES} if arm != SAME_RULE[0]]


def grey(color):
    red, green, blue = (int(color[place : place + 2], 16) / 255 for place in (1, 3, 5))
    return 0.299 * red + 0.587 * green + 0.114 * blue


@pytest.mark.parametrize("aspect", ["marker", "color", "label"])
def test_no_two_arms_look_alike_whatever_kind_of_experiment_has_them(aspect):
    looks = [getattr(style_of(arm), aspect) for arm in [*ARMS, "somebody_else"]]
    assert sorted({str(look) for look in looks if looks.count(look) > 1}) == []


def test_the_same_rule_looks_the_same_on_real_servers_and_simulated_ones():
    real, simulated = (style_of(arm) for arm in SAME_RULE)
    assert (real.color, real.marker, real.line) == (simulated.color, simulated.marker, simulated.line)


@pytest.mark.parametrize("styles", [ARM_STYLES, PLACEMENT_STYLES], ids=["clients", "placement"])
def test_arms_of_one_figure_are_told_apart_in_grey(styles):
    """By line, or clearly by lightness; markers come on top of that."""
    alike = [
        (one, other)
        for one, other in combinations([arm for arm in styles if arm in ARMS], 2)
        if styles[one].line == styles[other].line
        and abs(grey(styles[one].color) - grey(styles[other].color)) < 0.05
    ]
    assert alike == []


def test_an_arm_without_a_style_is_drawn_under_its_own_name():
    assert style_of("somebody_else").label == "somebody_else"
