"""What lies between the machines of a swarm: as it is, emulated in the servers, or shaped by the kernel."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass

from swarmlab.errors import BadInput

WAYS = ("host", "emulated", "netem")


@dataclass
class NetworkSettings:
    """A profile of the network; the paper's three are in ``configs/network``.

    :param name: for whoever reads the results
    :param by: host: as it is, nothing is added; emulated: our servers hold each message back; netem: the kernel does,
        as somebody has told it (``swarmlab`` only checks that it has been told)
    :param rate_mbps: of each server's link, in each direction, in 10**6 bits/s; None: unlimited, or unknown
    :param rtt_ms: round trip that is added to each request and its reply, in milliseconds
    """

    name: str = "host"
    by: str = "host"
    rate_mbps: float | None = None
    rtt_ms: float = 0.0

    def label(self) -> str:
        """In words, with how it was made, for results and figures."""
        if self.by == "host":
            return "network of the host"
        rate = "unlimited" if self.rate_mbps is None else f"{self.rate_mbps:g} Mbit/s"
        return f"{rate}, {self.rtt_ms:g} ms round trip ({self.by})"

    def server_options(self) -> dict[str, float | None]:
        """What a server's process must be told; empty if it has nothing to do."""
        if self.by != "emulated":
            return {}
        return {"rate_mbps": self.rate_mbps, "delay_s": self.rtt_ms / 2000}


def check(network: NetworkSettings) -> None:
    """
    :raises BadInput: for a profile that cannot be had here
    """
    if network.by not in WAYS:
        raise BadInput("network.by", network.by, ", ".join(WAYS))
    if network.rate_mbps is not None and not 0 < network.rate_mbps < float("inf"):
        raise BadInput("network.rate_mbps", network.rate_mbps, "a number above 0, or null for unlimited")
    if not 0 <= network.rtt_ms < float("inf"):
        raise BadInput("network.rtt_ms", network.rtt_ms, "0 or more milliseconds")
    if network.by == "host" and network.rtt_ms:
        raise BadInput("network.by", "host", "emulated or netem, to add a round trip")
    if network.by == "netem" and not has_netem(qdiscs()):
        allowed = "emulated; or tell the kernel first, as docs/clusters.md shows (tc qdisc add ... netem)"
        raise BadInput("network.by", "netem", allowed)


def has_netem(listing: str) -> bool:
    """
    :param listing: of ``tc qdisc show``
    """
    return any(line.split()[1:2] == ["netem"] for line in listing.splitlines())


def qdiscs() -> str:
    """What ``tc qdisc show`` prints; nothing where there is no tc."""
    tc = shutil.which("tc", path="/usr/sbin:/sbin:/usr/bin:/bin")
    if tc is None:
        return ""
    return subprocess.run([tc, "qdisc", "show"], capture_output=True, text=True, check=False).stdout
