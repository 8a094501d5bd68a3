"""The folder of blocks: nothing half-written, nothing believed unseen, never larger than it may be."""

from __future__ import annotations

import errno
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from swarmlab.bridge import block_store
from swarmlab.bridge.block_store import BlockKey, BlockStore, StoreFull
from swarmlab.bridge.blocks.file import Untrusted, from_bytes, split, to_bytes

TENSORS = {
    "a.weight": torch.arange(24, dtype=torch.uint8).reshape(4, 6),
    "a.scale": torch.tensor([0.5, -1.5], dtype=torch.bfloat16),
    "norm": torch.linspace(0, 1, 5),
}
FACTS = {"versions": {"torch": "x"}}


def key(number: int = 0, **more) -> BlockKey:
    return BlockKey(f"block-{number:03d}", {"content": "c", "block": number, **more})


N_BYTES = len(to_bytes(TENSORS, key(0).full_identity, FACTS))


def assert_stored(store: BlockStore, number: int = 0) -> None:
    found = store.get(key(number))
    assert found is not None
    assert found.facts == FACTS
    assert found.tensors.keys() == TENSORS.keys()
    assert all(torch.equal(found.tensors[name], TENSORS[name]) for name in TENSORS)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_what_was_put_is_got(tmp_path):
    store = BlockStore(tmp_path / "new" / "folder")
    assert store.get(key()) is None
    n_bytes = store.put(key(), TENSORS, FACTS)
    assert_stored(store)
    assert_stored(BlockStore(store.folder))
    found = store.get(key())
    assert found
    assert found.n_bytes == n_bytes == store.total_bytes()
    assert names(store.folder) == [key().file_name]


def test_the_file_says_what_it_is(tmp_path):
    store = BlockStore(tmp_path)
    store.put(key(dtype="float16"), TENSORS, FACTS)
    header, _ = split((tmp_path / key(dtype="float16").file_name).read_bytes())
    assert json.loads(header["__metadata__"]["identity"]) == {
        "content": "c",
        "block": 0,
        "dtype": "float16",
        "format": 1,
    }
    assert json.loads(header["__metadata__"]["facts"]) == FACTS


def test_every_part_of_the_identity_counts(tmp_path):
    store = BlockStore(tmp_path)
    store.put(key(), TENSORS, FACTS)
    assert store.get(key(1)) is None
    assert store.get(key(dtype="float16")) is None
    assert store.get(BlockKey("block-000", {"content": "another", "block": 0})) is None
    assert_stored(store)


def test_a_file_under_another_name_is_foreign(tmp_path):
    store = BlockStore(tmp_path)
    store.put(key(1), TENSORS, FACTS)
    (tmp_path / key(1).file_name).rename(tmp_path / key(0).file_name)
    assert store.get(key(0)) is None
    assert names(tmp_path) == []


@pytest.mark.parametrize("where", [0, 3, 9, 60, -1, -30], ids=lambda where: f"byte {where}")
def test_one_changed_byte_is_noticed(tmp_path, where):
    store = BlockStore(tmp_path)
    store.put(key(), TENSORS, FACTS)
    path = tmp_path / key().file_name
    raw = bytearray(path.read_bytes())
    raw[where] ^= 1
    path.write_bytes(raw)
    assert store.get(key()) is None
    assert names(tmp_path) == []  # and it is not tried again
    store.put(key(), TENSORS, FACTS)
    assert_stored(store)


def test_no_byte_can_be_changed_or_lost():
    raw = to_bytes(TENSORS, {"b": 1}, FACTS)
    from_bytes(raw, {"b": 1})
    for position in range(len(raw)):
        changed = bytearray(raw)
        changed[position] ^= 0x11
        for broken in (bytes(changed), raw[:position]):
            with pytest.raises(Untrusted):
                from_bytes(broken, {"b": 1})


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"1234",
        b"\x80\x04\x95.",
        b"\xff" * 100,
        (4).to_bytes(8, "little") + b"[{}]",
        (10**6).to_bytes(8, "little") + b"[" * 10**6,
    ],
    ids=["empty", "short", "a pickle", "a huge header", "a list for a header", "a deep header"],
)
def test_something_else_is_removed(tmp_path, content):
    store = BlockStore(tmp_path)
    (tmp_path / key().file_name).write_bytes(content)
    assert store.get(key()) is None
    assert names(tmp_path) == []


