"""What a server's answer, or the lack of one, is taken for; libp2p is a stand-in, doors are real sockets."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from swarmlab.bridge import compat

compat.apply()

from hivemind.p2p.p2p_daemon_bindings.utils import P2PDaemonError, P2PHandlerError  # noqa: E402

from swarmlab.bridge.serving import inquiry  # noqa: E402
from swarmlab.bridge.serving.inquiry import Limits, ask_all, doors_in  # noqa: E402
from swarmlab.placement.testimony import Answer  # noqa: E402
from swarmlab.types import Span  # noqa: E402

PEER = "QmYyQSo1c1Ym7orWxLYvCrM2EmxFTANf8wXmmE7DWjhx5N"
SPAN = Span(2, 6)
QUICK = Limits(answer_s=0.1, knocks=2, pause_s=0.0, knock_s=0.2, replace_s=0.0)
NO_HANDLER = "failed to negotiate protocol: protocols not supported: [TransformerConnectionHandler.rpc_info]"


def failed_to_dial(*lines: str) -> P2PDaemonError:
    tried = "".join(f"\n  * {line}" for line in lines)
    return P2PDaemonError(f"failed to dial: failed to dial {PEER}: all dials failed{tried}")


def asked(monkeypatch, *outcomes, span=SPAN, peer=PEER):
    """What comes of it if the calls to the server end one after another as given, the last again and again."""
    uids: list[str] = []
    left = list(outcomes)

    async def rpc_info(request):
        uids.append(request.uid)
        outcome = left.pop(0) if len(left) > 1 else left[0]
        if outcome is None:
            await asyncio.sleep(60)
        if isinstance(outcome, Exception):
            raise outcome

    handler: Any = SimpleNamespace(get_stub=lambda _p2p, _peer: SimpleNamespace(rpc_info=rpc_info))
    monkeypatch.setattr(inquiry, "TransformerConnectionHandler", handler)
    node = SimpleNamespace(p2p=None)
    answers = asyncio.run(ask_all(None, node, spans={peer: span}, prefix="m", limits=QUICK))
    assert list(answers) == [peer]
    return answers[peer], uids


@contextmanager
def door(*, open_: bool) -> Iterator[int]:
    """A port of this machine at which somebody listens, or surely nobody does."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        if open_:
            sock.listen()
        yield sock.getsockname()[1]


def test_one_that_has_both_ends_of_its_span_serves(monkeypatch):
    assert asked(monkeypatch, "yes") == (Answer.SERVES, ["m.2", "m.5"])
    assert asked(monkeypatch, "yes", span=Span(3, 4)) == (Answer.SERVES, ["m.3"])


@pytest.mark.parametrize("error", [P2PHandlerError("KeyError: m.5"), P2PDaemonError(NO_HANDLER)])
def test_one_that_is_there_without_its_blocks_has_left_them(monkeypatch, error):
    assert asked(monkeypatch, "yes", error)[0] is Answer.LEFT


def test_one_whose_handlers_are_just_being_replaced_serves(monkeypatch):
    no_handler = P2PDaemonError(NO_HANDLER)
    assert asked(monkeypatch, no_handler, no_handler, "yes")[0] is Answer.SERVES


def test_one_that_was_without_handlers_once_and_then_not_reached_has_not_left(monkeypatch):
    broken = P2PDaemonError("failed to negotiate protocol: stream reset")
    for first, second in ((broken, P2PDaemonError(NO_HANDLER)), (P2PDaemonError(NO_HANDLER), broken)):
        assert asked(monkeypatch, first, first, second)[0] is Answer.SILENT


def test_one_that_does_not_answer_in_time_is_silent_not_gone(monkeypatch):
    assert asked(monkeypatch, None)[0] is Answer.SILENT


def test_a_name_that_is_none_is_silent(monkeypatch):
    assert asked(monkeypatch, "yes", peer="not base58: 0OIl")[0] is Answer.SILENT


@pytest.mark.parametrize("reason", ["dial tcp4: connect: connection refused", "dial backoff"])
def test_nobody_at_the_door_is_a_refusal_whatever_the_daemon_remembers(monkeypatch, reason):
    with door(open_=False) as port:
        error = failed_to_dial(f"[/ip4/127.0.0.1/tcp/{port}] {reason}")
        assert asked(monkeypatch, error)[0] is Answer.REFUSED


def test_somebody_at_the_door_is_no_refusal(monkeypatch):
    with door(open_=True) as port:
        error = failed_to_dial(f"[/ip4/127.0.0.1/tcp/{port}] dial backoff")
        assert asked(monkeypatch, error)[0] is Answer.SILENT


def test_without_an_address_nothing_is_known(monkeypatch):
    assert asked(monkeypatch, failed_to_dial())[0] is Answer.SILENT


def test_a_connection_that_breaks_is_made_again(monkeypatch):
    broken = P2PDaemonError("failed to negotiate protocol: stream reset")
    assert asked(monkeypatch, broken, broken, "yes")[0] is Answer.SERVES
    assert asked(monkeypatch, broken)[0] is Answer.SILENT


def test_only_addresses_that_mean_this_server_count():
    lines = ["[/ip4/127.0.0.1/tcp/1] x", "[/ip4/192.168.0.7/tcp/2] x", "[/ip4/8.8.8.8/tcp/3] x"]
    quic = "[/ip4/8.8.8.8/udp/4/quic] x"
    relay = "[/ip4/9.9.9.9/tcp/5/p2p/QmRelay/p2p-circuit] x"
    assert doors_in(str(failed_to_dial(*lines, quic))) == [("8.8.8.8", 3)]
    assert doors_in(str(failed_to_dial(*lines[:2]))) == [("192.168.0.7", 2)]
    assert doors_in(str(failed_to_dial(lines[0]))) == [("127.0.0.1", 1)]
    assert doors_in(str(failed_to_dial("[/ip6/2001:4860:4860::8888/tcp/6] x"))) == [
        ("2001:4860:4860::8888", 6)
    ]
    assert doors_in(str(failed_to_dial(*lines[:2], relay))) == []


@pytest.mark.parametrize("kind", ["dns", "dns4", "dns6", "dnsaddr"])
def test_a_server_with_a_name_is_elsewhere_not_at_this_machine(monkeypatch, kind):
    name = f"[/{kind}/server.example/tcp/31337] no such host"
    with door(open_=False) as port:
        error = failed_to_dial(f"[/ip4/127.0.0.1/tcp/{port}] connect: connection refused", name)
        assert asked(monkeypatch, error)[0] is Answer.SILENT
    assert doors_in(str(failed_to_dial("[/ip4/8.8.8.8/tcp/3] x", name))) == [("8.8.8.8", 3)]
