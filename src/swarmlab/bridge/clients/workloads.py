"""What a client does with its session: the kinds of generation that a failure can interrupt."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

DEEP_PROMPT_SCALE = 0.5  # of a hidden state's size: enough to change every later token


class Generation:
    """One generation by a petals client model through the session that is active.

    :param model: a petals model; its embeddings and head are local
    :param work: ``kind``, ``new_tokens`` and what the kind needs (see the functions of this module)
    :param prompt: int64 [batch, tokens]
    """

    def __init__(self, model: Any, session: Any, work: Mapping[str, Any], prompt: torch.Tensor) -> None:
        self.model, self.session, self.work, self.prompt = model, session, work, prompt

    def run(self) -> torch.Tensor | None:
        """
        :returns: the sequences that petals' own ``generate`` returned, if it was used
        """
        with torch.inference_mode(), self.model.use_session(self.session):
            return KINDS[self.work["kind"]](self)

    def predict(self, hidden: torch.Tensor) -> torch.Tensor:
        """The greedy next token of each row, int64 [batch, 1], from the last blocks' outputs."""
        return self.model.lm_head(self.model.model.norm(hidden[:, -1:])).argmax(dim=-1)

    def embed(self, ids: torch.Tensor) -> torch.Tensor:
        return self.model.model.embed_tokens(ids)


def greedy(generation: Generation) -> None:
    """Feed the prompt (in ``prompt_chunks`` pieces), then every new token."""
    ids = generation.prompt
    for piece in ids.chunk(generation.work.get("prompt_chunks", 1), dim=1):
        hidden = generation.session.step(generation.embed(piece))
    for _ in range(generation.work["new_tokens"] - 1):
        hidden = generation.session.step(generation.embed(generation.predict(hidden)))


def deep_prompts(generation: Generation) -> None:
    """The same with ``deep_prompt_tokens`` learned vectors added to every block's first inputs (prompt tuning)."""
    n_prompts, config = generation.work["deep_prompt_tokens"], generation.model.config
    shape = (config.num_hidden_layers, 1, n_prompts, config.hidden_size)
    inputs = generation.embed(generation.prompt)
    random = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    hidden = generation.session.step(inputs, prompts=random * inputs.std() * DEEP_PROMPT_SCALE)
    for _ in range(generation.work["new_tokens"] - 1):
        hidden = generation.session.step(generation.embed(generation.predict(hidden)))


def beam_search(generation: Generation) -> torch.Tensor:
    """petals' ``generate`` with ``beams`` beams: rows of the caches are reordered at every step."""
    return _generate(generation, generation.prompt, num_beams=generation.work["beams"])


def two_calls(generation: Generation) -> torch.Tensor:
    """Two ``generate`` calls in one session, half of the new tokens each."""
    half = generation.work["new_tokens"] // 2
    first = _generate(generation, generation.prompt, half)
    return torch.cat([first, _generate(generation, None, generation.work["new_tokens"] - half)], dim=1)


def _generate(
    generation: Generation, inputs: torch.Tensor | None, tokens: int | None = None, **options: Any
) -> Any:
    return generation.model.generate(
        inputs, max_new_tokens=tokens or generation.work["new_tokens"], do_sample=False, **options
    )


KINDS: Mapping[str, Callable[[Generation], torch.Tensor | None]] = {
    "greedy": greedy,
    "deep_prompts": deep_prompts,
    "beam_search": beam_search,
    "two_calls": two_calls,
}
