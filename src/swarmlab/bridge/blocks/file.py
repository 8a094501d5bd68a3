"""One stored block as bytes: safetensors whose header says what it is and vouches for its contents. No pickle.

The safetensors metadata holds ``identity`` (JSON; what was asked for), ``facts`` (JSON; for a person: library versions,
where it came from) and ``sha256`` of everything after the header and of the header's own list of tensors.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

# Part of every identity: raise it with any change of what is stored, and old files are no longer found.
FORMAT = 1
LENGTH_BYTES = 8


class Untrusted(Exception):
    """A file that is not what its name says, or was changed since it was written."""


def to_bytes(tensors: Mapping[str, Tensor], identity: Mapping[str, Any], facts: Mapping[str, Any]) -> bytes:
    """The whole file."""
    from safetensors.torch import save

    ready = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    metadata = {"format": "pt", "identity": _json(identity), "facts": _json(facts), "sha256": "0" * 64}
    draft = save(ready, metadata=metadata)
    # the hash is as long as its placeholder, so that nothing moves when it takes its place
    entry, start = _entry(_digest(*split(draft))), draft.index(_entry(metadata["sha256"]))
    # a block may be a GiB: no more copies of it than must be
    return b"".join((draft[:start], entry, memoryview(draft)[start + len(entry) :]))


def _entry(sha256: str) -> bytes:
    return f'"sha256":"{sha256}"'.encode()


def from_bytes(raw: bytes, identity: Mapping[str, Any]) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors on the CPU, and the facts.

    :param identity: what the file must be
    :raises Untrusted: if it is something else, cut off, or changed
    """
    from safetensors import SafetensorError
    from safetensors.torch import load

    header, data = split(raw)
    metadata = header.get("__metadata__")
    if not isinstance(metadata, dict):
        raise Untrusted("no header of ours")
    if metadata.get("identity") != _json(identity):
        raise Untrusted("another block, or another format")
    if metadata.get("sha256") != _digest(header, data):
        raise Untrusted("its contents are not those that were written")
    try:
        return load(raw), json.loads(metadata["facts"])
    except (SafetensorError, ValueError, KeyError) as error:
        raise Untrusted(f"not readable: {error}") from None


def split(raw: bytes) -> tuple[dict[str, Any], memoryview]:
    """Header and data of a safetensors file.

    :raises Untrusted: if it is none
    """
    length = int.from_bytes(raw[:LENGTH_BYTES], "little")
    end = LENGTH_BYTES + length
    if len(raw) < LENGTH_BYTES or end > len(raw):
        raise Untrusted("cut off")
    try:
        header = json.loads(raw[LENGTH_BYTES:end])
    except (ValueError, RecursionError):
        raise Untrusted("no safetensors header") from None
    if not isinstance(header, dict):
        raise Untrusted("no safetensors header")
    return header, memoryview(raw)[end:]


def _digest(header: Mapping[str, Any], data: memoryview) -> str:
    described = {name: entry for name, entry in header.items() if name != "__metadata__"}
    metadata = {name: entry for name, entry in header["__metadata__"].items() if name != "sha256"}
    digest = hashlib.sha256(_json([described, metadata]).encode())
    digest.update(data)
    return digest.hexdigest()


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
