"""PURE: what a client asks for next, drawn at random within bounds."""

from __future__ import annotations

import random
from dataclasses import dataclass

# How often each kind of generation comes; the kinds are those of swarmlab.bridge.clients.workloads.
KINDS = {"greedy": 11, "beam_search": 4, "two_calls": 3, "deep_prompts": 2}
DEEP_PROMPT_TOKENS = 4


@dataclass(frozen=True)
class Bounds:
    """Least and most of each, both included; all numbers are at least 1.

    :param new_tokens: at least 2, so that two calls have one each
    """

    prompt_tokens: tuple[int, int]
    new_tokens: tuple[int, int]
    batch: tuple[int, int] = (1, 3)
    beams: tuple[int, int] = (2, 3)
    prompt_chunks: tuple[int, int] = (1, 3)

    @property
    def most_cache_tokens(self) -> int:
        """Attention cache that the largest request takes on each server, in tokens per block."""
        return self.batch[1] * self.beams[1] * (self.prompt_tokens[1] + self.new_tokens[1])


@dataclass(frozen=True)
class Request:
    """One generation.

    :param seed: of its prompt
    """

    kind: str
    batch: int
    prompt_tokens: int
    new_tokens: int
    prompt_chunks: int
    beams: int
    deep_prompt_tokens: int
    seed: int

    @property
    def max_length(self) -> int:
        """Positions to reserve attention caches for."""
        return self.prompt_tokens + self.new_tokens


def draw_request(bounds: Bounds, seed: int, client: str, number: int) -> Request:
    """The request with this number, from 0, of a client; it depends on nothing that happened before."""
    draw = random.Random(f"{seed}/{client}/{number}")
    (kind,) = draw.choices(list(KINDS), list(KINDS.values()))
    prompt_tokens = draw.randint(*bounds.prompt_tokens)
    return Request(
        kind=kind,
        batch=draw.randint(*bounds.batch),
        prompt_tokens=prompt_tokens,
        new_tokens=draw.randint(*bounds.new_tokens),
        prompt_chunks=min(draw.randint(*bounds.prompt_chunks), prompt_tokens) if kind == "greedy" else 1,
        beams=draw.randint(*bounds.beams) if kind == "beam_search" else 1,
        deep_prompt_tokens=min(DEEP_PROMPT_TOKENS, prompt_tokens) if kind == "deep_prompts" else 0,
        seed=draw.randrange(2**32),
    )
