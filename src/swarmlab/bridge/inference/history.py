"""The inputs one span has been sent: what a replacement must be fed to rebuild the attention caches."""

from __future__ import annotations

import torch

from swarmlab.recovery.steplog import StepLog, row_groups


class SpanHistory:
    """Inputs of one span, tensor [batch, positions, hidden], kept once, in the dtype in which they travel.

    Grows by doubling (amortised one copy per token instead of petals' copy per token and span). Beam search moves
    rows at every step; rows are put into today's order only when a replay needs them, by the session's step log.

    :param base: inputs in the row order that holds after ``base_steps`` steps; None for an empty history
    :param base_steps: how many steps of the log ``base`` covers
    """

    def __init__(self, base: torch.Tensor | None = None, base_steps: int = 0) -> None:
        self._data = base
        self._length = 0 if base is None else base.shape[1]
        self._base_tokens = self._length
        self._base_steps = base_steps

    @property
    def n_tokens(self) -> int:
        """Positions held."""
        return self._length

    @property
    def n_bytes(self) -> int:
        """Memory held, including room to grow."""
        return 0 if self._data is None else self._data.numel() * self._data.element_size()

    def bytes_with(self, inputs: torch.Tensor, room_tokens: int) -> int:
        """Memory held once inputs of this shape and type are appended."""
        dtype, n_slots = self._grown(inputs, room_tokens)
        return inputs.shape[0] * n_slots * inputs.shape[2] * dtype.itemsize

    def _grown(self, inputs: torch.Tensor, room_tokens: int) -> tuple[torch.dtype, int]:
        """Type and positions that there must be room for."""
        end, data = self._length + inputs.shape[1], self._data
        # servers may answer in different types; a replacement must get what its predecessor got
        dtype = inputs.dtype if data is None else torch.promote_types(data.dtype, inputs.dtype)
        if data is not None and end <= data.shape[1]:
            return dtype, data.shape[1]
        return dtype, max(end, min(max(2 * self._length, 16), room_tokens))

    def append(self, inputs: torch.Tensor, room_tokens: int) -> None:
        """Add the inputs of one step, [batch, tokens, hidden].

        :param room_tokens: positions beyond which no room to grow is kept
        """
        end = self._length + inputs.shape[1]
        dtype, n_slots = self._grown(inputs, room_tokens)
        if self._data is None:
            self._data = inputs.new_empty(inputs.shape[0], n_slots, inputs.shape[2])
        elif n_slots > self._data.shape[1] or dtype != self._data.dtype:
            grown = self._data.new_empty(self._data.shape[0], n_slots, self._data.shape[2], dtype=dtype)
            grown[:, : self._length] = self._data[:, : self._length]
            self._data = grown
        self._data[:, self._length : end] = inputs
        self._length = end

    def knows(self, log: StepLog, n_steps: int) -> bool:
        """Whether the row order that held after ``n_steps`` steps can be told."""
        return n_steps >= self._base_steps or not log.reorders_between(n_steps, self._base_steps)

    def inputs(self, log: StepLog, n_steps: int) -> torch.Tensor:
        """All inputs of the first ``n_steps`` steps in the row order that holds after them."""
        end = log[n_steps - 1].end if n_steps else 0
        if self._data is None or end > self._length:
            raise ValueError(f"the history has {self._length} positions, {end} are wanted")
        if not self.knows(log, n_steps):
            raise ValueError(f"the row order after {n_steps} steps was not kept")
        groups = row_groups(log, self._base_steps, self._base_tokens, n_steps)
        if all(group.rows is None for group in groups):
            return self._data[:, :end]
        ordered = self._data[:, :end].clone()
        for group in groups:
            if group.rows is not None:
                rows = torch.from_numpy(group.rows)
                ordered[:, group.start : group.end] = self._data[rows, group.start : group.end]
        return ordered

    def rewind(self, log: StepLog, n_steps: int) -> bool:
        """Forget everything after ``n_steps`` steps, before the log itself forgets.

        :returns: False if that cannot be done (rows were moved since, and the old order was not kept); the history
            must then be rebuilt from the span before
        """
        if n_steps == 0:  # whatever is fed next may have another batch size
            self._data, self._length, self._base_tokens, self._base_steps = None, 0, 0, 0
            return True
        end = log[n_steps - 1].end
        if not self.knows(log, n_steps):
            return False
        if self._base_steps > n_steps:
            self._base_steps, self._base_tokens = n_steps, end
        self._length = min(self._length, end)
        return True
