"""The simulated experiments as a user runs them: recorded, judged again from the record, drawn."""

from __future__ import annotations

import json
import shutil
from collections import Counter

import pytest
import yaml
from rich.console import Console

from swarmlab import check
from swarmlab.analysis.checks import Verdict
from swarmlab.errors import BadInput
from swarmlab.figures import draw_run
from swarmlab.record.load import load_run
from swarmlab.record.rundir import RunDir
from swarmlab.scenarios.progress import ConsoleProgress
from swarmlab.scenarios.registry import build
from swarmlab.scenarios.report_389 import Report
from swarmlab.settings import load

SMALL = [
    "+exp=appendix_e", "sim.n_blocks=12", "sim.n_servers=30", "sim.active_min=12", "sim.active_max=20",
    "sim.duration_s=1200", "sim.activity_period_s=1200", "sim.warm_up_s=300", "sim.capacity_max=5", "sim.repeats=2",
    "arms=[none,join_only,petals,swarmlab]",
]  # fmt: skip


def played(overrides, folder):
    settings, resolved = load(overrides)
    experiment = build(settings)
    run_dir = RunDir.create(
        folder, settings.experiment, config=resolved, argv=[], overrides=overrides, seed=settings.seed,
        world=experiment.world, arms=settings.arms, model=experiment.model,
    )  # fmt: skip
    run_dir.update(scenarios=list(experiment.parts))
    progress = ConsoleProgress(experiment.n_units, Console(quiet=True))
    ended = []
    progress.end = lambda *what: ended.append(what)  # type: ignore[method-assign]
    with run_dir, progress:
        experiment.run(run_dir, progress)
    assert len(ended) == experiment.n_units
    return run_dir.path


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    return played(["+exp=report_389"], tmp_path_factory.mktemp("report"))


@pytest.fixture(scope="module")
def paper(tmp_path_factory):
    return played(SMALL, tmp_path_factory.mktemp("paper"))


def test_the_view_is_the_reports_own():
    report = Report.read()
    assert max(abs(a - b) for a, b in zip(report.seen_tps(), report.reported_tps(), strict=True)) < 1
    assert report.seen_tps().min() == pytest.approx(696.53)
    assert report.s_per_block == pytest.approx(30.2, abs=0.5)


def test_the_report_shows_what_its_notes_say(report):
    summary = check.judge(report)
    assert summary.verdict is Verdict.HOLDS, summary.reasons
    again = summary.scenarios["records_back"]
    assert again["petals"]["moved"] == [
        "S1 back to 0:33",
        "S3 back to 0:20",
        "S4 back to 20:40",
        "S6 to 40:50",
    ]
    assert again["petals"]["noop_reloads"] == 3
    assert again["petals"]["redundant_loads"] == 33 + 20 + 20 + 3
    assert again["swarmlab"]["blocks_loaded"] == 0
    assert all(arm["moves"] == 0 for arm in summary.scenarios["whole"].values())


def test_the_reports_figures_show_both_views(report):
    check.judge(report)
    assert sorted(path.suffix for path in draw_run(report)) == [".pdf", ".png"]


def test_another_view_than_the_reports_is_unknown(report, tmp_path):
    path = copied(report, tmp_path)
    blocks = path / "history" / "blocks.jsonl"
    rows = [json.loads(line) for line in blocks.read_text().splitlines()]
    rows[3]["seen_tps"] += 100
    blocks.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert check.judge(path).verdict is Verdict.UNKNOWN


def test_a_no_op_more_fails(report, tmp_path):
    path = copied(report, tmp_path)
    with (path / "history" / "reloads.jsonl").open("a") as file:
        row = json.loads((path / "history" / "reloads.jsonl").read_text().splitlines()[0])
        file.write(json.dumps({**row, "arm": "swarmlab", "scenario": "whole"}) + "\n")
    assert check.judge(path).verdict is Verdict.FAILS


