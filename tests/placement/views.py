"""Random views for property tests, from an explicit generator."""

from __future__ import annotations

import numpy as np

from swarmlab.types import ServerRecord, ServerState, Span, SwarmView

FLAVOURS = ("lognormal", "integers", "equal", "nearly equal")


def random_throughputs(rng: np.random.Generator, n: int) -> np.ndarray:
    """Throughputs as they come in swarms, or with many ties, or with differences near float noise."""
    flavour = FLAVOURS[rng.integers(len(FLAVOURS))]
    if flavour == "lognormal":
        return rng.lognormal(7, 1, n)
    if flavour == "integers":
        return rng.integers(0, 4, n).astype(float)
    if flavour == "equal":
        return np.full(n, 0.1 + rng.random())
    return 1000.0 + rng.integers(-3, 4, n) * 10.0 ** -rng.integers(1, 13)


def random_view(
    rng: np.random.Generator, *, max_blocks: int, max_servers: int, names: list[str] | None = None
) -> SwarmView:
    """A view with at least one server; about half of the views leave no block unheld."""
    n_blocks = int(rng.integers(1, max_blocks + 1))
    n_servers = int(rng.integers(1, max_servers + 1))
    rates = random_throughputs(rng, n_servers)
    widest = int(rng.integers(1, n_blocks + 1))
    states = [ServerState.ONLINE] * 4 + [ServerState.JOINING, ServerState.OFFLINE]
    records = []
    for i in range(n_servers):
        width = int(rng.integers(1, widest + 1))
        start = int(rng.integers(0, n_blocks - width + 1))
        state = states[rng.integers(len(states))] if rng.random() < 0.5 else ServerState.ONLINE
        name = names[i] if names else f"peer{i:03d}"
        records.append(ServerRecord(name, Span(start, start + width), float(rates[i]), state))
    if rng.random() < 0.5:
        name = names[n_servers] if names else f"peer{n_servers:03d}"
        records.append(ServerRecord(name, Span(0, n_blocks), float(rates[0] + 1)))
    return SwarmView(n_blocks, tuple(records))
