"""The memory of a server, held against petals' own server on GPUs that are played."""

from __future__ import annotations

import importlib
import json
from types import SimpleNamespace
from typing import Any

import pytest

from swarmlab.bridge import compat

compat.apply()

import torch  # noqa: E402
from petals.server.block_utils import get_block_size  # noqa: E402
from petals.utils.auto_config import AutoDistributedConfig  # noqa: E402
from petals.utils.convert_block import QuantType  # noqa: E402

from swarmlab.bridge.models.llama_shapes import LLAMA2_70B, LLAMA_65B, LLAMA_65B_TENTH, llama_config  # noqa: E402
from swarmlab.health.capacity import (  # noqa: E402
    GIB,
    QUANTS,
    BlockShape,
    autograd_bytes,
    blocks_that_fit,
    cache_bytes,
    needs,
    weight_bytes,
)

petals_server: Any = importlib.import_module("petals.server.server")
MODELS = {"65b": LLAMA_65B, "70b": LLAMA2_70B, "tenth": LLAMA_65B_TENTH}
GPUS_GB = (24, 40, 80, 141)


@pytest.fixture(scope="module", params=MODELS)
def model(request, tmp_path_factory):
    """A folder with the model's config.json, and its shape."""
    folder = tmp_path_factory.mktemp(request.param)
    config = llama_config(MODELS[request.param], "float16")
    (folder / "config.json").write_text(json.dumps(config))
    return folder, BlockShape.of_config(config)


@pytest.fixture
def gpu(monkeypatch):
    """Petals' server up to the point where it has chosen how many blocks it holds, on a GPU of any size."""

    class Dht:
        def __init__(self, **_options):
            pass

        def get_visible_maddrs(self):
            return []

    monkeypatch.setattr(petals_server, "DHT", Dht)
    monkeypatch.setattr(
        petals_server, "ReachabilityProtocol", SimpleNamespace(attach_to_dht=lambda _dht: None)
    )

    def start(folder, total_bytes, quant, dtype, cache_tokens) -> Any:
        properties = SimpleNamespace(total_memory=total_bytes)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _device: properties)
        return petals_server.Server(
            initial_peers=["nobody"],
            dht_prefix="m",
            converted_model_name_or_path=str(folder),
            throughput=1.0,
            device="cuda",
            quant_type=QuantType[quant.upper()],
            torch_dtype=dtype,
            attn_cache_tokens=cache_tokens,
            reachable_via_relay=False,
            skip_reachability_check=True,
        )

    return start


@pytest.mark.parametrize("quant", QUANTS)
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_a_block_weighs_what_petals_says(model, quant, dtype):
    folder, shape = model
    config: Any = AutoDistributedConfig.from_pretrained(str(folder))
    theirs = get_block_size(
        config, "memory", dtype=getattr(torch, dtype), quant_type=QuantType[quant.upper()]
    )
    assert weight_bytes(shape, dtype, quant) == theirs


@pytest.mark.parametrize("gigabytes", GPUS_GB)
@pytest.mark.parametrize("cache_tokens", [1024, 16384])
@pytest.mark.parametrize("quant", QUANTS)
def test_as_many_blocks_fit_as_petals_chooses(model, gpu, gigabytes, quant, cache_tokens):
    folder, shape = model
    for total_bytes in (gigabytes * 10**9, gigabytes * GIB):  # both readings of a GPU's size
        server = gpu(folder, total_bytes, quant, "float16", cache_tokens)
        n_blocks = blocks_that_fit(shape, total_bytes, "float16", quant, cache_tokens)
        assert n_blocks == server.num_blocks > 0
        planned = needs(shape, n_blocks, "float16", quant, cache_tokens)
        assert planned.cache == server.attn_cache_bytes
        assert planned.total <= total_bytes


def test_a_block_more_would_not_fit(model):
    _, shape = model
    n_blocks = blocks_that_fit(shape, 40 * GIB, "float32", "none", 16384)
    if n_blocks < shape.n_blocks:
        assert needs(shape, n_blocks + 1, "float32", "none", 16384).total > 40 * GIB


def test_nothing_fits_where_petals_gives_up(model, gpu):
    folder, shape = model
    assert blocks_that_fit(shape, GIB // 20, "float16", "none", 8192) == 0
    with pytest.raises(AssertionError, match="not have enough memory"):
        gpu(folder, GIB // 20, "none", "float16", 8192)


def test_the_65b_in_numbers():
    shape = BlockShape.of_config(llama_config(LLAMA_65B, "float16"))
    assert shape.parameters == 809_517_056
    assert weight_bytes(shape, "float16", "nf4") == pytest.approx(0.4345e9, rel=1e-3)
    assert 80 * weight_bytes(shape, "float16", "nf4") == pytest.approx(34.75e9, rel=1e-3)
    assert cache_bytes(shape, "float16", 8192) == GIB // 4
    assert autograd_bytes(shape) == pytest.approx(1.143 * GIB, rel=1e-3)
    assert [blocks_that_fit(shape, gb * GIB, "float16", "nf4", 8192) for gb in GPUS_GB] == [34, 59, 80, 80]


def test_older_configs_leave_the_key_value_heads_out():
    config = llama_config(LLAMA_65B, "float16")
    del config["num_key_value_heads"]
    assert BlockShape.of_config(config).kv_heads == 64


def test_a_fixed_part_leaves_room_for_fewer():
    shape = BlockShape.of_config(llama_config(LLAMA_65B, "float16"))
    assert blocks_that_fit(shape, 24 * GIB, "float16", "nf4", 8192, fixed=4 * GIB) == 28
