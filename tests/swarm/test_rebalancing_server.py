"""Our server in a real swarm with unmodified petals servers and clients: moves, and what may go wrong in one."""

from __future__ import annotations

import shutil
import threading
import time
from contextlib import contextmanager
from dataclasses import replace

import psutil
import pytest
import torch

from swarmlab.bridge import compat

compat.apply()

from swarmlab.swarm.deploy import deploy  # noqa: E402
from swarmlab.swarm.ready import wait_for  # noqa: E402
from swarmlab.swarm.spec import ServerSpec  # noqa: E402
from swarmlab.types import ServerState, Span  # noqa: E402
from tests.disks import mounted  # noqa: E402
from tests.swarm.spans import DEADLINE_S, SpanClient, Told  # noqa: E402

pytestmark = pytest.mark.swarm

# "whole" holds everything, slowly; "twin" what ours begin with. Both are unmodified.
WHOLE, TWIN = ServerSpec("whole", Span(0, 16), throughput_tps=1.0), ServerSpec("twin", Span(0, 6))
HOME = Span(0, 6)
CHECKS = ("--mean_balance_check_period", "0.4")


class Stage:
    """The swarm, a client, and our two servers; the rival's block store is on a full disk, where one can be made."""

    def __init__(self, swarm, client, ours, rival, disk) -> None:
        self.swarm, self.client, self.ours, self.rival, self.disk = swarm, client, ours, rival, disk

    def record(self, told):
        return self.swarm.snapshot().get(self.swarm.servers[told.name].peer_id)

    def wait_for_span(self, told, span, state=ServerState.ONLINE):
        def there():
            record = self.record(told)
            return record if record and record.span == span and record.state is state else None

        return wait_for(there, DEADLINE_S, f"{told.name} {state} at {span}")

    def computes_as_the_original(self, told, span) -> bool:
        hidden = torch.randn(1, 3, 64, generator=torch.Generator().manual_seed(1))
        ours = self.client.outputs(told.name, span, hidden)
        return torch.equal(ours, self.client.outputs("whole", span, hidden))


@pytest.fixture(scope="module")
def built(tiny_spec, tmp_path_factory):
    folder = tmp_path_factory.mktemp("rebalancing")
    model_path = folder / "model"  # tests damage it
    shutil.copytree(tiny_spec.model_path, model_path)
    tolds = [Told(name, folder) for name in ("ours", "rival")]
    specs = []
    for told, reload in zip(tolds, ("prefetch", "in_place"), strict=True):
        told.go(HOME)
        options = {**told.options, "reload": reload, "drain_s": "0.5"}
        if told.name == "rival":
            options["store_dir"] = str(folder / "disk" / "store")
        specs.append(
            ServerSpec(
                told.name, n_blocks=6, argv=CHECKS, kind="server:server", options=tuple(options.items())
            )
        )
    spec = replace(tiny_spec, model_path=model_path, servers=(WHOLE, TWIN, *specs))
    with mounted(folder / "disk") as disk:
        if disk:
            disk.fill(leave_bytes=8192)
        with deploy(spec, folder) as swarm:
            client = SpanClient(swarm)
            yield Stage(swarm, client, *tolds, disk=disk)
            client.close()


@pytest.fixture
def stage(built):
    """Everybody is there, ours are at home, and all gates are open."""
    yield built
    for told in (built.ours, built.rival):
        told.release_all()
        if not built.swarm.servers[told.name].alive:
            continue
        built.swarm.cont(told.name)
        told.go(HOME)
    for told in (built.ours, built.rival):
        if built.swarm.servers[told.name].alive:
            # what it tells comes last, when its move is over
            wait_for(lambda told=told: told.rests_at(HOME), DEADLINE_S, f"{told.name} at home")
            built.wait_for_span(told, HOME)


@contextmanager
def session_on(stage, name, span):
    """While a session of this server goes on, compared step by step with one of the unmodified server."""
    ours, original = stage.client.open(name, span), stage.client.open("whole", span)
    over, equal, errors = threading.Event(), [], []

    def go_on():
        try:
            while not over.is_set():
                hidden = torch.randn(1, 1, 64)
                equal.append(torch.equal(ours.step(hidden), original.step(hidden)))
        except Exception as error:  # noqa: BLE001 - the test tells
            errors.append(error)

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    assert not errors
    assert equal
    assert all(equal)


