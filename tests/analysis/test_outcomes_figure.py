"""The matrix of outcomes says for every scenario and arm how it ended, without colour."""

from __future__ import annotations

from swarmlab.analysis.failover import measure, summarise
from swarmlab.analysis.plots.outcomes import outcomes_figure
from tests.analysis.histories import DEFAULT_SCENARIOS, default_run

INFO = {"id": "x", "seed": 0, "world": "real", "device": "cpu", "model": {"id": "tiny"}, "host": {}}


def test_every_scenario_and_arm_has_its_word():
    scenarios = summarise(measure(default_run().evidence()))["scenarios"]
    [axes] = outcomes_figure([(INFO, {"scenarios": scenarios})]).axes
    assert [label.get_text() for label in axes.get_yticklabels()] == [
        n.replace("_", " ") for n in DEFAULT_SCENARIOS
    ]
    heads = [label.get_text() for label in axes.get_xticklabels()]
    assert heads == [
        "petals\n1 of 6 identical", "issue patch\n3 of 6 identical", "swarmlab\n6 of 6 identical",
    ]  # fmt: skip
    words = [text.get_text() for text in axes.texts]
    assert sum(text.startswith("=") for text in words) == 10
    assert sum(text.startswith("! exception (25%)") for text in words) == 5
    assert sum(text.startswith("≠ wrong") for text in words) == 3


def summaries():
    scenarios = summarise(measure(default_run().evidence()))["scenarios"]
    wrong = {"kill_last": {"swarmlab": {**scenarios["kill_last"]["swarmlab"], "outcome": "wrong"}}}
    return {"scenarios": scenarios}, {"scenarios": wrong}


def test_repeats_are_in_the_matrix_and_counted():
    """The table counts scenarios of all runs, so the figure must, too."""
    first, second = summaries()
    other = {"scenarios": {"another": first["scenarios"]["kill_last"]}}
    figure = outcomes_figure([(INFO, first), ({**INFO, "id": "y"}, second), ({**INFO, "id": "z"}, other)])
    [axes] = figure.axes
    assert [label.get_text() for label in axes.get_yticklabels()][-1] == "another"
    heads = [label.get_text() for label in axes.get_xticklabels()]
    assert heads[0] == "petals\n1 of 7 identical"
    assert heads[2] == "swarmlab\n7 of 8 identical"
    caption = figure.texts[-1].get_text().replace("\n", " ")
    assert "n = 22 sessions, up to 2 per arm and scenario" in caption
    assert "With y, z." in caption


def test_the_worst_of_several_outcomes_is_shown_with_how_often_it_came():
    first, second = summaries()
    [axes] = outcomes_figure([(INFO, first), (INFO, first), (INFO, second)]).axes
    assert any(text.get_text().startswith("\u2260 wrong in 1 of 3") for text in axes.texts)
