from __future__ import annotations

import numpy as np
import pytest
from matplotlib.patches import Rectangle

from swarmlab.analysis.plots.rebalance import rebalance_figures
from swarmlab.analysis.rebalance import TIMELINE, measure, measure_moves, parts
from swarmlab.analysis.rebalance_tables import load_table, moves_table
from tests.analysis.rebalance_rows import INFO, Story, both_arms


def test_a_no_op_and_a_redundant_load_are_counted_apart_from_what_was_needed():
    arms, scenarios = measure(both_arms().rows)
    lost, gap = scenarios["records_lost"]["petals"], scenarios["gap"]["petals"]
    assert (lost["moves"], lost["noop_reloads"], lost["redundant_loads"], lost["blocks_loaded"]) == (
        1,
        1,
        10,
        10,
    )
    assert (gap["moves"], gap["noop_reloads"], gap["redundant_loads"], gap["blocks_loaded"]) == (1, 0, 6, 10)
    assert arms["petals"]["redundant_loads"] == 16
    ours = arms["swarmlab"]
    assert (ours["moves"], ours["noop_reloads"], ours["redundant_loads"], ours["blocks_loaded"]) == (
        1,
        0,
        0,
        4,
    )


def test_seconds_out_of_service_and_blocks_lost():
    arms, _ = measure(both_arms().rows)
    assert arms["petals"]["out_of_service_s"] == pytest.approx(13.0)
    assert arms["petals"]["lost_block_seconds"] == pytest.approx(130.0)
    assert arms["petals"]["kept_out_of_service_s_max"] == pytest.approx(7.0)
    assert arms["petals"]["capacity_lost_per_move"] == pytest.approx(6500.0)
    assert (arms["swarmlab"]["out_of_service_s"], arms["swarmlab"]["lost_block_seconds"]) == (0.0, 0.0)
    assert arms["swarmlab"]["kept_out_of_service_s_max"] == 0.0


def test_throughput_is_a_mean_over_the_scenario_and_zero_counts():
    _, scenarios = measure(both_arms().rows)
    gap = scenarios["gap"]["swarmlab"]
    assert gap["zero_throughput_share"] == pytest.approx(6 / 30)
    assert gap["swarm_tps_mean"] == pytest.approx(80.0)
    assert gap["swarm_tps_over_optimal_mean"] == pytest.approx(0.4)


def test_samples_outside_a_scenario_do_not_count():
    story = Story().scenario("petals", "gap")
    story.add("balance", 31.0, "petals", "gap", swarm_tps=1e9, optimal_tps=200.0)
    assert measure(story.rows)[0]["petals"]["swarm_tps_mean"] == pytest.approx(80.0)


def test_sessions_that_break_are_told_per_move():
    arms, _ = measure(both_arms().rows)
    assert (arms["petals"]["sessions"], arms["petals"]["sessions_broken"]) == (2, 1)
    assert arms["petals"]["sessions_broken_per_move"] == 0.5
    assert (arms["petals"]["stalls"], arms["petals"]["stall_s_max"]) == (1, 3.0)
    assert (arms["swarmlab"]["recoveries"], arms["swarmlab"]["sessions_broken"]) == (1, 0)


def test_the_slow_disk_is_a_ratio_and_no_part_of_the_timeline():
    story = both_arms()
    story.scenario("petals", "slow_disk").move((0, 20), (2, 22), out_s=101.0, server="mover")
    story.scenario("swarmlab", "slow_disk").move((0, 20), (2, 22), out_s=0.0, kept=True, server="mover")
    arms, scenarios = measure(story.rows)
    assert scenarios["slow_disk"]["petals"]["out_of_service_over_swarmlab"] == pytest.approx(1010.0)
    assert arms["petals"]["moves"] == 2


def test_without_a_move_of_ours_there_is_no_ratio():
    story = Story().scenario("petals", "slow_disk").move((0, 20), (2, 22), out_s=101.0)
    story.scenario("swarmlab", "slow_disk")
    assert measure(story.rows)[1]["slow_disk"]["petals"]["out_of_service_over_swarmlab"] is None


def test_a_move_that_failed_is_not_one_that_was_made():
    story = (
        Story().scenario("swarmlab", "gap").move((10, 20), (10, 20), out_s=0.0, kept=True, completed=False)
    )
    found = measure(story.rows)[0]["swarmlab"]
    assert (found["moves"], found["moves_failed"], found["noop_reloads"]) == (0, 1, 0)


