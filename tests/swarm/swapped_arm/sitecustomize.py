"""On PYTHONPATH of a run under test: its swarmlab arm gets the session of another arm, named in the environment."""

import functools
import importlib
import os
from typing import Any

_import_module = importlib.import_module


def _swapped(original: Any, other: str) -> Any:
    @functools.wraps(original)
    def open_session(arm: str, *args: Any, **kwargs: Any) -> Any:
        return original(other if arm == "swarmlab" else arm, *args, **kwargs)

    return open_session


def _import(name: str, package: str | None = None) -> Any:
    """The nursery's children ask for the module of a client by name; ours is changed when they do."""
    module = _import_module(name, package)
    if name == "swarmlab.bridge.clients.failover":
        module.arms.open_session = _swapped(module.arms.open_session, os.environ["SWARMLAB_TEST_SESSION"])
    return module


if "SWARMLAB_TEST_SESSION" in os.environ:
    importlib.import_module = _import
