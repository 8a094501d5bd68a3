"""The figures of a stored run, by the judge of its experiment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from swarmlab.errors import BadInput
from swarmlab.judges.registry import judge_of
from swarmlab.record.load import DamagedRun, Run

if TYPE_CHECKING:
    from types import ModuleType

    from swarmlab.record.published import Published


def figures_of(run: Run) -> dict[str, Any]:
    """Suffix of the name ("" for the main figure) to figure of matplotlib.

    :raises BadInput: if the run was not judged, shows nothing, is damaged or all that was recorded is gone, or its
        experiment has no figure
    """
    where, judging = str(run.path), drawing_judge(run)
    try:
        summary = run.summary()
        if not summary or not summary["scenarios"]:
            raise BadInput("run_dir", where, "a run that was judged: python -m swarmlab.check RUN_DIR")
        if not set(run.kinds) & set(judging.FIGURE_KINDS):
            raise BadInput("run_dir", where, "a run with its history/, or with the tables/ made from it")
        drawn = judging.draw(run, summary)
    except DamagedRun as error:
        raise BadInput("run_dir", where, f"an undamaged run; {error}") from error
    return dict(drawn) if isinstance(drawn, Mapping) else {"": drawn}


def figures_of_published(one: Published) -> dict[str, Any]:
    """The figures of the run that is shown and, of an experiment that has them, what its repeats say together.

    :raises BadInput: as :func:`figures_of`
    """
    judging, n_runs = drawing_judge(one.run), len(one.runs)
    repeats = {"published_runs": n_runs, "published": one.runs if n_runs > 1 else []}
    figures = figures_of(replace(one.run, info={**one.run.info, **repeats}))
    if n_runs > 1 and hasattr(judging, "draw_repeats"):
        drawn = judging.draw_repeats(one.runs)
        over_all = drawn if isinstance(drawn, Mapping) else {"repeats": drawn}
        figures |= {suffix: figure for suffix, figure in over_all.items() if figure is not None}
    return figures


def drawing_judge(run: Run) -> ModuleType:
    """The judge of the run's experiment, if it draws.

    :raises BadInput: if there is none
    """
    judging = judge_of(run.info["exp"])
    if not hasattr(judging, "draw"):
        raise BadInput("run_dir", run.info["exp"], "a run of an experiment with a figure")
    return judging