def test_what_was_loaded_for_a_move_that_was_withdrawn_was_loaded():
    done = {
        "old_start": 0, "old_end": 4, "new_start": 2, "new_end": 6, "loaded": 2, "redundant": 0, "bytes_read": 20,
        "no_op": False, "out_of_service_s": 0.0, "lost_block_s": 0.0, "completed": True,
    }  # fmt: skip
    found = measure_moves([done, {**done, "loaded": 1, "bytes_read": 10, "completed": False}])
    assert (found["moves"], found["moves_failed"]) == (1, 1)
    assert (found["blocks_loaded"], found["bytes_read"]) == (3, 30)


def test_where_nobody_moves_nothing_is_out_of_service():
    found = measure(Story().scenario("pinned", "gap").rows)[0]["pinned"]
    assert (found["moves"], found["out_of_service_s"], found["kept_out_of_service_s_max"]) == (0, 0.0, 0.0)
    assert found["sessions_broken_per_move"] is None


def test_servers_that_join_are_no_moves():
    story = Story().scenario("petals", "gap")
    story.add("reloads", 3.0, "petals", "gap", old_start=None, old_end=None, new_start=0, new_end=4, loaded=4)
    assert measure(story.rows)[0]["petals"]["moves"] == 0


def test_a_choice_after_a_decision_is_no_second_decision():
    story = Story().scenario("petals", "gap").move((10, 20), (14, 24), out_s=5.0)
    story.add("decisions", 18.0, "petals", "gap", phase="choose", moved=True, server="b1")
    assert len(parts(story.rows)["gap", "petals"].decided) == 1


def test_a_server_that_did_not_count_its_lost_blocks_lost_them_all():
    row = {
        "old_start": 0, "old_end": 4, "new_start": 2, "new_end": 6, "out_of_service_s": 2.0, "loaded": 4,
        "redundant": 2, "no_op": False, "bytes_read": 1,
    }  # fmt: skip
    assert measure_moves([row])["lost_block_seconds"] == 8.0


def test_figures_and_tables_name_every_arm_and_mark_a_no_op():
    story = both_arms()
    story.scenario("petals", "slow_disk").move((0, 20), (2, 22), out_s=101.0)
    story.scenario("swarmlab", "slow_disk").move((0, 20), (2, 22), out_s=0.1, kept=True)
    arms, scenarios = measure(story.rows)
    summary = {"arms": arms, "scenarios": scenarios}
    figures = rebalance_figures(story.rows, summary, INFO)
    assert set(figures) == {"", "clients", "quality", "blocks", "cost"}
    main = figures[""]
    assert {line.get_label() for line in main.axes[0].get_lines()} >= {"petals", "swarmlab", "upper bound"}
    assert any(patch.get_hatch() == "/////" for axes in main.axes for patch in axes.patches)
    assert all("n = 1" in figure.texts[-1].get_text() for figure in figures.values())
    assert (
        moves_table(summary).row_count == load_table(summary).row_count == 10 + 5
    )  # and a line for each scenario


@pytest.mark.parametrize("names", [["gap"], ["records_lost", "wide_joins"]])
def test_the_figure_of_costs_names_the_scenarios_that_were_run(names):
    story = Story()
    for arm in ("petals", "swarmlab"):
        for name in names:
            story.scenario(arm, name)
    arms, scenarios = measure(story.rows)
    summary = {"arms": arms, "scenarios": scenarios}
    figure = rebalance_figures(story.rows, summary, {**INFO, "scenarios": names})["cost"]
    loaded, out = figure.axes
    assert {axes.get_title(loc="left").partition("\n")[0] for axes in (loaded, out)} == {
        ", ".join(name.replace("_", " ") for name in names)
    }
    assert all(axes.get_xlim()[0] == 0.0 for axes in (loaded, out)), "nobody moved: no axis around 0"


def test_the_slow_disk_is_titled_by_what_moved():
    story = Story().scenario("petals", "slow_disk").move((0, 16), (4, 20), out_s=101.0)
    arms, scenarios = measure(story.rows)
    figure = rebalance_figures(story.rows, {"arms": arms, "scenarios": scenarios}, INFO)[""]
    assert figure.axes[0].get_title(loc="left") == "slow disk: 16 blocks move by 4"


