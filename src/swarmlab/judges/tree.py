"""Checks a tree of published results: every run against its expectations, and that everything made from them agrees."""

from __future__ import annotations

from typing import TYPE_CHECKING

from swarmlab.analysis.checks import Finding, Verdict, assume, guard
from swarmlab.analysis.claims import makes
from swarmlab.analysis.claims_tables import NOT_THERE
from swarmlab.analysis.plots.digest import figure_digest, stored_digest
from swarmlab.analysis.published_checks import check_summary
from swarmlab.errors import BadInput
from swarmlab.judges.claims import ROOT, documents, read_claims, results_readme
from swarmlab.judges.drawing import figures_of_published
from swarmlab.judges.expected import read_expected
from swarmlab.record.published import read_published

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from swarmlab.analysis.claims import Claim
    from swarmlab.record.published import Published

DOCUMENTS = "documents"
REMEDY = "run `make figures`"


def check_tree(results: Path) -> dict[str, list[Finding]]:
    """Name of what is published, or ``documents``, to everything that was checked.

    :raises BadInput, DamagedRun: if something cannot be read, or nothing says what an experiment must show
    """
    found: dict[str, list[Finding]] = {}
    drawn: set[str] = set()
    if not any(results.glob("tables/*/run.json")):
        raise BadInput("results", str(results), "a folder with published runs, tables/NAME/run.json")
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
        gap = NOT_THERE in wanted[results / "README.md"]
        yield assume("claims", not gap, "a number is not in its run" if gap else "every number is in its run")
