"""Hashes of large files, remembered between processes: hashing a 65B checkpoint takes minutes, a server has none."""

from __future__ import annotations

import hashlib
import json
import os
import time
import uuid
from contextlib import suppress
from pathlib import Path

from swarmlab.bridge.models.manifest import sha256_of

# A file written to so recently may be written to again without its time of change showing it.
SETTLED_S = 5.0
# Below this, hashing is as quick as looking up.
LARGE_BYTES = 64 * 2**20


def known_sha256(file: Path) -> str:
    """Hash of a file's bytes, as hex; of a large one only if it changed since it was last hashed on this machine.

    A file is taken for unchanged if its path, inode, size and time of change (ns) are.
    """
    found = file.stat()
    if found.st_size < LARGE_BYTES:
        return sha256_of(file)
    stamp = [str(file.absolute()), found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns]
    note = _folder() / f"{hashlib.sha256(str(stamp[0]).encode()).hexdigest()}.json"
    with suppress(OSError, ValueError, KeyError, TypeError):
        noted = json.loads(note.read_text())
        if noted["stamp"] == stamp:
            return str(noted["sha256"])
    sha256 = sha256_of(file)
    if time.time() - found.st_mtime > SETTLED_S:
        _write(note, json.dumps({"stamp": stamp, "sha256": sha256}))
    return sha256


def _folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "swarmlab" / "sha256"


def _write(note: Path, content: str) -> None:
    with suppress(OSError):  # nowhere to remember it: it is hashed again next time
        note.parent.mkdir(parents=True, exist_ok=True)
        draft = note.with_suffix(f".{uuid.uuid4().hex[:8]}")
        try:
            draft.write_text(content)
            draft.replace(note)
        finally:
            draft.unlink(missing_ok=True)
