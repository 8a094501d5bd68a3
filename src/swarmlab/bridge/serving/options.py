"""What our server takes beside petals' command line, and what follows from it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from swarmlab.bridge.blocks import source as block_source
from swarmlab.bridge.blocks.loader import BlockLoader, BlockRecipe
from swarmlab.bridge.serving.policies import policy_of
from swarmlab.bridge.serving.told import NAME as TOLD
from swarmlab.bridge.serving.told import Told
from swarmlab.errors import BadInput
from swarmlab.placement.policy import Policy
from swarmlab.placement.reload_plan import MODES

SECONDS = ("visible_s", "drain_s", "load_deadline_s")


@dataclass(frozen=True)
class Options:
    """How our server moves.

    :param reload: ``prefetch``, ``in_place`` or ``auto``
    :param visible_s: what an announcement takes to be seen by all; a policy that waits longer by itself waits no more
    :param drain_s: how long open sessions get to finish before blocks that they use are dropped
    :param load_deadline_s: a block that takes longer to load has failed
    :param seed: of the policy's draws and of the waits between checks
    :raises BadInput: for a value that cannot be
    """

    policy: Policy
    reload: str = "auto"
    visible_s: float = 1.0
    drain_s: float = 10.0
    load_deadline_s: float = 1800.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.reload not in MODES:
            raise BadInput("reload", self.reload, ", ".join(MODES))
        for name in SECONDS:
            if not 0 <= getattr(self, name) < math.inf:
                raise BadInput(name, getattr(self, name), "seconds, 0 or more")


def options_of(args: Mapping[str, Any]) -> Options:
    """
    :param args: ``policy`` (a name of ``placement.registry``, or ``told`` with a ``told_path``), ``policy_settings``
        (JSON), ``mean_choice_delay_s`` of the policy, and the fields of :class:`Options`, all as strings
    :raises BadInput: for an option that cannot be
    """
    policy: Any = _policy(args)
    if "mean_choice_delay_s" in args:
        policy = replace(policy, mean_choice_delay_s=_seconds(args, "mean_choice_delay_s"))
    _store_limit(args)
    seconds = {key: _seconds(args, key) for key in SECONDS if key in args}
    return Options(policy, args.get("reload", "auto"), seed=_whole(args, "seed", 0, at_least=0), **seconds)


def loader_of(args: Mapping[str, Any], server: Any) -> BlockLoader:
    """The loader that the options ask for: through a block store if they name one.

    :param args: ``store_dir`` and ``store_max_bytes``, or neither
    :param server: petals' ``Server``
    """
    return block_source.loader_of(BlockRecipe.of_server(server), args.get("store_dir"), _store_limit(args))


def _policy(args: Mapping[str, Any]) -> Any:
    name, settings = args.get("policy", "swarmlab"), args.get("policy_settings")
    if name == TOLD:
        if not args.get("told_path"):
            raise BadInput("told_path", args.get("told_path"), "a file with one line, start:end")
        return Told(args["told_path"])
    try:
        return policy_of(name, settings)
    except BadInput:
        raise
    except (AttributeError, TypeError, ValueError) as error:
        raise BadInput(
            "policy_settings", settings, f"fields of the policy as a JSON object ({error})"
        ) from None


def _store_limit(args: Mapping[str, Any]) -> int | None:
    return _whole(args, "store_max_bytes", None, at_least=1)


def _whole(args: Mapping[str, Any], name: str, otherwise: Any, at_least: int) -> Any:
    given = args.get(name)
    if given is None:
        return otherwise
    if str(given).isascii() and str(given).isdigit() and int(given) >= at_least:
        return int(given)
    raise BadInput(name, given, f"a whole number, {at_least} or more")


def _seconds(args: Mapping[str, Any], name: str) -> float:
    allowed = "seconds, 0 or more"
    try:
        given = float(args[name])
    except ValueError:
        raise BadInput(name, args[name], allowed) from None
    if not 0 <= given < math.inf:
        raise BadInput(name, args[name], allowed)
    return given
