"""Loading through the store: the same blocks, bit by bit, and no trouble when the store is in trouble."""

from __future__ import annotations

import errno
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from swarmlab.bridge import compat

compat.apply()

import torch  # noqa: E402
from peft.mapping import get_peft_model  # noqa: E402
from peft.tuners.lora import LoraConfig  # noqa: E402
from petals.utils.convert_block import QuantType  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402

from swarmlab.bridge import block_store  # noqa: E402
from swarmlab.bridge.block_store import BlockStore  # noqa: E402
from swarmlab.bridge.blocks import slow_disk, store_loader  # noqa: E402
from swarmlab.bridge.blocks.loader import CHECKPOINT, STORE, BlockRecipe, PetalsLoader  # noqa: E402
from swarmlab.bridge.blocks.state import WrongTensors, restored, state_of  # noqa: E402
from swarmlab.bridge.blocks.store_loader import StoreLoader  # noqa: E402
from swarmlab.bridge.models import load_plain, open_checkpoint  # noqa: E402
from swarmlab.bridge.models.tiny_llama import tiny_llama  # noqa: E402
from tests.bridge.block_checks import assert_same_block, output, recipe_for  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:.*from a non-meta parameter:UserWarning")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory) -> Path:
    return tiny_llama(tmp_path_factory.mktemp("models")).path


@pytest.fixture(scope="module")
def lora(tiny, tmp_path_factory) -> str:
    """A LoRA as peft itself writes one, with weights that are not the neutral ones it starts from."""
    folder = tmp_path_factory.mktemp("adapter")
    torch.manual_seed(0)
    config = LoraConfig(
        r=4, lora_alpha=8, target_modules=["q_proj", "v_proj", "down_proj"], init_lora_weights=False
    )
    get_peft_model(load_plain(open_checkpoint(tiny)), config).save_pretrained(folder, safe_serialization=True)
    return str(folder)


def loader_for(recipe: BlockRecipe, store: BlockStore) -> StoreLoader:
    return StoreLoader(recipe, store, PetalsLoader(replace(recipe, adapters=())))


class NeverAsked:
    def load(self, block):
        raise AssertionError(f"block {block} should have come from the store")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("quant", list(QuantType))
def test_a_stored_block_is_the_fresh_one_bit_by_bit(tiny, tmp_path, quant, dtype):
    recipe, store = recipe_for(tiny, quant, dtype), BlockStore(tmp_path)
    fresh = loader_for(recipe, store).load(3)
    warm = StoreLoader(recipe, store, NeverAsked()).load(3)
    assert (fresh.source, warm.source) == (CHECKPOINT, STORE)
    assert_same_block(fresh.module, warm.module)
    assert_same_block(PetalsLoader(recipe).load(3).module, warm.module)
    assert warm.bytes_read == store.total_bytes()
    assert warm.quantize_s == 0
    assert fresh.store_s > 0


def test_a_block_is_stored_once_for_each_way_of_making_it(tiny, tmp_path):
    store = BlockStore(tmp_path)
    recipes = [
        recipe_for(tiny, quant, dtype) for quant in QuantType for dtype in (torch.float32, torch.bfloat16)
    ]
    for recipe in recipes * 2:
        loader_for(recipe, store).load(0)
    assert len(store.files()) == len(recipes)


def test_another_checkpoint_of_the_same_name_is_another_block(tiny, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(tiny, folder)
    recipe, store = recipe_for(folder), BlockStore(tmp_path / "store")
    before = loader_for(recipe, store).load(3)
    weights = load_file(folder / "model.safetensors")
    weights["model.layers.3.mlp.up_proj.weight"] *= 2
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    after = loader_for(recipe, store).load(3)
    assert after.source == CHECKPOINT
    assert not torch.equal(output(before.module), output(after.module))


@pytest.mark.parametrize(("place", "revision"), [("model", ""), ("snapshots/c0ffee", "c0ffee")])
def test_the_file_says_what_made_it(tiny, tmp_path, place, revision):
    folder = tmp_path / place
    shutil.copytree(tiny, folder)
    store = BlockStore(tmp_path / "store")
    loader = loader_for(recipe_for(folder), store)
    loader.load(3)
    key = loader.key(3)
    assert key
    found = store.get(key)
    assert found
    assert (found.facts["model"], found.facts["revision"]) == (str(folder), revision)
    assert found.facts["versions"]["torch"].split("+")[0] == torch.__version__.split("+")[0]
    assert found.facts["versions"].keys() >= {"bitsandbytes", "petals"}


def test_a_damaged_file_is_made_again(tiny, tmp_path):
    recipe, store = recipe_for(tiny), BlockStore(tmp_path)
    fresh = loader_for(recipe, store).load(3)
    ((path, _),) = store.files()
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)
    again = loader_for(recipe, store).load(3)
    assert again.source == CHECKPOINT
    assert_same_block(fresh.module, again.module)
    assert StoreLoader(recipe, store, NeverAsked()).load(3).source == STORE


