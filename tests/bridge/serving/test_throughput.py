"""What a server announces when it measures itself: petals' own measurement and formula, and nobody outside is asked."""

from __future__ import annotations

import json

import pytest
import torch

from swarmlab.bridge import compat

compat.apply()

from petals.server import throughput as petals_throughput  # noqa: E402 - after compat
from petals.utils.auto_config import AutoDistributedConfig  # noqa: E402 - after compat
from petals.utils.convert_block import QuantType  # noqa: E402 - after compat

from swarmlab.bridge.models.ensure import ensure_model  # noqa: E402 - after compat
from swarmlab.bridge.serving import throughput  # noqa: E402 - after compat
from swarmlab.types import MAX_THROUGHPUT_TPS  # noqa: E402 - after compat


def test_tokens_that_fit_through_a_link():
    assert throughput.network_tps(100.0, 8192) == pytest.approx(762.9, abs=0.1)  # 65B at 100 Mbit/s
    assert throughput.network_tps(None, 8192) == MAX_THROUGHPUT_TPS


@pytest.fixture
def measured(monkeypatch, tmp_path):
    checkpoint = ensure_model("tiny_llama", tmp_path / "models")
    config = AutoDistributedConfig.from_pretrained(str(checkpoint.path))

    def refuse(*_, **__):
        raise AssertionError("the internet was asked")

    monkeypatch.setattr(petals_throughput, "measure_network_rps", petals_throughput.measure_network_rps)
    monkeypatch.setattr(petals_throughput, "_measure_bits_per_second", refuse)

    def measure(rate_mbps):
        throughput.install(rate_mbps)
        return petals_throughput.get_server_throughput(
            "tiny", config, torch.device("cpu"), torch.float32, num_blocks=5, quant_type=QuantType.NONE,
            tensor_parallel_devices=(), reachable_via_relay=False, force_eval=True, cache_dir=str(tmp_path / "cache"),
        )  # fmt: skip

    return measure, config, tmp_path / "cache"


def test_the_device_is_measured_and_the_network_is_given(measured):
    measure, config, cache = measured
    found = measure(0.001)
    assert found["network_rps"] == pytest.approx(1000 / (config.hidden_size * 16))
    assert (
        found["throughput"] == found["network_rps"] < found["forward_rps"] / 3
    )  # of 5 blocks, a request uses 3
    assert found["inference_rps"] > 0
    assert json.loads((cache / "throughput_v5.json").read_text())
