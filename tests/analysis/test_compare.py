from __future__ import annotations

from swarmlab.analysis.compare import compare


def summary(seconds, outcome="identical", arm="swarmlab"):
    return {"arms": {arm: {"steps": 10}}, "scenarios": {"kill": {arm: {"s": seconds, "outcome": outcome}}}}


def row(rows, metric):
    (found,) = [one for one in rows if one["metric"] == metric]
    return found


def test_a_number_is_set_beside_the_median_of_others_with_its_interval():
    found = row(compare(summary(3.0), [summary(1.0), summary(2.0), summary(1.5)]), "s")
    assert (found["ours"], found["low"], found["high"], found["n"], found["ratio"]) == (1.5, 1.0, 2.0, 3, 2.0)
    assert (found["scenario"], found["arm"], found["mine"], found["same"]) == ("kill", "swarmlab", 3.0, None)


def test_a_single_other_run_has_no_interval():
    found = row(compare(summary(3.0), [summary(1.5)]), "s")
    assert (found["low"], found["high"], found["n"]) == (None, None, 1)


def test_a_word_is_the_same_or_not():
    assert row(compare(summary(1.0), [summary(1.0)]), "outcome")["same"] is True
    assert row(compare(summary(1.0, "wrong"), [summary(1.0)]), "outcome")["same"] is False
    assert row(compare(summary(1.0), [summary(1.0), summary(1.0, "wrong")]), "outcome")["same"] is False


def test_what_only_one_has_is_left_out_and_what_never_came_has_no_ratio():
    assert compare(summary(1.0, arm="petals"), [summary(1.0)]) == []
    assert row(compare(summary(None), [summary(1.0)]), "s")["ratio"] is None
    assert not [one for one in compare(summary(1.0), [summary(None)]) if one["metric"] == "s"]


def test_arms_over_all_scenarios_are_compared_too():
    assert row(compare(summary(1.0), [summary(1.0)]), "steps")["scenario"] == "all"


def test_arms_over_other_scenarios_are_not_compared():
    more = summary(1.0)
    more["scenarios"]["hang"] = more["scenarios"]["kill"]
    assert {one["scenario"] for one in compare(summary(1.0), [more])} == {"kill"}
