"""What our server takes beside petals' command line, and what follows from it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from swarmlab.bridge import block_source
from swarmlab.bridge.block_loader import BlockLoader, BlockRecipe
from swarmlab.bridge.policies import policy_of
from swarmlab.bridge.told import NAME as TOLD
from swarmlab.bridge.told import Told
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
    name = args.get("policy", "swarmlab")
    policy: Any = Told(args["told_path"]) if name == TOLD else policy_of(name, args.get("policy_settings"))
    if "mean_choice_delay_s" in args:
        policy = replace(policy, mean_choice_delay_s=_number(args, "mean_choice_delay_s"))
    seconds = {key: _number(args, key) for key in SECONDS if key in args}
    return Options(policy, args.get("reload", "auto"), seed=int(args.get("seed", 0)), **seconds)


def loader_of(args: Mapping[str, Any], server: Any) -> BlockLoader:
    """The loader that the options ask for: through a block store if they name one.

    :param args: ``store_dir`` and ``store_max_bytes``, or neither
    :param server: petals' ``Server``
    """
    limit = int(args["store_max_bytes"]) if args.get("store_max_bytes") else None
    return block_source.loader_of(BlockRecipe.of_server(server), args.get("store_dir"), limit)


def _number(args: Mapping[str, Any], name: str) -> float:
    try:
        return float(args[name])
    except ValueError:
        raise BadInput(name, args[name], "seconds, 0 or more") from None
