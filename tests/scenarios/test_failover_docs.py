"""The table of docs/failover.md says of every scenario what ``expected.yaml`` holds runs to."""

from __future__ import annotations

from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
ARMS = ("petals", "issue_patch", "swarmlab")


def test_the_table_of_outcomes_is_that_of_the_expectations():
    folder = ROOT / "experiments" / "failover"
    expected = yaml.safe_load((folder / "expected.yaml").read_text(encoding="utf-8"))["scenarios"]
    titles = {
        path.stem: yaml.safe_load(path.read_text(encoding="utf-8"))["title"]
        for path in (folder / "scenarios").glob("*.yaml")
    }
    lines = (ROOT / "docs" / "failover.md").read_text(encoding="utf-8").splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]
    table = {row[0]: row[1:] for row in rows if row[0] in titles}
    assert table == {
        name: [title, *(_words(expected[name]["arms"][arm]["outcome"]) for arm in ARMS)]
        for name, title in titles.items()
    }


def _words(outcome: str | list[str]) -> str:
    return outcome if isinstance(outcome, str) else " or ".join(outcome)
