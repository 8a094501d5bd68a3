"""The session as its user sees it: on another thread than its event loop, interrupted, dropped, misused."""

from __future__ import annotations

import asyncio
import gc
import time
from concurrent.futures import Future
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from swarmlab.bridge import compat

compat.apply()

from hivemind.moe.client.remote_expert_worker import RemoteExpertWorker  # noqa: E402

from swarmlab.bridge import session as session_module  # noqa: E402
from swarmlab.bridge.inference.chain import Session  # noqa: E402
from swarmlab.bridge.inference.flow import Flow, StepInput  # noqa: E402
from swarmlab.bridge.session import FaultTolerantSession  # noqa: E402
from swarmlab.recovery.failure import HistoryTooLarge, RecoveryFailed  # noqa: E402
from swarmlab.recovery.settings import RecoverySettings  # noqa: E402
from swarmlab.types import Span  # noqa: E402
from tests.bridge import fake_swarm  # noqa: E402
from tests.bridge.fake_swarm import HIDDEN, FakeSwarm, Reference, fake_router  # noqa: E402

SETTINGS = RecoverySettings(close_s=0.2, first_reply_s=0.3, probe_s=0.1, connect_s=0.3, recovery_s=1.0)
DEADLINE_S = 20.0
N_BLOCKS, MAX_LENGTH = 4, 100


class Fixture:
    """A session of two spans with a spare server for each, in real time."""

    swarm: FakeSwarm

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async def make_flow(
            _manager: Any, settings: RecoverySettings, max_length: int, on_event: Any, on_opening: Any
        ) -> Flow:
            self.swarm = FakeSwarm(N_BLOCKS, [Span(0, 2), Span(2, 4)] * 2)
            return Flow(
                Session(fake_router(self.swarm, settings), settings, max_length), on_event, on_opening
            )

        monkeypatch.setattr(session_module, "_make_flow", make_flow)
        monkeypatch.setattr(fake_swarm, "BACKOFF_S", 0.2)  # these tests run in real time
        self.events: list[dict] = []
        manager: Any = SimpleNamespace(config=SimpleNamespace(hidden_size=HIDDEN))
        self.session = FaultTolerantSession(
            manager, MAX_LENGTH, settings=SETTINGS, on_event=self.events.append
        )

    def on_loop(self, action: Any) -> Any:
        """Do something on the session's event loop."""

        async def act() -> Any:
            return action()

        return RemoteExpertWorker.run_coroutine(act())

    def kill(self, *indices: int) -> None:
        self.on_loop(lambda: [self.swarm.servers[index].kill() for index in indices])

    def kill_span(self, index: int) -> None:
        _, peer = self.session.chain[index]
        self.kill(*[i for i, one in enumerate(self.swarm.servers) if one.peer_id.to_base58() == peer])

    def wait_until(self, condition: Any) -> None:
        deadline_s = time.monotonic() + DEADLINE_S
        while not self.on_loop(condition):
            assert time.monotonic() < deadline_s, "did not come true"
            time.sleep(0.01)

    @property
    def n_requests(self) -> int:
        return sum(server.n_requests for server in self.swarm.servers)


@pytest.fixture
def fixture(monkeypatch):
    made = Fixture(monkeypatch)
    yield made
    if hasattr(made, "session"):
        made.session.close()


def inputs(n_tokens: int = 1, batch: int = 2) -> torch.Tensor:
    return torch.rand(batch, n_tokens, HIDDEN, dtype=torch.float64)


def expect(reference: Reference, hidden: torch.Tensor, **kwargs: Any) -> np.ndarray:
    """What the step must return; the reference takes it."""
    expected, states = reference.preview(hidden.numpy(), kwargs.get("prompts"), kwargs.get("hypo_ids"))
    reference.commit(hidden.shape[1], states)
    return expected


@pytest.fixture
def reference():
    return Reference(N_BLOCKS, batch=2)


