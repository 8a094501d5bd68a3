from __future__ import annotations

import pytest

from swarmlab.analysis.claim_costs import total_costs
from swarmlab.analysis.claim_numbers import evaluate
from swarmlab.analysis.claims import Number, makes, overrides_of, parse_claims
from swarmlab.analysis.claims_tables import (
    NOT_THERE,
    artifact_table,
    claims_table,
    command_of,
    figures_by_name,
    numbers_table,
    runs_table,
)
from swarmlab.errors import BadInput

INFO = {
    "id": "run1", "exp": "failover", "world": "real", "seed": 3, "device": "cpu", "host": {"cores": 2, "cpu": "a CPU"},
    "git": {"commit": "0123456789", "dirty": True}, "overrides": ["+exp=failover", "arms=[petals,swarmlab]"],
}  # fmt: skip
CLAIM = {
    "claim": "It | works", "command": "make run", "expected": "all right", "time": "5 min", "disk": "1 MB",
    "tolerance": "none", "published": "failover",
}  # fmt: skip


def run(name="run1", **scenarios):
    arms = {"swarmlab": {"tokens": 1000, "wrong": 0}}
    return {**INFO, "id": name}, {"verdict": "holds", "arms": arms, "scenarios": scenarios}


def scenario(ours, theirs=None, outcome="identical"):
    return {
        "swarmlab": {"seconds": ours, "outcome": outcome},
        "petals": {"seconds": theirs, "outcome": "exception"},
    }


OURS, THEIRS = "scenarios / * / swarmlab / seconds", "scenarios / * / petals / seconds"


def test_one_run_of_one_scenario_says_that_it_has_no_spread():
    cells = evaluate(Number("", OURS), [run(a=scenario(1.5))])
    assert (cells.ours, cells.ratio, cells.paper) == ("1.5 (n = 1)", "-", "-")


def test_an_interval_that_the_run_states_is_shown():
    stated = {
        "share_mean": 0.5,
        "share_low": 0.4,
        "share_high": 0.6,
        "other": 0.5,
        "other_low": 0.1,
        "repeats": 7,
    }
    runs = [run(a={"swarmlab": stated})]
    for name, words in (("share_mean", "0.5 [0.4, 0.6] (n = 7)"), ("other", "0.5 (n = 1)")):
        assert evaluate(Number("", f"scenarios / a / swarmlab / {name}"), runs).ours == words


def test_a_run_over_several_populations_has_intervals_over_them_and_pairs_them():
    info, summary = run("run1", a=scenario(2.0, 20.0))
    each: dict[str, dict[str, list[float | None]]] = {
        "swarmlab": {"seconds": [1.0, 2.0, 3.0]},
        "petals": {"seconds": [10.0, 20.0, 30.0]},
    }
    runs = [(info, {**summary, "by_repeat": {"a": each}})]
    ours, theirs = (f"scenarios / a / {arm} / seconds" for arm in each)
    cells = evaluate(Number("", ours, against=theirs), runs)
    assert cells.ours == "2 [1, 3] (n = 3)"
    assert cells.other == "petals: 20 [10, 30] (n = 3)"
    assert cells.ratio == "0.10 [0.10, 0.10] (n = 3) of petals", "pairs are resampled together"
    each["petals"]["seconds"] = [None, 20.0, 30.0]
    assert evaluate(Number("", ours, against=theirs), runs).ratio.endswith("(n = 2) of petals")


def test_what_neither_arm_can_have_is_not_missed():
    runs = [run(a=scenario(1.0, 2.0), b=scenario(2.0), slow=scenario(None))]
    cells = evaluate(Number("", OURS, against=THEIRS), runs)
    assert "never" not in cells.ours
    assert cells.other.endswith("never in 1")


def test_what_no_run_can_have_is_not_missed_in_a_repeat_of_one_arm_but_what_another_had_is():
    whole = run("run1", a=scenario(1.0, 2.0), slow=scenario(None))
    for lacking, words in (("slow", False), ("a", True)):
        info, summary = run("run2", **{lacking: {"swarmlab": {"seconds": None, "outcome": "identical"}}})
        part = ({**info, "arms": ["swarmlab"], "scenarios": [lacking]}, summary)
        cells = evaluate(Number("", OURS, against=THEIRS), [whole, part])
        assert ("never in 1" in cells.ours) == words


