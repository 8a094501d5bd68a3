"""A tree of published results, damaged in every way that must be noticed."""

from __future__ import annotations

import json
import shutil

import pytest

from swarmlab.analysis.checks import Verdict, conclude
from swarmlab.check import judge
from swarmlab.figures import publish, rebuild
from swarmlab.judges.claims import ROOT
from swarmlab.judges.tree import check_tree
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


def test_what_is_committed_holds():
    """The repository's own results, figures, and tables in README and docs."""
    found = check_tree(ROOT / "results")
    against = [
        str(one) for findings in found.values() for one in findings if one.verdict is not Verdict.HOLDS
    ]
    assert not against, "\n".join(against)
