"""What a run of +exp=failover is about to do, and about how long that takes."""

from __future__ import annotations

import math

from swarmlab.scenarios.failover import PLAIN, REFERENCE, Failover

# Seconds per scenario with the tiny model on two cores, most of them waits that petals' retries consist of.
CLIENT_S = {REFERENCE: 2.0, PLAIN: 0.5, "petals": 25.0, "issue_patch": 12.0, "swarmlab": 4.0}
OTHER_CLIENT_S = 15.0
SWARM_S = 15.0  # to start the servers of one topology, and to end them


def clients_of(experiment: Failover) -> tuple[str, ...]:
    """Who runs each scenario, in this order: two references, then the arms."""
    return (REFERENCE, PLAIN, *experiment.arms)


def expected_s(experiment: Failover) -> float:
    """How long the run may take; an arm that hangs adds its deadline."""
    topologies = {scenario.topology for scenario in experiment.scenarios}
    per_scenario_s = sum(CLIENT_S.get(client, OTHER_CLIENT_S) for client in clients_of(experiment))
    return len(topologies) * SWARM_S + len(experiment.scenarios) * per_scenario_s


def describe(experiment: Failover) -> str:
    """For whoever watches, before anything starts."""
    topologies = dict.fromkeys(scenario.topology for scenario in experiment.scenarios)
    clients, n_scenarios = clients_of(experiment), len(experiment.scenarios)
    minutes, deadline_s = math.ceil(expected_s(experiment) / 60), experiment.deadline_s
    names, order = ", ".join(one.name for one in experiment.scenarios), ", ".join(clients)
    swarms = f"{_count(len(topologies), 'swarm')} ({', '.join(topologies)})"
    return f"""\
Failover on a real swarm of {experiment.checkpoint.model_id}, {experiment.checkpoint.n_blocks} blocks:
  {_count(n_scenarios, "scenario")} ({names})
  x {_count(len(clients), "client")} ({order}), one after another on {swarms}
  about {_count(minutes, "minute")} for a tiny model on two cores; a client that hangs ends after {deadline_s:g} s"""


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
