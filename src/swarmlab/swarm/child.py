"""A process of a swarm, as the orchestrator knows it, wherever it runs."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path

from swarmlab.channel import Channel, Listener
from swarmlab.errors import SwarmFailed


@dataclass
class Child:
    """One process group of the swarm.

    :param pid: of its leader; also the number of its process group
    :param status: exit status once the whole group is gone (negative: the signal that ended it); None before
    """

    name: str
    pid: int
    log_path: Path
    listener: Listener | None = None
    status: int | None = None
    gone: threading.Event = field(default_factory=threading.Event)
    _channel: Channel | None = None

    @property
    def pgid(self) -> int:
        return self.pid

    def channel(self, deadline_s: float = 60.0) -> Channel:
        """The channel to the process, once it has connected.

        :raises ChannelClosed: if it died first
        :raises TimeoutError: if it lives but did not connect in time
        """
        if self._channel is None:
            if self.listener is None:
                raise SwarmFailed(f"{self.name} has no channel")
            self._channel = self.listener.accept(deadline_s, lambda: not self.gone.is_set())
            self.listener.close()
        return self._channel

    def wait(self, deadline_s: float) -> int | None:
        """The exit status once nothing of the group is left; None if that is not so within the deadline."""
        self.gone.wait(deadline_s)
        return self.status

    def close(self) -> None:
        for end in (self._channel, self.listener):
            if end is not None:
                end.close()
