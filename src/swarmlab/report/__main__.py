"""``python -m swarmlab.report RUN_DIR``: writes ``report.html`` into the folder of a judged run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from swarmlab.errors import Arguments, BadInput, refuse
from swarmlab.report.page import write_report

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    parser = Arguments(
        prog="python -m swarmlab.report",
        description="Put a judged run on one page that needs no network: table, verdict, figures, timeline, config.",
    )
    parser.add_argument("run_dir", type=Path, help="for example results/runs/failover/latest")
    parser.add_argument("--out", type=Path, help="the page (default: report.html in the run's folder)")
    options = parser.parse_args(argv)
    try:
        sys.stdout.write(f"{write_report(options.run_dir, options.out)}\n")
    except BadInput as error:
        return refuse(error)
    return 0


if __name__ == "__main__":
    sys.exit(main())
