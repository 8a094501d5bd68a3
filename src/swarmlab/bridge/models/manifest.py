"""What a checkpoint folder holds, byte for byte: hashes, ``swarmlab.json``, writing a folder all at once."""

from __future__ import annotations

import hashlib
import json
import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from swarmlab.errors import BadInput

MANIFEST = "swarmlab.json"
REMEDY = "delete the folder and make the model again"


def sha256_of(file: Path) -> str:
    """Hash of one file's bytes, as hex."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def content_sha256(files: Mapping[str, str]) -> str:
    """One hash for a whole checkpoint, whatever order its files were read in.

    :param files: hash of each file, by name
    """
    lines = "".join(f"{files[name]}  {name}\n" for name in sorted(files))
    return hashlib.sha256(lines.encode()).hexdigest()


def write_manifest(folder: Path, model_id: str, provenance: Mapping[str, Any]) -> None:
    """Describe every file now in ``folder``.

    :param provenance: where the weights come from, for a person who finds the folder
    """
    files = {file.name: sha256_of(file) for file in sorted(folder.iterdir())}
    content = {"model_id": model_id, **provenance, "files": files}
    (folder / MANIFEST).write_text(json.dumps(content, indent=2) + "\n")


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """The manifest beside a checkpoint; None if it has none.

    :raises BadInput: if it is not a manifest
    """
    file = folder / MANIFEST
    if not file.exists():
        return None
    try:
        content = json.loads(file.read_text())
        if isinstance(content["files"], dict) and isinstance(content["model_id"], str):
            return content
    except (ValueError, KeyError, TypeError):
        pass
    raise BadInput("model.path", str(file), f"the manifest that swarmlab wrote; {REMEDY}")


def check_manifest(folder: Path, manifest: Mapping[str, Any], hashes: Mapping[str, str]) -> None:
    """Hold a folder against its manifest.

    :param hashes: hash of each file that would be loaded, by name
    :raises BadInput: naming the first file that is missing, was changed, or was added
    """
    expected = manifest["files"]
    for name in sorted({*expected, *hashes}):
        if name not in expected:
            raise BadInput("model.path", str(folder / name), f"only files listed in {MANIFEST}; {REMEDY}")
        if not (folder / name).is_file():
            raise BadInput("model.path", str(folder / name), f"the file listed in {MANIFEST}; {REMEDY}")
        if (hashes.get(name) or sha256_of(folder / name)) != expected[name]:
            raise BadInput(
                "model.path", str(folder / name), f"contents of the sha256 in {MANIFEST}; {REMEDY}"
            )


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """A folder to fill, which becomes ``target`` at the end, or nothing at all after an exception.

    When two processes make the same target at once, the first to finish wins and the other's work is dropped.

    :raises BadInput: if the parent folder cannot be written
    """
    draft = target.parent / f".{target.name}.{uuid.uuid4().hex[:12]}"
    try:
        draft.mkdir(parents=True)
    except OSError as error:
        allowed = f"a folder that can be written ({error.strerror})"
        raise BadInput("models_dir", str(target.parent), allowed) from None
    try:
        yield draft
        try:
            draft.rename(target)
        except OSError:
            # rename onto a folder with content fails: another process was faster
            if not target.is_dir():
                raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)
