"""Petals' own server takes its blocks from elsewhere, and nothing else of it changes."""

from __future__ import annotations

import importlib
from dataclasses import replace
from typing import Any

import pytest

from swarmlab.bridge import compat

compat.apply()

import torch  # noqa: E402
from petals.utils.convert_block import QuantType  # noqa: E402

from swarmlab.bridge.block_store import BlockStore  # noqa: E402
from swarmlab.bridge.blocks import source as block_source  # noqa: E402
from swarmlab.bridge.blocks.loader import PetalsLoader  # noqa: E402
from swarmlab.bridge.blocks.synthetic_loader import SyntheticLoader  # noqa: E402
from swarmlab.bridge.models.synthetic import synthetic  # noqa: E402
from swarmlab.bridge.models.tiny_llama import tiny_llama  # noqa: E402
from tests.bridge.block_checks import assert_same_block, recipe_for  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:.*from a non-meta parameter:UserWarning")
petals_server: Any = importlib.import_module("petals.server.server")
NAMES = ("load_pretrained_block", "convert_block")


@pytest.fixture(autouse=True)
def untouched(monkeypatch):
    """Petals' module as it was, before and after."""
    for name in NAMES:
        monkeypatch.setattr(petals_server, name, getattr(petals_server, name))
    monkeypatch.setattr(petals_server, block_source.MARK, None, raising=False)
    monkeypatch.delattr(petals_server, block_source.MARK)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return tiny_llama(tmp_path_factory.mktemp("models")).path


@pytest.fixture(scope="module")
def tenth(tmp_path_factory):
    return synthetic(tmp_path_factory.mktemp("models"), "llama_65b_tenth", n_blocks=2).path


def as_petals_does(path, block: int, quant: QuantType) -> torch.nn.Module:
    """The two calls of petals' ModuleContainer.create."""
    recipe = recipe_for(path, quant)
    hub = {"token": None, "cache_dir": None, "max_disk_space": None}
    module = petals_server.load_pretrained_block(
        str(path), block, config=recipe.config, torch_dtype=torch.float32, revision=None, **hub
    )
    return petals_server.convert_block(
        module, block, recipe.config, recipe.devices, recipe.device, quant, adapters=(), freeze=True, **hub
    )


def test_without_a_store_an_ordinary_model_is_left_to_petals(tiny):
    before = [getattr(petals_server, name) for name in NAMES]
    block_source.install({"argv": [str(tiny)], "store_dir": None})
    assert [getattr(petals_server, name) for name in NAMES] == before


@pytest.mark.parametrize("quant", [QuantType.NONE, QuantType.NF4])
def test_blocks_come_through_the_store(tiny, tmp_path, quant):
    direct = as_petals_does(tiny, 3, quant)
    block_source.install({"argv": [str(tiny)], "store_dir": str(tmp_path), "store_max_bytes": "1000000"})
    for _ in range(2):
        assert_same_block(as_petals_does(tiny, 3, quant), direct)
    assert len(BlockStore(tmp_path).files()) == 1
    assert_same_block(as_petals_does(tiny, 4, quant), PetalsLoader(recipe_for(tiny, quant)).load(4).module)


def test_a_limit_that_is_too_small_costs_only_the_store(tiny, tmp_path):
    block_source.install({"argv": [str(tiny)], "store_dir": str(tmp_path), "store_max_bytes": 10})
    as_petals_does(tiny, 3, QuantType.NF4)
    assert BlockStore(tmp_path).files() == []


def test_blocks_cut_for_several_devices_are_not_kept_and_that_is_said(tiny, tmp_path, monkeypatch):
    said = []
    monkeypatch.setattr(block_source.logger, "warning", said.append)
    two = replace(recipe_for(tiny), devices=(torch.device("cpu"), torch.device("cpu")))
    assert isinstance(block_source.loader_of(two, tmp_path), PetalsLoader)
    assert ["several devices" in line for line in said] == [True]
    block_source.loader_of(two)
    assert len(said) == 1


def test_a_synthetic_model_needs_no_store(tenth):
    block_source.install({"argv": [str(tenth)]})
    drawn = SyntheticLoader(recipe_for(tenth)).load(1).module
    assert_same_block(as_petals_does(tenth, 1, QuantType.NF4), drawn)


def test_a_second_call_changes_nothing(tenth, tmp_path):
    block_source.install({"argv": [str(tenth)]})
    before = [getattr(petals_server, name) for name in NAMES]
    block_source.install({"argv": [str(tenth)], "store_dir": str(tmp_path)})
    assert [getattr(petals_server, name) for name in NAMES] == before
