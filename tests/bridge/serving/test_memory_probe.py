"""The numbers behind the choice between prefetching and going in place."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import torch

from swarmlab.bridge import compat

compat.apply()

from swarmlab.bridge.serving import memory_probe  # noqa: E402
from swarmlab.bridge.serving.memory_probe import MIN_RESERVE_BYTES, free_bytes, plan_memory  # noqa: E402
from swarmlab.health.machine import ContainerMemory  # noqa: E402
from swarmlab.placement.reload_plan import Mode  # noqa: E402
from swarmlab.types import Span  # noqa: E402

OLD, NEW = Span(0, 3), Span(2, 5)
BLOCK = torch.nn.Linear(100, 10, bias=False)
BLOCK_BYTES = RAW_BYTES = 4000


def plan(monkeypatch, free, *, device="cpu", cache_left=500, wish="auto"):
    monkeypatch.setattr(memory_probe, "free_bytes", lambda _: free)
    config = SimpleNamespace(block_class=lambda _: torch.nn.Linear(100, 10, bias=False))
    front = SimpleNamespace(
        memory_cache=SimpleNamespace(bytes_left=cache_left),
        template=SimpleNamespace(config=config, dtype=torch.float32),
    )
    container: Any = SimpleNamespace(modules=lambda: dict.fromkeys(OLD, BLOCK), front=front)
    return plan_memory(SimpleNamespace(device=torch.device(device)), wish, container, OLD, NEW)


def test_what_the_attention_cache_may_still_take_is_not_free(monkeypatch):
    needed = 2 * BLOCK_BYTES + RAW_BYTES
    fits, full = (plan(monkeypatch, needed + 500 - short) for short in (0, 1))
    assert (fits.mode, fits.needed_bytes, fits.free_bytes) == (Mode.PREFETCH, needed, needed)
    assert full.mode is Mode.IN_PLACE
    assert plan(monkeypatch, 100).free_bytes == 0


def test_on_a_gpu_what_is_read_before_it_is_quantized_lies_elsewhere(monkeypatch):
    assert plan(monkeypatch, 10**6, device="cuda").needed_bytes == 2 * BLOCK_BYTES


def test_it_can_be_told(monkeypatch):
    assert plan(monkeypatch, 0, wish="prefetch").mode is Mode.PREFETCH
    assert plan(monkeypatch, 10**9, wish="in_place").mode is Mode.IN_PLACE


@pytest.mark.parametrize(("total", "reserve"), [(2**30, 256 * 2**20), (100 * 2**30, 5 * 2**30)])
def test_some_memory_is_left_alone(monkeypatch, total, reserve):
    memory = SimpleNamespace(available=total, total=total)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory)
    monkeypatch.setattr(memory_probe, "container_memory", lambda: None)
    assert free_bytes(torch.device("cpu")) == total - reserve


def test_a_container_has_what_its_limit_leaves(monkeypatch):
    memory = SimpleNamespace(available=900 * 2**30, total=1000 * 2**30)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory)
    monkeypatch.setattr(memory_probe, "container_memory", lambda: ContainerMemory(2**30, 2**29))
    assert free_bytes(torch.device("cpu")) == 2**29 - MIN_RESERVE_BYTES