def test_safetensors_of_somebody_else_are_not_believed(tmp_path):
    store = BlockStore(tmp_path)
    save_file(TENSORS, tmp_path / key().file_name)
    assert store.get(key()) is None
    metadata = {"identity": json.dumps(key().full_identity), "facts": "{}"}
    save_file(TENSORS, tmp_path / key().file_name, metadata=metadata)
    assert store.get(key()) is None


def test_the_least_recently_used_go_first(tmp_path):
    n_bytes = len(to_bytes(TENSORS, key(0).full_identity, FACTS))
    store = BlockStore(tmp_path, max_bytes=3 * n_bytes)
    for number in range(3):
        store.put(key(number), TENSORS, FACTS)
        os.utime(tmp_path / key(number).file_name, (number, number))
    assert_stored(store, 0)  # used now
    store.put(key(3), TENSORS, FACTS)
    assert [store.get(key(number)) is not None for number in range(4)] == [True, False, True, True]
    assert store.total_bytes() <= 3 * n_bytes


def test_a_block_larger_than_the_store_is_refused_and_nothing_removed_for_it(tmp_path):
    BlockStore(tmp_path).put(key(), TENSORS, FACTS)
    store = BlockStore(tmp_path, max_bytes=BlockStore(tmp_path).total_bytes())
    with pytest.raises(StoreFull, match="more than"):
        store.put(key(1), {"big": torch.zeros(10_000)}, FACTS)
    assert_stored(store)


def test_a_smaller_limit_counts_from_the_next_block_on(tmp_path):
    store = BlockStore(tmp_path)
    for number in range(5):
        store.put(key(number), TENSORS, FACTS)
        os.utime(tmp_path / key(number).file_name, (number, number))
    limit = store.total_bytes() // 2
    BlockStore(tmp_path, max_bytes=limit).put(key(5), TENSORS, FACTS)
    assert store.total_bytes() <= limit
    assert_stored(store, 5)


@pytest.mark.parametrize("step", ["write", "fsync", "rename"])
def test_a_full_disk_is_said_and_leaves_nothing(tmp_path, monkeypatch, step):
    def full(*_args, **_kwargs):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    store = BlockStore(tmp_path)
    store.put(key(1), TENSORS, FACTS)
    if step == "write":
        monkeypatch.setattr(block_store, "_write_durably", full)
    else:
        monkeypatch.setattr(*{"fsync": (os, "fsync", full), "rename": (Path, "rename", full)}[step])
    with pytest.raises(StoreFull, match="No space left"):
        store.put(key(0), TENSORS, FACTS)
    monkeypatch.undo()
    assert names(tmp_path) == [key(1).file_name]
    assert_stored(store, 1)


def test_a_write_that_the_system_cuts_off_leaves_nothing(tmp_path):
    """A real limit instead of a played one: the system stops the write in the middle of the file."""
    assert in_processes(1, "write_with_limit", tmp_path) == [0]
    assert names(tmp_path) == []


def write_with_limit(folder: Path, _seed: int) -> None:
    import resource
    import signal

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
    with pytest.raises(StoreFull, match="too large"):
        BlockStore(folder).put(key(), {"big": torch.zeros(100_000)}, FACTS)


def test_a_disk_without_space_is_said_leaves_nothing_torn_and_is_used_again_when_it_has_some(small_disk):
    store, ballast = BlockStore(small_disk.folder / "store"), small_disk.fill(leave_bytes=8192)
    with pytest.raises(StoreFull, match="No space left"):
        store.put(key(), {"big": torch.zeros(10_000)}, FACTS)
    assert names(store.folder) == []
    assert store.get(key()) is None
    ballast.unlink()
    store.put(key(), {"big": torch.zeros(10_000)}, FACTS)
    assert names(store.folder) == [key().file_name]


