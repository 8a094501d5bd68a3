"""What a server loses, by seed and chance, as the orchestrator's side sets it."""

from __future__ import annotations

import pytest

from swarmlab.bridge.reset_switch import REPLY, REQUEST, ResetSwitch
from swarmlab.faults.session_reset import Chances, ResetControl, is_confirmed

N = 20_000


@pytest.fixture
def control(tmp_path):
    return ResetControl(tmp_path, "stage1")


def switch_of(control, stream=0):
    return ResetSwitch(control.switch_path, control.log_path, stream)


def draws(switch, n=1000):
    return [switch.loses(REQUEST) for _ in range(n)]


def test_nothing_is_lost_unless_asked_for(control):
    switch = switch_of(control)
    assert not any(draws(switch))
    control.set(Chances("cell", 1.0, 1.0, seed=0))
    assert all(draws(switch, 10))
    control.clear()
    assert not any(draws(switch))
    control.clear()  # clearing twice is no error


@pytest.mark.parametrize("p", [0.001, 0.01, 0.3])
def test_messages_are_lost_as_often_as_asked(control, p):
    control.set(Chances("cell", p, p / 2, seed=3))
    switch = switch_of(control)
    lost = {message: sum(switch.loses(message) for _ in range(N)) for message in (REQUEST, REPLY)}
    for message, chance in ((REQUEST, p), (REPLY, p / 2)):
        assert abs(lost[message] - N * chance) <= 5 * (N * chance) ** 0.5


def test_a_seed_gives_the_same_losses_again_and_others_give_others(control):
    found = []
    for seed, cell, stream in ((1, "a", 0), (1, "a", 0), (2, "a", 0), (1, "b", 0), (1, "a", 1)):
        control.set(Chances(cell, 0.3, 0.0, seed))
        found.append(draws(switch_of(control, stream)))
    assert found[0] == found[1]
    assert all(found[0] != other for other in found[2:])


def test_a_switch_begins_anew_with_each_setting(control):
    switch = switch_of(control)
    control.set(Chances("cell", 0.3, 0.0, 1))
    first = draws(switch)
    control.set(Chances("cell", 0.3, 0.0, 1))
    assert draws(switch) == first


def test_servers_draw_apart(tmp_path):
    found = []
    for name in ("stage1", "stage2"):
        control = ResetControl(tmp_path, name)
        control.set(Chances("cell", 0.3, 0.0, 1))
        found.append(draws(switch_of(control)))
    assert found[0] != found[1]


def test_the_log_is_read_once_and_only_whole_lines(control):
    switch = switch_of(control)
    assert control.news() == []
    control.set(Chances("cell", 1.0, 0.0, 0))
    assert switch.loses(REQUEST)
    switch.log("inject", message=REQUEST, method="inference")
    (line,) = control.news()
    assert (line["cell"], line["stage"], line["n_draws"], line["message"]) == ("cell", "inject", 1, REQUEST)
    assert control.news() == []
    with control.log_path.open("a") as log:
        log.write('{"stage": "conf')
    assert control.news() == []
    with control.log_path.open("a") as log:
        log.write('irm"}\n')
    assert control.news() == [{"stage": "confirm"}]


@pytest.mark.parametrize(
    ("before", "after", "confirmed"), [(100, 0, True), (200, 100, True), (100, 100, False), (0, 0, True)]
)
def test_a_reset_counts_when_the_sessions_cache_is_gone(before, after, confirmed):
    assert is_confirmed({"before_bytes": before, "after_bytes": after}) is confirmed
