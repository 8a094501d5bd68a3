"""The generated model must reveal silently wrong attention caches, and must not be upset by float noise."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from swarmlab.bridge.models import Checkpoint, load_plain, prompts
from swarmlab.bridge.models.manifest import new_folder
from swarmlab.bridge.models.tiny_llama import tiny_llama
from swarmlab.errors import BadInput

N_PROMPTS, PROMPT_TOKENS, NEW_TOKENS = 20, 16, 64
# Hash of model.safetensors for 16 blocks and seed 0. A new value means new weights: raise RECIPE with it.
WEIGHTS_SHA256 = "8734d843c9d5ccb40152649ef61540d8bf2986fdcb89c464f916540143de77cb"


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # products this small only get slower with more
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module", params=[16, 80])
def checkpoint(request, tmp_path_factory) -> Checkpoint:
    return tiny_llama(tmp_path_factory.mktemp("models"), request.param)


@pytest.fixture(scope="module")
def model(checkpoint) -> Any:
    return load_plain(checkpoint)


@pytest.fixture(scope="module")
def ids(checkpoint) -> torch.Tensor:
    return torch.from_numpy(prompts(checkpoint, N_PROMPTS, PROMPT_TOKENS, seed=1))


@pytest.fixture(scope="module")
def run(model, ids) -> tuple[torch.Tensor, torch.Tensor]:
    return greedy(model, ids)


def greedy(
    model: Any, ids: torch.Tensor, new_tokens: int = NEW_TOKENS, cache: Any = None, first_position: int = 0
) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens ``[rows, new_tokens]`` and the logits that chose them."""
    tokens, logits = [], []
    with torch.inference_mode():
        for _ in range(new_tokens):
            positions = torch.arange(first_position, first_position + ids.shape[1])[None]
            output = model(ids, past_key_values=cache, position_ids=positions, use_cache=True)
            first_position, cache = first_position + ids.shape[1], output.past_key_values
            logits.append(output.logits[:, -1])
            ids = logits[-1].argmax(dim=-1, keepdim=True)
            tokens.append(ids)
    return torch.cat(tokens, dim=1), torch.stack(logits, dim=1)


def rows_changed(tokens: torch.Tensor, others: torch.Tensor) -> int:
    return int((tokens != others).any(dim=1).sum())


def test_greedy_output_varies_within_a_row_and_between_rows(run):
    tokens, _ = run
    assert min(len(set(row)) for row in tokens.tolist()) >= 20
    assert len({tuple(row) for row in tokens.tolist()}) == N_PROMPTS


