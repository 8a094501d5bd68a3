"""A child of the nursery that starts Python anew, instead of going on with what the nursery has imported.

CUDA cannot be used in a process forked from one that has initialised it, and bitsandbytes does so when it is imported;
the nursery therefore sees no GPU at all, and whoever needs one begins here. It costs the imports once more (about 8 s
of one core), which is why servers without a GPU are forked as they are.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any, NoReturn

from swarmlab.bridge import compat

REQUEST = "request.json"


def become(request: dict[str, Any], temp_dir: Path) -> NoReturn:
    """Replace the calling process, which keeps its pid, session and group.

    :param request: a spawn request as in ``swarmlab.bridge.nursery``; a variable of ``env`` that is null is unset
    :param temp_dir: the child's own
    """
    given = dict(request.get("env") or {})
    kept = {name: value for name, value in given.items() if value is not None}
    (temp_dir / REQUEST).write_text(json.dumps({**request, "env": kept}), encoding="utf-8")
    env = {name: value for name, value in os.environ.items() if name not in given}
    command = [sys.executable, "-m", __name__, str(temp_dir)]
    os.execve(command[0], command, {**env, **kept})


def main() -> int:
    """The new program's entry."""
    temp_dir = Path(sys.argv[1])
    request = json.loads((temp_dir / REQUEST).read_text(encoding="utf-8"))
    compat.apply()
    from swarmlab.bridge import children

    return children.run(request, temp_dir)


if __name__ == "__main__":
    # as for a forked child: threads of libraries that still run must not keep a process that has said its last word
    os._exit(main())
