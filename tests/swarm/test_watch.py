"""Watching a real swarm from outside."""

from __future__ import annotations

import pytest

from swarmlab import watch
from swarmlab.bridge.dht_reader import reading
from swarmlab.errors import SwarmFailed

pytestmark = pytest.mark.swarm


def test_a_look_from_outside_shows_what_the_servers_announce(tiny_swarm, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "130")
    before = len(tiny_swarm.snapshot().servers)
    assert watch.main([tiny_swarm.initial_peers[0], "--once"]) == 0
    printed = capsys.readouterr().out
    assert f"{tiny_swarm.spec.dht_prefix}: 5 servers, 16 blocks" in printed
    assert printed.count("online") == 5
    assert len(tiny_swarm.snapshot().servers) == before  # who watches is no part of it


def test_it_names_the_model_and_sees_the_same_as_the_orchestrator(tiny_swarm):
    with reading(tiny_swarm.initial_peers) as reader:
        assert reader.models() == {tiny_swarm.spec.dht_prefix: 16}
        view, problems = reader.view(tiny_swarm.spec.dht_prefix, 16)
    seen = {(record.peer_id, record.span) for record in view.servers}
    assert seen == {(record.peer_id, record.span) for record in tiny_swarm.snapshot().servers}
    assert problems == []


def test_a_peer_that_is_not_there_is_an_error_in_one_line(capsys):
    nobody = "/ip4/127.0.0.1/tcp/9/p2p/QmQ9QNpJiEBjFn5W5k1ppxdihBwZuvWMRhApwDEWSovXix"
    with pytest.raises(SwarmFailed), reading([nobody]):
        pass
    assert watch.main([nobody, "--once"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
