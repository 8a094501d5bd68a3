"""One session of a soak, judged from its row: by the ids it holds, and not by what its client made of them. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from swarmlab.analysis.soak_compare import wrong_ids

if TYPE_CHECKING:
    from swarmlab.analysis import metrics


def wrong_by_ids(row: metrics.Row) -> int | None:
    """Predicted ids that are not those of the plain model, as far as the session came, less its ties (where
    ``compare_forced`` found the two best as good as each other); None where the row holds no ids."""
    got, right = row.get("token_ids"), row.get("reference_ids")
    if got is None or right is None:
        return None
    wrong = sum(wrong_ids(np.asarray(ids), np.asarray(plain)) for ids, plain in zip(got, right, strict=False))
    return max(wrong - (row.get("ties") or 0), 0)


def tokens_wrong(row: metrics.Row) -> int:
    """What the client counted (what petals' own generate returned included) or what its ids show, whichever is more."""
    return max(row.get("tokens_wrong") or 0, wrong_by_ids(row) or 0)


def is_identical(row: metrics.Row) -> bool:
    """Whether the whole of the session is right: its client says so, and nothing in the row speaks against it."""
    diff, allowed = row.get("max_abs_diff"), row.get("allowed_diff")
    whole = len(row.get("token_ids") or ()) == len(row.get("reference_ids") or ())
    near = diff is None or allowed is None or diff <= allowed
    return row["outcome"] == "identical" and tokens_wrong(row) == 0 and whole and near