def test_several_runs_give_a_median_with_its_interval_and_a_paired_ratio():
    runs = [run(f"run{i}", a=scenario(float(i), 10.0 * i)) for i in range(1, 6)]
    cells = evaluate(Number("", OURS, against=THEIRS), runs)
    assert cells.ours.startswith("3 [")
    assert cells.other.startswith("petals: 30 [")
    assert cells.ours.endswith("] (n = 5)")
    assert cells.ratio == "0.10 [0.10, 0.10] (n = 5) of petals"
    assert cells.run_ids == ("run1", "run2", "run3", "run4", "run5")


def test_repeats_of_a_scenario_do_not_pass_for_more_scenarios():
    """Ten runs of two scenarios are no twenty independent numbers: the interval is over the two."""
    runs = [run(f"run{i}", a=scenario(1.0, 2.0), b=scenario(3.0, 30.0)) for i in range(10)]
    cells = evaluate(Number("", OURS, against=THEIRS), runs)
    assert cells.ours == "2 [1, 3] (n = 2 scenarios in 10 runs)"
    assert cells.ratio == "0.12 [0.10, 0.50] (n = 2) of petals"


def test_a_repeat_of_some_arms_or_scenarios_counts_where_it_has_numbers():
    info, summary = run("run2", a={"swarmlab": {"seconds": 3.0, "outcome": "wrong"}})
    part = ({**info, "arms": ["swarmlab"], "scenarios": ["a"]}, summary)
    runs = [run("run1", a=scenario(1.0, 2.0), b=scenario(5.0, 5.0)), part]
    one = evaluate(
        Number("", "scenarios / a / swarmlab / seconds", against="scenarios / a / petals / seconds"), runs
    )
    assert (one.other, one.ours) == ("petals: 2 (n = 1)", "2 [1, 3] (n = 2)")
    assert one.ratio == "0.50 (n = 1) of petals"
    assert evaluate(Number("", "scenarios / b / swarmlab / seconds"), runs).run_ids == ("run1",)
    counted = evaluate(Number("", "scenarios / * / swarmlab / outcome", counts="identical"), runs)
    assert counted.ours == "2 of 3 in 2 runs"


def test_a_repeat_that_lacks_what_it_was_asked_for_is_not_passed_over():
    info, _ = run("run2")
    lost = ({**info, "arms": ["petals", "swarmlab"], "scenarios": ["a"]}, {"arms": {}, "scenarios": {}})
    with pytest.raises(BadInput, match="a place in the summary of run2"):
        evaluate(Number("", "scenarios / a / swarmlab / seconds"), [run("run1", a=scenario(1.0)), lost])


@pytest.mark.parametrize(
    ("command", "overrides", "same"),
    [
        ("make run", ["+exp=failover"], True),
        ("make run", ["+exp=failover", "model=tiny_llama", "seed=7"], True),
        ("make run", ["+exp=failover", "scenarios=[kill_last]"], False),
        ("make models && make run MODEL=smollm2", ["+exp=failover", "model=smollm2"], True),
        ("make run MODEL=smollm2", ["+exp=failover"], False),
        ("make run EXP=failover_soak ARGS=minutes=3", ["+exp=failover_soak", "minutes=30"], False),
        (
            "make run ARGS=\"scenarios=all 'arms=[a,b]'\"",
            ["arms=[a,b]", "+exp=failover", "scenarios=all"],
            True,
        ),
    ],
)
def test_a_command_makes_a_run_that_was_asked_for_alike_up_to_the_seed(command, overrides, same):
    assert makes(command, overrides) is same


@pytest.mark.parametrize("command", ["make test", "make run now", "make run EXPERIMENT=x", ""])
def test_a_command_that_runs_nothing_is_bad_input(command):
    with pytest.raises(BadInput, match="make run"):
        overrides_of(command)


