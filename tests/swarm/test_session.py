"""FaultTolerantSession over real petals servers: what must hold when recovery itself is not possible."""

from __future__ import annotations

import time

import pytest
import torch

from swarmlab.bridge import compat

compat.apply()

from swarmlab.bridge.clients.failover import load_model  # noqa: E402 - petals needs compat first
from swarmlab.bridge.generation import make_fault_tolerant  # noqa: E402
from swarmlab.bridge.inference.local_session import LocalSession  # noqa: E402
from swarmlab.bridge.models import load_plain, prompts  # noqa: E402
from swarmlab.bridge.session import FaultTolerantSession  # noqa: E402
from swarmlab.recovery.failure import RecoveryFailed  # noqa: E402
from swarmlab.recovery.settings import RecoverySettings  # noqa: E402
from swarmlab.types import Span  # noqa: E402

pytestmark = pytest.mark.swarm

SHORT = RecoverySettings(recovery_s=4.0, ban_s=1.0, retry_max_s=0.5)
HOLDERS = ("last", "right")  # of blocks 11:16


@pytest.fixture
def model(tiny_swarm):
    """A petals client of the shared swarm, closed afterwards."""
    args = {
        "model_path": str(tiny_swarm.spec.model_path),
        "initial_peers": tiny_swarm.initial_peers,
        "dht_prefix": tiny_swarm.spec.dht_prefix,
        "client": {"show_route": False, "max_retries": 2, "request_timeout": 5},
    }
    client = load_model(args)
    yield client
    manager = client.transformer.h.sequence_manager
    manager.shutdown()
    manager.dht.shutdown()


@pytest.fixture
def plain(tiny_model):
    return load_plain(tiny_model)


def greedy(model, session, ids, n_tokens):
    """Feed ``ids`` and then greedy tokens; all outputs of the last block, and the next ids."""
    outputs = []
    with torch.inference_mode():
        for _ in range(n_tokens):
            outputs.append(session.step(model.model.embed_tokens(ids)))
            ids = model.lm_head(model.model.norm(outputs[-1][:, -1:])).argmax(dim=-1)
    return torch.cat(outputs, dim=1), ids


def first_ids(tiny_model):
    return torch.from_numpy(prompts(tiny_model, 1, 10, seed=5))


@pytest.mark.timeout(90)  # petals would retry for ever
def test_an_outage_ends_in_bounded_time_and_the_session_goes_on_when_a_holder_returns(
    tiny_swarm, tiny_model, model, plain
):
    wanted, _ = greedy(plain, LocalSession(plain), first_ids(tiny_model), 12)
    manager = model.transformer.h.sequence_manager
    with FaultTolerantSession(manager, 64, settings=SHORT) as session:
        before, ids = greedy(model, session, first_ids(tiny_model), 6)
        position = session.position
        for name in HOLDERS:
            tiny_swarm.kill(name)
            tiny_swarm.servers[name].child.wait(10)
        with pytest.raises(RecoveryFailed) as failed:
            greedy(model, session, ids, 1)
        assert session.position == position
        assert any(f"{block}" in str(failed.value) for block in range(11, 16))

        tiny_swarm.restart("right")
        tiny_swarm.wait_ready(["right"])
        after, _ = greedy(model, session, ids, 6)
    assert torch.allclose(torch.cat([before, after], dim=1), wanted, atol=1e-3)


@pytest.mark.usefixtures("tiny_swarm")
def test_a_generate_call_that_raises_leaves_its_session_as_it_was(tiny_model, model):
    """Fault 8: otherwise the next call, even of another session, gives wrong tokens."""
    make_fault_tolerant(model, settings=SHORT)
    prompt = first_ids(tiny_model)
    whole = model.generate(prompt, max_new_tokens=12, do_sample=False)
    with model.inference_session(max_length=40) as session:
        first = model.generate(prompt, max_new_tokens=6, do_sample=False)
        position, output_ids = session.position, session.output_ids
        step, calls = session.step, []

        def fail_at_third(*args, **kwargs):
            calls.append(1)
            if len(calls) == 3:
                raise KeyboardInterrupt
            return step(*args, **kwargs)

        session.step = fail_at_third
        with pytest.raises(KeyboardInterrupt):
            model.generate(None, max_new_tokens=6, do_sample=False)
        session.step = step
        assert session.position == position
        assert session.output_ids is output_ids
        second = model.generate(None, max_new_tokens=6, do_sample=False)
    assert torch.equal(torch.cat([first, second], dim=1), whole)
    assert torch.equal(model.generate(prompt, max_new_tokens=12, do_sample=False), whole)


@pytest.mark.timeout(60)
@pytest.mark.usefixtures("tiny_swarm")
def test_a_session_longer_than_any_server_allows_is_refused_at_once_and_nobody_is_blamed(tiny_model, model):
    manager = model.transformer.h.sequence_manager
    patient = RecoverySettings(recovery_s=3600.0)  # waiting for better times would outlast the test
    session = FaultTolerantSession(manager, 5000, settings=patient)
    with session, pytest.raises(RecoveryFailed, match="5000"):
        greedy(model, session, first_ids(tiny_model), 1)
    with FaultTolerantSession(manager, 64) as session:
        greedy(model, session, first_ids(tiny_model), 3)
        assert session.chain[-1][0].end == 16


def test_a_broken_stream_is_repaired_before_the_next_token_is_due(tiny_swarm, tiny_model, model):
    manager = model.transformer.h.sequence_manager
    events = []
    with FaultTolerantSession(manager, 64, on_event=events.append) as session:
        _, ids = greedy(model, session, first_ids(tiny_model), 4)
        peers = {server.peer_id: name for name, server in tiny_swarm.servers.items()}
        used = peers[session.chain[-1][1]]
        tiny_swarm.kill(used)
        deadline_s = time.monotonic() + 20
        while not events:
            assert time.monotonic() < deadline_s, "nobody repaired the broken span"
            time.sleep(0.05)
        greedy(model, session, ids, 1)
        assert session.chain[-1][1] != tiny_swarm.servers[used].peer_id
        assert events[0]["cause"] == "broken"


@pytest.mark.timeout(60)
def test_closing_does_not_wait_for_hung_servers(tiny_swarm, tiny_model, model):
    """Fault 25: petals waits until its request timeout, 3 minutes by default."""
    manager = model.transformer.h.sequence_manager
    session = FaultTolerantSession(manager, 64)
    greedy(model, session, first_ids(tiny_model), 3)
    assert session.chain[0][0] in (Span(0, 5), Span(0, 8))
    for name in ("first", "left"):
        tiny_swarm.stop(name)
    session.close()
    with pytest.raises(RuntimeError, match="closed"):
        greedy(model, session, first_ids(tiny_model), 1)
