"""Shows a swarm live in the terminal: ``python -m swarmlab.watch RUN_DIR`` or ``... /ip4/127.0.0.1/tcp/...``."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live as Screen

from swarmlab.analysis.announced import check_peers, model_meant
from swarmlab.analysis.live import KINDS, Frame, Live, frame_of_view
from swarmlab.analysis.live_view import render
from swarmlab.errors import Arguments, BadInput, SwarmFailed, refuse
from swarmlab.record.follow import Follower
from swarmlab.record.load import DamagedRun, load_run

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

Look = Callable[[], tuple[Frame, bool]]  # what is to be shown, and whether nothing will change any more


@contextmanager
def of_run(run_dir: Path) -> Iterator[Look]:
    """A look at a run's history, as far as it is written.

    :raises BadInput: if the folder holds no run, or one without a history that nobody will write any more
    """
    run = load_run(run_dir)
    if not run.is_raw or (run.info.get("status") != "running" and not any(run.path.glob("history/*.jsonl"))):
        raise BadInput("run_dir", str(run_dir), "the folder of a run with its history/")
    follower, live = Follower(run_dir, KINDS), Live()

    def look() -> tuple[Frame, bool]:
        # the status first: a run that ended before its rows were read has no more of them
        info = load_run(run_dir).info
        for kind, row in follower.news():
            live.take(kind, row)
        status = info.get("status")
        return live.frame(f"{info['exp']} {info['id']} ({info.get('world')}, {status})"), status != "running"

    yield look


@contextmanager
def of_swarm(peers: Sequence[str], prefix: str | None, n_blocks: int | None) -> Iterator[Look]:
    """A look at the DHT of a running swarm.

    :param prefix: of the model's keys; None means the only model that is announced
    :param n_blocks: None means what is announced for it
    :raises BadInput: if an address is none, nobody answers there, or it is not clear which model is meant
    """
    check_peers(peers, "PEER")
    from swarmlab.bridge.dht_reader import reading  # noqa: PLC0415  seconds, for those who need it

    with ExitStack() as stack:
        try:
            reader = stack.enter_context(reading(peers))
        except SwarmFailed as error:  # whatever libp2p's daemon has to say of it
            raise BadInput("PEER", " ".join(peers), "addresses at which a running swarm answers") from error
        name, blocks = _model(reader.models, prefix, n_blocks)

        def look() -> tuple[Frame, bool]:
            view, problems = reader.view(name, blocks)
            return frame_of_view(
                view, f"{name}: {len(view.servers)} servers, {blocks} blocks", len(problems)
            ), False

        yield look


def _model(
    announced: Callable[[], dict[str, int]], prefix: str | None, n_blocks: int | None
) -> tuple[str, int]:
    return model_meant(announced, prefix, n_blocks, field="--dht-prefix", blocks="--blocks")


def main(argv: Sequence[str] | None = None) -> int:
    parser = Arguments(
        prog="python -m swarmlab.watch",
        description="Show a swarm live: blocks as a strip by throughput, servers, moves, faults. Of a run, from its "
        "history; of any private petals swarm, from its DHT, without taking part in it.",
    )
    parser.add_argument(
        "source", nargs="+", metavar="RUN_DIR|PEER", help="a run folder, or addresses of peers"
    )
    parser.add_argument("--dht-prefix", help="of the model (default: the one that is announced)")
    parser.add_argument("--blocks", type=int, help="of the model (default: as announced)")
    parser.add_argument(
        "--every", type=float, default=1.0, metavar="S", help="seconds between looks (default: 1)"
    )
    parser.add_argument("--once", action="store_true", help="show one frame and end")
    options = parser.parse_args(argv)
    try:
        with _source(options) as look:
            _show(look, Console(), every_s=options.every, once=options.once)
    except (BadInput, DamagedRun) as error:
        return refuse(error)
    except KeyboardInterrupt:
        pass  # that is how one stops watching
    return 0


def _source(options: argparse.Namespace) -> AbstractContextManager[Look]:
    if not 0 < options.every < float("inf"):
        raise BadInput("--every", options.every, "seconds, above 0")
    if options.blocks is not None and options.blocks < 1:
        raise BadInput("--blocks", options.blocks, "1 or more")
    first = options.source[0]
    if "/p2p/" in first or first.startswith(("/ip4/", "/ip6/", "/dns")):
        return of_swarm(options.source, options.dht_prefix, options.blocks)
    if len(options.source) > 1:
        raise BadInput("source", " ".join(options.source), "one run folder, or addresses of peers with /p2p/")
    return of_run(Path(first))


def _show(look: Look, console: Console, *, every_s: float, once: bool) -> None:
    if once:
        console.print(render(look()[0], console.width))
        return
    with Screen(console=console, auto_refresh=False) as screen:
        over = False
        while not over:
            frame, over = look()
            screen.update(render(frame, console.width), refresh=True)
            if not over:
                time.sleep(every_s)


if __name__ == "__main__":
    sys.exit(main())
