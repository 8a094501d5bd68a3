"""How each arm looks, in every figure. Marker and line tell the arms apart without colour."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ArmStyle:
    """:param order: drawing order; later arms lie on top"""

    label: str
    color: str
    marker: str
    line: str
    order: int


# Okabe and Ito's colours: apart for colour-blind readers, and of different lightness in grey.
ARM_STYLES = {
    "reference": ArmStyle("failure-free", "#999999", ".", ":", 0),
    "petals": ArmStyle("petals", "#D55E00", "s", "--", 1),
    "issue_patch": ArmStyle("issue patch", "#56B4E9", "^", "-.", 2),
    "restart": ArmStyle("restart", "#CC79A7", "D", ":", 3),
    "cacheless": ArmStyle("cacheless", "#E69F00", "v", ":", 4),
    "swarmlab_standby": ArmStyle("swarmlab, standby", "#009E73", "P", "--", 4),
    "swarmlab": ArmStyle("swarmlab", "#000000", "o", "-", 15),  # on top of all
}
# Placement arms; those that both kinds of experiment have look the same in both.
PLACEMENT_STYLES = {
    "optimal": ArmStyle("upper bound", "#999999", ".", "-", 0),
    "none": ArmStyle("none", "#555555", "x", ":", 1),
    "join_only": ArmStyle("join only", "#E69F00", "v", ":", 2),
    "appendix_d_1": ArmStyle("appendix D, p = 1 %", "#56B4E9", "^", "-.", 3),
    "appendix_d_10": ArmStyle("appendix D, p = 10 %", "#0072B2", "D", "-.", 4),
    "appendix_d_20": ArmStyle("appendix D, p = 20 %", "#CC79A7", "<", "-.", 5),
    "appendix_d": ArmStyle("appendix D", "#AA3377", ">", "-.", 5),
    "pinned": ArmStyle("pinned", "#332288", "p", ":", 2),
    "petals": ARM_STYLES["petals"],
    "recheck": ArmStyle("recheck (PR 493)", "#009E73", "P", "--", 6),
    "greedy_soft_min": ArmStyle("greedy soft minimum", "#882255", "d", "-.", 7),
    "oracle": ArmStyle("oracle that pays", "#999933", "*", "--", 4),
    "swarmlab": ARM_STYLES["swarmlab"],
}
OTHER = ArmStyle("", "#009E73", "P", "-.", 6)

# An outcome is a word first; the sign only helps the eye.
OUTCOME_SIGNS = {"identical": "=", "wrong": "\u2260", "exception": "!", "hang": "\u221e", None: "?"}


def style_of(arm: str) -> ArmStyle:
    """The arm's style; an arm without one gets a common style under its own name."""
    known = {**ARM_STYLES, **PLACEMENT_STYLES}
    return known.get(arm, ArmStyle(arm, OTHER.color, OTHER.marker, OTHER.line, OTHER.order))
