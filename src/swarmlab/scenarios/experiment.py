"""What the command needs to know of an experiment, and which there are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

from swarmlab.record.rundir import RunDir


class Progress(Protocol):
    """What a run tells whoever watches."""

    def on_state(self, name: str, state: str, detail: str) -> None: ...
    def begin(self, scenario: str, arm: str) -> None: ...
    def end(self, scenario: str, arm: str, outcome: str, detail: str) -> None: ...


class Experiment(Protocol):
    """A checked experiment, ready to run."""

    @property
    def world(self) -> Literal["real", "simulated"]: ...

    @property
    def model(self) -> Mapping[str, Any]:
        """``id`` and ``hash`` for ``run.json``."""
        ...

    @property
    def parts(self) -> Sequence[str]:
        """Names of its scenarios, recorded as what the run set out to do."""
        ...

    @property
    def n_units(self) -> int:
        """How often ``Progress.end`` will be called."""
        ...

    def describe(self) -> str:
        """For whoever watches, before anything starts: what will happen, and about how long it takes."""
        ...

    def run(self, run_dir: RunDir, progress: Progress) -> None:
        """Do it and record it; judging comes later, from the run folder.

        :raises SwarmFailed: if servers do not start or come back
        """
        ...
