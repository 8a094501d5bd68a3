"""Checks a tree of published results: every run against its expectations, and that everything made from them agrees."""

from __future__ import annotations

from typing import TYPE_CHECKING

from swarmlab.analysis.checks import Finding, Verdict, assume, guard
from swarmlab.analysis.claims_tables import NOT_THERE
from swarmlab.analysis.plots.digest import figure_digest, stored_digest
from swarmlab.analysis.published_checks import check_summary
from swarmlab.judges.claims import ROOT, documents, read_claims, results_readme
from swarmlab.judges.drawing import figures_of_published
from swarmlab.judges.expected import read_expected
from swarmlab.record.published import read_published

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from swarmlab.record.published import Published

DOCUMENTS = "documents"
REMEDY = "run `make figures`"


def check_tree(results: Path) -> dict[str, list[Finding]]:
    """Name of what is published, or ``documents``, to everything that was checked.

    :raises BadInput, DamagedRun: if something cannot be read, or nothing says what an experiment must show
    """
    found: dict[str, list[Finding]] = {}
    drawn: set[str] = set()
    for one in read_published(results):
        found[one.name] = check_published(one)
        found[one.name] += guard("figures", _figures, one, results / "figures", drawn)
    found[DOCUMENTS] = guard("documents", _documents, results)
    found[DOCUMENTS] += list(_strangers(results / "figures", drawn))
    return found


def check_published(one: Published) -> list[Finding]:
    """The metrics of all its runs against ``expected.yaml``.

    :raises BadInput: if nothing says what the experiment must show
    """
    expected = read_expected(one.run.info["exp"])
    findings: list[Finding] = []
    for info, summary in one.runs:
        for finding in guard("summary", check_summary, summary, expected, info):
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
        gap = NOT_THERE in wanted[results / "README.md"]
        yield assume("claims", not gap, "a number is not in its run" if gap else "every number is in its run")