@pytest.mark.parametrize("position", [PROMPT_TOKENS // 2, PROMPT_TOKENS - 1, PROMPT_TOKENS + 8])
def test_a_small_difference_of_one_hidden_state_changes_most_continuations(model, ids, run, position):
    at, generator = 0, torch.Generator().manual_seed(0)

    def disturb(_block, _inputs, outputs):
        nonlocal at
        hidden, first = outputs[0].clone(), at
        at += hidden.shape[1]
        if first <= position < at:
            state = hidden[:, position - first]
            noise = torch.nn.functional.normalize(torch.randn(state.shape, generator=generator), dim=-1)
            hidden[:, position - first] += 0.05 * state.norm(dim=-1, keepdim=True) * noise
        return (hidden, *outputs[1:])

    hook = model.model.layers[len(model.model.layers) // 2].register_forward_hook(disturb)
    try:
        disturbed, _ = greedy(model, ids)
    finally:
        hook.remove()
    assert rows_changed(disturbed, run[0]) >= 0.7 * N_PROMPTS


def test_a_cache_that_lacks_one_token_changes_the_continuation_at_once(model, ids, run):
    lacking = torch.cat([ids[:, : PROMPT_TOKENS // 2], ids[:, PROMPT_TOKENS // 2 + 1 :]], dim=1)
    assert rows_changed(greedy(model, lacking, 8)[0], run[0][:, :8]) == N_PROMPTS


def test_a_cache_that_lacks_the_first_half_changes_the_continuation_at_once(model, ids, run):
    assert rows_changed(greedy(model, ids[:, PROMPT_TOKENS // 2 :], 8)[0], run[0][:, :8]) == N_PROMPTS


def test_tokens_one_position_off_their_cache_change_the_continuation_at_once(model, ids, run):
    with torch.inference_mode():
        cache = model(ids[:, :-1], use_cache=True).past_key_values
    shifted, _ = greedy(model, ids[:, -1:], 8, cache, first_position=PROMPT_TOKENS - 2)
    assert rows_changed(shifted, run[0][:, :8]) >= 0.9 * N_PROMPTS


def test_the_cache_of_another_row_changes_the_continuation_at_once(model, ids, run):
    with torch.inference_mode():
        cache = model(ids[:, :-1], use_cache=True).past_key_values
    mixed = tuple(tuple(part.roll(1, dims=0) for part in block) for block in cache)
    tokens, _ = greedy(model, ids[:, -1:], 8, mixed, first_position=PROMPT_TOKENS - 1)
    assert rows_changed(tokens, run[0][:, :8]) == N_PROMPTS


def test_one_token_missing_in_a_long_history_changes_the_continuation(model, checkpoint):
    long = torch.from_numpy(prompts(checkpoint, 4, 500, seed=2))
    tokens, _ = greedy(model, long, 32)
    lacking, _ = greedy(model, torch.cat([long[:, :250], long[:, 251:]], dim=1), 32)
    assert rows_changed(tokens, lacking) == 4
    assert min(len(set(row)) for row in tokens.tolist()) >= 16


def test_float_noise_is_far_below_the_gap_between_the_two_best_tokens(model, ids, run):
    """Recomputing the cache in one request, and each row by itself, must not change a token."""
    tokens, logits = run
    best = logits.topk(2, dim=-1).values
    gap = best[..., 0] - best[..., 1]
    whole = torch.cat([ids, tokens[:, :-1]], dim=1)
    with torch.inference_mode():
        together = model(whole).logits[:, PROMPT_TOKENS - 1 :]
        alone = torch.cat([model(row[None]).logits[:, PROMPT_TOKENS - 1 :] for row in whole])
    noise = torch.maximum((together - logits).abs().amax(dim=-1), (alone - logits).abs().amax(dim=-1))
    # 2 x noise, because both logits of the gap may move
    assert (2 * noise / gap).max() < 0.5
    assert (gap > 1e-3).float().mean() > 0.998
    assert gap.median() > 0.5


def test_the_same_seed_gives_the_same_bytes(tmp_path):
    first, second = tiny_llama(tmp_path / "a"), tiny_llama(tmp_path / "b")
    assert first.sha256 == second.sha256
    assert first.dht_prefix == second.dht_prefix
    manifest = (first.path / "swarmlab.json").read_text()
    assert WEIGHTS_SHA256 in manifest


def test_another_seed_or_number_of_blocks_is_another_model(tmp_path):
    models = [tiny_llama(tmp_path), tiny_llama(tmp_path, seed=1), tiny_llama(tmp_path, n_blocks=17)]
    assert len({model.sha256 for model in models}) == len({model.dht_prefix for model in models}) == 3
    assert [model.n_blocks for model in models] == [16, 16, 17]


@pytest.mark.parametrize(
    ("n_blocks", "seed", "field"), [(15, 0, "n_blocks"), (81, 0, "n_blocks"), (16, -1, "seed")]
)
def test_numbers_out_of_range_are_refused(tmp_path, n_blocks, seed, field):
    with pytest.raises(BadInput, match=field):
        tiny_llama(tmp_path, n_blocks, seed)
    assert not list(tmp_path.iterdir())


def test_it_is_small_and_has_no_end_of_sequence_token(checkpoint, model):
    size_bytes = sum(file.stat().st_size for file in checkpoint.path.iterdir())
    assert size_bytes < 1e6 + 2e5 * checkpoint.n_blocks
    assert model.generation_config.eos_token_id is None
    assert checkpoint.max_tokens >= 2048


def test_processes_that_generate_at_once_leave_one_model_and_no_drafts(tmp_path):
    command = [sys.executable, "-m", "swarmlab.bridge.models", "tiny_llama", "--root", str(tmp_path)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    lines = {process.communicate(timeout=60)[0] for process in processes}
    assert [process.returncode for process in processes] == [0, 0, 0]
    assert len(lines) == 1
    assert len(list(tmp_path.iterdir())) == 1


def test_the_slower_of_two_writers_keeps_what_is_there(tmp_path):
    with new_folder(tmp_path / "model") as draft:
        (draft / "file").write_text("slower")
        (tmp_path / "model").mkdir()
        (tmp_path / "model" / "file").write_text("faster")
    assert (tmp_path / "model" / "file").read_text() == "faster"
    assert len(list(tmp_path.iterdir())) == 1


def test_a_writer_that_fails_leaves_nothing(tmp_path):
    def write_half() -> None:
        with new_folder(tmp_path / "model") as draft:
            (draft / "file").write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        write_half()
    assert not list(tmp_path.iterdir())


def test_a_root_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="can be written"):
        tiny_llama(tmp_path / "file")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