def test_a_move_keeps_what_both_spans_share_in_service_and_reads_only_what_is_new(stage):
    before = stage.ours.rows("servers")[-1]["modules"]
    assert stage.computes_as_the_original(stage.ours, HOME)
    idle = stage.client.open("ours", Span(0, 3))
    idle.step(torch.randn(1, 1, 64))
    with session_on(stage, "ours", Span(2, 6)):
        row = stage.ours.move(Span(2, 8))
    assert (row["outcome"], row["kept"], row["loaded"], row["redundant"]) == ("moved", 4, 2, 0)
    assert row["prefetched"]
    assert row["out_of_service_s"] == row["lost_block_s"] == 0.0
    after = stage.ours.rows("servers")[-1]["modules"]
    assert sorted(map(int, after)) == list(Span(2, 8))
    assert all(after[str(block)] == before[str(block)] for block in Span(2, 6))
    assert stage.computes_as_the_original(stage.ours, Span(2, 8))
    with pytest.raises(Exception, match="does not serve"):
        stage.client.outputs("ours", HOME, torch.randn(1, 1, 64))
    assert stage.wait_for_span(stage.ours, Span(2, 8)).intent is None
    stage.ours.move(HOME)
    with pytest.raises(Exception, match="dropped and loaded again"):
        idle.step(torch.randn(1, 1, 64))
    idle.close()  # collected as garbage in the client's event loop, it would wait there for itself


def test_in_place_it_does_the_same_one_block_after_another(stage):
    before = stage.rival.rows("servers")[-1]["modules"]
    with session_on(stage, "rival", Span(2, 6)):
        row = stage.rival.move(Span(2, 8))
    assert (row["outcome"], row["kept"], row["loaded"], row["redundant"]) == ("moved", 4, 2, 0)
    assert not row["prefetched"]
    assert row["out_of_service_s"] == 0.0 < row["lost_block_s"]
    after = stage.rival.rows("servers")[-1]["modules"]
    assert all(after[str(block)] == before[str(block)] for block in Span(2, 6))
    assert stage.computes_as_the_original(stage.rival, Span(2, 8))
    assert row["sources"] == {"checkpoint": 2}
    if stage.disk:
        assert not list((stage.disk.folder / "store").iterdir()), "its disk is full"


def test_the_intent_is_seen_by_all_before_anything_is_dropped_and_petals_is_not_misled(stage):
    stage.ours.hold("loaded")
    since_s = time.monotonic()
    stage.ours.go(Span(4, 10))
    stage.ours.wait_at("loaded")
    record = stage.record(stage.ours)
    assert (record.span, record.state) == (HOME, ServerState.ONLINE)
    assert record.intent.span == Span(4, 10)
    assert stage.computes_as_the_original(stage.ours, HOME)
    stage.client._manager._update()
    spans = {
        span.peer_id.to_base58(): span for span in stage.client._manager.state.sequence_info.spans_by_priority
    }
    seen = spans[stage.swarm.servers["ours"].peer_id]
    assert (seen.start, seen.end) == (HOME.start, HOME.end)
    stage.ours.release("loaded")
    assert stage.ours.next_reload(since_s)["outcome"] == "moved"


def test_a_checkpoint_that_goes_away_half_way_sends_it_back_and_it_tries_again(stage):
    weights = stage.swarm.spec.model_path / "model.safetensors"
    stage.ours.hold("loading:7")
    since_s = time.monotonic()
    stage.ours.go(Span(2, 8))
    stage.ours.wait_at("loading:7")
    weights.rename(weights.with_suffix(".gone"))
    try:
        stage.ours.release("loading:7")
        row = stage.ours.next_reload(since_s)
        assert (row["outcome"], row["new_start"], row["new_end"]) == ("rolled_back", 0, 6)
        assert row["loaded"] == 1
        assert stage.wait_for_span(stage.ours, HOME).intent is None
        assert stage.computes_as_the_original(stage.ours, HOME)
        assert any("rolled_back" in told["line"] for told in stage.ours.rows("logs", since_s))
    finally:
        weights.with_suffix(".gone").rename(weights)
    wait_for(
        lambda: any(row["outcome"] == "moved" for row in stage.ours.rows("reloads", since_s)),
        DEADLINE_S,
        "the next try",
    )


def test_a_damaged_checkpoint_is_an_error_and_not_an_endless_download(stage):
    weights = stage.swarm.spec.model_path / "model.safetensors"
    whole = weights.read_bytes()
    stage.ours.hold("loading:6")
    since_s = time.monotonic()
    stage.ours.go(Span(1, 7))
    stage.ours.wait_at("loading:6")
    weights.write_bytes(b"\x00" * 100)
    try:
        stage.ours.release("loading:6")
        assert stage.ours.next_reload(since_s)["outcome"] == "rolled_back"
    finally:
        weights.write_bytes(whole)


def test_a_target_that_another_takes_while_it_hangs_is_left_to_the_other(stage):
    target = Span(6, 12)
    stage.ours.hold("loaded")
    since_s = time.monotonic()
    stage.ours.go(target)
    stage.ours.wait_at("loaded")
    stage.swarm.stop("ours")
    assert stage.rival.move(target)["outcome"] == "moved"
    stage.swarm.cont("ours")
    stage.ours.release("loaded")
    row = stage.ours.next_reload(since_s)
    stage.ours.go(HOME)
    assert row["outcome"] == "cancelled"
    assert "filled the gap" in row["reason"]
    assert stage.computes_as_the_original(stage.ours, HOME)


