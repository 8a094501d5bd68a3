"""What servers say, and what follows from it. The texts are those that petals 2.2.0's servers raise."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarmlab.recovery.failure import (
    Attempt,
    Cause,
    PeerFailed,
    RecoveryFailed,
    cause_of,
    cause_of_dial,
    is_permanent,
    n_counted,
)

TEXTS = {
    "Remote peer does not serve tiny.12": Cause.STALE,
    "protocol not supported": Cause.STALE,
    "failed to negotiate protocol: protocols not supported: [TransformerConnectionHandler.rpc_inference]": Cause.STALE,
    "Could not allocate 1048576 (timeout=2.0)": Cause.BUSY,
    "Could not allocate 1048576 bytes immediately: out of memory": Cause.BUSY,
    "Could not allocate 1048576 within 2.0 seconds": Cause.BUSY,
    "Server's attention cache is full, failed to allocate 1048576 bytes in 2.0 seconds": Cause.BUSY,
    "CUDA out of memory. Tried to allocate 20.00 MiB": Cause.BUSY,
    "Could not allocate 1048576 bytes, max cache size = 4096 bytes": Cause.UNABLE,
    "Cannot allocate KV cache for 9000 tokens, max = 8192": Cause.UNABLE,
    "Maximum length exceeded: prefix 30 + current 3 exceeds pre-allocated maximum 32": Cause.UNABLE,
    "Task size greater than max_batch_size (2048), it can't be processed": Cause.UNABLE,
    "'adapter artek/guanaco-65b not found'": Cause.UNABLE,
    "Received 3 prompts for 4 backends": Cause.REFUSED,
    "hypo ids must be int64, got torch.int32": Cause.REFUSED,
    "session id 1-2-3 is not unique": Cause.REFUSED,
    "": Cause.REFUSED,
}


@pytest.mark.parametrize(("text", "cause"), TEXTS.items())
def test_the_texts_of_petals_servers(text, cause):
    assert cause_of(text) is cause


@given(st.text())
def test_any_text_has_a_cause(text):
    assert isinstance(cause_of(text), Cause)


def refusal(peer, detail="malformed", cause=Cause.REFUSED):
    return Attempt(peer, "0:4", cause, detail)


def test_a_request_is_at_fault_only_if_two_servers_say_the_same():
    assert is_permanent((refusal("a"), refusal("b")))
    assert is_permanent((refusal("a"), refusal("c", "other"), refusal("b")))
    assert not is_permanent(())
    assert not is_permanent((refusal("a"), refusal("a")))
    assert not is_permanent((refusal("a"), refusal("b", "something else")))
    assert not is_permanent((refusal("a", cause=Cause.BUSY), refusal("b", cause=Cause.BUSY)))


def test_each_server_may_be_found_silent_once():
    dead = [refusal(str(number), cause=Cause.HUNG) for number in range(30)]
    assert n_counted(dead) == 0
    assert n_counted([*dead, dead[3], dead[3]]) == 2
    assert n_counted([refusal("a"), refusal("b"), refusal("c", cause=Cause.STUCK), *dead]) == 3
    assert n_counted([refusal("a", cause=Cause.BUSY)] * 50) == 0
    assert n_counted([refusal("a", cause=Cause.BROKEN), refusal("a")]) == 1


def test_the_final_error_names_blocks_peers_and_reasons():
    attempt = PeerFailed("QmABCDEFGH", "4:8", Cause.HUNG, "no reply for 3 s").attempt
    text = str(RecoveryFailed("4:8", (attempt,), "12 attempts failed"))
    for part in ("4:8", "CDEFGH", "hung", "no reply for 3 s", "12 attempts failed"):
        assert part in text


def test_the_final_error_says_when_nobody_was_there():
    assert "Tried: nobody" in str(RecoveryFailed("4:8", (), "no usable server"))


DIAL = "Connect failed. msg=failed to dial: failed to dial QmPeer: all dials failed\n"


@pytest.mark.parametrize(
    ("message", "cause"),
    [
        (DIAL + "  * [/ip4/127.0.0.1/tcp/20316] dial backoff", Cause.BACKOFF),
        (
            DIAL + "  * [/ip4/127.0.0.1/tcp/20316] dial tcp4 127.0.0.1:20316: connect: connection refused",
            Cause.UNREACHABLE,
        ),
        (
            DIAL
            + "  * [/ip4/10.0.0.1/tcp/1] dial backoff\n  * [/ip4/127.0.0.1/tcp/1] connect: connection refused",
            Cause.UNREACHABLE,
        ),
        ("no connection within 5 s", Cause.UNREACHABLE),
        ("protocol not supported", Cause.STALE),
    ],
)
def test_only_a_peer_that_was_really_dialled_is_unreachable(message, cause):
    """Fault 26: libp2p itself refuses to dial a peer for some seconds; that is not the peer's failure."""
    assert cause_of_dial(message) is cause


def test_the_final_error_begins_with_what_no_server_is_able_to_do():
    attempt = Attempt("QmPeer", "0:8", Cause.UNABLE, "Cannot allocate KV cache for 3010 tokens, max = 2048")
    text = str(RecoveryFailed("0:8", (attempt,), "no usable server for blocks [0, 1]"))
    assert text.index("3010 tokens") < text.index("no usable server")