def test_a_session_through_a_failure(fixture, reference):
    with fixture.session as session:
        for n_tokens in (5, 1, 1):
            hidden = inputs(n_tokens)
            np.testing.assert_array_equal(session.step(hidden).numpy(), expect(reference, hidden))
            fixture.kill_span(len(fixture.events) % 2)
        assert session.position == 7
        assert session.max_length == MAX_LENGTH
        assert session.num_blocks == N_BLOCKS
        assert [str(span) for span, _ in session.chain] == ["0:2", "2:4"]
        assert fixture.events
        assert session.step_end(1) == 6
        history = session.history_of(0, 1)
        assert history is not None
        assert history.shape == (2, 6, HIDDEN)
        assert session.history_of(1, 1) is None
    assert fixture.on_loop(lambda: fixture.swarm.n_open_streams) == 0


BAD_STEPS = {
    "another hidden size": (torch.rand(2, 1, HIDDEN + 1), None, None),
    "whole numbers": (torch.ones(2, 1, HIDDEN, dtype=torch.int64), None, None),
    "no tokens axis": (torch.rand(2, HIDDEN), None, None),
    "no rows": (torch.rand(0, 1, HIDDEN), None, None),
    "no rows and no tokens": (torch.rand(0, 0, HIDDEN), None, None),
    "another batch size": (torch.rand(3, 1, HIDDEN), None, None),
    "more than max_length": (torch.rand(2, MAX_LENGTH, HIDDEN), None, None),
    "prompts for other blocks": (torch.rand(2, 1, HIDDEN), torch.rand(3, 2, 1, HIDDEN), None),
    "prompts longer than the step": (torch.rand(2, 1, HIDDEN), torch.rand(4, 2, 2, HIDDEN), None),
    "prompts for another batch": (torch.rand(2, 1, HIDDEN), torch.rand(4, 3, 1, HIDDEN), None),
    "hypo_ids of another type": (torch.rand(2, 1, HIDDEN), None, torch.zeros(2, dtype=torch.int32)),
    "too few hypo_ids": (torch.rand(2, 1, HIDDEN), None, torch.zeros(1, dtype=torch.int64)),
    "hypo_ids beyond the batch": (torch.rand(2, 1, HIDDEN), None, torch.tensor([0, 2])),
    "hypo_ids below 0": (torch.rand(2, 1, HIDDEN), None, torch.tensor([0, -1])),
}


def test_what_does_not_fit_is_refused_before_anything_is_sent(fixture, reference):
    hidden = inputs(3)
    fixture.session.step(hidden)
    expect(reference, hidden)
    n_requests = fixture.n_requests
    for name, (bad, prompts, hypo_ids) in BAD_STEPS.items():
        with pytest.raises(ValueError, match=r"must be|exceed|batch size"):
            fixture.session.step(bad, prompts, hypo_ids)
        assert fixture.n_requests == n_requests, name
    hidden = inputs()
    np.testing.assert_array_equal(fixture.session.step(hidden).numpy(), expect(reference, hidden))


def test_a_first_step_without_rows_is_refused_too(fixture):
    with pytest.raises(ValueError, match="must be 1 or more"):
        fixture.session.step(inputs(3, batch=0))
    assert fixture.n_requests == 0


def test_max_length_must_be_positive():
    manager: Any = SimpleNamespace(config=SimpleNamespace(hidden_size=HIDDEN))
    with pytest.raises(ValueError, match="max_length"):
        FaultTolerantSession(manager, 0)


def test_no_tokens_no_request(fixture):
    hidden = inputs(0)
    assert fixture.session.step(hidden) is hidden
    assert fixture.n_requests == 0


def test_outputs_have_the_type_of_the_inputs(fixture):
    assert fixture.session.step(inputs(2).float()).dtype is torch.float32


def test_petals_dummies_stand_for_nothing(fixture, reference):
    hidden = inputs(2)
    outputs = fixture.session.step(hidden, torch.empty(0), torch.empty(0, dtype=torch.int64))
    np.testing.assert_array_equal(outputs.numpy(), expect(reference, hidden))


