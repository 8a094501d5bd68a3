"""What a simulated swarm is like: numbers with units, checked before anything starts."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field

from swarmlab.errors import BadInput
from swarmlab.sim.client_settings import SimClients, check_clients

WHOLE = {"n_blocks": 1, "n_servers": 1, "repeats": 1, "capacity_min": 1, "active_min": 1, "optimum_kicks": 0}
POSITIVE = (
    "duration_s", "sample_every_s", "blocks_every_s", "check_period_s", "update_period_s", "expiration_s",
    "throughput_max_tps", "activity_period_s", "lifetime_min_s", "lifetime_max_s", "throughput_median_tps",
)  # fmt: skip
NOT_NEGATIVE = (
    "warm_up_s", "mean_choice_delay_s", "announce_delay_s", "view_age_s", "lapses_per_hour", "s_per_block",
    "s_per_move", "throughput_min_tps", "throughput_sigma",
)  # fmt: skip


@dataclass(unsafe_hash=True)
class SimSettings:
    """One simulated swarm and how it is watched.

    :param repeats: how many populations, with the seeds ``seed``, ``seed + 1``, and so on
    :param warm_up_s: left out of every mean, while the first servers load
    :param check_period_s: mean time between two checks of a server
    :param check_evenly: True: as Petals, a time drawn evenly from 0 to twice the mean; False: exactly the mean
    :param mean_choice_delay_s: mean wait before a server chooses its blocks, drawn evenly from 0 to twice this
    :param update_period_s: how often a server renews its record in the DHT
    :param expiration_s: how long a record lives if it is not renewed
    :param announce_delay_s: how long a record takes to be seen by all others
    :param view_age_s: how old a view may be that a reader gets (DHT nodes cache); saves time in large swarms
    :param lapses_per_hour: how often a whole server is unseen by all, for 30 to 120 s
    :param s_per_block: seconds to load one block
    :param s_per_move: seconds that a change of span takes beside
    :param capacity_min: fewest blocks a server holds; ``capacity_max`` the most, drawn evenly from all between
    :param active_min: servers at a trough of activity; ``active_max`` at a peak
    :param activity_period_s: from trough to trough, along a sine
    :param throughput_median_tps: under churn, where throughputs are lognormal with ``throughput_sigma``
    :param lifetime_min_s: under churn, the shortest mean lifetime of a server; ``lifetime_max_s`` the longest
    :param crash_share: share of the servers that leave by crashing, their records staying until they expire
    :param from_record: a run folder of +exp=record_dht, or its views.jsonl: its servers instead of drawn ones
    :param optimum_kicks: effort of the search for the best placement; its upper bound does not depend on it
    :param clients: who asks the swarm for tokens; nobody by default
    """

    n_blocks: int = 70
    n_servers: int = 206
    duration_s: float = 86400.0
    repeats: int = 1
    warm_up_s: float = 600.0
    sample_every_s: float = 60.0
    blocks_every_s: float = 3600.0
    check_period_s: float = 60.0
    check_evenly: bool = True
    mean_choice_delay_s: float = 5.0
    update_period_s: float = 60.0
    expiration_s: float = 120.0
    announce_delay_s: float = 0.0
    view_age_s: float = 0.0
    lapses_per_hour: float = 0.0
    s_per_block: float = 30.0
    s_per_move: float = 0.0
    throughput_min_tps: float = 0.0
    throughput_max_tps: float = 100.0
    capacity_min: int = 1
    capacity_max: int = 10
    active_min: int = 20
    active_max: int = 105
    activity_period_s: float = 86400.0
    throughput_median_tps: float = 1000.0
    throughput_sigma: float = 1.0
    lifetime_min_s: float = 7200.0
    lifetime_max_s: float = 21600.0
    crash_share: float = 0.0
    optimum_kicks: int = 50
    from_record: str | None = None
    clients: SimClients = field(default_factory=SimClients)


@dataclass
class ScaleSettings:
    """Which sizes of a swarm are tried.

    :param sizes: numbers of servers, each once
    """

    sizes: list[int] = field(default_factory=lambda: [100, 300, 1000])


def check_scale(scale: ScaleSettings) -> None:
    """
    :raises BadInput: if no swarm follows from it
    """
    sizes = scale.sizes
    if not sizes or any(size < 1 for size in sizes) or len(set(sizes)) < len(sizes):
        raise BadInput("scale.sizes", sizes, "one or more numbers of at least 1, each once")


def check(settings: SimSettings) -> None:
    """
    :raises BadInput: for a swarm that cannot be
    """
    values = asdict(settings)
    for name, least in WHOLE.items():
        if values[name] < least:
            raise BadInput(f"sim.{name}", values[name], f"a whole number, at least {least}")
    for name in (*POSITIVE, *NOT_NEGATIVE):
        if not math.isfinite(values[name]) or values[name] < 0 or (name in POSITIVE and values[name] == 0):
            allowed = "a number above 0" if name in POSITIVE else "0 or more"
            raise BadInput(f"sim.{name}", values[name], allowed)
    _ordered(settings.capacity_min, "capacity_max", settings.capacity_max, settings.n_blocks)
    _ordered(settings.active_min, "active_max", settings.active_max, settings.n_servers)
    if settings.throughput_min_tps > settings.throughput_max_tps:
        allowed = f"at most sim.throughput_max_tps, {settings.throughput_max_tps:g}"
        raise BadInput("sim.throughput_min_tps", settings.throughput_min_tps, allowed)
    if settings.lifetime_min_s > settings.lifetime_max_s:
        allowed = f"at least sim.lifetime_min_s, {settings.lifetime_min_s:g}"
        raise BadInput("sim.lifetime_max_s", settings.lifetime_max_s, allowed)
    if not 0 <= settings.crash_share <= 1:
        raise BadInput("sim.crash_share", settings.crash_share, "0 to 1")
    if settings.update_period_s >= settings.expiration_s:
        allowed = (
            f"less than sim.expiration_s, {settings.expiration_s:g}: records would lapse while servers live"
        )
        raise BadInput("sim.update_period_s", settings.update_period_s, allowed)
    if settings.warm_up_s >= settings.duration_s:
        raise BadInput(
            "sim.warm_up_s", settings.warm_up_s, f"less than sim.duration_s, {settings.duration_s:g}"
        )
    check_clients(settings.clients)


def _ordered(low: int, name: str, value: int, high: int) -> None:
    if not low <= value <= high:
        raise BadInput(f"sim.{name}", value, f"{low} to {high}")
