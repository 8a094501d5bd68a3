"""Blocks that are cut for several devices, here two of the CPU: held, dropped and kept like others, but not stored."""

from __future__ import annotations

from copy import copy
from typing import Any

import pytest
import torch

from swarmlab.bridge import compat

compat.apply()

from petals.data_structures import InferenceMetadata  # noqa: E402
from petals.models.bloom.config import DistributedBloomConfig  # noqa: E402
from petals.utils.convert_block import QuantType  # noqa: E402

from swarmlab.bridge.blocks.loader import BlockRecipe, converted  # noqa: E402
from swarmlab.bridge.container import BlockContainer  # noqa: E402
from swarmlab.bridge.models.ensure import ensure_model  # noqa: E402
from swarmlab.bridge.serving.front import Front  # noqa: E402
from swarmlab.errors import BadInput  # noqa: E402
from tests.bridge.servers import CPU, settings_of  # noqa: E402

TWO = (CPU, CPU)


@pytest.fixture(scope="module")
def bloom() -> Any:
    return DistributedBloomConfig(hidden_size=64, n_head=4, n_layer=16, vocab_size=100)


@pytest.fixture(scope="module")
def llama_settings(tmp_path_factory) -> Any:
    return settings_of(ensure_model("tiny_llama", tmp_path_factory.mktemp("models")).path, TWO)


@pytest.fixture
def container(llama_settings, bloom):
    settings = copy(llama_settings)
    settings.block_config = bloom
    return BlockContainer(settings)


def cut_block(config, devices=TWO) -> Any:
    torch.manual_seed(0)
    recipe = BlockRecipe("bloom", config, torch.float32, QuantType.NONE, devices=devices)
    return converted(recipe, 0, config.block_class(config), 0.0, 0).module


def step(front, uid, at, hidden, handles):
    infos = (InferenceMetadata(uid, at, handles, ""),)
    (out,) = front.held.inference(hidden.clone(), torch.arange(1), infos, None)
    return out


def test_a_block_that_is_kept_goes_on_with_its_caches_while_others_come_and_go(container, bloom):
    front, kept = container.front, cut_block(bloom)
    assert len(kept.module_shards) == 2
    container.add({1: cut_block(bloom), 2: kept})
    descriptors = front.faces["m.2"].get_inference_cache_descriptors(1, 8)
    assert len(descriptors) == 4, "keys and values for each device"
    handles = tuple(range(len(descriptors)))
    front.memory_cache._pipe_send.send((handles, descriptors))
    hidden = torch.randn(1, 5, 64)
    first = step(front, "m.2", 0, hidden[:, :3], handles)
    container.remove([1])
    container.add({3: cut_block(bloom)})
    second = step(front, "m.2", 3, hidden[:, 3:], handles)
    assert container.blocks == {2, 3}
    whole = cut_block(bloom, (CPU,))(hidden)[0]
    assert torch.allclose(torch.cat([first, second], dim=1), whole, atol=1e-5)
    with pytest.raises(KeyError):
        front.held.forward(hidden, "", "m.1")


def test_a_model_that_petals_cannot_cut_is_refused_in_words(tmp_path):
    """Its own server ends with a bare AssertionError, once it has loaded the first block."""
    settings = settings_of(ensure_model("tiny_llama", tmp_path).path, TWO)
    with pytest.raises(BadInput, match=r"tensor_parallel_devices.*llama"):
        Front(settings)
