"""Who asks a simulated swarm for tokens: numbers with units, checked before anything starts."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

from swarmlab.errors import BadInput
from swarmlab.recovery.routing import DEFAULT_INFERENCE_TPS, MAX_RTT_S
from swarmlab.recovery.settings import RecoverySettings

WHOLE = {"n_sites": 1, "prompt_tokens": 1, "new_tokens": 1}
MOST_CLIENTS = 10_000
POSITIVE = ("step_tps", "view_age_s")
NOT_NEGATIVE = ("pause_s", "rtt_min_s", "rtt_max_s", "detect_s")


@dataclass(unsafe_hash=True)
class SimClients:
    """Clients of a simulated swarm; there are none unless ``n_clients`` says so. They begin within the warm-up.

    :param n_clients: each runs one session after another
    :param n_sites: they are at so many places, each with distances of its own to all servers
    :param prompt_tokens: of each session; ``new_tokens`` are generated after it, one by one
    :param pause_s: mean pause between two sessions, exponential; 0 for none
    :param step_tps: single tokens/s through one block for a session that has a fast server to itself
    :param rtt_min_s: shortest round trip between a site and a server; ``rtt_max_s`` the longest, drawn evenly
    :param view_age_s: a client that needs servers reads the DHT again if its view is older
    :param detect_s: how long a server that is gone without a word is waited for
    :param patience_s: a session ends with an error if a step, or its opening, has been held up so long
    """

    n_clients: int = 0
    n_sites: int = 8
    prompt_tokens: int = 128
    new_tokens: int = 128
    pause_s: float = 0.0
    step_tps: float = DEFAULT_INFERENCE_TPS
    rtt_min_s: float = 0.02
    rtt_max_s: float = 0.2
    view_age_s: float = RecoverySettings.view_age_s
    detect_s: float = 3.0
    patience_s: float = RecoverySettings.recovery_s


def check_clients(clients: SimClients) -> None:
    """
    :raises BadInput: for clients that cannot be
    """
    values = asdict(clients)
    for name, least in WHOLE.items():
        if values[name] < least:
            raise BadInput(f"sim.clients.{name}", values[name], f"a whole number, at least {least}")
    if not 0 <= clients.n_clients <= MOST_CLIENTS:
        allowed = f"a whole number from 0, which is nobody, to {MOST_CLIENTS}"
        raise BadInput("sim.clients.n_clients", clients.n_clients, allowed)
    for name in (*POSITIVE, *NOT_NEGATIVE):
        if not math.isfinite(values[name]) or values[name] < 0 or (name in POSITIVE and values[name] == 0):
            allowed = "a number above 0" if name in POSITIVE else "0 or more"
            raise BadInput(f"sim.clients.{name}", values[name], allowed)
    if not 1 <= clients.patience_s < math.inf:
        raise BadInput("sim.clients.patience_s", clients.patience_s, "a number of at least 1")
    if not clients.rtt_min_s <= clients.rtt_max_s <= MAX_RTT_S:
        allowed = f"at least sim.clients.rtt_min_s, {clients.rtt_min_s:g}, at most {MAX_RTT_S:g}"
        raise BadInput("sim.clients.rtt_max_s", clients.rtt_max_s, allowed)