def test_later_changes_of_a_prompt_do_not_reach_a_replay(fixture, reference):
    hidden, prompts = inputs(4), torch.rand(N_BLOCKS, 1, 2, HIDDEN, dtype=torch.float64)
    fixture.session.step(hidden, prompts)
    expect(reference, hidden, prompts=prompts.numpy().copy())
    prompts.zero_()
    fixture.kill(*[i for i, one in enumerate(fixture.swarm.servers) if one.n_requests])
    hidden = inputs()
    np.testing.assert_array_equal(fixture.session.step(hidden).numpy(), expect(reference, hidden))


class InterruptedFuture:
    """What a Ctrl-C does to whoever waits for a future.

    :param too_late: let the work be done first
    """

    def __init__(self, future: Future, *, too_late: bool) -> None:
        self._future, self._too_late = future, too_late

    def result(self) -> Any:
        if self._too_late:
            self._future.result()
        else:
            time.sleep(0.01)  # let it begin
        raise KeyboardInterrupt

    def cancel(self) -> bool:
        return self._future.cancel()


@pytest.mark.parametrize("too_late", [True, False])
def test_an_interrupted_step_does_not_count(fixture, reference, monkeypatch, too_late):
    hidden = inputs(5)
    fixture.session.step(hidden)
    expect(reference, hidden)
    hidden = inputs()

    original = RemoteExpertWorker.run_coroutine
    calls = []

    def interrupted_once(work: Any, return_future: bool = False) -> Any:
        calls.append(work)
        future = original(work, return_future)
        return InterruptedFuture(future, too_late=too_late) if len(calls) == 1 else future

    with monkeypatch.context() as patches:
        patches.setattr(RemoteExpertWorker, "run_coroutine", interrupted_once)
        with pytest.raises(KeyboardInterrupt):
            fixture.session.step(hidden)
    assert fixture.session.position == reference.position
    for _ in range(2):  # the same step again, and another
        np.testing.assert_array_equal(fixture.session.step(hidden).numpy(), expect(reference, hidden))


def test_a_failed_step_can_be_repeated_when_a_server_is_back(fixture, reference):
    hidden = inputs(5)
    fixture.session.step(hidden)
    expect(reference, hidden)
    fixture.kill(0, 1, 2, 3)
    hidden = inputs()
    with pytest.raises(RecoveryFailed, match="cannot be served"):
        fixture.session.step(hidden)
    assert fixture.session.position == 5
    fixture.on_loop(fixture.swarm.heal)
    deadline_s = time.monotonic() + DEADLINE_S
    while True:  # a step may meet bans that are not over
        try:
            outputs = fixture.session.step(hidden)
            break
        except RecoveryFailed:
            assert time.monotonic() < deadline_s
    np.testing.assert_array_equal(outputs.numpy(), expect(reference, hidden))


def test_after_a_rewind_to_the_start_another_batch_size_is_welcome(fixture):
    fixture.session.step(inputs(5))
    fixture.session.rewind(0)
    hidden, other = inputs(3, batch=1), Reference(N_BLOCKS, batch=1)
    np.testing.assert_array_equal(fixture.session.step(hidden).numpy(), expect(other, hidden))
    fixture.kill(*[i for i, one in enumerate(fixture.swarm.servers) if one.n_caches])
    hidden = inputs(1, batch=1)
    np.testing.assert_array_equal(fixture.session.step(hidden).numpy(), expect(other, hidden))


def test_a_first_step_that_failed_may_be_followed_by_another_batch_size(fixture):
    fixture.kill(1, 3)
    with pytest.raises(RecoveryFailed):
        fixture.session.step(inputs(5, batch=2))
    fixture.on_loop(fixture.swarm.heal)
    hidden, other = inputs(3, batch=3), Reference(N_BLOCKS, batch=3)
    deadline_s = time.monotonic() + DEADLINE_S
    while True:
        try:
            outputs = fixture.session.step(hidden)
            break
        except RecoveryFailed:
            assert time.monotonic() < deadline_s
    np.testing.assert_array_equal(outputs.numpy(), expect(other, hidden))


def test_rewinding_into_a_step_is_refused(fixture):
    fixture.session.step(inputs(5))
    with pytest.raises(ValueError, match="between two steps"):
        fixture.session.rewind(3)
    assert fixture.session.position == 5


