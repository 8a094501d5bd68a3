"""The change described in the public report "Petals doesn't deal with server failure properly", as subclasses.

The report proposes two things: do without the "Broken input cache" assertion, and let a session that recovers from
a failed one return only the last position of the first row. Both are done here around the installed petals code,
which stays as it is. Kept to show where the proposal is right and where it is silently wrong; do not use it.
"""

from __future__ import annotations

import torch
from petals.client.inference_session import InferenceSession, _ServerInferenceSession
from petals.data_structures import RemoteSpanInfo


class _PatchedServerSession(_ServerInferenceSession):
    """One span; ``recover`` is the attribute that the report adds."""

    recover = False

    def step(
        self, inputs: torch.Tensor, prompts: torch.Tensor, hypo_ids: torch.LongTensor, *, step_id: str
    ) -> torch.Tensor:
        position, n_tokens = self._position, inputs.shape[1]
        if self.history is not None and self.history.shape[1] not in (position, position + n_tokens):
            # Here the installed code would raise. Without the assertion it would go on with the history as it is;
            # a position that agrees with the history has just that effect.
            self._position = self.history.shape[1] - n_tokens
        try:
            outputs = super().step(inputs, prompts, hypo_ids, step_id=step_id)
        except BaseException:
            self._position = position
            raise
        self._position = position + n_tokens
        if self.recover:
            last = outputs.shape[1]
            return outputs[0:1, last - 1 : last, :]
        return outputs


class PatchedInferenceSession(InferenceSession):
    """petals' session with the report's change."""

    def _enter_server_sessions(self, chosen_spans: list[RemoteSpanInfo]) -> list[_ServerInferenceSession]:
        sessions = super()._enter_server_sessions(chosen_spans)
        for session in sessions:
            session.__class__ = (
                _PatchedServerSession  # create() names the original class; only behaviour differs
            )
        return sessions

    def _update_sequence(self, server_idx: int, block_idx: int, attempt_no: int) -> None:
        replaces = server_idx < len(self._server_sessions)
        super()._update_sequence(server_idx, block_idx, attempt_no)
        if replaces:
            recovering = self._server_sessions[server_idx]
            assert isinstance(recovering, _PatchedServerSession)
            recovering.recover = True
