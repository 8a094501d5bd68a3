"""Which model of those announced in a swarm's DHT is meant."""

from __future__ import annotations

from typing import TYPE_CHECKING

from swarmlab.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def model_meant(
    announced: Callable[[], Mapping[str, int]],
    prefix: str | None,
    n_blocks: int | None,
    *,
    field: str,
    blocks: str,
) -> tuple[str, int]:
    """The prefix of a model's keys and its number of blocks; what is not given is what its servers announce.

    :param announced: asks the DHT, only if it has to be asked
    :param field: how whoever asks names the prefix, for the error
    :param blocks: and the number of blocks
    :raises BadInput: if it is not clear which model is meant
    """
    if prefix is not None and n_blocks is not None:
        return prefix, n_blocks
    models = announced()
    names = [prefix] if prefix is not None else list(models)
    if len(names) == 1 and names[0] in models:
        return names[0], n_blocks or models[names[0]]
    known = ", ".join(f"{name} ({count} blocks)" for name, count in models.items()) or "none"
    raise BadInput(field, prefix, f"with {blocks}, or one that its servers announce: {known}")
