"""Checks a tree of published results: every run against its expectations, and that everything made from them agrees."""

from __future__ import annotations

from typing import TYPE_CHECKING

from swarmlab.analysis.checks import NOT_THERE, Finding, Verdict, assume, guard
from swarmlab.analysis.claims import makes
from swarmlab.analysis.claims_tables import numbers_table, runs_table
from swarmlab.analysis.plots.digest import figure_digest, stored_digest
from swarmlab.analysis.published_checks import check_summary
from swarmlab.errors import BadInput
from swarmlab.judges.claims import ROOT, documents, read_claims, results_readme
from swarmlab.judges.drawing import figures_of_published
from swarmlab.judges.expected import read_expected
from swarmlab.judges.registry import judge_of
from swarmlab.record.load import shown
from swarmlab.record.published import read_one, read_published
from swarmlab.record.published_files import check_tables

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from swarmlab.analysis.claims import Claim
    from swarmlab.record.published import Published

DOCUMENTS = "documents"
REMEDY = "run `make figures`"
# The kinds of history of which every run of an experiment has rows, and what is published of it a table.
KINDS_OF_ALL = {
    "failover": ("steps", "faults", "outcomes"),
    "failover_soak": ("faults", "sessions"),
    "failure_rates": ("outcomes",),
    "recovery_speed": ("faults", "outcomes"),
    "rebalance": ("phases", "balance", "blocks", "faults"),
    "rebalance_under_load": ("phases", "balance", "blocks", "faults", "sessions"),
    "sim_vs_real": ("balance",),
    "report_389": ("blocks", "balance", "decisions"),
    "appendix_e": ("balance",),
    "churn": ("balance",),
    "scale": ("speed",),
    "record_dht": ("views",),
}


def check_tree(results: Path) -> dict[str, list[Finding]]:
    """Name of what is published, or ``documents``, to everything that was checked.

    :raises BadInput, DamagedRun: if something cannot be read, or nothing says what an experiment must show
    """
    found: dict[str, list[Finding]] = {}
    drawn: set[str] = set()
    if not any(results.glob("tables/*/run.json")):
        raise BadInput("results", str(results), "a folder with published runs, tables/NAME/run.json")
    for one in read_published(results):
        found[one.name] = _check_all(one, results, drawn)
    found[DOCUMENTS] = guard("documents", _documents, results)
    found[DOCUMENTS] += list(_strangers(results / "figures", drawn))
    return found


def check_name(results: Path, name: str) -> dict[str, list[Finding]]:
    """The same of one that is published, and its claims and rows in ``README.md``.

    :raises BadInput, DamagedRun: as :func:`check_tree`
    """
    one = read_one(results / "tables" / name)
    return {name: _check_all(one, results, set()), "claims": guard("claims", _claims_of, one, results)}


def _check_all(one: Published, results: Path, drawn: set[str]) -> list[Finding]:
    findings = check_published(one)
    tables = guard("tables", _tables, one)
    if all(finding.verdict is Verdict.HOLDS for finding in tables):
        return findings + tables + guard("figures", _figures, one, results / "figures", drawn)
    # drawn from tables that are not what was published, the figures would only differ
    drawn.update(path.stem for path in (results / "figures").glob(f"{one.name}*"))
    return findings + tables


def _tables(one: Published) -> Iterator[Finding]:
    for name, sound, words in check_tables(one.run, KINDS_OF_ALL[one.run.info["exp"]]):
        yield assume(f"{one.run.info['id']} / {name}", sound, words)