def test_the_papers_swarm_is_recorded_and_judged_from_the_record(paper, tmp_path):
    expected = tmp_path / "expected.yaml"
    wanted = {"instant": {"arms": {"none": {"moves": 0}, "join_only": {"moves": 0}, "optimal": {"moves": 0}}}}
    expected.write_text(yaml.safe_dump({"scenarios": wanted}))
    summary = check.judge(paper, expected=expected)
    assert summary.verdict is Verdict.HOLDS, summary.reasons
    assert list(summary.scenarios) == ["instant", "reload"]
    run = load_run(paper)
    assert run.info["world"] == "simulated"
    counts = Counter((row["scenario"], row["arm"], row["repeat"]) for row in run.history("balance"))
    assert set(counts.values()) == {20}
    assert len(counts) == 2 * 5 * 2
    assert summary.scenarios["reload"]["swarmlab"]["redundant_loads"] == 0
    assert summary.scenarios["instant"]["petals"]["capacity_lost_share"] == 0
    stored = json.loads((paper / "summary.json").read_text())
    loaded = stored["by_repeat"]["reload"]["petals"]["blocks_loaded"]
    assert len(loaded) == 2
    assert sum(loaded) / 2 == pytest.approx(stored["scenarios"]["reload"]["petals"]["blocks_loaded"])
    assert sorted(path.suffix for path in draw_run(paper)) == [".pdf", ".png"]


def test_a_paper_run_that_lost_an_arm_is_unknown(paper, tmp_path):
    path = copied(paper, tmp_path)
    balance = path / "history" / "balance.jsonl"
    kept = [line for line in balance.read_text().splitlines() if json.loads(line)["arm"] != "petals"]
    balance.write_text("\n".join(kept) + "\n")
    assert check.judge(path).verdict is Verdict.UNKNOWN


def test_churn_runs_in_all_its_variants(tmp_path):
    small = ["sim.n_servers=20", "sim.duration_s=1800", "sim.warm_up_s=900", "arms=[petals,swarmlab]"]
    path = played(["+exp=churn", *small], tmp_path)
    run, summary = load_run(path), check.judge(path)
    assert not [finding for finding in summary.findings if finding.assumption and finding.verdict != "holds"]
    assert list(summary.scenarios) == ["complete", "lapses", "slow_news"]
    rows = [row for row in run.history("balance") if row["arm"] == "swarmlab"]
    assert {row["n_active"] for row in rows if row["t"] >= 600} == {20}
    histories = {
        name: [row for row in run.history("servers") if row["scenario"] == name] for name in summary.scenarios
    }
    assert histories["complete"] != histories["slow_news"]


def test_two_runs_with_one_seed_record_the_same(paper, tmp_path):
    again = played(SMALL, tmp_path)
    for file in (paper / "history").iterdir():
        assert file.read_bytes() == (again / "history" / file.name).read_bytes()


@pytest.mark.parametrize("exp", ["report_389", "appendix_e", "churn"])
def test_scenarios_that_are_not_there_are_refused(exp):
    settings, _ = load([f"+exp={exp}", "scenarios=[nowhere]"])
    with pytest.raises(BadInput) as refused:
        build(settings)
    assert refused.value.field == "scenarios"


@pytest.mark.parametrize(
    "override", ["sim.n_blocks=0", "sim.duration_s=-1", "sim.no_such=1", "arms=[restart]"]
)
def test_swarms_that_cannot_be_are_refused(override):
    with pytest.raises(BadInput):
        load(["+exp=appendix_e", override])


def copied(path, folder):
    """To be changed: without the inventory of its history, by which any change would be noticed."""
    copy = shutil.copytree(path, folder / "copy")
    info = json.loads((copy / "run.json").read_text())
    assert info.pop("history")
    (copy / "run.json").write_text(json.dumps(info))
    return copy


def test_sizes_are_measured_each_in_a_process_of_its_own(tmp_path):
    path = played(
        ["+exp=scale", "scale.sizes=[12,24]", "arms=[join_only]", "sim.duration_s=900", "sim.warm_up_s=600"],
        tmp_path,
    )
    summary = check.judge(path)
    assert list(summary.scenarios) == ["n=12", "n=24"]
    assert all(cell["join_only"]["cpu_s"] > 0 for cell in summary.scenarios.values())
    assert sorted(found.suffix for found in draw_run(path)) == [".pdf", ".png"]


@pytest.mark.parametrize("sizes", ["[]", "[0]", "[10,10]"])
def test_impossible_sizes_are_refused(sizes):
    with pytest.raises(BadInput, match=r"scale\.sizes"):
        load(["+exp=scale", f"scale.sizes={sizes}"])


@pytest.mark.parametrize(
    ("scenarios", "servers"), [("[swept]", "20"), ("[few,complete]", "20 or 60"), ("default", "60")]
)
def test_as_many_servers_are_announced_as_are_simulated(scenarios, servers):
    settings, _ = load(["+exp=churn", f"scenarios={scenarios}"])
    assert build(settings).describe().startswith(f"{servers} simulated servers, ")
