"""Deliberately broken variants of the code under test, made by replacing one piece of its source."""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import Any
from unittest import mock

from tests.bridge.virtual_time import LOOP_CLOCK


@contextlib.contextmanager
def broken(module: ModuleType, edits: Iterable[tuple[str, str]]) -> Iterator[None]:
    """Within the context, all of swarmlab uses ``module`` with pieces of its source replaced.

    :param edits: (piece as it is, what to put in its place)
    """
    source = inspect.getsource(module)
    for right, wrong in edits:
        assert source.count(right) == 1, f"{module.__name__} has changed: it no longer has just one {right!r}"
        source = source.replace(right, wrong)
    variant = ModuleType(module.__name__)
    exec(compile(source, module.__file__ or "", "exec"), variant.__dict__)
    if hasattr(variant, "time"):
        vars(variant)["time"] = LOOP_CLOCK
    with contextlib.ExitStack() as patches:
        for name, original in vars(module).items():
            if getattr(original, "__module__", None) != module.__name__:
                continue
            for user in _users(name, original):
                patches.enter_context(mock.patch.object(user, name, getattr(variant, name)))
        yield


def _users(name: str, original: Any) -> list[ModuleType]:
    ours = [module for key, module in sys.modules.items() if key.startswith(("swarmlab.", "tests.bridge."))]
    return [module for module in ours if vars(module).get(name) is original]
