"""A folder of converted blocks, shared by the servers of a machine.

Every file is written under another name and then renamed, so that a reader sees all of it or nothing; there is no lock
that a stopped process could keep. Two servers that store one block at once both succeed, and the second file, equal to
the first, replaces it. What cannot be trusted is removed and counts as absent.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from swarmlab.bridge.blocks import file as block_file

if TYPE_CHECKING:
    from torch import Tensor

logger = logging.getLogger(__name__)

ENDING, DRAFT_ENDING = ".safetensors", ".draft"


class StoreFull(Exception):
    """A block cannot be kept, in words that say why; nothing of it is left behind."""


@dataclass(frozen=True)
class BlockKey:
    """Which block, made how.

    :param label: the readable part of the file's name
    :param identity: everything that decides the contents, as JSON takes it
    """

    label: str
    identity: Mapping[str, Any]

    @property
    def full_identity(self) -> dict[str, Any]:
        return {**self.identity, "format": block_file.FORMAT}

    @property
    def file_name(self) -> str:
        described = json.dumps(self.full_identity, sort_keys=True)
        return f"{self.label}-{hashlib.sha256(described.encode()).hexdigest()[:24]}{ENDING}"


@dataclass(frozen=True)
class StoredBlock:
    """What a file held.

    :param tensors: on the CPU
    :param facts: who wrote it, for a person
    :param n_bytes: of the file
    """

    tensors: dict[str, Tensor]
    facts: dict[str, Any]
    n_bytes: int


class BlockStore:
    """
    :param folder: made if it is not there
    :param max_bytes: of all files together, the least recently used go first; None for no limit but the disk's
    :raises StoreFull: if the folder cannot be made or written to
    """

    def __init__(self, folder: str | Path, max_bytes: int | None = None) -> None:
        self.folder, self.max_bytes = Path(folder), max_bytes
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreFull(f"no block store at {folder}: {error.strerror}") from error
        self._remove_leftovers()

    def get(self, key: BlockKey) -> StoredBlock | None:
        """Read a block; None if it is not there, cannot be read now, or could not be trusted and was removed."""
        path = self.folder / key.file_name
        try:
            raw = path.read_bytes()
            tensors, facts = block_file.from_bytes(raw, key.full_identity)
        except FileNotFoundError:
            return None
        except OSError as error:  # no descriptors left, a disk that is away: the file may be good
            logger.warning("Block store: %s cannot be read: %s", key.file_name, error)
            return None
        except block_file.Untrusted as error:
            self.reject(key, str(error))
            return None
        with suppress(OSError):  # gone meanwhile, or not ours
            os.utime(path)
        return StoredBlock(tensors, facts, len(raw))

    def put(self, key: BlockKey, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> int:
        """Keep a block and make room for it first; returns the bytes of its file.

        :raises StoreFull: if it does not fit, or the disk does not take it
        """
        raw = block_file.to_bytes(tensors, key.full_identity, facts)
        draft = self.folder / f"{uuid.uuid4().hex}{DRAFT_ENDING}"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)  # somebody may have cleared it away
            self._make_room(len(raw))
            _write_durably(draft, raw)
            draft.rename(self.folder / key.file_name)
        except OSError as error:
            raise StoreFull(
                f"block store {self.folder} does not take {key.label}: {error.strerror}"
            ) from error
        finally:
            with suppress(OSError):
                draft.unlink(missing_ok=True)
        with suppress(OSError):  # the block is there, whatever becomes of this
            _sync_folder(self.folder)
            self._make_room(0)  # another process may have stored one, too
        return len(raw)

    def reject(self, key: BlockKey, reason: str) -> None:
        """Remove a block that must not be used."""
        logger.warning("Block store: %s is made again: %s", key.file_name, reason)
        with suppress(OSError):
            (self.folder / key.file_name).unlink(missing_ok=True)

    def files(self) -> list[tuple[Path, os.stat_result]]:
        """All blocks, the least recently used first."""
        found = []
        for path in self.folder.glob(f"*{ENDING}"):
            with suppress(FileNotFoundError):  # removed by another process meanwhile
                found.append((path, path.stat()))
        return sorted(found, key=lambda entry: (entry[1].st_mtime_ns, entry[0].name))

    def total_bytes(self) -> int:
        return sum(found.st_size for _, found in self.files())

    def _make_room(self, n_bytes: int) -> None:
        if self.max_bytes is None:
            return
        if n_bytes > self.max_bytes:
            raise StoreFull(f"a block of {n_bytes} bytes, more than the {self.max_bytes} of the whole store")
        files = self.files()
        over = sum(found.st_size for _, found in files) + n_bytes - self.max_bytes
        refused: OSError | None = None
        for path, found in files:
            if over <= 0:
                return
            try:
                path.unlink(missing_ok=True)  # who has it open keeps it
                over -= found.st_size
            except OSError as error:  # somebody else's: the next may go
                refused = error
        if over > 0 and refused is not None:
            raise refused

    def _remove_leftovers(self) -> None:
        """Drafts whose writer died: nobody holds their lock any more."""
        for draft in self.folder.glob(f"*{DRAFT_ENDING}"):
            with suppress(OSError), draft.open("rb") as stream:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                draft.unlink(missing_ok=True)


def _write_durably(draft: Path, raw: bytes) -> None:
    with draft.open("xb") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        stream.write(raw)
        stream.flush()
        os.fsync(stream.fileno())


def _sync_folder(folder: Path) -> None:
    # without it a power cut may undo the rename
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