def test_a_file_that_cannot_be_read_now_is_kept(tmp_path, monkeypatch):
    """No descriptors left, a disk that is away for a moment: that says nothing about the file."""

    def fails(*_args):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    store = BlockStore(tmp_path)
    store.put(key(), TENSORS, FACTS)
    monkeypatch.setattr(Path, "read_bytes", fails)
    assert store.get(key()) is None
    monkeypatch.undo()
    assert_stored(store)


def test_a_folder_that_was_cleared_away_is_made_again(tmp_path):
    store = BlockStore(tmp_path / "store")
    store.folder.rmdir()
    assert store.get(key()) is None
    store.put(key(), TENSORS, FACTS)
    assert_stored(store)


def test_a_block_that_is_there_counts_whatever_fails_afterwards(tmp_path, monkeypatch):
    """Some file systems cannot sync a folder."""

    def fails(*_args):
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    store = BlockStore(tmp_path)
    monkeypatch.setattr(block_store, "_sync_folder", fails)
    store.put(key(), TENSORS, FACTS)
    assert_stored(store)


def test_of_files_that_may_not_be_removed_the_others_go(tmp_path, monkeypatch):
    store = BlockStore(tmp_path)
    for number in range(3):
        store.put(key(number), TENSORS, FACTS)
        os.utime(tmp_path / key(number).file_name, (number, number))
    unlink = Path.unlink

    def forbidden(path, missing_ok=False):
        if path.name == key(0).file_name:
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", forbidden)
    BlockStore(tmp_path, max_bytes=3 * N_BYTES).put(key(3), TENSORS, FACTS)
    assert [store.get(key(number)) is not None for number in range(4)] == [True, False, True, True]


def test_files_of_somebody_else_that_cannot_be_removed_are_no_room(tmp_path, monkeypatch):
    def forbidden(*_args, **_kwargs):
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    store = BlockStore(tmp_path)
    n_bytes = store.put(key(1), TENSORS, FACTS)
    monkeypatch.setattr(Path, "unlink", forbidden)
    with pytest.raises(StoreFull, match="not permitted"):
        BlockStore(tmp_path, max_bytes=n_bytes).put(key(0), TENSORS, FACTS)


def test_a_folder_that_cannot_be_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreFull, match="no block store"):
        BlockStore(tmp_path / "file" / "store")


def test_drafts_of_the_dead_are_removed_and_those_of_the_living_kept(tmp_path):
    import fcntl

    dead, living = tmp_path / "dead.draft", tmp_path / "living.draft"
    dead.write_bytes(b"x")
    with living.open("wb") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        BlockStore(tmp_path)
        assert names(tmp_path) == ["living.draft"]


def test_many_processes_on_one_store(tmp_path):
    """All put, get and evict the same few blocks; nobody ever reads half a block or fails."""
    assert in_processes(3, "use_store", tmp_path) == [0] * 3
    assert all(name.endswith(".safetensors") for name in names(tmp_path))
    assert BlockStore(tmp_path).total_bytes() <= 4 * N_BYTES
    assert [number for number in range(6) if BlockStore(tmp_path).get(key(number))]


def use_store(folder: Path, seed: int) -> None:
    draw, store = random.Random(seed), BlockStore(folder, 4 * N_BYTES)
    for _ in range(60):
        number = draw.randrange(6)
        found = store.get(key(number))
        if found is None:
            store.put(key(number), TENSORS, FACTS)
        else:
            assert all(torch.equal(found.tensors[name], TENSORS[name]) for name in TENSORS)


def in_processes(count: int, function: str, folder: Path) -> list[int]:
    """Run a function of this file in processes of their own, all at once; a fork would inherit torch's locks."""
    code = (
        "import sys; from tests.bridge import test_block_store as here; "
        f"here.{function}(here.Path(sys.argv[1]), int(sys.argv[2]))"
    )
    root = Path(__file__).parents[2]
    children = [
        subprocess.Popen([sys.executable, "-c", code, str(folder), str(seed)], cwd=root)
        for seed in range(count)
    ]
    return [child.wait(100) for child in children]
