"""A fault as a lifecycle: setup, inject, confirm, heal, cleanup; each stage leaves a row in the history."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

Row = dict[str, Any]


class Stage(StrEnum):
    """In the only order that is allowed; cleanup may follow any other."""

    SETUP = "setup"
    INJECT = "inject"
    CONFIRM = "confirm"
    HEAL = "heal"
    CLEANUP = "cleanup"


ORDER = list(Stage)


class WrongOrder(RuntimeError):
    """A stage was asked for that may not come now: a mistake in the scenario's code, not a failed fault."""


class FaultFailed(RuntimeError):
    """A stage did not do what it should; what was measured around the fault means nothing."""


class Steps(Protocol):
    """What a kind of fault must know how to do. Each returns what there is to say, or raises FaultFailed."""

    def setup(self) -> str:
        """Check that the target is in the state that the fault presumes."""
        ...

    def inject(self) -> str: ...

    def confirm(self) -> str:
        """Make sure, from outside, that the fault is there."""
        ...

    def heal(self) -> str:
        """Undo exactly what ``inject`` did, and make sure that it is undone."""
        ...

    def cleanup(self) -> str:
        """Leave nothing behind, healed or not."""
        ...


class Lifecycle:
    """Guards one fault: wrong order is an error, and after a failed stage only cleanup is allowed.

    :param emit: called with one row per stage, for the record kind ``faults``
    :param about: what every row says of the fault: fault, target, peer, span_start, span_end, at_token
    """

    def __init__(self, steps: Steps, emit: Callable[[Row], None], about: Row) -> None:
        self._steps, self._emit, self._about = steps, emit, about
        self.done: list[Stage] = []
        self.failure: str | None = None

    @property
    def valid(self) -> bool:
        """Whether nothing failed so far and the fault, if injected, was confirmed."""
        unconfirmed = Stage.INJECT in self.done and Stage.CONFIRM not in self.done
        return self.failure is None and not unconfirmed

    def setup(self) -> None:
        self._advance(Stage.SETUP)

    def inject(self) -> None:
        self._advance(Stage.INJECT)

    def confirm(self) -> None:
        self._advance(Stage.CONFIRM)

    def heal(self) -> None:
        self._advance(Stage.HEAL)

    def cleanup(self) -> None:
        """The last stage, whatever came before."""
        self._advance(Stage.CLEANUP)

    def _advance(self, stage: Stage) -> None:
        """
        :raises WrongOrder: if the stage may not come now; nothing is done and nothing recorded
        :raises FaultFailed: if the stage failed; recorded
        """
        self._check_order(stage)
        try:
            detail = getattr(self._steps, stage.value)()
        except FaultFailed as error:
            self.failure = f"{stage.value}: {error}"
            self._tell(stage, ok=False, detail=str(error))
            raise
        except BaseException as error:
            self.failure = f"{stage.value}: {type(error).__name__}: {error}"
            self._tell(stage, ok=False, detail=f"{type(error).__name__}: {error}")
            raise
        finally:
            self.done.append(stage)
        self._tell(stage, ok=True, detail=detail)

    def _check_order(self, stage: Stage) -> None:
        if Stage.CLEANUP in self.done:
            raise WrongOrder(f"{stage.value} after cleanup")
        if stage is Stage.CLEANUP:
            return
        if self.failure is not None:
            raise WrongOrder(f"{stage.value} after a failure ({self.failure}); only cleanup is allowed")
        expected = ORDER[len(self.done)]
        if stage is not expected:
            raise WrongOrder(f"{stage.value} where {expected.value} is due")

    def _tell(self, stage: Stage, *, ok: bool, detail: str) -> None:
        self._emit({**self._about, "stage": stage.value, "ok": ok, "detail": detail})
