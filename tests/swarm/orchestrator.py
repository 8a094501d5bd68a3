"""A small orchestrator for the tests of teardown: deploys one server, then ends as it is told.

``python orchestrator.py HOW RUN_DIR MODEL_PATH DHT_PREFIX N_BLOCKS``
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from swarmlab.swarm.deploy import deploy
from swarmlab.swarm.spec import ServerSpec, SwarmSpec
from swarmlab.types import Span


def tell(line: str) -> None:
    print(line, flush=True)


def main() -> None:
    how, run_dir, model_path, dht_prefix, n_blocks = sys.argv[1:]
    servers = (ServerSpec("only", Span(0, int(n_blocks))),)
    spec = SwarmSpec(Path(model_path), dht_prefix, int(n_blocks), servers)

    def on_state(name: str, state: str, _detail: str) -> None:
        if how == "while starting" and (name, state) == ("only", "starting"):
            tell("ready")

    with deploy(spec, Path(run_dir), on_state=on_state) as swarm:
        tell("ready")
        sys.stdin.readline()
        if how == "exception":
            raise RuntimeError("something in the run went wrong")
        if how == "child died":
            swarm.kill("only")
            swarm.wait_ready()
        if how == "nursery killed":
            os.kill(swarm._nursery.pid, signal.SIGKILL)
            while True:
                swarm.wait_ready()
        if how == "stopped server":
            swarm.stop("only")
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "waits":
            signal.pause()
    tell("torn down")


if __name__ == "__main__":
    main()