def test_memory_of_all_histories(fixture):
    """A float32 batch of 2 costs batch * hidden * 4 bytes per position and span, at most doubled by growing."""
    for n_tokens in (40, 1, 1, 1):
        fixture.session.step(inputs(n_tokens).float())
    n_spans, token_bytes = 2, 2 * HIDDEN * 4
    least = n_spans * token_bytes * fixture.session.position
    # the second span is sent what the first answers: the fake servers answer in the type they were asked in
    assert least <= fixture.session.history_bytes <= 2 * least


def test_histories_that_outgrow_their_limit_end_the_generation_before_anything_is_sent(
    monkeypatch, reference
):
    token_bytes = 2 * 2 * HIDDEN * 8  # spans x rows x hidden, float64
    limit_bytes = 50 * token_bytes
    monkeypatch.setitem(globals(), "SETTINGS", replace(SETTINGS, history_max_bytes=limit_bytes))
    fixture = Fixture(monkeypatch)
    for n_tokens in (30, 20):
        hidden = inputs(n_tokens)
        np.testing.assert_array_equal(fixture.session.step(hidden).numpy(), expect(reference, hidden))
    n_requests = fixture.n_requests
    with pytest.raises(HistoryTooLarge, match=f"recovery.history_max_bytes={limit_bytes}: raise it"):
        fixture.session.step(inputs(1))
    assert fixture.n_requests == n_requests
    assert fixture.session.position == 50
    assert fixture.session.history_bytes <= limit_bytes
    fixture.session.rewind(30)  # it can go on with less
    reference.rewind(1)
    hidden = inputs(20)
    np.testing.assert_array_equal(fixture.session.step(hidden).numpy(), expect(reference, hidden))
    fixture.session.close()


def test_closing_a_session_whose_servers_hang(fixture):
    fixture.session.step(inputs(2))
    fixture.on_loop(lambda: [server.hang() for server in fixture.swarm.servers])
    fixture.session.close()  # or the test runs out of time
    assert fixture.on_loop(lambda: fixture.swarm.n_open_streams) == 0


def test_a_closed_session_takes_no_steps(fixture):
    fixture.session.step(inputs(2))
    fixture.session.close()
    fixture.session.close()
    with pytest.raises(RuntimeError, match="closed"):
        fixture.session.step(inputs())
    late = StepInput(inputs(), None, None)  # from another thread, say, that had passed the check
    with pytest.raises(RuntimeError, match="closed"):
        RemoteExpertWorker.run_coroutine(fixture.session._flow.step(late))


def test_a_session_dropped_on_the_event_loops_own_thread_is_closed_without_blocking(fixture):
    fixture.session.step(inputs(2))
    fixture.on_loop(lambda: [server.hang() for server in fixture.swarm.servers])

    async def drop() -> None:
        del fixture.session
        gc.collect()
        await asyncio.sleep(0)

    RemoteExpertWorker.run_coroutine(drop())  # would never return if the finalizer waited for the loop
    fixture.wait_until(lambda: fixture.swarm.n_open_streams == 0)


def test_a_session_dropped_elsewhere_is_closed(fixture):
    fixture.session.step(inputs(2))
    del fixture.session
    gc.collect()
    fixture.wait_until(lambda: fixture.swarm.n_open_streams == 0)


def test_a_session_that_was_never_made_can_be_dropped(monkeypatch):
    async def cannot(*_: Any) -> Flow:
        raise RuntimeError("no swarm")

    monkeypatch.setattr(session_module, "_make_flow", cannot)
    manager: Any = SimpleNamespace(config=SimpleNamespace(hidden_size=HIDDEN))
    with pytest.raises(RuntimeError, match="no swarm"):
        FaultTolerantSession(manager, 10)
    gc.collect()


def test_the_last_token_of_generate(fixture):
    assert fixture.session.last_token_id is None
    fixture.session.output_ids = torch.tensor([[1, 2], [3, 4]])
    last = fixture.session.last_token_id
    assert last is not None
    assert last.tolist() == [[2], [4]]
