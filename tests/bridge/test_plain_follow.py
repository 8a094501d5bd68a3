"""Following a text block by block finds what generating it token by token finds."""

from __future__ import annotations

import numpy as np
import pytest

from swarmlab.bridge import compat

compat.apply()

from swarmlab.bridge.models import plain_follow, plain_run, prompts  # noqa: E402
from swarmlab.bridge.models.synthetic import synthetic  # noqa: E402
from swarmlab.bridge.models.tiny_llama import tiny_llama  # noqa: E402
from swarmlab.errors import BadInput  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:.*from a non-meta parameter:UserWarning")
TOLERANCE = 3e-4  # as of a run in float32: the same products in other shapes


@pytest.fixture(scope="module", params=["from files", "drawn"])
def checkpoint(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    if request.param == "drawn":
        return synthetic(folder, "llama_65b_tenth", n_blocks=8)  # more than are drawn ahead
    return tiny_llama(folder)


@pytest.mark.parametrize("quant", ["none", "nf4"])
def test_it_is_what_generating_makes(checkpoint, quant):
    prompt = prompts(checkpoint, 2, 5, seed=1)
    token_ids, hidden = plain_run(checkpoint, prompt, 6, quant)
    followed_ids, followed_hidden = plain_follow(checkpoint, prompt, token_ids, quant)
    assert followed_ids.tolist() == token_ids.tolist()
    assert followed_hidden.shape == hidden.shape
    assert np.abs(followed_hidden - hidden).max() < TOLERANCE


def test_a_text_that_is_wrong_somewhere_is_not_repeated(checkpoint):
    prompt = prompts(checkpoint, 1, 5, seed=1)
    right, _ = plain_run(checkpoint, prompt, 6)
    wrong = right.copy()
    wrong[0, 3] = (wrong[0, 3] + 1) % checkpoint.vocab_size
    followed, _ = plain_follow(checkpoint, prompt, wrong)
    assert followed[0, :4].tolist() == right[0, :4].tolist()  # what should have stood there
    assert followed.tolist() != wrong.tolist()


def test_a_text_must_fit_the_model(checkpoint):
    with pytest.raises(BadInput, match="new_tokens"):
        plain_follow(checkpoint, prompts(checkpoint, 1, 5, seed=1), np.zeros((1, 10**6), dtype=np.int64))
