"""Prompts for every model, and text for those with a tokenizer."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from swarmlab.bridge.models.checkpoint import Checkpoint
from swarmlab.errors import BadInput

# A beginning that every reader can continue, so that a wrong continuation shows, and its end. Our own words.
SENTENCES = (
    ("The capital of France is", " Paris."),
    ("Water freezes at zero degrees and boils at", " one hundred."),
    ("The opposite of hot is", " cold."),
    ("The days of the week are Monday, Tuesday,", " and so on."),
    ("Two plus two equals", " four."),
    ("The largest planet in our solar system is", " Jupiter."),
    ("A baby cat is called a", " kitten."),
    ("The sun rises in the east and sets in the", " west."),
    ("Romeo and Juliet is a play written by", " William Shakespeare."),
    ("In winter the lake behind our house is covered with", " ice."),
    ("To make bread you need flour, water, salt and", " yeast."),
    ("The first president of the United States was", " George Washington."),
)


def prompts(checkpoint: Checkpoint, batch: int, tokens: int, seed: int) -> npt.NDArray[np.int64]:
    """Token ids ``[batch, tokens]`` to start from; a row depends on the seed and its number only.

    With a tokenizer: sentences of which the last is unfinished, cut at the front; they repeat after 12 rows.
    Without: pseudo-random ids; a shorter prompt of the same seed is the start of a longer one.

    :raises BadInput: if a number is out of range
    """
    if batch < 1:
        raise BadInput("workload.batch", batch, "at least 1")
    if not 1 <= tokens <= checkpoint.max_tokens:
        raise BadInput("workload.prompt_tokens", tokens, f"1 to {checkpoint.max_tokens}")
    if not 0 <= seed < 2**32:
        raise BadInput("workload.seed", seed, "0 to 2**32 - 1")
    row_ids = _sentence_ids if checkpoint.has_tokenizer else _random_ids
    return np.stack([row_ids(checkpoint, tokens, seed, row) for row in range(batch)])


def decode(checkpoint: Checkpoint, token_ids: npt.NDArray[np.int64]) -> list[str] | None:
    """Text of each row of ``[batch, tokens]``; None for a model without a tokenizer."""
    if not checkpoint.has_tokenizer:
        return None
    return [_tokenizer(checkpoint.path).decode(row) for row in token_ids.tolist()]


def _random_ids(checkpoint: Checkpoint, tokens: int, seed: int, row: int) -> npt.NDArray[np.int64]:
    raw = np.random.Philox(key=np.array([seed, row], dtype=np.uint64)).random_raw(tokens)
    return (raw % np.uint64(checkpoint.vocab_size)).astype(np.int64)


def _sentence_ids(checkpoint: Checkpoint, tokens: int, seed: int, row: int) -> npt.NDArray[np.int64]:
    tokenizer = _tokenizer(checkpoint.path)
    number = seed + row
    text = SENTENCES[number % len(SENTENCES)][0]
    while len(ids := tokenizer.encode(text, add_special_tokens=False)) < tokens:
        number += 1
        text = "".join(SENTENCES[number % len(SENTENCES)]) + " " + text
    return np.array(ids[-tokens:], dtype=np.int64)


@lru_cache(maxsize=2)
def _tokenizer(path: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(str(path), local_files_only=True)
