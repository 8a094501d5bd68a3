from __future__ import annotations

import numpy as np

from swarmlab.analysis.failover import measure, summarise
from swarmlab.analysis.plots.failover import failover_figure
from swarmlab.analysis.plots.look import provenance
from swarmlab.analysis.plots.repeats import arms_panels, repeats_figure, scenario_panels
from swarmlab.analysis.plots.scenario_dots import scenario_dots_figure
from swarmlab.analysis.style import style_of
from tests.analysis.histories import AT_TOKEN, History, default_run

INFO = {
    "id": "20261130T000000Z-abcdef", "seed": 7, "world": "real", "device": "cpu", "model": {"id": "tiny_llama"},
    "host": {"cores": 2, "cpu": "a CPU"},
}  # fmt: skip


def draw(history):
    evidence = history.evidence()
    return failover_figure(evidence, summarise(measure(evidence))["scenarios"], INFO)


def xs(line):
    return list(line.get_xdata())


def words(axes):
    return [text.get_text() for text in axes.texts]


def test_every_scenario_has_a_panel_and_every_arm_its_own_line_and_marker():
    figure = draw(default_run())
    panels = figure.axes[::2]
    assert [axes.get_title(loc="left").partition(":")[0] for axes in panels] == [
        "kill last", "kill first", "kill middle", "split replacement", "batch of 3", "prefill",
    ]  # fmt: skip
    looks = {(line.get_marker(), line.get_linestyle()) for line in panels[-1].get_lines() if xs(line)[9:]}
    assert looks == {
        (style_of(arm).marker, style_of(arm).line) for arm in ("petals", "issue_patch", "swarmlab")
    }
    assert len({axes.get_ylim() for axes in panels}) == 1
    assert all(axes.get_yscale() == "log" for axes in panels)


def test_an_arm_that_raises_is_marked_where_its_line_ends():
    history = History().controls()
    error = "AssertionError: Broken input cache"
    history.arm("petals", outcome="exception", tokens=AT_TOKEN, error=error, elapsed_s=24.0)
    panel = draw(history).axes[0]
    assert words(panel) == ["petals: exception after 24 s (Broken input cache)"]
    assert xs(panel.get_lines()[-2]) == [0]  # the first token after the failure never came


def test_an_arm_that_never_got_a_token_is_marked_too():
    history = History().controls().arm("petals", at_token=0, tokens=0, outcome="hang", elapsed_s=60.0)
    assert words(draw(history).axes[0]) == ["petals: hang after 60 s"]


def test_wrong_tokens_are_crossed_out_at_their_place():
    history = History().controls().arm("issue_patch", wrong=(AT_TOKEN + 2, AT_TOKEN + 5), noise=15.0)
    panel = draw(history).axes[0]
    (crosses,) = [line for line in panel.get_lines() if line.get_marker() == "x"]
    assert xs(crosses) == [2, 5]
    assert words(panel) == ["issue patch wrong"]


def test_the_outcomes_are_told_in_words():
    figure = draw(default_run())
    assert "\u2260 wrong" in words(figure.axes[7])
    assert "! exception" in words(figure.axes[7])
    assert "= identical" in words(figure.axes[7])
    assert "never" in words(figure.axes[7])


def test_the_caption_says_n_seed_model_hardware_and_world():
    (caption,) = [
        text.get_text().replace("\n", " ") for text in draw(default_run()).texts if "n = " in text.get_text()
    ]
    for part in ("n = 18", "Seed 7", "tiny_llama", "real swarm on cpu", "2 cores, a CPU", INFO["id"]):
        assert part in caption


def test_the_caption_says_what_curve_clock_and_dash_mean():
    caption = " ".join(text.get_text().replace("\n", " ") for text in draw(default_run()).texts)
    for part in (
        "Curves: seconds of the client's step",
        "includes to order and to confirm it",
        "-: not as many",
    ):
        assert part in caption


def test_where_nobody_failed_nobody_is_said_never_to_recover():
    history = History().controls().arm("swarmlab")
    assert "never" not in words(draw(history).axes[1])
    history.rows["faults"] = []
    assert "never" not in words(draw(history).axes[1])