def _claims_of(one: Published, results: Path) -> Iterator[Finding]:
    """Its rows are in ``README.md``, as they must be; of the repository's own, its claims have commands and numbers."""
    own = results.resolve() == ROOT / "results"
    claims = [claim for claim in read_claims() if claim.published == one.name]
    rows = numbers_table(claims, {one.name: one.runs})
    readme = results / "README.md"
    there = readme.read_text(encoding="utf-8").splitlines() if readme.is_file() else []
    for row in [*rows.splitlines()[2:], *runs_table({one.name: one.runs}).splitlines()[2:]]:
        words = " | ".join(row.split(" | ")[:2]).strip("| ")
        verdict = Verdict.HOLDS if row in there else Verdict.FAILS
        yield Finding(
            "README.md", verdict, words if verdict is Verdict.HOLDS else f"differs in {words}; {REMEDY}"
        )
    if own:
        yield from _commands(claims, {one.name: one})
        yield _numbers_are_there(rows)


def check_published(one: Published) -> list[Finding]:
    """The metrics of all its runs against ``expected.yaml``.

    :raises BadInput: if nothing says what the experiment must show
    """
    exp = one.run.info["exp"]
    judge_of(exp, f"{shown(one.run.path / 'run.json')}: exp")
    expected = read_expected(exp)
    kept = (one.run.path / "config.yaml").is_file()
    findings = [assume("config.yaml", kept, "kept beside the tables" if kept else "not there")]
    for info, summary in one.runs:
        for finding in guard("summary", check_summary, summary, expected, info, one.run.config):
            name = f"{info['id']} / {finding.name}"
            findings.append(Finding(name, finding.verdict, finding.reason, finding.assumption))
    return findings


def _figures(one: Published, folder: Path, drawn: set[str]) -> Iterator[Finding]:
    """The committed figures show the data that the stored tables give."""
    for suffix, figure in figures_of_published(one).items():
        wanted, stem = figure_digest(figure), "_".join(filter(None, (one.name, suffix)))
        drawn.add(stem)
        for kind in (".png", ".pdf"):
            path = folder / f"{stem}{kind}"
            if not path.is_file():
                yield Finding(path.name, Verdict.FAILS, f"not there; {REMEDY}")
            elif stored_digest(path) == wanted:
                yield Finding(path.name, Verdict.HOLDS, "shows what the stored tables give")
            else:
                yield Finding(path.name, Verdict.FAILS, f"shows other data than the stored tables; {REMEDY}")


def _strangers(folder: Path, drawn: set[str]) -> Iterator[Finding]:
    for path in sorted(folder.glob("*.p[nd][gf]")):
        if path.stem not in drawn:
            yield Finding(path.name, Verdict.UNKNOWN, "nothing that is published draws it")


def _commands(claims: Sequence[Claim], published: Mapping[str, Published]) -> Iterator[Finding]:
    """The command of each claim asks for what the run behind it was asked for."""
    for claim in claims:
        behind = published.get(claim.published or "")
        if behind is not None:
            overrides = behind.run.info["overrides"]
            same = makes(claim.command, overrides)
            words = "makes such a run" if same else f"{claim.command} is not {' '.join(overrides)}"
            verdict = Verdict.HOLDS if same else Verdict.FAILS
            yield Finding(f"command of {claim.published}", verdict, words)


def _documents(results: Path) -> Iterator[Finding]:
    """The tables in the documents are those that the stored summaries give."""
    claims = read_claims()
    own = results.resolve() == ROOT / "results"
    wanted = {results / "README.md": results_readme(results, claims), **(documents(claims) if own else {})}
    for path, text in wanted.items():
        same = path.is_file() and path.read_text(encoding="utf-8") == text
        verdict = Verdict.HOLDS if same else Verdict.FAILS
        yield Finding(path.name, verdict, "agrees with what is stored" if same else f"differs; {REMEDY}")
    if own:
        names = {one.name for one in read_published(results)}
        lost = [claim.published for claim in claims if claim.published and claim.published not in names]
        yield assume("claims", not lost, f"not published: {', '.join(map(str, lost)) or 'none'}")
        yield from _commands(claims, {one.name: one for one in read_published(results)})
        yield _numbers_are_there(wanted[results / "README.md"])


def _numbers_are_there(text: str) -> Finding:
    gap = NOT_THERE in text
    return assume("claims", not gap, "a number is not in its run" if gap else "every number is in its run")
