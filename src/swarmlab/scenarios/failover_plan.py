"""What a run of +exp=failover is about to do, in words, and about how long that takes."""

from __future__ import annotations

import math
from collections.abc import Sequence

# Seconds per scenario with the tiny model on two cores, most of them waits that petals' retries consist of.
CLIENT_S = {"reference": 2.0, "plain": 0.5, "petals": 25.0, "issue_patch": 12.0, "swarmlab": 4.0}
OTHER_CLIENT_S = 15.0
SWARM_S = 15.0  # to start the servers of one topology, and to end them


def expected_s(n_scenarios: int, n_topologies: int, clients: Sequence[str]) -> float:
    """How long the run may take; an arm that hangs adds its deadline."""
    per_scenario_s = sum(CLIENT_S.get(client, OTHER_CLIENT_S) for client in clients)
    return n_topologies * SWARM_S + n_scenarios * per_scenario_s


def describe(
    *,
    model: str,
    scenarios: Sequence[str],
    topologies: Sequence[str],
    clients: Sequence[str],
    deadline_s: float,
) -> str:
    """For whoever watches, before anything starts."""
    minutes = math.ceil(expected_s(len(scenarios), len(topologies), clients) / 60)
    swarms = f"{_count(len(topologies), 'swarm')} ({', '.join(topologies)})"
    return f"""\
Failover on a real swarm of {model}:
  {_count(len(scenarios), "scenario")} ({", ".join(scenarios)})
  x {_count(len(clients), "client")} ({", ".join(clients)}), one after another on {swarms}
  about {_count(minutes, "minute")} for a tiny model on two cores; a client that hangs ends after {deadline_s:g} s"""


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
