"""How much memory the histories of a session may take."""

from __future__ import annotations

from collections.abc import Callable

from swarmlab.recovery.failure import HistoryTooLarge


def room_tokens(
    bytes_with: Callable[[int], int],
    *,
    limit_bytes: int,
    max_length: int,
    shape: tuple[int, int, int],
    position: int,
) -> int:
    """For how many positions histories may keep room.

    :param bytes_with: what all of them take after the step if they keep room for so many positions
    :param limit_bytes: 0 for none
    :param shape: number of histories, rows, bytes per row and position
    :param position: after the step
    :raises HistoryTooLarge: if they would outgrow the limit
    """
    if not limit_bytes:
        return max_length
    n_spans, n_rows, row_bytes = shape
    room = min(max_length, limit_bytes // (n_spans * n_rows * row_bytes))
    needed_bytes = bytes_with(room)
    if needed_bytes > limit_bytes:
        raise HistoryTooLarge(needed_bytes, limit_bytes, n_spans, n_rows, position)
    return room