def test_a_run_of_the_slow_disk_alone_has_one_figure():
    story = Story().scenario("petals", "slow_disk").move((0, 20), (2, 22), out_s=101.0)
    story.scenario("swarmlab", "slow_disk").move((0, 20), (2, 22), out_s=0.1, kept=True)
    arms, scenarios = measure(story.rows)
    assert arms == {}
    assert set(rebalance_figures(story.rows, {"arms": arms, "scenarios": scenarios}, INFO)) == {""}


def panels(figure_name, story):
    arms, scenarios = measure(story.rows)
    return rebalance_figures(story.rows, {"arms": arms, "scenarios": scenarios}, INFO)[figure_name].axes


def test_where_nobody_serves_is_hatched_as_high_as_the_panel_though_clients_got_nothing():
    story = both_arms()
    for row in story.rows["balance"]:
        row["delivered_tps"] = 0.0 if row["arm"] == "petals" else 100.0
    gap = TIMELINE.index("gap")
    axes = panels("clients", story)[gap]
    (hatched,) = axes.collections
    assert hatched.get_hatch() == "////"
    shown = hatched.get_datalim(axes.transAxes)
    assert (shown.y0, shown.y1) == (pytest.approx(0.0), pytest.approx(1.0)), "of the panel"


def test_a_bar_that_begins_before_everything_else_is_not_cut_off():
    story = both_arms().scenario("petals", "gap").move((0, 8), (4, 12), out_s=60.0)
    for axes in panels("", story):
        assert all(bar.get_x() > axes.get_xlim()[0] for bar in axes.patches if isinstance(bar, Rectangle))


def test_dead_servers_blocks_are_crossed_out_where_they_had_come_to():
    story = both_arms()
    start_s = story.rows["phases"][0]["t"]
    for arm in ("petals", "swarmlab"):
        for server, span in {"narrow": (2, 4), "a2": (0, 2)}.items():
            story.add(
                "reloads", start_s, arm, "records_lost", server=server, old_start=None, old_end=None,
                new_start=span[0], new_end=span[1], loaded=2, redundant=0, no_op=False, out_of_service_s=None,
            )  # fmt: skip
    petals = panels("blocks", story)[0]
    crosses = [np.asarray(line.get_ydata()) for line in petals.get_lines() if line.get_marker() == "x"]
    assert [one.tolist() for one in crosses] == [[2.5, 3.5], [0.5, 1.5]]


def test_sessions_that_ended_with_an_error_are_spoken_of_only_where_there_are_any():
    story = both_arms()
    arms, scenarios = measure(story.rows)
    captions = []
    for outcome in ("identical", "error"):
        story.rows["sessions"] = []
        story.add("sessions", 100.0, "swarmlab", "gap", outcome=outcome, stalls=[])
        figure = rebalance_figures(story.rows, {"arms": arms, "scenarios": scenarios}, INFO)["clients"]
        captions.append(figure.texts[-1].get_text().replace("\n", " "))
    assert "No session ended with an error or hung" in captions[0]
    assert "Ticks at the top: sessions that ended" in captions[1]


def test_bars_of_one_run_show_the_spread_of_all_that_are_published():
    story = both_arms()
    arms, scenarios = measure(story.rows)
    summary = {"arms": arms, "scenarios": scenarios}
    loaded = ({"petals": {**arms["petals"], "blocks_loaded": 20 + extra}} for extra in (0, 3, 9))
    runs = [({**INFO, "id": f"run{n}"}, {"arms": of, "scenarios": {}}) for n, of in enumerate(loaded)]
    for published, spread in ([], []), (runs, [(20.0, 29.0)]):
        figure = rebalance_figures(story.rows, summary, {**INFO, "published": published})["cost"]
        lines = [part for part in figure.axes[0].collections if part.get_paths()]
        ends = [
            tuple(np.asarray(path.vertices)[:, 0].tolist()) for part in lines for path in part.get_paths()
        ]
        assert ends == spread
        assert ("Ticks: each published run" in figure.texts[-1].get_text()) is bool(published)
        assert figure.axes[0].get_xlim()[1] > 29 * bool(published)