def test_tensors_of_another_model_under_the_right_name_are_made_again(tiny, tmp_path):
    recipe, store = recipe_for(tiny), BlockStore(tmp_path)
    key = loader_for(recipe, store).key(3)
    assert key
    store.put(key, {"self_attn.q_proj.weight": torch.zeros(3)}, {})
    assert loader_for(recipe, store).load(3).source == CHECKPOINT
    assert StoreLoader(recipe, store, NeverAsked()).load(3).source == STORE


@pytest.mark.parametrize("quant", list(QuantType))
def test_what_does_not_fit_the_block_is_refused(tiny, quant):
    recipe = recipe_for(tiny, quant)
    good = state_of(PetalsLoader(recipe).load(0).module)
    restored(recipe, 0, good)
    for name in good:
        with pytest.raises(WrongTensors):
            restored(recipe, 0, {key: value for key, value in good.items() if key != name})
    for name in ("self_attn.q_proj.weight", "input_layernorm.weight"):
        with pytest.raises(WrongTensors):
            restored(recipe, 0, good | {name: good[name][:-1]})
    with pytest.raises(WrongTensors, match="nothing takes other"):
        restored(recipe, 0, good | {"other": torch.zeros(1)})


def test_a_full_disk_costs_only_the_store(tiny, tmp_path, monkeypatch):
    def full(*_args):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    warnings = []
    monkeypatch.setattr(store_loader.logger, "warning", warnings.append)
    monkeypatch.setattr(block_store, "_write_durably", full)
    recipe, store = recipe_for(tiny), BlockStore(tmp_path)
    loaded = loader_for(recipe, store).load(3)
    assert_same_block(loaded.module, PetalsLoader(recipe).load(3).module)
    assert "No space left" in warnings[0]
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_said_once_and_used_again_when_it_has_space(tiny, small_disk, monkeypatch):
    said = []
    monkeypatch.setattr(store_loader.logger, "warning", said.append)
    monkeypatch.setattr(store_loader.logger, "info", said.append)
    recipe, store = recipe_for(tiny), BlockStore(small_disk.folder)
    loader, ballast = loader_for(recipe, store), small_disk.fill(leave_bytes=4096)
    for block in range(4):
        loaded = loader.load(block)
        assert (loaded.source, loaded.store_s) == (CHECKPOINT, 0.0)
        assert_same_block(loaded.module, PetalsLoader(recipe).load(block).module)
    assert [path.name for path in small_disk.folder.iterdir()] == [ballast.name]
    assert len(said) == 1
    assert "No space left" in said[0]
    ballast.unlink()
    assert loader.load(3).store_s > 0
    assert loader.load(3).source == STORE
    assert len(said) == 2
    assert "takes blocks again" in said[1]


@pytest.mark.parametrize("step", ["state_of", "put"])
def test_no_memory_for_a_copy_costs_only_the_store(tiny, tmp_path, monkeypatch, step):
    def no_memory(*_args):
        raise MemoryError

    recipe, store = recipe_for(tiny), BlockStore(tmp_path)
    monkeypatch.setattr(*{"state_of": (store_loader, step), "put": (store, step)}[step], no_memory)
    assert loader_for(recipe, store).load(3).source == CHECKPOINT


def test_a_checkpoint_that_cannot_be_hashed_is_loaded_without_the_store(tiny, tmp_path):
    def unknown(*_args):
        raise PermissionError("not yours")

    recipe, store = recipe_for(tiny), BlockStore(tmp_path)
    loader = StoreLoader(recipe, store, PetalsLoader(recipe), content_of=unknown)
    assert loader.load(3).source == CHECKPOINT
    assert store.files() == []


