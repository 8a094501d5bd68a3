"""Loading a block as petals does, with each part timed."""

from __future__ import annotations

import pytest

from swarmlab.bridge import compat

compat.apply()

import torch  # noqa: E402
from petals.server.from_pretrained import load_pretrained_block  # noqa: E402
from petals.utils.convert_block import QuantType, convert_block  # noqa: E402

from swarmlab.bridge.blocks import slow_disk  # noqa: E402
from swarmlab.bridge.blocks.loader import CHECKPOINT, PetalsLoader  # noqa: E402
from swarmlab.bridge.models.tiny_llama import tiny_llama  # noqa: E402
from tests.bridge.block_checks import assert_same_block, recipe_for  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:.*from a non-meta parameter:UserWarning")
BLOCK_PARAMETERS = 4 * 64 * 64 + 3 * 64 * 128 + 2 * 64


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return tiny_llama(tmp_path_factory.mktemp("models")).path


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("quant", list(QuantType))
def test_it_is_the_block_that_petals_would_load(tiny, quant, dtype):
    recipe = recipe_for(tiny, quant, dtype)
    loaded = PetalsLoader(recipe).load(3)
    plain = load_pretrained_block(str(tiny), 3, config=recipe.config, torch_dtype=dtype)
    assert_same_block(
        loaded.module,
        convert_block(plain, 3, recipe.config, recipe.devices, recipe.device, quant, freeze=True),
    )
    assert loaded.source == CHECKPOINT
    assert loaded.bytes_read == 4 * BLOCK_PARAMETERS  # the checkpoint is float32 whatever the block is to be
    assert (loaded.quantize_s > 1e-4) is (quant is not QuantType.NONE)
    assert loaded.read_s > 0
    assert loaded.adapter_s == 0


def test_other_blocks_are_other_blocks(tiny):
    loader = PetalsLoader(recipe_for(tiny))
    with pytest.raises(AssertionError):
        assert_same_block(loader.load(3).module, loader.load(4).module)


def test_a_missing_block_is_an_error(tiny):
    with pytest.raises(AssertionError, match="missing"):
        PetalsLoader(recipe_for(tiny)).load(16)


def test_a_slow_disk_delays_each_read_and_can_be_mended(tiny, monkeypatch):
    naps = []
    monkeypatch.setattr(slow_disk.time, "sleep", naps.append)
    loader = PetalsLoader(recipe_for(tiny))
    slow_disk.install(2.5)
    try:
        loader.load(0)
        loader.load(1)
    finally:
        slow_disk.install(0)
    loader.load(2)
    assert naps == [2.5, 2.5]
    with pytest.raises(ValueError, match="-1"):
        slow_disk.install(-1)


def test_reads_are_seen_by_who_watches_them(tiny):
    loader = PetalsLoader(recipe_for(tiny))
    with slow_disk.watched_reads() as reads:
        load_pretrained_block(str(tiny), 5, config=loader._recipe.config, torch_dtype=torch.float32)
        loader.load(6)  # has its own look
    assert [read.prefix for read in reads] == ["model.layers.5."]
    assert reads[0].n_bytes == 4 * BLOCK_PARAMETERS


def test_touching_empty_and_cut_tensors():
    whole = torch.arange(6000.0).reshape(60, 100)
    tensors = {"empty": torch.empty(0), "cut": whole[:, ::2], "scalar": torch.tensor(1.0)}
    assert slow_disk.touch(tensors) == 4 * 3000 + 4
