"""What all tests share."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

# Machines are shared: how long an example takes says nothing about the code, and no test may depend on it.
settings.register_profile("shared", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared")

# A swarm of a handful of servers takes up to a minute to start on two busy cores, and a test may need two.
SWARM_TIMEOUT_S = 420


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give tests that start a swarm more time, unless they say how much they need."""
    for item in items:
        if item.get_closest_marker("swarm") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SWARM_TIMEOUT_S))
