"""One set of handlers and queues for all blocks, with real blocks of the tiny model and petals' own classes."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch

from swarmlab.bridge import compat

compat.apply()

from petals.data_structures import InferenceMetadata  # noqa: E402
from petals.server.backend import TransformerBackend  # noqa: E402
from petals.utils.convert_block import QuantType  # noqa: E402

from swarmlab.bridge.blocks.loader import BlockRecipe, PetalsLoader  # noqa: E402
from swarmlab.bridge.models.ensure import ensure_model  # noqa: E402
from swarmlab.bridge.serving.front import Front  # noqa: E402
from swarmlab.bridge.serving.memory_probe import bytes_of  # noqa: E402
from tests.bridge.servers import settings_of  # noqa: E402


@pytest.fixture(scope="module")
def model_path(tmp_path_factory):
    return ensure_model("tiny_llama", tmp_path_factory.mktemp("models")).path


@pytest.fixture(scope="module")
def settings(model_path) -> Any:
    return settings_of(model_path)


@pytest.fixture(scope="module")
def modules(settings, model_path):
    recipe = BlockRecipe(str(model_path), settings.block_config, torch.float32, QuantType.NONE)
    loader = PetalsLoader(recipe)
    return {block: loader.load(block).module for block in (3, 4)}


@pytest.fixture
def front(settings):
    return Front(settings)


def test_the_template_has_no_weights_that_a_forked_handler_could_keep(front):
    for backend in (front.template, *front.faces.values()):
        assert not isinstance(backend.module, torch.nn.Module)


def test_each_block_has_a_face_whose_tasks_name_it(front):
    assert list(front.faces) == [f"m.{block}" for block in range(16)]
    assert isinstance(front.faces["m.3"], TransformerBackend), "petals' handler insists"
    face: Any = front.faces["m.3"]
    assert face.inference_pool is front.template.inference_pool
    hidden = torch.zeros(1, 2, 64)
    face.forward_pool.submit_task(hidden, "adapter", priority=1.0)
    task = front.template.forward_pool.submitted_tasks.get()
    assert task.args[1:] == ("adapter", "m.3")
    assert task.priority == 1.0
    too_long = face.forward_pool.submit_task(torch.zeros(1, 600, 64), "", priority=1.0)
    with pytest.raises(ValueError, match="max_batch_size"):
        too_long.result(timeout=5)


def test_a_block_that_is_held_computes_and_one_that_is_dropped_does_not(front, modules):
    front.held.add("m.3", modules[3])
    hidden = torch.randn(1, 5, 64)
    (output,) = front.held.forward(hidden, "", "m.3")
    assert torch.equal(output, modules[3](hidden)[0])
    (grad,) = front.held.backward(hidden, torch.ones(1, 5, 64), "", "m.3")
    assert grad.shape == hidden.shape
    assert front.held.module("m.3") is modules[3]
    front.held.remove("m.3")
    with pytest.raises(KeyError):
        front.held.forward(hidden, "", "m.3")


def test_a_chain_of_blocks_computes_with_caches_as_petals_backends_do(front, modules):
    for block, module in modules.items():
        front.held.add(f"m.{block}", module)
    handles = cache_of(front, blocks=2, tokens=8)
    hidden = torch.randn(1, 4, 64)
    outputs = []
    for at, piece in ((0, hidden[:, :3]), (3, hidden[:, 3:])):
        infos = tuple(
            InferenceMetadata(f"m.{block}", at, tuple(own), "")
            for block, own in zip((3, 4), handles, strict=True)
        )
        (out,) = front.held.inference(piece.clone(), torch.arange(1), infos, None, None)
        outputs.append(out)
    plain = modules[4](modules[3](hidden)[0])[0]
    assert torch.allclose(torch.cat(outputs, dim=1), plain, atol=1e-5)


def cache_of(front, blocks, tokens):
    """What a handler does for a new session, in this process."""
    descriptors = front.faces["m.3"].get_inference_cache_descriptors(1, tokens)
    handles = []
    for index in range(blocks):
        own = (2 * index, 2 * index + 1)
        front.memory_cache._pipe_send.send((own, descriptors))
        handles.append(own)
    return handles


def test_a_front_that_forgets_keeps_neither_blocks_nor_caches(front, modules):
    front.held.add("m.3", modules[3])
    cache_of(front, blocks=1, tokens=8)
    with front.memory_cache.use_cache(0):
        pass
    front.forget()
    assert not front.held._backends
    assert not front.memory_cache._allocated_tensors


def test_a_forked_handler_lets_go_of_the_weights_and_the_server_keeps_them(front, settings, model_path):
    """What a handler shares with the server would not be free when the server drops it."""
    recipe = BlockRecipe(str(model_path), settings.block_config, torch.float32, QuantType.NONE)
    module = PetalsLoader(recipe).load(5).module
    front.held.add("m.5", module)
    before = bytes_of(module)
    pid = os.fork()
    if pid == 0:  # no assertion here: the child must not go on as a second pytest
        front.held.free_copies()
        os._exit(int(bool(bytes_of(module) or front.held._backends)))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert bytes_of(module) == before > 0


def test_on_a_gpu_a_forked_handler_touches_nothing(front, modules):
    front.held.add("m.3", modules[3])
    front.template.module.devices = [torch.device("cuda", 0)]
    front.held.free_copies()
    assert front.held.module("m.3") is modules[3]
    assert bytes_of(modules[3]) > 0


def test_what_a_handler_needs_to_know_of_a_block_is_what_petals_says_of_it(front, settings, modules):
    original = TransformerBackend(
        "m.3", modules[3], config=settings.block_config, memory_cache=front.memory_cache,
        backend_dtype=torch.float32, max_chunk_size_bytes=2**20, args_schema=front.template.args_schema,
        kwargs_schema={}, outputs_schema=front.template.outputs_schema, min_batch_size=1, max_batch_size=512,
    )  # fmt: skip
    face: Any = front.faces["m.3"]
    assert face.get_info() == original.get_info()
    assert face.cache_bytes_per_token == original.cache_bytes_per_token
    assert face.get_inference_cache_descriptors(2, 9) == original.get_inference_cache_descriptors(2, 9)
    assert face.grad_inputs_schema == original.grad_inputs_schema


def test_the_size_of_a_block_is_that_of_its_weights_and_tables(modules):
    assert bytes_of(torch.nn.Linear(10, 3)) == 4 * 33
    assert bytes_of(modules[3]) > sum(4 * weight.numel() for weight in modules[3].parameters())
