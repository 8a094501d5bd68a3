"""How each arm looks, in every figure. Marker and line tell the arms apart without colour."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True)
class ArmStyle:
    """
    :param marker: as matplotlib has them: a letter, or corners, shape (1: a star) and angle
    :param line: likewise: a name, or an offset and lengths drawn and left out
    :param order: drawing order; later arms lie on top
    """

    label: str
    color: str
    marker: Any
    line: Any
    order: int


# Okabe and Ito's colours, and Tol's where those do not suffice. No two arms that are different things share a marker or
# a colour; those of one kind of experiment differ in grey, too: by line or clearly by lightness.
ARM_STYLES = {
    "reference": ArmStyle("failure-free", "#999999", ".", ":", 0),
    "petals": ArmStyle("petals", "#D55E00", "s", "--", 1),
    "issue_patch": ArmStyle("issue patch", "#56B4E9", "^", "-.", 2),
    "restart": ArmStyle("restart", "#CC79A7", "D", (0, (5, 1)), 3),
    "cacheless": ArmStyle("cacheless", "#E69F00", "v", (0, (1, 2.5)), 4),
    "swarmlab_standby": ArmStyle("swarmlab, standby", "#009E73", "P", "--", 4),
    "swarmlab": ArmStyle("swarmlab", "#000000", "o", "-", 15),  # on top of all
}
# Placement arms; those that both kinds of experiment have look the same in both.
PLACEMENT_STYLES = {
    "optimal": ArmStyle("upper bound", "#BBBBBB", "h", "-", 0),
    "none": ArmStyle("none", "#777777", "x", ":", 1),
    "join_only": ArmStyle("join only", "#8C510A", "<", ":", 2),
    "appendix_d_1": ArmStyle("appendix D, p = 1 %", "#44AA99", "1", "-.", 3),
    "appendix_d_10": ArmStyle("appendix D, p = 10 %", "#0072B2", (4, 1, 0), "-.", 4),
    "appendix_d_20": ArmStyle("appendix D, p = 20 %", "#BB5599", ">", "-.", 5),
    "pinned": ArmStyle("pinned", "#332288", "p", ":", 2),
    "petals": ARM_STYLES["petals"],
    "recheck": ArmStyle("recheck (PR 493)", "#117733", "X", (0, (6, 1.5, 1, 1.5, 1, 1.5)), 6),
    "greedy_soft_min": ArmStyle("greedy soft minimum", "#882255", "d", (0, (7, 2)), 7),
    "oracle": ArmStyle("oracle that pays", "#999933", "*", (0, (3, 1)), 4),
    "swarmlab": ARM_STYLES["swarmlab"],
}
# The rule of the paper as real servers have it: p is 20 % there.
PLACEMENT_STYLES["appendix_d"] = replace(PLACEMENT_STYLES["appendix_d_20"], label="appendix D")
OTHER = ArmStyle("", "#661100", "8", "-.", 6)

# An outcome is a word first; the sign only helps the eye.
OUTCOME_SIGNS = {"identical": "=", "wrong": "\u2260", "exception": "!", "hang": "\u221e", None: "?"}


def style_of(arm: str) -> ArmStyle:
    """The arm's style; an arm without one gets a common style under its own name."""
    known = {**ARM_STYLES, **PLACEMENT_STYLES}
    return known.get(arm, ArmStyle(arm, OTHER.color, OTHER.marker, OTHER.line, OTHER.order))
