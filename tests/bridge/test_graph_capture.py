from __future__ import annotations

from typing import Any

import torch

from swarmlab.bridge.graph_capture import watch_only_the_recording_thread


def test_graphs_are_recorded_in_a_mode_that_other_threads_do_not_spoil_unless_asked_otherwise(monkeypatch):
    asked = []
    recorder: Any = lambda _self, _graph, **options: asked.append(options)  # noqa: E731
    monkeypatch.setattr(torch.cuda.graph, "__init__", recorder)
    watch_only_the_recording_thread()
    record: Any = torch.cuda.graph
    record("graph")
    record("graph", capture_error_mode="global")
    assert [options["capture_error_mode"] for options in asked] == ["thread_local", "global"]
