"""Errors that a user can act on; everything else is a bug and may show a traceback."""

from __future__ import annotations


class BadInput(ValueError):
    """A setting, file or machine that cannot work; the entry points turn it into one line and exit code 2.

    :param field: what the user can change, as they would write it (``swarm.servers[2].start``)
    :param value: what was given
    :param allowed: what would be accepted, in words
    """

    def __init__(self, field: str, value: object, allowed: str) -> None:
        super().__init__(f"{field}: {value!r} is not usable; allowed: {allowed}")
        self.field, self.value, self.allowed = field, value, allowed


class SwarmFailed(RuntimeError):
    """The swarm could not be brought to, or kept in, the state a run needs (exit code 1)."""
