"""How fast a swarm rebalances, in petals' own seconds and in those of an experiment; checked before anything starts."""

from __future__ import annotations

import math
from dataclasses import dataclass

from swarmlab.errors import BadInput

POSITIVE = (
    "time_scale", "check_period_s", "update_period_s", "expiration_s", "lost_s", "grace_s", "visible_s",
    "sample_every_s", "settle_s", "gap_s", "wide_s",
)  # fmt: skip
NOT_NEGATIVE = ("choice_delay_s", "horizon_s", "read_delay_s", "slow_read_delay_s", "drain_s")


@dataclass
class RebalanceSettings:
    """Waits marked *scaled* are in seconds of the public swarm; here they take ``1 / time_scale`` of it, in every arm.

    :param time_scale: how many of those seconds pass in one
    :param balance_quality: threshold of petals' own rule
    :param check_period_s: scaled; mean time between two checks of a server, as ``--mean_balance_check_period``
    :param choice_delay_s: scaled; mean wait of petals before it chooses blocks
    :param update_period_s: scaled; how often records are renewed; they live for ``expiration_s``, scaled
    :param lost_s: scaled; the longest that a server's records stay missing
    :param grace_s: scaled; how long our policy believes in a server that vanished
    :param visible_s: scaled; how long our policy waits between announcing a move and making it
    :param horizon_s: scaled; how long our policy expects a gain to last
    :param read_delay_s: artificial seconds to read one block, from the end of the start on; in ``slow_disk``,
        ``slow_read_delay_s``
    :param drain_s: how long our server waits for open sessions before it swaps blocks
    :param clients: processes that generate meanwhile; 0 for none
    :param sample_every_s: between two looks at the swarm
    :param settle_s: how long a scenario goes on after lost records are back; ``gap_s`` after servers were killed,
        ``wide_s`` after a server joined
    :param run_dir: sim_vs_real: a stored run of +exp=rebalance to compare with; None runs one
    :param simulations: sim_vs_real: simulated runs per arm, with the seeds ``seed``, ``seed + 1``, and so on
    """

    time_scale: float = 15.0
    balance_quality: float = 0.75
    check_period_s: float = 60.0
    choice_delay_s: float = 5.0
    update_period_s: float = 60.0
    expiration_s: float = 120.0
    lost_s: float = 84.0
    grace_s: float = 90.0
    visible_s: float = 60.0
    horizon_s: float = 600.0
    read_delay_s: float = 0.5
    slow_read_delay_s: float = 5.0
    drain_s: float = 1.0
    clients: int = 1
    sample_every_s: float = 1.0
    settle_s: float = 12.0
    gap_s: float = 38.0
    wide_s: float = 38.0
    run_dir: str | None = None
    simulations: int = 40

    def scaled(self, seconds: float) -> float:
        """Seconds of the public swarm as seconds here."""
        return seconds / self.time_scale


def check_rebalance(settings: RebalanceSettings) -> None:
    """
    :raises BadInput: for a swarm that cannot be
    """
    for name in (*POSITIVE, *NOT_NEGATIVE):
        value = getattr(settings, name)
        if not math.isfinite(value) or value < 0 or (name in POSITIVE and value == 0):
            allowed = "a number above 0" if name in POSITIVE else "0 or more"
            raise BadInput(f"rebalance.{name}", value, allowed)
    if not 0 <= settings.balance_quality <= 1:
        raise BadInput("rebalance.balance_quality", settings.balance_quality, "a share, 0 to 1")
    if settings.update_period_s >= settings.expiration_s:
        allowed = f"less than rebalance.expiration_s, {settings.expiration_s:g}: records would lapse"
        raise BadInput("rebalance.update_period_s", settings.update_period_s, allowed)
    if settings.lost_s >= settings.grace_s:
        allowed = f"less than rebalance.grace_s, {settings.grace_s:g}: or our policy believes that the server is gone"
        raise BadInput("rebalance.lost_s", settings.lost_s, allowed)
    for name, least in (("clients", 0), ("simulations", 1)):
        if getattr(settings, name) < least:
            raise BadInput(f"rebalance.{name}", getattr(settings, name), f"at least {least}")
