"""Placement policies by the name of their arm."""

from __future__ import annotations

from typing import TYPE_CHECKING

from swarmlab.placement.appendix_d import AppendixD
from swarmlab.placement.greedy_soft_min import GreedySoftMin
from swarmlab.placement.join_only import JoinOnly
from swarmlab.placement.none import NoBalancing
from swarmlab.placement.petals import Petals
from swarmlab.placement.pinned import Pinned
from swarmlab.placement.recheck import Recheck
from swarmlab.placement.swarmlab import Swarmlab

if TYPE_CHECKING:
    from swarmlab.placement.policy import Policy

# `pinned` needs the span; all others have defaults for everything
POLICIES: dict[str, type[Policy]] = {
    "petals": Petals,
    "recheck": Recheck,
    "pinned": Pinned,
    "none": NoBalancing,
    "join_only": JoinOnly,
    "appendix_d": AppendixD,
    "greedy_soft_min": GreedySoftMin,
    "swarmlab": Swarmlab,
}