def test_a_checkpoint_exchanged_while_it_is_read_is_not_kept(tiny, tmp_path):
    contents = iter(["before", "after"])
    recipe, store = recipe_for(tiny), BlockStore(tmp_path)
    loader = StoreLoader(recipe, store, PetalsLoader(recipe), content_of=lambda *_: next(contents))
    loader.load(3)
    assert store.files() == []


def test_a_slow_disk_slows_the_store_too(tiny, tmp_path, monkeypatch):
    recipe, store = recipe_for(tiny), BlockStore(tmp_path)
    naps = []
    monkeypatch.setattr(slow_disk.time, "sleep", naps.append)
    slow_disk.install(5)
    try:
        loader_for(recipe, store).load(3)
        assert naps == [5]
        loader_for(recipe, store).load(3)
        assert naps == [5, 5]
    finally:
        slow_disk.install(0)


@pytest.mark.parametrize("quant", [QuantType.NONE, QuantType.NF4])
def test_an_adapter_is_kept_with_its_block(tiny, tmp_path, lora, quant, monkeypatch):
    recipe, store = recipe_for(tiny, quant, adapters=(lora,)), BlockStore(tmp_path)
    direct = PetalsLoader(recipe).load(3)
    fresh = loader_for(recipe, store).load(3)
    monkeypatch.setattr(store_loader, "read_adapter", None)  # must not be needed again
    warm = StoreLoader(recipe, store, NeverAsked()).load(3)
    StoreLoader(replace(recipe, adapters=()), store, NeverAsked()).load(3)
    assert len(store.files()) == 2  # the block is kept once, whatever adapters there are
    for one in (fresh, warm):
        assert one.adapter_s > 0
        assert torch.equal(output(one.module, lora), output(direct.module, lora))
        assert torch.equal(output(one.module), output(direct.module))
        assert not torch.equal(output(one.module, lora), output(one.module))
    mine, theirs = direct.module.state_dict(), warm.module.state_dict()
    assert mine.keys() == theirs.keys()
    assert all(torch.equal(mine[name], theirs[name]) for name in mine)
    assert sum("lora_A" in name for name in mine) == 3


def test_an_adapter_of_other_contents_is_not_taken_from_the_store(tiny, tmp_path, lora):
    folder = tmp_path / "adapter"
    shutil.copytree(lora, folder)
    recipe, store = recipe_for(tiny, adapters=(str(folder),)), BlockStore(tmp_path / "store")
    before = output(loader_for(recipe, store).load(3).module, str(folder))
    weights = {name: 2 * value for name, value in load_file(folder / "adapter_model.safetensors").items()}
    save_file(weights, folder / "adapter_model.safetensors")
    after = output(loader_for(recipe, store).load(3).module, str(folder))
    assert not torch.equal(before, after)


def test_an_adapter_exchanged_while_it_is_read_is_not_kept(tiny, tmp_path, lora, monkeypatch):
    """Or the new weights would be found later under the hash of the old ones."""
    contents = iter(["before", "after"])
    monkeypatch.setattr(store_loader, "content_of_adapter", lambda *_: next(contents))
    store = BlockStore(tmp_path)
    loader_for(recipe_for(tiny, adapters=(lora,)), store).load(3)
    assert [path.name.partition("-")[0] for path, _ in store.files()] == ["block"]


def test_an_adapter_in_pickle_is_refused(tiny, tmp_path, lora):
    folder = tmp_path / "adapter"
    shutil.copytree(lora, folder)
    (folder / "adapter_model.safetensors").rename(folder / "adapter_model.bin")
    recipe = recipe_for(tiny, adapters=(str(folder),))
    with pytest.raises(FileNotFoundError, match=r"no adapter_model\.safetensors"):
        loader_for(recipe, BlockStore(tmp_path / "store")).load(3)


def test_adapters_on_int8_are_refused_before_they_fail(tiny, tmp_path, lora):
    recipe = recipe_for(tiny, QuantType.INT8, adapters=(lora,))
    with pytest.raises(ValueError, match="not int8"):
        loader_for(recipe, BlockStore(tmp_path)).load(3)


def test_several_devices_are_refused(tiny, tmp_path):
    two = replace(recipe_for(tiny), devices=(torch.device("cpu"), torch.device("cpu")))
    with pytest.raises(ValueError, match="several devices"):
        loader_for(two, BlockStore(tmp_path))