def test_of_two_that_set_out_at_once_for_one_gap_one_goes(stage):
    target, since_s = Span(6, 12), time.monotonic()
    both = (stage.ours, stage.rival)
    for told in both:
        told.hold("decided")
        told.go(target)
    for told in both:
        told.wait_at("decided")
    for told in both:
        told.release("decided")
    outcomes = {}
    for told in both:
        outcomes[told.name] = told.next_reload(since_s)["outcome"]
        if outcomes[told.name] == "cancelled":
            told.go(HOME)
    assert sorted(outcomes.values()) == ["cancelled", "moved"]


def test_it_stays_if_it_would_leave_a_block_to_nobody(stage):
    stage.ours.hold("loaded")
    since_s = time.monotonic()
    stage.ours.go(Span(2, 8))
    stage.ours.wait_at("loaded")
    for name in ("whole", "twin", "rival"):
        stage.swarm.leave(name)
        stage.swarm.servers[name].child.wait(DEADLINE_S)
    stage.ours.release("loaded")
    row = stage.ours.next_reload(since_s)
    stage.ours.go(HOME)
    assert row["outcome"] == "cancelled"
    assert "nobody else serves" in row["reason"]
    assert stage.wait_for_span(stage.ours, HOME)
    for name in ("whole", "twin", "rival"):
        stage.swarm.restart(name)
    stage.swarm.wait_ready(["whole", "twin", "rival"])


@pytest.mark.parametrize("phase", ["loading:6", "dropped"])
def test_told_to_end_half_way_it_is_offline_for_all_and_gone(stage, phase):
    stage.ours.hold(phase)
    stage.ours.go(Span(1, 7))
    stage.ours.wait_at(phase)
    process = psutil.Process(stage.swarm.servers["ours"].pid)
    family = [process, *process.children(recursive=True)]
    stage.swarm.leave("ours")
    assert stage.swarm.servers["ours"].child.wait(DEADLINE_S) is not None
    wait_for(lambda: not any(one.is_running() for one in family), DEADLINE_S, "all its processes gone")
    assert stage.ours.rows("servers")[-1]["state"] == "offline"
    record = stage.record(stage.ours)
    assert record is None or record.state is ServerState.OFFLINE
    stage.ours.release_all()
    stage.ours.go(HOME)
    stage.swarm.restart("ours")
    stage.swarm.wait_ready(["ours"])


def test_killed_half_way_it_is_gone_and_comes_back_as_if_new(stage):
    stage.ours.hold("loading:6")
    stage.ours.go(Span(1, 7))
    stage.ours.wait_at("loading:6")
    stage.swarm.kill("ours")
    assert stage.swarm.servers["ours"].child.wait(DEADLINE_S) is not None
    stage.ours.release_all()
    stage.ours.go(HOME)
    stage.swarm.restart("ours")
    stage.swarm.wait_ready(["ours"])
    stage.wait_for_span(stage.ours, HOME)
    assert stage.computes_as_the_original(stage.ours, HOME)


def test_a_handler_that_dies_is_replaced_and_no_block_is_loaded_for_it(stage):
    since_s = time.monotonic()
    before = stage.ours.rows("servers")[-1]["modules"]
    server = psutil.Process(stage.swarm.servers["ours"].pid)
    handlers = sorted(server.children(), key=lambda child: child.create_time())
    handlers[-1].kill()
    wait_for(
        lambda: any("handler has died" in row["line"] for row in stage.ours.rows("logs", since_s)),
        DEADLINE_S,
        "a new handler",
    )
    announced = wait_for(
        lambda: [row for row in stage.ours.rows("logs", since_s) if "serving again" in row["line"]],
        DEADLINE_S,
        "it says that it serves",
    )
    died = [row["line"] for row in stage.ours.rows("logs", since_s)]
    assert died.index("announced as not serving now") < died.index(announced[0]["line"])
    stage.wait_for_span(stage.ours, HOME)
    # several times: a daemon that still knew the dead one would send it every other session
    assert all(stage.computes_as_the_original(stage.ours, HOME) for _ in range(4))
    row = stage.ours.move(Span(1, 7))
    assert (row["outcome"], row["loaded"]) == ("moved", 1)
    after = stage.ours.rows("servers")[-1]["modules"]
    assert all(after[str(block)] == before[str(block)] for block in Span(1, 6))


def test_a_store_is_used_again_when_its_disk_has_space(stage):
    if not stage.disk:
        pytest.skip("mounting a small disk is not permitted here")
    (stage.disk.folder / "ballast").unlink()
    assert stage.rival.move(Span(1, 7))["outcome"] == "moved"
    kept = [path.name.split("-")[1] for path in (stage.disk.folder / "store").iterdir()]
    assert kept == ["006"]


def test_without_the_bootstrap_node_it_moves_all_the_same(built):
    """The last one: the swarm cannot be asked any more."""
    target = Span(3, 9)
    hidden = torch.randn(1, 2, 64)
    wanted = built.client.outputs("whole", target, hidden)
    bootstrap = built.swarm._node()._child
    assert built.swarm.kill_child(bootstrap)
    bootstrap.wait(DEADLINE_S)
    assert built.ours.move(target)["outcome"] == "moved"
    assert torch.equal(built.client.outputs("ours", target, hidden), wanted)
