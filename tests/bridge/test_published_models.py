"""The large models by name: found where their owner put them, never fetched, and not mistaken for others."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest
from safetensors.numpy import save_file

from swarmlab.bridge.models import ensure_model
from swarmlab.bridge.models.checkpoint import WEIGHTS, expected_tensors
from swarmlab.bridge.models.ensure import hub_cache, published_folder
from swarmlab.bridge.models.file_hash import known_sha256
from swarmlab.bridge.models.llama_shapes import LLAMA_65B, PUBLISHED, LlamaShape, llama_config
from swarmlab.bridge.models.manifest import sha256_of
from swarmlab.errors import BadInput

SMALL = LlamaShape(2, 32, 48, 4, 4, vocab_size=64, repository="enoch/llama-65b-hf")


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """An empty hub cache and an empty cache of hashes."""
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def small(monkeypatch):
    """The 65B made small enough to write."""
    monkeypatch.setitem(PUBLISHED, "llama_65b", SMALL)


def write(folder, shape: LlamaShape = SMALL) -> None:
    folder.mkdir(parents=True)
    config = llama_config(shape, "float16")
    (folder / "config.json").write_text(json.dumps(config))
    tensors = {name: np.ones(size, dtype=np.float16) for name, size in expected_tensors(config).items()}
    save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})


@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_what_is_not_there_is_not_fetched_and_the_error_says_what_to_do(tmp_path, name):
    with pytest.raises(BadInput, match=r"model\.path=DIR.*huggingface-cli download") as refused:
        ensure_model(name, tmp_path)
    assert refused.value.field == "model.name"
    assert PUBLISHED[name].repository in refused.value.allowed


@pytest.mark.usefixtures("small")
def test_it_is_found_among_the_models_in_the_hubs_cache_and_by_path(tmp_path):
    snapshots = hub_cache() / "models--enoch--llama-65b-hf" / "snapshots"
    assert str(snapshots).startswith(str(tmp_path))
    write(snapshots / "c0ffee")
    assert published_folder("llama_65b", tmp_path) == snapshots / "c0ffee"
    assert ensure_model("llama_65b", tmp_path).path == snapshots / "c0ffee"
    write(tmp_path / "llama_65b")
    assert ensure_model("llama_65b", tmp_path).path == tmp_path / "llama_65b"
    write(tmp_path / "elsewhere")
    found = ensure_model(str(tmp_path / "elsewhere"), tmp_path, name="llama_65b")
    assert found.path == tmp_path / "elsewhere"


def test_a_model_of_other_sizes_is_refused_before_its_weights_are_looked_for(tmp_path):
    write(tmp_path / "llama_65b")
    with pytest.raises(BadInput, match="num_hidden_layers 80"):
        ensure_model("llama_65b", tmp_path)
    config = llama_config(LLAMA_65B, "float16")
    del config["num_key_value_heads"]  # as in the published 65B
    (tmp_path / "llama_65b" / "config.json").write_text(json.dumps(config))
    with pytest.raises(BadInput, match="embed_tokens"):
        ensure_model("llama_65b", tmp_path)
    with pytest.raises(BadInput, match="intermediate_size 28672"):
        ensure_model(str(tmp_path / "llama_65b"), tmp_path, name="llama2_70b")


@pytest.mark.usefixtures("small")
def test_a_pickle_is_refused(tmp_path):
    write(tmp_path / "llama_65b")
    (tmp_path / "llama_65b" / WEIGHTS).rename(tmp_path / "llama_65b" / "pytorch_model.bin")
    with pytest.raises(BadInput, match="safetensors only"):
        ensure_model("llama_65b", tmp_path)


def test_a_large_file_is_hashed_once_until_it_changes(tmp_path, monkeypatch):
    from swarmlab.bridge.models import file_hash

    hashed = []
    monkeypatch.setattr(file_hash, "LARGE_BYTES", 10)
    monkeypatch.setattr(file_hash, "sha256_of", lambda file: hashed.append(file) or sha256_of(file))
    file = tmp_path / "weights"
    file.write_bytes(b"x" * 100)
    first = known_sha256(file)
    assert first == sha256_of(file)
    known_sha256(file)
    assert len(hashed) == 2  # written just now: another write might not show
    os.utime(file, (1, 1))
    for _ in range(3):
        assert known_sha256(file) == first
    assert len(hashed) == 3
    file.write_bytes(b"y" * 100)
    os.utime(file, (1, 1))  # the same size and time of change, but the system knows better
    assert known_sha256(file) == sha256_of(file) != first


def test_a_note_that_is_no_note_and_a_cache_that_cannot_be_written_do_no_harm(tmp_path, monkeypatch):
    from swarmlab.bridge.models import file_hash

    monkeypatch.setattr(file_hash, "LARGE_BYTES", 10)
    file = tmp_path / "weights"
    file.write_bytes(b"x" * 100)
    os.utime(file, (1, 1))
    known_sha256(file)
    (note,) = (tmp_path / "cache" / "swarmlab" / "sha256").iterdir()
    note.write_text("[]")
    assert known_sha256(file) == sha256_of(file)
    monkeypatch.setenv("XDG_CACHE_HOME", str(file))
    assert known_sha256(file) == sha256_of(file)


def test_a_cache_on_a_full_disk_is_left_as_it_was(tmp_path, small_disk, monkeypatch):
    from swarmlab.bridge.models import file_hash

    monkeypatch.setattr(file_hash, "LARGE_BYTES", 10)
    monkeypatch.setenv("XDG_CACHE_HOME", str(small_disk.folder))
    file = tmp_path / "weights"
    file.write_bytes(b"x" * 100)
    os.utime(file, (1, 1))
    small_disk.fill(leave_bytes=0)
    assert known_sha256(file) == sha256_of(file)
    assert [path for path in small_disk.folder.rglob("*") if path.is_file()] == [
        small_disk.folder / "ballast"
    ]
