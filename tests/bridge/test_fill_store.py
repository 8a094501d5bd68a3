"""Filling a store from the command line."""

from __future__ import annotations

import pytest

from swarmlab.bridge.block_store import BlockStore
from swarmlab.bridge.fill_store import main


def run(tmp_path, *more: str) -> int:
    arguments = ["llama_65b_tenth", "--models-dir", str(tmp_path), "--store", str(tmp_path / "store")]
    return main([*arguments, "--n-blocks", "4", "--torch-dtype", "float32", *more])


def test_blocks_are_made_once_and_read_after_that(tmp_path, capsys):
    assert run(tmp_path, "--blocks", "1:3") == 0
    assert run(tmp_path, "--blocks", "2:4") == 0
    lines = [line.split()[:2] for line in capsys.readouterr().out.splitlines()]
    head = ["block", "from"]
    assert lines == [head, ["1", "drawn"], ["2", "drawn"], head, ["2", "store"], ["3", "drawn"]]
    assert len(BlockStore(tmp_path / "store").files()) == 3


def test_a_store_that_cannot_hold_them_all_is_told(tmp_path, capsys):
    assert run(tmp_path, "--blocks", "0:1") == 0
    limit = BlockStore(tmp_path / "store").total_bytes() * 3 // 2
    assert run(tmp_path, "--blocks", "0:2", f"--max-bytes={limit}") == 1
    assert "1 of 2 blocks are not in" in capsys.readouterr().err
    (tmp_path / "file").touch()
    assert run(tmp_path, "--blocks", "0:1", "--store", str(tmp_path / "file" / "store")) == 1


@pytest.mark.parametrize("blocks", ["3:5", "2:2", "x", "-1:2"])
def test_blocks_that_are_not_there_are_refused(tmp_path, capsys, blocks):
    assert run(tmp_path, f"--blocks={blocks}") == 2
    assert "--blocks" in capsys.readouterr().err


def test_a_model_that_is_not_there_is_refused(tmp_path, capsys):
    assert main([str(tmp_path / "no"), "--store", str(tmp_path)]) == 2
    assert "model.path" in capsys.readouterr().err
