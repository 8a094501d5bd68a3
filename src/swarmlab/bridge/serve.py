"""Our server from the command line: ``python -m swarmlab.bridge.serve MODEL [options of petals' run_server and ours]``.

For private swarms: NAT traversal and relays are off, as everywhere in swarmlab.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, NoReturn

from swarmlab.bridge import compat
from swarmlab.errors import Arguments, BadInput, refuse
from swarmlab.placement.registry import POLICIES

PROG = "python -m swarmlab.bridge.serve"
ABOUT = """\
A petals server that keeps its blocks when it moves. It speaks petals' protocol: unmodified clients and servers use it
like any other. It decides once where to go, says so in the DHT, loads only blocks that it does not hold, and serves
all it has meanwhile; if anything fails it goes back to what it had.

MODEL comes first: a folder of a checkpoint, or a name on the hub. Every option of `python -m petals.cli.run_server`
is taken as it is there; these mean something else, or nothing:
  --num_blocks                  how many blocks it holds, wherever it moves
  --block_indices START:END     pins it: it never moves
  --mean_balance_check_period   mean seconds between two looks at the swarm (default: 120)
  --balance_quality             is not asked; --policy decides
  --tensor_parallel_devices     as in petals (of the models, BLOOM), without a block store
NAT traversal and relays are off: --port or --host_maddrs must be reachable; behind a router that leads
a port through, --port N --public_ip ADDRESS."""
EXAMPLES = f"""\
examples:
  the first server of a new swarm, which prints its address:
    {PROG} ./models/llama --new_swarm --num_blocks 8 --port 31337
  another one, whose quantized blocks are kept on disk:
    {PROG} ./models/llama --initial_peers /ip4/10.0.0.1/tcp/31337/p2p/Qm... \\
        --num_blocks 8 --quant_type nf4 --store_dir /data/blocks --store_max_bytes 40000000000
  moved by hand (echo 16:24 > /run/span), with an account of each move:
    {PROG} ./models/llama --initial_peers ... --num_blocks 8 \\
        --policy told --told_path /run/span --events_path /var/log/moves.jsonl

SIGTERM: it says that it is offline and ends, with code 143. Tell this process only (systemd: KillMode=mixed), it ends
its own. Code 2 and one line: an option is not possible, nothing was started. Code 1: see the last lines of its log.
What a move is: docs/rebalancing.md"""

# group: name of an option of swarmlab.bridge.server, what stands for its value, and what it means
OPTIONS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "where it goes": {
        "policy": ("NAME", f"who decides: {', '.join(POLICIES)}, or told (default: swarmlab)"),
        "policy_settings": (
            "JSON",
            'fields of the policy, such as {"grace_s": 20}; --policy_fields lists them',
        ),
        "told_path": ("FILE", "of --policy told: one line START:END, which may change at any time"),
        "seed": ("N", "of the policy's draws and of the waits between checks (default: 0)"),
    },
    "how it moves": {
        "reload": (
            "MODE",
            "prefetch: new blocks are loaded beside the old ones; in_place: in their places; auto: by the free memory",
        ),
        "drain_s": ("S", "what open sessions get to finish before blocks they use are dropped (default: 10)"),
        "visible_s": (
            "S",
            "what an announcement takes to be seen by all, differences of clocks included (default: 1)",
        ),
        "load_deadline_s": ("S", "a block that takes longer to load has failed (default: 1800)"),
    },
    "blocks on disk": {
        "store_dir": (
            "DIR",
            "converted blocks are kept here, to be loaded faster; python -m swarmlab.bridge.fill_store fills it before",
        ),
        "store_max_bytes": ("N", "of the store; the least recently used blocks go first (default: no limit)"),
    },
    "what it tells": {
        "events_path": (
            "FILE",
            "append a JSON line for each decision, move and change of state (default: none)",
        ),
    },
}


class PolicyFields(argparse.Action):
    """Prints what ``--policy_settings`` takes, and ends."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any, **__: Any) -> NoReturn:
        policies: dict[str, Any] = dict(POLICIES)
        for name, policy in policies.items():
            known = ", ".join(entry.name for entry in fields(policy) if entry.init and entry.name != "name")
            print(f"{name}: {known or '-'}")
        parser.exit()


def parsed(argv: Sequence[str]) -> dict[str, object]:
    """Our options by name, and ``argv``: what is left for petals."""
    parser = Arguments(
        prog=PROG,
        usage=f"{PROG} MODEL [petals' options] [options]",
        description=ABOUT,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    for title, options in OPTIONS.items():
        group = parser.add_argument_group(title)
        for name, (value, meaning) in options.items():
            group.add_argument(f"--{name}", metavar=value, help=meaning, default=argparse.SUPPRESS)
    parser.add_argument(
        "--policy_fields", action=PolicyFields, nargs=0, help="list the fields of each policy, and end"
    )
    own, rest = parser.parse_known_args(argv)
    own.__dict__.pop("policy_fields", None)
    if not rest or rest[0].startswith("-"):
        parser.error("MODEL: nothing given; a folder or a name comes before all petals' options")
    if rest[0].startswith((".", "/")) and not Path(rest[0], "config.json").is_file():
        parser.error(f"MODEL: {rest[0]!r} is not possible; use a checkpoint folder with a config.json")
    return {**vars(own), "argv": rest}


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until the process is told to end."""
    args = parsed(sys.argv[1:] if argv is None else argv)
    # else a service manager's stop would end it on the spot: records that nobody serves, processes without a parent
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    compat.apply()
    from swarmlab.bridge import server

    try:
        server.server(args, "")
    except BadInput as error:
        return refuse(error)
    return 0


if __name__ == "__main__":
    sys.exit(main())
