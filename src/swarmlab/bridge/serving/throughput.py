"""Petals' own measurement of what a server can do, without the speed test that would ask machines on the internet."""

from __future__ import annotations

from typing import Any

from petals.server import throughput as petals_throughput

from swarmlab.types import MAX_THROUGHPUT_TPS

BITS_PER_NUMBER = 16  # petals' own assumption: clients send hidden states in 16 bits


def install(rate_mbps: float | None) -> None:
    """Have this process's servers take the network's rate as given, and measure the device alone.

    What they announce is still petals' formula: the smaller of the two, for an average request.

    :param rate_mbps: of the server's link, 10**6 bits/s; None: the network is no limit
    """
    entry: Any = petals_throughput
    entry.measure_network_rps = lambda config, **_: network_tps(rate_mbps, config.hidden_size)


def network_tps(rate_mbps: float | None, hidden_size: int) -> float:
    """Tokens per second that fit through a link."""
    if rate_mbps is None:
        return MAX_THROUGHPUT_TPS
    return rate_mbps * 1e6 / (hidden_size * BITS_PER_NUMBER)
