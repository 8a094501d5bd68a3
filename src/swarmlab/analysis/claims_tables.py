"""Claims, their numbers and the runs behind them, as tables in Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from swarmlab.analysis.checks import NOT_THERE
from swarmlab.analysis.claim_costs import total_costs
from swarmlab.analysis.claim_numbers import MISSING, Cells, evaluate
from swarmlab.analysis.claims import experiment_of, makes
from swarmlab.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from swarmlab.analysis.claim_numbers import Runs
    from swarmlab.analysis.claims import Claim, Number

STORED = "rebalance.run_dir="  # the override of +exp=sim_vs_real
NOT_PUBLISHED = "not published"  # a claim without a stored run behind it


def claims_table(claims: Iterable[Claim], worlds: Mapping[str, str]) -> str:
    """Markdown for the README: what is claimed, in which world, and what it takes to see it.

    :param worlds: of experiments: real or simulated
    """
    lines = ["| claim | world | command | expected | cost on 2 cores |", "|--" * 5 + "|"]
    lines += [
        f"| {_cell(one.claim)} | {_world(one, worlds)} | `{one.command}` "
        f"| {_cell(one.expected)}{'' if one.published else f' ({NOT_PUBLISHED})'} | {one.time}, {one.disk} |"
        for one in claims
    ]
    return "\n".join(lines)


def artifact_table(
    claims: Sequence[Claim], worlds: Mapping[str, str], figures: Mapping[str, Sequence[str]]
) -> str:
    """Markdown for the artifact appendix: the same with tolerance and evidence, and what all of it takes.

    :param figures: what is published, by name, to the stems of its figures
    """
    lines = [
        "| # | claim | world | command | time | disk | expected | tolerance | stored evidence |",
        "|--" * 9 + "|",
    ]
    lines += [
        f"| {index} | {_cell(one.claim)} | {_world(one, worlds)} | `{one.command}` "
        f"| {one.time} | {one.disk} | {_cell(one.expected)} "
        f"| {_cell(one.tolerance)} | {_evidence(one.published, figures)} |"
        for index, one in enumerate(claims, start=1)
    ]
    return "\n".join([*lines, "", total_costs(claims)])


def _evidence(name: str | None, figures: Mapping[str, Sequence[str]]) -> str:
    """Links from ``docs/`` to the tables of what is published, and to each of its figures."""
    if name is None:
        return NOT_PUBLISHED
    drawn = ", ".join(
        f"[{stem.removeprefix(name).lstrip('_') or 'main'}](../results/figures/{stem}.png)"
        for stem in figures.get(name, ())
    )
    return f"[{name}](../results/tables/{name}/)" + (f"; figures: {drawn}" if drawn else "")


def figures_by_name(stems: Iterable[str], names: Sequence[str]) -> dict[str, list[str]]:
    """What is published to the stems of its figures, ``NAME`` and ``NAME_*``; of two names the longer one has them."""
    found: dict[str, list[str]] = {}
    for stem in sorted(stems):
        fitting = [name for name in names if stem == name or stem.startswith(f"{name}_")]
        if fitting:
            found.setdefault(max(fitting, key=len), []).append(stem)
    return found


def _world(claim: Claim, worlds: Mapping[str, str]) -> str:
    return worlds.get(experiment_of(claim.command), MISSING)


def numbers_table(claims: Iterable[Claim], published: Mapping[str, Runs]) -> str:
    """Markdown: claim, world, paper, other arm, ours, ratio, run and command of every number.

    The command is that of the run behind the number, in the claim's words where it is the same.

    :param claims: what no published run stands behind is left out
    :param published: name to the runs behind it
    """
    lines = ["| claim | world | paper | other arm | ours | ratio | run | command |", "|--" * 8 + "|"]
    for one in claims:
        runs = published.get(one.published or "", [])
        for number in one.numbers if runs else ():
            cells = _evaluate(number, runs)
            command = one.command if makes(one.command, runs[0][0]["overrides"]) else command_of(runs[0][0])
            lines.append(
                f"| {_cell(number.what)} | {runs[0][0]['world']} | {cells.paper} | {cells.other} | {cells.ours} "
                f"| {cells.ratio} | {_runs(cells.run_ids)} | `{command}` |"
            )
    return "\n".join(lines)


def _evaluate(number: Number, runs: Runs) -> Cells:
    try:
        return evaluate(number, runs)
    except BadInput:  # a run of other scenarios or arms than the claim is about
        return Cells(MISSING, MISSING, NOT_THERE, MISSING)


def runs_table(published: Mapping[str, Runs]) -> str:
    """Markdown: where every published number comes from."""
    lines = ["| name | command | world | verdict | n | run | seed | commit | host |", "|--" * 9 + "|"]
    for name, runs in published.items():
        for info, summary in runs:
            host, git = info.get("host", {}), info.get("git") or {}
            commit = str(git.get("commit") or "unknown")[:7] + ("+" if git.get("dirty") else "")
            lines.append(
                f"| [{name}](tables/{name}/summary.json) | `{command_of(info)}` | {info.get('world')} "
                f"| {summary.get('verdict')} | {len(runs)} | {info['id']} | {info.get('seed')} | {commit} "
                f"| {info.get('device')}: {host.get('cores')} cores, {host.get('cpu')} |"
            )
    return "\n".join(lines)


def command_of(info: Mapping[str, Any]) -> str:
    """The command that makes such a run, from the overrides that it was started with; where it took a stored run of
    +exp=rebalance instead of starting a swarm, with that run."""
    overrides, stored = list(info["overrides"]), (info.get("compared_with") or {}).get("id")
    if stored and not any(one.startswith(STORED) for one in overrides):  # publishing takes folders out
        overrides.append(f"{STORED}results/runs/rebalance/{stored}")
    words = [f"'{one}'" if set(one) & set("[]{} ") else one for one in overrides]
    return " ".join(["python -m swarmlab.run", *words])


def _runs(ids: Sequence[str]) -> str:
    """The first of the runs that have a number, and how many more do."""
    return (ids[0] if ids else MISSING) + (f" and {len(ids) - 1} more" if len(ids) > 1 else "")


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
