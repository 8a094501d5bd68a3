"""A session of a soak against the plain model: on its own text, and on the very inputs that the swarm was sent."""

from __future__ import annotations

import json
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from swarmlab.bridge import compat

compat.apply()

from swarmlab.analysis.soak_compare import compare, compare_forced  # noqa: E402
from swarmlab.analysis.soak_sessions import wrong_by_ids  # noqa: E402
from swarmlab.bridge.clients.soak import SoakClient, Traced  # noqa: E402
from swarmlab.bridge.inference.local_session import LocalSession  # noqa: E402
from swarmlab.bridge.models import ensure_model, load_plain, prompts  # noqa: E402
from swarmlab.record.writer import json_safe  # noqa: E402

TOLERANCE = 3e-4
GREEDY = {"kind": "greedy", "new_tokens": 6, "prompt_chunks": 2}
DEEP = {"kind": "deep_prompts", "new_tokens": 6, "deep_prompt_tokens": 3}


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    checkpoint = ensure_model("tiny_llama", tmp_path_factory.mktemp("models"))
    model: Any = load_plain(checkpoint)
    model.use_session = lambda _session: nullcontext()
    reporter: Any = SimpleNamespace(send=lambda *_, **__: None)
    return SoakClient({"model_path": str(checkpoint.path), "tolerance": TOLERANCE}, model, reporter)


@pytest.fixture
def prompt(client):
    return torch.from_numpy(prompts(client._checkpoint, 2, 10, seed=3))


class Faulty(LocalSession):
    """Hidden states are off by ``fault`` from some position on."""

    fault = 0.0

    def step(self, inputs, *args, **kwargs):
        hidden = super().step(inputs, *args, **kwargs)
        return hidden + self.fault * (self.position > 12)


@pytest.mark.parametrize("work", [GREEDY, DEEP])
def test_the_plain_model_on_the_inputs_of_a_session_does_the_same(client, prompt, work):
    trace = Traced(client._model, LocalSession(client._plain), work, prompt).run()
    forced = client._forced(work, prompt, trace)
    found = compare(trace, forced, TOLERANCE)
    assert found["identical"]
    assert found["max_abs_diff"] == 0.0


def test_the_row_of_a_session_holds_its_ids_and_those_of_the_plain_model(client, monkeypatch):
    wanted = {"work": GREEDY, "batch": 2, "prompt_tokens": 10, "seed": 3, "session": 0, "max_length": 20}
    monkeypatch.setattr("swarmlab.bridge.clients.soak._Watched", lambda *_: Unwatched(client))
    row = json.loads(json.dumps(json_safe(client.run(wanted))))
    assert row["outcome"] == "identical"
    assert row["token_ids"] == row["reference_ids"]
    assert sum(map(len, row["token_ids"])) == row["tokens"]
    assert wrong_by_ids(row) == 0
    row["token_ids"][2][1] += 1
    assert wrong_by_ids(row) == 1


class Unwatched:
    """In place of a session in a swarm: the plain model."""

    def __init__(self, client):
        self._client = client

    def generate(self, prompt):
        client = self._client
        return Traced(client._model, LocalSession(client._plain), GREEDY, prompt).run(), None

    def measured(self):
        return {}


@pytest.mark.parametrize(("fault", "identical"), [(0.0, True), (0.5, False)])
def test_a_text_that_went_another_way_at_a_tie_is_right_and_one_with_wrong_states_is_not(
    client, prompt, fault, identical
):
    session = Faulty(client._plain)
    session.fault = fault
    traced = Traced(client._model, session, GREEDY, prompt)
    predict, n_calls = traced._generation.predict, []

    def second_best_once(hidden):
        n_calls.append(hidden)
        model = client._model
        best = model.lm_head(model.model.norm(hidden[:, -1:])).topk(2, dim=-1).indices
        # a step is looked at by the trace and by the generation
        return best[..., 1] if len(n_calls) in (5, 6) else predict(hidden)

    traced._generation.predict = second_best_once
    trace = traced.run()
    plain = Traced(client._model, LocalSession(client._plain), GREEDY, prompt).run()
    assert not compare(trace, plain, TOLERANCE)["identical"]
    found = compare_forced(trace, client._forced(GREEDY, prompt, trace), TOLERANCE)
    assert found["identical"] is identical
    assert (found["ties"] > 0) is identical
