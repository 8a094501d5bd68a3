from __future__ import annotations

import pytest

from tests.disks import mounted


@pytest.fixture
def small_disk(tmp_path):
    """A disk that can be full; skipped where nothing may be mounted."""
    with mounted(tmp_path / "disk") as disk:
        if disk is None:
            pytest.skip("mounting a small disk is not permitted here")
        yield disk
