"""The plain transformers blocks of this machine behind the interface of a session: what a swarm must equal.

Used where transformers' own generation loop cannot be (deep prompts), or would need another loop than the client's
(beam search through a session); a test holds it against transformers' own forward pass.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import LlamaForCausalLM


class LocalSession:
    """Runs all blocks with an attention cache of their own.

    :param model: a plain model in float32
    """

    def __init__(self, model: LlamaForCausalLM) -> None:
        self._layers: Any = model.model.layers
        self._cache: list[tuple[torch.Tensor, torch.Tensor] | None] = [None] * len(self._layers)
        self.position = 0
        self.output_ids: torch.Tensor | None = None  # kept by petals' generate()

    def step(
        self,
        inputs: torch.Tensor,
        prompts: torch.Tensor | None = None,
        hypo_ids: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """As FaultTolerantSession.step."""
        hidden, n_tokens = inputs, inputs.shape[1]
        end = self.position + n_tokens
        positions = torch.arange(self.position, end)[None]
        lowest = torch.finfo(hidden.dtype).min
        mask = torch.full((n_tokens, end), lowest).triu(self.position + 1)[None, None]
        for index, layer in enumerate(self._layers):
            past = self._cache[index]
            if past is not None and hypo_ids is not None and hypo_ids.numel():
                past = (past[0][hypo_ids], past[1][hypo_ids])
            if prompts is not None and prompts.numel():
                hidden = hidden.clone()
                hidden[:, : prompts.shape[2]] += prompts[index]
            hidden, self._cache[index] = layer(
                hidden,
                attention_mask=mask.expand(inputs.shape[0], 1, n_tokens, end),
                position_ids=positions,
                past_key_value=past,
                use_cache=True,
            )
        self.position = end
        return hidden

    def close(self) -> None:
        self._cache = [None] * len(self._layers)