def test_an_arm_whose_fault_was_not_confirmed_draws_no_line_but_keeps_its_row():
    history = History().controls().arm("swarmlab")
    history.rows["faults"] = []
    figure = draw(history)
    assert not [line for line in figure.axes[0].get_lines() if xs(line)[2:]]
    assert "swarmlab" in words(figure.axes[1])


def repeats(*values):
    scenarios = [{"kill": {"petals": {"s": None}, "swarmlab": {"s": value}}} for value in values]
    return [({**INFO, "id": f"run{n}", "seed": n}, {"scenarios": one}) for n, one in enumerate(scenarios)]


def of_scenarios(runs, **more):
    return repeats_figure(runs, scenario_panels(runs, "s"), "title", words="seconds", **more)


def test_repeats_show_a_median_with_its_spread_and_who_never_got_there():
    figure = of_scenarios(repeats(1.0, 2.0, 3.0), log=True)
    assert figure is not None
    (axes,) = figure.axes
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["petals", "swarmlab"]
    assert words(axes) == ["never"]
    (marker,) = [line for line in axes.get_lines() if line.get_marker() == style_of("swarmlab").marker]
    assert (xs(marker), marker.get_markerfacecolor()) == ([2.0], style_of("swarmlab").color)
    (spread,) = axes.collections
    assert np.asarray(spread.get_paths()[0].vertices)[:, 0].tolist() == [1.0, 3.0]
    (caption,) = [text.get_text().replace("\n", " ") for text in figure.texts if "n = 3" in text.get_text()]
    assert "seeds 0, 1, 2" in caption
    assert "run1, run2" in caption


def many(n, runs=2):
    """Repeats of ``n`` scenarios, the last of which is in the first run only."""
    found = repeats(*range(1, runs + 1))
    for number, (_, summary) in enumerate(found):
        one = summary["scenarios"].pop("kill")
        summary["scenarios"] |= {f"kill_{index}": one for index in range(n - (number > 0))}
    return found


def test_the_lowest_panel_of_every_column_has_its_numbers():
    figure = of_scenarios(many(5))
    assert figure is not None
    shown = [axes for axes in figure.axes if axes.get_title(loc="left")]
    labelled = [any(tick.label1.get_visible() for tick in axes.xaxis.get_major_ticks()) for axes in shown]
    assert labelled == [False, True, True, True]  # the fifth was not repeated; the last row is not full


def test_the_caption_counts_the_runs_that_arms_have():
    runs = [*repeats(1.0, 2.0), ({**INFO, "id": "other", "seed": 0}, {"scenarios": {}})]
    figure = of_scenarios(runs)
    assert figure is not None
    caption = " ".join(text.get_text().replace("\n", " ") for text in figure.texts)
    assert "n = 2 runs of each arm, of the 3 that are published" in caption


def test_a_line_to_compare_with_is_in_every_panel():
    figure = of_scenarios(many(3), line_at=1.0)
    assert figure is not None
    for axes in (axes for axes in figure.axes if axes.get_title(loc="left")):
        assert any(xs(line) == [1.0, 1.0] for line in axes.get_lines())


def dots(runs):
    return scenario_dots_figure(runs, scenario_panels(runs, "s"), "title", "seconds")


def test_many_scenarios_are_the_rows_of_one_panel_with_who_never_got_there_beside_it():
    figure = dots(many(35, runs=3))
    assert figure is not None
    (axes,) = figure.axes
    assert [tick.get_text() for tick in axes.get_yticklabels()] == [f"kill {index}" for index in range(35)]
    assert figure.get_size_inches()[1] < 12
    never = [line for line in axes.get_lines() if line.get_marker() == style_of("petals").marker]
    assert len(never) == 35
    assert all(xs(line)[0] > 1 for line in never)  # in widths of the panel
    mine = [line for line in axes.get_lines() if line.get_marker() == style_of("swarmlab").marker]
    assert [xs(line) for line in mine] == [[2.0]] * 34 + [[1.0]]
    assert mine[-1].get_markerfacecolor() == "white"  # one run only
    caption = " ".join(text.get_text().replace("\n", " ") for text in figure.texts)
    assert "n = 1 to 3 runs" in caption


