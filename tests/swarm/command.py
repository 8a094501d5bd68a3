"""``python -m swarmlab.run`` as a user types it, and what it leaves on the machine."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from tests.swarm.leftovers import Machine, short_folder

ROOT = Path(__file__).resolve().parents[2]
RUN_S = 800.0


class Command:
    """The command as a process in a group of its own, with a working folder and a folder for temporary files.

    :param folder: where it runs
    :param model: a checkpoint
    :param python_path: folders to import from, besides the package's own
    """

    def __init__(self, folder, model, exp, *arguments, python_path=(), **env):
        self.folder, self.exp = folder, exp
        self.machine = Machine(short_folder())
        if (
            signal.getsignal(signal.SIGINT) == signal.SIG_IGN
        ):  # of tests in the background: children would inherit it
            signal.signal(signal.SIGINT, signal.default_int_handler)
        path = os.pathsep.join(map(str, [ROOT / "src", *python_path]))
        self.process = subprocess.Popen(
            [
                sys.executable, "-W", "ignore", "-m", "swarmlab.run", f"+exp={exp}",
                f"models_dir={model.path.parent}", "results_dir=runs", *arguments,
            ],
            env={**self.machine.env(), "PYTHONPATH": path, "COLUMNS": "120", **env},
            cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0,
        )  # fmt: skip
        self.out = self.err = ""
        self.left: list[str] = []

    def end(self, limit_s=RUN_S):
        """Its exit status, once it has ended; what it printed is in ``out`` and ``err``."""
        self.out, self.err = self.process.communicate(timeout=limit_s)
        return self.process.returncode

    @property
    def runs(self):
        return sorted((self.folder / "runs" / self.exp).glob("2*"))

    def close(self):
        """For a test that failed: as if the orchestrator had died, so that all the rest leaves."""
        self.process.kill()
        self.process.communicate()
        self.machine.left()
        shutil.rmtree(self.machine.temp_dir)


def run_once(*args, limit_s=RUN_S, **env):
    """A command that has ended, for the fixture of a module; ``left`` says what is still on the machine."""
    command = Command(*args, **env)
    try:
        command.end(limit_s)
        command.left = command.machine.left()
        yield command
    finally:
        command.close()