def test_a_row_names_the_command_of_its_run_where_the_claims_is_another():
    claims = parse_claims([{**CLAIM, "numbers": [{"what": "it", "ours": OURS}]}], "x")
    assert "`python -m swarmlab.run +exp=failover 'arms=[petals,swarmlab]'`" in numbers_table(
        claims, {"failover": [run(a=scenario(1.0))]}
    )


def test_a_number_of_the_paper_is_set_beside_ours_as_a_ratio():
    cells = evaluate(Number("", OURS, paper=3.0, exact=True), [run(a=scenario(1.5))])
    assert (cells.paper, cells.ours, cells.ratio) == ("3", "1.5", "0.50 of the paper")


def test_what_never_came_is_told_and_does_not_count_as_a_number():
    runs = [run(a=scenario(1.0), b=scenario(1.0), c=scenario(None))]
    assert evaluate(Number("", OURS), runs).ours == "1 [1, 1] (n = 2), never in 1"
    assert evaluate(Number("", THEIRS), runs).ours == "never"


def test_places_with_one_value_are_counted():
    runs = [run(a=scenario(1.0), b=scenario(1.0, outcome="wrong"))]
    number = Number("", "scenarios / * / swarmlab / outcome", counts="identical")
    assert evaluate(number, runs).ours == "1 of 2"


def test_the_largest_of_all_runs_is_told_with_whose_it_is():
    """Also of a run over other scenarios, and only of arms that the number is about."""
    first, second = run("run1"), run("run2")
    second[0]["scenarios"] = ["other"]
    first[1]["arms"] = {"a": {"error": 0.4, "computed": 2}, "b": {"error": 0.9, "computed": 0}}
    second[1]["arms"] = {"a": {"error": 0.7, "computed": 2}, "c": {"error": None, "computed": 1}}
    number = Number("error", "arms / * / error", largest=True, where="computed", form=".2g")
    cells = evaluate(number, [first, second])
    assert cells.ours == "0.7 (a; largest of 2 in 2 runs)"
    assert cells.run_ids == ("run1", "run2")


def test_words_are_shown_with_how_often_they_came():
    runs = [run(a=scenario(1.0), b=scenario(1.0, outcome="wrong"))]
    number = Number("", "scenarios / * / swarmlab / outcome")
    assert evaluate(number, runs).ours == "identical 1 times, wrong 1 times"
    assert evaluate(number, [run(a=scenario(1.0))]).ours == "identical"


def test_a_zero_count_comes_with_its_bound():
    number = Number("", "arms / swarmlab / wrong", of="arms / swarmlab / tokens")
    assert evaluate(number, [run("a"), run("b")]).ours == "0 of 2,000 in 2 runs (95 %: below 0.0015)"


@pytest.mark.parametrize(
    "path", ["scenarios / z / swarmlab / seconds", "arms / nobody / x", "verdict / x / y"]
)
def test_a_path_to_nowhere_is_bad_input_and_an_empty_cell(path):
    runs = [run(a=scenario(1.0))]
    with pytest.raises(BadInput, match="a place in the summary of run1"):
        evaluate(Number("", path), runs)
    claims = parse_claims([{**CLAIM, "numbers": [{"what": "it", "ours": path}]}], "x")
    assert NOT_THERE in numbers_table(claims, {"failover": runs})


def test_claims_of_what_is_not_published_have_no_number():
    claims = parse_claims([{**CLAIM, "numbers": [{"what": "it", "ours": OURS}]}], "x")
    assert len(numbers_table(claims, {}).splitlines()) == 2
    assert "| it | real |" in numbers_table(claims, {"failover": [run(a=scenario(1.0))]})


@pytest.mark.parametrize(
    "raw", [3, ["x"], [{"claim": "c"}], [{**CLAIM, "colour": 1}], [{**CLAIM, "numbers": [{"ours": "x"}]}]]
)
def test_a_claim_that_lacks_something_is_bad_input(raw):
    with pytest.raises(BadInput, match=r"claims\.yaml"):
        parse_claims(raw, "claims.yaml")


