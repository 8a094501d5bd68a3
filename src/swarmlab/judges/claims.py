"""The claims of all experiments, and the documents that are made from them and from what is published."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from swarmlab.analysis.claims import parse_claims
from swarmlab.analysis.claims_tables import (
    artifact_table,
    claims_table,
    figures_by_name,
    numbers_table,
    runs_table,
)
from swarmlab.errors import BadInput
from swarmlab.judges.registry import JUDGES
from swarmlab.record.published import read_published

if TYPE_CHECKING:
    from swarmlab.analysis.claims import Claim

ROOT = Path(__file__).resolve().parents[3]
BEGIN, END = (
    "<!-- claims: made by `make figures` from experiments/*/claims.yaml -->",
    "<!-- end of claims -->",
)
RESULTS_TEXT = """\
# Results

Made by `python -m swarmlab.figures` from `tables/` and `experiments/*/claims.yaml`; do not edit. Every number is read
from a stored run, and a test makes this file again and compares.

`real` is a swarm of processes, `simulated` is computed, `paper` is quoted. Numbers over several scenarios or runs are
medians with a bootstrap interval of 95 %; n says over how many: runs, or scenarios (each the median of its runs), or
the repeats within one run. Of a simulation over several populations they are means, with n populations. With n below
five an interval is hardly more than the range; "n = 1" is a single one and says nothing about the spread. A ratio
pairs each number with the other arm's in the same run and scenario, or the same population; a repeat of some arms
counts for those. Times are of two shared cores: read ratios.
How everything is measured is said in [docs/method.md](../docs/method.md).

## Claims

{numbers}

## Published runs

{runs}

A commit with + had changes that were not committed. A folder `tables/<name>` has `run.json` (versions, host, model,
overrides), `config.yaml` (every setting), `summary.json` (every metric and the verdict), `tables/*.parquet` (what the
figures need) and `repeats/` (`run.json` and `summary.json` of further runs); `figures/` is drawn from them. Raw runs
stay in `runs/`, outside git.
{others}
```
make figures                                              # this file and all figures again, without a swarm
python -m swarmlab.check results                          # are the claims still met, and does everything agree?
python -m swarmlab.figures --publish RUN_DIR [RUN_DIR...] # replace an experiment's: the run to show, then repeats
```
"""


def read_claims(root: Path = ROOT) -> list[Claim]:
    """All claims, in the order of the experiments.

    :raises BadInput: if a file cannot be understood
    """
    claims: list[Claim] = []
    for exp in JUDGES:
        path = root / "experiments" / exp / "claims.yaml"
        if path.exists():
            try:
                raw = yaml.safe_load(path.read_text(encoding="utf-8"))
            except (UnicodeDecodeError, yaml.YAMLError) as error:
                raise BadInput(
                    "claims", str(path), f"a readable YAML file ({type(error).__name__})"
                ) from error
            claims += parse_claims(raw, f"experiments/{exp}/claims.yaml")
    return claims


def results_readme(results: Path, claims: list[Claim]) -> str:
    """What ``results/README.md`` must be.

    :raises DamagedRun: if a file cannot be read
    """
    published = {one.name: one.runs for one in read_published(results)}
    tables = sorted(results.glob("tables/*.md"))
    links = ", ".join(f"[{path.stem}](tables/{path.name})" for path in tables)
    return RESULTS_TEXT.format(
        numbers=numbers_table(claims, published), runs=runs_table(published),
        others=f"Benchmarks, not of a run: {links}.\n" if links else "",
    )  # fmt: skip


def documents(claims: list[Claim], root: Path = ROOT) -> dict[Path, str]:
    """The files with a table of claims between two marks, as they must be."""
    published = list(read_published(root / "results"))
    worlds = {one.run.info["exp"]: str(one.run.info["world"]) for one in published}
    stems = [path.stem for path in (root / "results" / "figures").glob("*.png")]
    figures = figures_by_name(stems, [one.name for one in published])
    tables = {
        root / "README.md": claims_table(claims, worlds),
        root / "docs" / "artifact.md": artifact_table(claims, worlds, figures),
    }
    return {path: _between(path.read_text(encoding="utf-8"), table, path) for path, table in tables.items()}


def _between(text: str, table: str, path: Path) -> str:
    pattern = re.compile(re.escape(BEGIN) + ".*?" + re.escape(END), re.DOTALL)
    if not pattern.search(text):
        raise BadInput("document", path.name, f"a file with the lines {BEGIN} and {END}")
    return pattern.sub(lambda _: f"{BEGIN}\n{table}\n{END}", text)
