"""The judge of +exp=recovery_speed on a handmade record with known answers, and on records that went bad."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from matplotlib.patches import Rectangle

from swarmlab.analysis.checks import Verdict, conclude, expect
from swarmlab.analysis.plots.recovery_speed import recovery_speed_figure
from swarmlab.analysis.recovery_speed import Record, measure
from swarmlab.analysis.recovery_speed_checks import check_recovery_speed
from swarmlab.analysis.recovery_speed_grid import Cell, cells, cells_of
from swarmlab.analysis.recovery_speed_table import recovery_speed_table
from swarmlab.judges.expected import read_expected
from swarmlab.judges.recovery_speed import draw_repeats

ONE, TWO = Cell(100, 1), Cell(100, 2)
ARMS = ["swarmlab", "swarmlab_standby"]
PLANNED = {arm: [ONE, TWO] for arm in ARMS}
INFO = {
    "id": "20261130T000000Z-abcdef", "seed": 7, "world": "real", "device": "cpu", "model": {"id": "tiny_llama"},
    "host": {"cores": 2, "cpu": "a CPU"}, "status": "complete", "arms": ARMS,
}  # fmt: skip
EXPECTED = {
    "all": {"swarmlab": {"outcome": "identical"}},
    "cells": {ONE.name: {"swarmlab": {"recovery_over_floor": {"max": 1.3}}}},
}
SPENT = {"standby_tokens": 300, "standby_s": 0.5, "standby_bytes": 4_000_000, "cache_bytes": 2_000_000}


def history() -> dict:
    """Floors of 0.1 s (1 span) and 0.15 s (2 spans); swarmlab takes 1.2 and 1.1 of that, a standby 0.5."""
    rows: dict = {"faults": [], "failovers": [], "floors": [], "outcomes": []}
    for cell, floor_s in ((ONE, 0.1), (TWO, 0.15)):
        for arm in ARMS:
            over = 0.5 if arm == "swarmlab_standby" else 1.2 if cell is ONE else 1.1
            for repeat in range(3):
                about = {"scenario": cell.name, "arm": arm, "repeat": repeat}
                for span in range(cell.n_failed):
                    fault = {
                        **about,
                        "t": 10.0,
                        "fault": "kill",
                        "target": f"s{span}",
                        "at_token": 100,
                        "ok": True,
                    }
                    rows["faults"] += [{**fault, "stage": "setup"}, {**fault, "stage": "confirm", "t": 10.1}]
                    # the second of two begins when the first is half-way: together they take as long as is said
                    total_s = over * floor_s * (2 / 3 if cell is TWO else 1)
                    end_s = 11.0 + (span + 1 - cell.n_failed) * total_s / 2
                    rows["failovers"].append(
                        {**about, "t": end_s, "cause": "broken", "total_s": total_s, "detect_s": 0.0, "reroute_s": 0.0,
                         "connect_s": 0.01, "replay_s": total_s - 0.01, "tokens_replayed": 100,
                         "from_standby": arm == "swarmlab_standby"}
                    )  # fmt: skip
                for take in range(3):
                    prefill_s = floor_s - 0.02 + 0.05 * take
                    rows["floors"].append(
                        {
                            **about,
                            "t": 12.0,
                            "take": take,
                            "connect_s": 0.02,
                            "prefill_s": prefill_s,
                            "calm_s": 1.05 * (prefill_s + 0.02),
                        }
                    )
                spent = SPENT if arm == "swarmlab_standby" else dict.fromkeys(SPENT, 0)
                result = {"outcome": "identical", "max_abs_diff": 1e-5, "step_s": [0.03] * 8, **spent}
                rows["outcomes"].append({**about, "t": 13.0, **result})
    return rows


def judge(rows, expected=EXPECTED, info=INFO):
    record = Record(rows)
    numbers = measure(record, PLANNED)
    findings = check_recovery_speed(record, numbers, expected, PLANNED, info)
    return conclude(findings), [str(one) for one in findings if one.verdict is not Verdict.HOLDS]


def test_what_our_code_takes_in_peace_stands_between_a_recovery_and_its_floor():
    cell = measure(Record(history()), PLANNED)["scenarios"][ONE.name]["swarmlab"]
    assert cell["calm_over_floor"] == pytest.approx(1.05)
    assert cell["recovery_over_calm"] == pytest.approx(1.2 / 1.05)
    old = history()
    for row in old["floors"]:
        del row["calm_s"]
    assert measure(Record(old), PLANNED)["scenarios"][ONE.name]["swarmlab"]["calm_over_floor"] is None


def test_recoveries_are_compared_with_the_floor_of_the_very_same_recovery():
    numbers = measure(Record(history()), PLANNED)["scenarios"]
    one, two = numbers[ONE.name]["swarmlab"], numbers[TWO.name]["swarmlab"]
    assert one["recovery_over_floor"] == pytest.approx(1.2)
    assert one["recovery_over_typical_floor"] == pytest.approx(0.12 / 0.15)
    assert (one["sessions"], one["failures_injected"], one["recoveries"]) == (3, 3, 3)
    assert two["recovery_over_floor"] == pytest.approx(1.1), "two recoveries at the same time are one wait"
    assert two["recovery_s_median"] == pytest.approx(0.165)
    assert two["tokens_replayed"] == 200
    standby = numbers[ONE.name]["swarmlab_standby"]
    assert standby["recovery_over_floor"] == pytest.approx(0.5)
    assert standby["from_standby_share"] == 1.0
    assert {name: standby[name] for name in SPENT} == SPENT


def test_what_lies_between_two_recoveries_is_none():
    rows = history()
    late = [row for row in rows["failovers"] if row["scenario"] == TWO.name and row["arm"] == "swarmlab"][
        1::2
    ]
    for row in late:
        row["t"] += 50.0
    two = measure(Record(rows), PLANNED)["scenarios"][TWO.name]["swarmlab"]
    assert two["recovery_s_median"] == pytest.approx(2 * 0.11), "one after the other they take their sum"


def test_a_good_run_holds():
    assert judge(history()) == (Verdict.HOLDS, [])


def test_a_recovery_that_takes_too_long_fails():
    rows = history()
    for row in rows["failovers"]:
        row["total_s"] += 0.05
    verdict, against = judge(rows)
    assert verdict is Verdict.FAILS
    assert "recovery_over_floor" in against[0]


def test_a_session_that_went_wrong_fails():
    rows = history()
    rows["outcomes"][1]["outcome"] = "wrong"
    assert judge(rows)[0] is Verdict.FAILS


@pytest.mark.parametrize("kind", ["faults", "failovers", "floors"])
def test_without_the_record_of_a_session_nothing_can_be_said(kind):
    rows = history()
    rows[kind] = [row for row in rows[kind] if row["repeat"] != 1]
    assert judge(rows)[0] is Verdict.UNKNOWN


def test_a_fault_that_was_not_confirmed_is_no_fault():
    rows = history()
    rows["faults"][1]["ok"] = False
    assert judge(rows)[0] is Verdict.UNKNOWN


def test_an_unfinished_run_says_nothing():
    assert judge(history(), info={**INFO, "status": "failed"})[0] is Verdict.UNKNOWN


def test_a_renewed_stream_is_no_recovery():
    rows = history()
    before = measure(Record(copy.deepcopy(rows)), PLANNED)
    rows["failovers"].append({**rows["failovers"][0], "cause": "renewed", "total_s": 5.0})
    assert measure(Record(rows), PLANNED) == before


def test_table_and_figure_show_every_cell_and_arm():
    record = Record(history())
    numbers = measure(record, PLANNED)
    assert recovery_speed_table(numbers).row_count == 4 + 2
    figure = recovery_speed_figure(record, numbers["scenarios"], INFO)
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert labels[0] == "100 tokens, 1 span: swarmlab"
    assert labels[3] == "100 tokens, 2 spans: swarmlab, standby"


def test_standbys_have_cells_of_their_own():
    speed = {"histories": [10, 500], "failed": [1, 2], "standby_histories": [500]}
    assert cells_of("swarmlab", speed) == cells([10, 500], [1, 2])
    assert cells_of("swarmlab_standby", speed) == cells([500], [1, 2])


def test_every_number_of_positions_meets_every_number_of_spans():
    assert [cell.name for cell in cells([10, 500], [1, 2])] == [
        "10_tokens_1_span", "10_tokens_2_spans", "500_tokens_1_span", "500_tokens_2_spans",
    ]  # fmt: skip


def slow_one(rows, times):
    """One recovery of the first cell takes this many times as long."""
    row = next(one for one in rows["failovers"] if one["arm"] == "swarmlab")
    row["replay_s"] += row["total_s"] * (times - 1)
    row["total_s"] *= times
    return rows


def test_the_rare_slow_recovery_shows_in_the_quantile_of_all_single_ones():
    cell, calm = (
        measure(Record(rows), PLANNED)["scenarios"][ONE.name]["swarmlab"]
        for rows in (slow_one(history(), 10), history())
    )
    assert cell["recovery_over_floor"] == calm["recovery_over_floor"] == pytest.approx(1.2)
    assert calm["recovery_over_floor_p95"] == pytest.approx(1.2)
    assert cell["recovery_over_floor_p95"] > 10


def drawn(rows):
    record = Record(rows)
    return recovery_speed_figure(record, measure(record, PLANNED)["scenarios"], INFO)


def test_every_recovery_is_drawn_beside_the_bar_of_its_medians():
    right = drawn(history()).axes[1]
    ticks = [line for line in right.get_lines() if line.get_marker() == "|"]
    assert [round(float(x)) for x in np.asarray(ticks[0].get_xdata())] == [120, 120, 120]
    bars = [patch.get_x() + patch.get_width() for patch in right.patches if isinstance(patch, Rectangle)]
    assert right.get_xlim()[1] > 1.05 * max(bars)


def test_a_recovery_that_would_press_all_bars_flat_is_told_as_a_number():
    right = drawn(slow_one(history(), 100)).axes[1]
    assert right.get_xlim()[1] < 1000
    assert [text.get_text().partition(" ")[0] for text in right.texts] == ["12000"]


def test_the_legend_has_no_stage_that_is_nowhere_to_be_seen():
    figure = drawn(history())
    (legend,) = figure.legends
    named = [text.get_text() for text in legend.get_texts()]
    assert "replay" in named
    assert not {"detect", "reroute"} & set(named)
    caption = " ".join(text.get_text().replace("\n", " ") for text in figure.texts)
    assert "Too short to be seen: detect and reroute (at most 0 ms)" in caption


def test_repeats_show_where_the_floor_is():
    runs = [({**INFO, "id": name, "seed": 0}, measure(Record(history()), PLANNED)) for name in ("a", "b")]
    figure = draw_repeats(runs)
    for axes in (axes for axes in figure.axes if axes.get_title(loc="left")):
        assert any(np.asarray(line.get_xdata()).tolist() == [1.0, 1.0] for line in axes.get_lines())


def test_a_median_of_twice_the_worst_that_was_seen_fails():
    """What is published is at most 2.4 times the fastest floor, and 2.0 times the typical one."""
    wanted = read_expected("recovery_speed")["all"]["swarmlab"]
    for metric, worst in (("recovery_over_floor", 2.4), ("recovery_over_typical_floor", 2.0)):
        assert expect("x", worst, wanted[metric]).verdict is Verdict.HOLDS
        assert expect("x", 2 * worst, wanted[metric]).verdict is Verdict.FAILS
