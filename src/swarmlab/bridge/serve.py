"""Our server from the command line: ``python -m swarmlab.bridge.serve MODEL [options of petals' run_server and ours]``.

For private swarms: NAT traversal and relays are off, as everywhere in swarmlab.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from swarmlab.bridge import compat
from swarmlab.errors import Arguments, BadInput, refuse

# name of an option of swarmlab.bridge.server and what it means; each takes one value
OPTIONS = {
    "policy": "who decides where the server goes: a name of swarmlab.placement.registry, or told (default: swarmlab)",
    "policy_settings": "fields of the policy as a JSON object",
    "told_path": "policy told: a file with one line, start:end",
    "reload": "prefetch, in_place, or auto by the memory that is free (default: auto)",
    "drain_s": "how long open sessions get to finish before blocks that they use are dropped (default: 10)",
    "visible_s": "what an announcement takes to be seen by all (default: 1)",
    "load_deadline_s": "a block that takes longer to load has failed (default: 1800)",
    "store_dir": "folder of a store of converted blocks",
    "store_max_bytes": "limit of the store",
    "events_path": "file for a JSON line per decision and reload",
    "seed": "of the policy's draws and of the waits between checks (default: 0)",
}


def parsed(argv: Sequence[str]) -> dict[str, object]:
    """Our options by name, and ``argv``: what is left for petals."""
    parser = Arguments(
        prog="python -m swarmlab.bridge.serve",
        description="A petals server that keeps its blocks when it moves. All other options are those of "
        "`python -m petals.cli.run_server`.",
        allow_abbrev=False,
    )
    for name, meaning in OPTIONS.items():
        parser.add_argument(f"--{name}", help=meaning, default=argparse.SUPPRESS)
    own, rest = parser.parse_known_args(argv)
    if not rest or rest[0].startswith("-"):
        parser.error("MODEL: nothing given; a folder or a name comes before all petals' options")
    if rest[0].startswith((".", "/")) and not Path(rest[0], "config.json").is_file():
        parser.error(f"MODEL: {rest[0]!r} is not possible; use a checkpoint folder with a config.json")
    return {**vars(own), "argv": rest}


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until the process is told to end."""
    args = parsed(sys.argv[1:] if argv is None else argv)
    compat.apply()
    from swarmlab.bridge import server

    try:
        server.server(args, "")
    except BadInput as error:
        return refuse(error)
    return 0


if __name__ == "__main__":
    sys.exit(main())