def test_a_cell_does_not_break_the_table():
    table = claims_table(parse_claims([CLAIM], "x"), {"failover": "real"})
    assert "| It \\| works | real | `make run` |" in table


def test_a_claim_without_a_stored_run_says_so():
    alone = parse_claims([{name: value for name, value in CLAIM.items() if name != "published"}], "x")
    stored = parse_claims([{**CLAIM, "published": "failover"}], "x")
    for make in (claims_table, lambda claims, worlds: artifact_table(claims, worlds, {})):
        assert "not published" in make(alone, {})
        assert "not published" not in make(stored, {})


def test_the_evidence_of_a_claim_is_its_own_table_and_its_own_figures():
    names = ["failover", "failover_all"]
    stems = ["failover_all_outcomes", "failover", "failover_all", "failover_outcomes", "other"]
    figures = figures_by_name(stems, names)
    assert figures == {
        "failover": ["failover", "failover_outcomes"],
        "failover_all": ["failover_all", "failover_all_outcomes"],
    }
    row = artifact_table(parse_claims([CLAIM], "x"), {}, figures).splitlines()[2]
    assert row.endswith(
        "| [failover](../results/tables/failover/); figures: [main](../results/figures/failover.png), "
        "[outcomes](../results/figures/failover_outcomes.png) |"
    )


def costs(*typed):
    rows = [{**CLAIM, "command": command, "time": time, "disk": disk} for command, time, disk in typed]
    return total_costs(parse_claims(rows, "x"))


def test_the_costs_of_all_commands_are_summed_up_each_once():
    told = costs(
        ("make run A=1", "15 min (seconds on a stored run)", "10 MB (0.4 GB for the model)"),
        ("make run", "30 s", "1 MB"),
        ("make run", "30 s", "1 MB"),
    )
    assert told == "All 2 commands, one after another: about 16 min and 411 MB."
    assert "about 1 h 30 min and 2.0 GB" in costs(("make run", "1.5 h", "2 GB"))


@pytest.mark.parametrize(("time", "disk"), [("long", "1 MB"), ("1 min", "much")])
def test_costs_that_are_no_amounts_are_bad_input(time, disk):
    with pytest.raises(BadInput, match="claims: "):
        costs(("make run", time, disk))


def test_every_run_is_listed_with_its_command_commit_seed_and_host():
    text = runs_table({"failover": [run("run1"), run("run2")]})
    for part in (
        "run1",
        "run2",
        "0123456+",
        "| 3 |",
        "cpu: 2 cores, a CPU",
        "| 2 |",
        "'arms=[petals,swarmlab]'",
    ):
        assert part in text
    assert command_of(INFO) == "python -m swarmlab.run +exp=failover 'arms=[petals,swarmlab]'"


def test_a_comparison_with_a_stored_run_names_it():
    """As typed otherwise it would start a new swarm; publishing takes folders out of the overrides."""
    compared = {"overrides": ["+exp=sim_vs_real"], "compared_with": {"id": "run7", "git": None}}
    stored = "rebalance.run_dir=results/runs/rebalance/run7"
    assert command_of(compared) == f"python -m swarmlab.run +exp=sim_vs_real {stored}"
    own = {**compared, "overrides": ["rebalance.run_dir=elsewhere"]}
    assert command_of(own) == "python -m swarmlab.run rebalance.run_dir=elsewhere"
    assert command_of({**compared, "compared_with": None}) == "python -m swarmlab.run +exp=sim_vs_real"


def test_of_a_multirun_the_first_job_counts():
    command = (
        "make run EXP=churn ARGS=\"-m hydra/launcher=here 'scenarios=[a,b]' sim.s_per_block=3,27 seed=1\""
    )
    first = ["+exp=churn", "model=tiny_llama", "scenarios=[a,b]", "sim.s_per_block=3", "seed=1"]
    assert overrides_of(command) == first
    assert makes(command, ["+exp=churn", "scenarios=[a,b]", "sim.s_per_block=3"])
    assert not makes(command, ["+exp=churn", "scenarios=[a,b]", "sim.s_per_block=27"])
