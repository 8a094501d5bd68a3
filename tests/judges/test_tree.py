"""A tree of published results, damaged in every way that must be noticed."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import pytest

from swarmlab.analysis.checks import Verdict, conclude
from swarmlab.analysis.claims_tables import NOT_THERE
from swarmlab.check import judge
from swarmlab.figures import publish, rebuild
from swarmlab.judges.claims import ROOT, read_claims
from swarmlab.judges.tree import _commands, check_tree
from swarmlab.record.published import read_published
from swarmlab.record.rundir import RunDir
from tests.analysis.histories import DEFAULT_SCENARIOS, default_run


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    root = tmp_path_factory.mktemp("tree")
    run_dir = RunDir.create(
        root, "failover", config={}, argv=[], overrides=["+exp=failover"], seed=0, world="real",
        arms=["petals", "issue_patch", "swarmlab"], model={"id": "tiny_llama"},
    )  # fmt: skip
    run_dir.update(scenarios=DEFAULT_SCENARIOS)
    default_run().save(run_dir.path)
    run_dir.finish("complete")
    judge(run_dir.path)
    publish([run_dir.path], root / "results")
    list(rebuild(root / "results"))
    return root / "results"


@pytest.fixture
def results(published, tmp_path):
    return shutil.copytree(published, tmp_path / "results")


def verdicts(results):
    return {name: conclude(findings) for name, findings in check_tree(results).items()}


def test_what_was_just_made_holds(published):
    assert verdicts(published) == {"failover": Verdict.HOLDS, "documents": Verdict.HOLDS}


def test_a_number_that_was_changed_fails(results):
    path = results / "tables" / "failover" / "summary.json"
    summary = json.loads(path.read_text())
    summary["scenarios"]["kill_last"]["swarmlab"]["outcome"] = "wrong"
    path.write_text(json.dumps(summary))
    # the figure shows outcomes, and the README counts them
    assert verdicts(results) == {"failover": Verdict.FAILS, "documents": Verdict.FAILS}


def test_a_readme_typed_by_hand_fails(results):
    path = results / "README.md"
    path.write_text(path.read_text().replace("failover", "fail-over", 1))
    assert verdicts(results) == {"failover": Verdict.HOLDS, "documents": Verdict.FAILS}


@pytest.mark.parametrize("kind", ["png", "pdf"])
def test_a_figure_that_is_gone_or_of_other_data_fails(results, kind):
    figure = results / "figures" / f"failover.{kind}"
    figure.write_bytes(b"swarmlab-data:" + b"0" * 64)
    assert verdicts(results)["failover"] is Verdict.FAILS
    figure.unlink()
    assert verdicts(results)["failover"] is Verdict.FAILS


def test_a_figure_that_nothing_draws_is_unknown(results):
    shutil.copy(results / "figures" / "failover.png", results / "figures" / "other.png")
    assert verdicts(results)["documents"] is Verdict.UNKNOWN


def test_a_damaged_table_is_unknown_not_a_pass(results):
    (results / "tables" / "failover" / "tables" / "steps.parquet").write_bytes(b"PAR1")
    assert verdicts(results)["failover"] is Verdict.UNKNOWN


def test_a_run_without_its_settings_is_unknown(results):
    (results / "tables" / "failover" / "config.yaml").unlink()
    assert verdicts(results)["failover"] is Verdict.UNKNOWN


def test_a_claim_whose_command_makes_another_run_fails():
    claims, published = read_claims(), {one.name: one for one in read_published(ROOT / "results")}
    assert {finding.verdict for finding in _commands(claims, published)} == {Verdict.HOLDS}
    changed = [replace(one, command="make run EXP=record_dht") for one in claims]
    assert {finding.verdict for finding in _commands(changed, published)} == {Verdict.FAILS}


def repeat_of(results, name, number, arms):
    """A copy of what is published under another id and seed, with some of its arms."""
    folder = results / "tables" / name
    info, summary = (json.loads((folder / file).read_text()) for file in ("run.json", "summary.json"))
    for of in (summary, *summary["scenarios"].values()):
        kept = of["arms"] if of is summary else of
        for arm in set(kept) - set(arms):
            del kept[arm]
    info |= {"id": f"20270101T00000{number}Z-00000{number}", "seed": number, "arms": list(arms)}
    (folder / "repeats").mkdir(exist_ok=True)
    (folder / "repeats" / f"{info['id']}.json").write_text(json.dumps({"info": info, "summary": summary}))


REPEATED = ("failover", "failure_rates", "rebalance", "rebalance_under_load", "sim_vs_real")


@pytest.mark.parametrize("name", REPEATED)
def test_repeats_of_some_arms_are_drawn_counted_and_judged(tmp_path, name):
    """As after publishing a run with all arms and repeats with two of them."""
    folder = tmp_path / "tables" / name
    shutil.copytree(ROOT / "results" / "tables" / name, folder)
    shutil.rmtree(folder / "repeats", ignore_errors=True)
    arms = json.loads((folder / "run.json").read_text())["arms"]
    for number in (1, 2):
        repeat_of(tmp_path, name, number, [arm for arm in arms if arm in ("petals", "swarmlab")])
    drawn = {path.name for path in rebuild(tmp_path)}
    assert f"{name}_repeats.pdf" in drawn
    readme = (tmp_path / "README.md").read_text()
    assert "and 2 more" in readme
    assert NOT_THERE not in readme
    found = check_tree(tmp_path)
    against = [str(one) for one in found[name] if one.verdict is not Verdict.HOLDS]
    assert not against, "\n".join(against)


def test_what_is_committed_holds():
    """The repository's own results, figures, and tables in README and docs."""
    found = check_tree(ROOT / "results")
    against = [
        str(one) for findings in found.values() for one in findings if one.verdict is not Verdict.HOLDS
    ]
    assert not against, "\n".join(against)
