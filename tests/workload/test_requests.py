"""What clients of a soak ask for: within bounds, of every kind, the same for a seed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from swarmlab.workload.requests import KINDS, Bounds, draw_request

BOUNDS = Bounds(prompt_tokens=(5, 120), new_tokens=(8, 80))
draws = st.tuples(st.integers(0, 2**32 - 1), st.text(max_size=10), st.integers(0, 10**6))


@given(draws)
def test_a_request_stays_within_its_bounds_and_makes_sense(draw):
    request = draw_request(BOUNDS, *draw)
    assert 5 <= request.prompt_tokens <= 120
    assert 8 <= request.new_tokens <= 80
    assert 1 <= request.batch <= 3
    assert 1 <= request.prompt_chunks <= request.prompt_tokens
    assert request.deep_prompt_tokens <= request.prompt_tokens
    assert (request.beams > 1) == (request.kind == "beam_search")
    assert (request.deep_prompt_tokens > 0) == (request.kind == "deep_prompts")
    assert request.batch * request.beams * request.max_length <= BOUNDS.most_cache_tokens
    assert request == draw_request(BOUNDS, *draw)


def test_every_kind_comes_and_clients_differ():
    requests = [draw_request(BOUNDS, 0, client, n) for client in ("a", "b") for n in range(60)]
    assert {request.kind for request in requests} == set(KINDS)
    assert len({request.seed for request in requests}) == len(requests)
