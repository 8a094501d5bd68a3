from __future__ import annotations

import pytest

from swarmlab.analysis.claims import Number, evaluate, parse_claims
from swarmlab.analysis.claims_tables import NOT_THERE, claims_table, command_of, numbers_table, runs_table
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
    stated = {"share_mean": 0.5, "share_low": 0.4, "share_high": 0.6, "other": 0.5, "other_low": 0.1}
    runs = [run(a={"swarmlab": stated})]
    for name, words in (("share_mean", "0.5 [0.4, 0.6]"), ("other", "0.5 (n = 1)")):
        assert evaluate(Number("", f"scenarios / a / swarmlab / {name}"), runs).ours == words


def test_what_neither_arm_can_have_is_not_missed():
    runs = [run(a=scenario(1.0, 2.0), b=scenario(2.0), slow=scenario(None))]
    cells = evaluate(Number("", OURS, against=THEIRS), runs)
    assert "never" not in cells.ours
    assert cells.other.endswith("never in 1")


def test_several_runs_give_a_median_with_its_interval_and_a_paired_ratio():
    runs = [run(f"run{i}", a=scenario(float(i), 10.0 * i)) for i in range(1, 6)]
    cells = evaluate(Number("", OURS, against=THEIRS), runs)
    assert cells.ours.startswith("3 [")
    assert cells.other.startswith("petals: 30 [")
    assert cells.ratio == "0.1 [0.1, 0.1] of petals"


def test_a_number_of_the_paper_is_set_beside_ours_as_a_ratio():
    cells = evaluate(Number("", OURS, paper=3.0, exact=True), [run(a=scenario(1.5))])
    assert (cells.paper, cells.ours, cells.ratio) == ("3", "1.5", "0.5 of the paper")


def test_what_never_came_is_told_and_does_not_count_as_a_number():
    runs = [run(a=scenario(1.0), b=scenario(1.0), c=scenario(None))]
    assert evaluate(Number("", OURS), runs).ours == "1 [1, 1], never in 1"
    assert evaluate(Number("", THEIRS), runs).ours == "never"


def test_places_with_one_value_are_counted():
    runs = [run(a=scenario(1.0), b=scenario(1.0, outcome="wrong"))]
    number = Number("", "scenarios / * / swarmlab / outcome", counts="identical")
    assert evaluate(number, runs).ours == "1 of 2"


def test_words_are_shown_with_how_often_they_came():
    runs = [run(a=scenario(1.0), b=scenario(1.0, outcome="wrong"))]
    number = Number("", "scenarios / * / swarmlab / outcome")
    assert evaluate(number, runs).ours == "identical 1 times, wrong 1 times"
    assert evaluate(number, [run(a=scenario(1.0))]).ours == "identical"


def test_a_zero_count_comes_with_its_bound():
    number = Number("", "arms / swarmlab / wrong", of="arms / swarmlab / tokens")
    assert evaluate(number, [run("a"), run("b")]).ours == "0 of 2,000 (95 %: below 0.0015)"


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
    assert "It \\| works" in claims_table(parse_claims([CLAIM], "x"))


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
