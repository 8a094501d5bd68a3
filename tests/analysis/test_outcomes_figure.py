"""The matrix of outcomes says for every scenario and arm how it ended, without colour."""

from __future__ import annotations

from swarmlab.analysis.failover import measure, summarise
from swarmlab.analysis.plots.outcomes import outcomes_figure
from tests.analysis.histories import DEFAULT_SCENARIOS, default_run

INFO = {"id": "x", "seed": 0, "world": "real", "device": "cpu", "model": {"id": "tiny"}, "host": {}}


def test_every_scenario_and_arm_has_its_word():
    scenarios = summarise(measure(default_run().evidence()))["scenarios"]
    [axes] = outcomes_figure(scenarios, INFO).axes
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
