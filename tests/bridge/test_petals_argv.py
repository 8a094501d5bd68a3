"""Arguments that petals' server would refuse are found without starting it."""

from __future__ import annotations

import pytest

from swarmlab.bridge.petals_argv import check_server_argv
from swarmlab.errors import BadInput


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["--attn_cache_tokens", "16"],
        ["--attn_cache_tokens=16", "--skip_reachability_check"],
        ["--initial_peers", "/ip4/1.2.3.4/tcp/1", "/ip4/1.2.3.4/tcp/2"],
        ["--throughput", "12.5", "--quant_type", "nf4"],
        ["--use_auth_token"],
        ["--mean_balance_check_period", "1e3"],
    ],
)
def test_what_petals_knows_is_let_through(argv):
    check_server_argv(argv, "swarm.argv")


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--atn_cache_tokens", "16"], "unrecognized arguments"),
        (["--attn_cache_tokens"], "expected one argument"),
        (["--attn_cache_tokens", "many"], "invalid int value"),
        (["--update_period", "soon"], "invalid float value"),
        (["attn_cache_tokens"], "unrecognized arguments"),
        (["--skip_reachability_check", "yes"], "unrecognized arguments"),
    ],
)
def test_what_petals_would_refuse_is_bad_input(argv, said):
    with pytest.raises(BadInput, match=said) as caught:
        check_server_argv(argv, "swarm.argv")
    assert caught.value.field == "swarm.argv"
