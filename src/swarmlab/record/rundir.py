"""The folder of one run: what was run, on what, and how it ended."""

from __future__ import annotations

import json
import os
import platform
import secrets
import subprocess
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import psutil
import yaml

from swarmlab.errors import BadInput
from swarmlab.record.inventory import take_inventory
from swarmlab.record.writer import HistoryWriter, json_safe

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

Status = Literal["running", "complete", "interrupted", "failed"]
FOLDERS = ("history", "tables", "figures", "states")
PACKAGES = (
    "swarmlab", "petals", "hivemind", "torch", "transformers", "bitsandbytes", "accelerate", "safetensors", "numpy",
    "scipy", "pandas", "pyarrow", "matplotlib", "hydra-core", "omegaconf", "simpy", "ray",
)  # fmt: skip


class RunDir:
    """A run in progress. As a context manager it records the end: complete, interrupted or failed.

    :param path: the folder of the run
    :param info: what ``run.json`` holds
    """

    def __init__(self, path: Path, info: dict[str, Any]) -> None:
        self.path, self.info = path, info
        self.history = HistoryWriter(path / "history")

    @classmethod
    def create(
        cls,
        root: Path | str,
        exp: str,
        *,
        config: Mapping[str, Any],
        argv: Sequence[str],
        overrides: Sequence[str],
        seed: int,
        world: Literal["real", "simulated"],
        arms: Sequence[str],
        model: Mapping[str, Any],
        device: str = "cpu",
    ) -> RunDir:
        """Make ``<root>/<exp>/<UTC stamp>-<short id>/`` and write down what is about to run.

        :param config: the fully resolved config, written to ``config.yaml``
        :param model: at least ``id`` and ``hash``
        :param device: what computes, in words
        :raises BadInput: if the folder cannot be made or written
        """
        start = datetime.now(UTC)
        path = _new_folder(Path(root), exp, start)
        info = {
            "id": path.name, "exp": exp, "status": "running", "argv": list(argv), "overrides": list(overrides),
            "seed": seed, "git": git_state(), "start_utc": _iso(start), "end_utc": None, "versions": versions(),
            "host": host(), "device": device, "world": world, "arms": list(arms), "model": dict(model),
            "pid": os.getpid(),
        }  # fmt: skip
        text = yaml.safe_dump(json_safe(config), sort_keys=False, allow_unicode=True)
        (path / "config.yaml").write_text(text, encoding="utf-8")
        run_dir = cls(path, json_safe(info))
        run_dir._save()
        return run_dir

    @property
    def id(self) -> str:
        return self.path.name

    @property
    def status(self) -> Status:
        return self.info["status"]

    def states_path(self, scenario: str, arm: str) -> Path:
        """Where a client saves ``hidden`` and ``token_ids`` of one scenario and arm."""
        return self.path / "states" / f"{scenario}.{arm}.npz"

    def update(self, **fields: Any) -> None:
        """Add to ``run.json`` while the run goes on, for example the device once it is known."""
        self.info.update(json_safe(fields))
        self._save()

    def finish(self, status: Status, *, reason: str | None = None) -> None:
        """Close the history and record how the run ended; the first call decides.

        A complete run becomes ``latest``: of two that overlap, the one that ends last. Its ``run.json`` says how many
        rows of each kind were written, and the SHA-256 of each file.

        :param reason: why it did not complete, in one line
        """
        if self.status != "running":
            return
        self.history.close()
        written: dict[str, Any] = {}
        if status == "complete":
            try:
                written = {"history": take_inventory(self.path / "history")}
            except BaseException as error:
                # a signal, or a disk that fails: nobody knows that it is all there
                about = f"while its history was counted: {type(error).__name__}"
                self.update(status="interrupted", end_utc=_iso(datetime.now(UTC)), reason=about)
                raise
        self.update(status=status, end_utc=_iso(datetime.now(UTC)), reason=reason, **written)
        if status == "complete":
            _point_latest(self.path)

    def foresee(self, status: Status, *, reason: str) -> None:
        """Write down how the run is about to end, in case that ending it is cut short; it still goes on."""
        if self.status == "running":
            ending = {**self.info, "status": status, "end_utc": _iso(datetime.now(UTC)), "reason": reason}
            write_json(self.path / "run.json", ending)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if kind is None:
            self.finish("complete")
        elif issubclass(kind, (KeyboardInterrupt, SystemExit)):
            self.finish("interrupted", reason=kind.__name__)
        else:
            self.finish("failed", reason=f"{kind.__name__}: {error}")

    def _save(self) -> None:
        write_json(self.path / "run.json", self.info)


def write_json(path: Path, value: Any) -> None:
    """Replace a JSON file at once: a reader sees the old or the new one, never half of it."""
    text = json.dumps(json_safe(value), indent=2, allow_nan=False) + "\n"
    draft = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(3)}")
    draft.write_text(text, encoding="utf-8")
    draft.replace(path)


def git_state() -> dict[str, Any]:
    """Commit and dirty flag of the tree this package lies in; both None outside git."""
    commit = _git("rev-parse", "HEAD")
    changes = _git("status", "--porcelain") if commit else None
    return {"commit": commit or None, "dirty": None if changes is None else bool(changes)}


def versions() -> dict[str, str]:
    """Versions of the packages that can change a result; absent ones are left out."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def host() -> dict[str, Any]:
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "os": platform.platform(),
        "python": platform.python_version(),
    }


def _new_folder(root: Path, exp: str, start: datetime) -> Path:
    if not exp or exp in (".", "..") or "/" in exp:
        raise BadInput("exp", exp, "the plain name of an experiment")
    path = root
    try:
        while True:
            path = root / exp / f"{start:%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}"
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                path.mkdir()
                break
            except FileExistsError:  # two runs started in one second and drew the same id
                continue
        for name in FOLDERS:
            (path / name).mkdir()
    except OSError as error:
        raise BadInput(
            "results_dir", str(root), f"a folder that can be written ({error.strerror})"
        ) from error
    return path


def _point_latest(path: Path) -> None:
    draft = path.with_name(f".latest.{path.name}")
    draft.symlink_to(path.name, target_is_directory=True)
    draft.replace(path.with_name("latest"))


def _git(*arguments: str) -> str | None:
    command = ["git", "--no-optional-locks", "-C", str(Path(__file__).parent), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine()


def _iso(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