def test_scenarios_of_one_run_are_no_repeats():
    assert dots(many(5, runs=1)) is None


def test_what_was_not_repeated_is_left_out():
    other = ({**INFO, "id": "other"}, {"scenarios": {"another": {"swarmlab": {"s": 1.0}}}})
    assert of_scenarios([*repeats(1.0), other]) is None
    figure = of_scenarios([*repeats(1.0, 2.0), other])
    assert figure is not None
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["kill"]
    assert "never in 1" not in words(figure.axes[0])


def test_a_scenario_in_which_nothing_failed_is_no_panel():
    runs = repeats(1.0, 2.0)
    for _, summary in runs:
        summary["scenarios"]["slow"] = {"petals": {"s": None}, "swarmlab": {"s": None}}
    figure = of_scenarios(runs)
    assert figure is not None
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["kill"]


def arms_of(number, arms, scenarios=("kill",)):
    info = {**INFO, "id": f"run{number}", "seed": number, "scenarios": list(scenarios)}
    return info, {"arms": arms, "scenarios": {}}


def test_a_repeat_of_some_arms_counts_for_those_and_the_labels_say_n():
    runs = [arms_of(0, {"petals": {"s": 1.0}, "pinned": {"s": 2.0}, "swarmlab": {"s": 3.0}})]
    runs += [arms_of(number, {"petals": {"s": 1.5}, "swarmlab": {"s": 3.5}}) for number in (1, 2)]
    figure = repeats_figure(runs, arms_panels(runs, {"s": "seconds"}), "title")
    assert figure is not None
    (axes,) = figure.axes
    labels = [tick.get_text() for tick in axes.get_yticklabels()]
    assert labels == ["petals (n = 3)", "pinned (n = 1)", "swarmlab (n = 3)"]
    assert axes.get_xlabel() == "seconds"


def test_what_arms_come_to_over_other_scenarios_is_no_repeat():
    runs = [arms_of(0, {"petals": {"s": 1.0}}), arms_of(1, {"petals": {"s": 9.0}}, ["kill", "hang"])]
    assert repeats_figure(runs, arms_panels(runs, {"s": "seconds"}), "title") is None


def test_panels_with_a_common_axis_all_show_the_farthest_value():
    runs = repeats(9.0, 9.5)
    for _, summary in runs:
        summary["scenarios"]["near"] = {"swarmlab": {"s": 1.0}}
    figure = of_scenarios(runs)
    assert figure is not None
    assert all(axes.get_xlim()[1] > 9.5 for axes in figure.axes)


def test_nothing_but_zeros_gets_an_axis_from_zero():
    runs = [arms_of(number, {"petals": {"s": 0.0}}) for number in (0, 1)]
    figure = repeats_figure(runs, arms_panels(runs, {"s": "seconds"}), "title")
    assert figure is not None
    low, high = figure.axes[0].get_xlim()
    assert -0.1 < low <= 0
    assert high >= 1


def test_a_figure_of_some_scenarios_says_so():
    evidence = default_run().evidence()
    scenarios = summarise(measure(evidence))["scenarios"]
    few = {"kill_last": scenarios["kill_last"]}
    texts = [
        failover_figure(evidence, few, INFO, of_scenarios=count).texts[-1].get_text().replace("\n", " ")
        for count in (len(scenarios), 1)
    ]
    assert texts[0].startswith(
        f"1 of the run's {len(scenarios)} scenarios; all are in the matrix of outcomes."
    )
    assert texts[1].startswith("n = ")


def test_a_figure_of_one_of_several_published_runs_says_so():
    assert provenance({**INFO, "published_runs": 5}).endswith(
        f"run {INFO['id']}, one of 5 that are published."
    )
    assert provenance(INFO).endswith(f"run {INFO['id']}.")


def test_a_single_number_is_hollow_and_has_no_spread():
    figure = of_scenarios(repeats(1.0, None))
    assert figure is not None
    (axes,) = figure.axes
    (marker,) = [line for line in axes.get_lines() if line.get_marker() == style_of("swarmlab").marker]
    assert marker.get_markerfacecolor() == "white"
    assert not axes.collections
    assert "never in 1" in words(axes)
