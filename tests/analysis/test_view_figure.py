"""The figure of +exp=report_389 on a handmade swarm."""

from __future__ import annotations

import numpy as np

from swarmlab.analysis.plots.view import view_figure

INFO = {"id": "run", "seed": 0, "world": "simulated", "arms": ["petals", "swarmlab"]}


def test_blocks_without_throughput_are_seen_above_the_axis():
    """The blocks whose records are missing are what it is about: their line is at 0."""
    rows = [
        {"block": block, "was_tps": 10.0, "seen_tps": 10.0 * (block < 2), "reported_tps": 9.0}
        for block in range(4)
    ]
    reload = {
        "arm": "petals",
        "server": "S1",
        "new_start": 2,
        "new_end": 4,
        "no_op": False,
        "out_of_service_s": 60.0,
    }
    above, _ = view_figure(rows, [reload], INFO).axes
    assert 0 in [y for line in above.get_lines() for y in np.asarray(line.get_ydata())]
    assert above.get_ylim()[0] < 0
