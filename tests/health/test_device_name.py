"""How a run names what computes; nvidia-smi is played."""

from __future__ import annotations

import pytest

from swarmlab.health import device_name as module
from swarmlab.health.device_name import device_name
from swarmlab.health.gpus import CUDA_VISIBLE

THREE = r"printf '0, GPU-aa, NVIDIA H200\n1, GPU-bb, NVIDIA A100\n2, GPU-cc, NVIDIA H200\n'"


@pytest.fixture(autouse=True)
def no_mask(monkeypatch):
    monkeypatch.delenv(CUDA_VISIBLE, raising=False)


@pytest.fixture
def smi(tmp_path, monkeypatch):
    def smi(program):
        path = tmp_path / "nvidia-smi"
        path.write_text(f"#!/bin/sh\n{program}\n")
        path.chmod(0o755)
        monkeypatch.setattr(module.shutil, "which", lambda _: str(path))

    return smi


def test_a_cpu_needs_no_driver(smi):
    smi("touch asked; exit 1")
    assert device_name("cpu") == "cpu"


def test_gpus_are_named_as_the_driver_names_them(smi):
    smi(THREE)
    assert device_name("cuda") == "cuda (2 x NVIDIA H200, NVIDIA A100)"
    assert device_name("cuda", [1]) == "cuda (NVIDIA A100)"
    assert device_name("cuda:2") == "cuda (NVIDIA H200)"


@pytest.mark.parametrize(
    ("mask", "gpus", "name"),
    [
        ("1", [], "cuda (NVIDIA A100)"),
        ("1", [0], "cuda (NVIDIA A100)"),
        ("2,1", [1], "cuda (NVIDIA A100)"),
        ("GPU-bb", [0], "cuda (NVIDIA A100)"),
        ("MIG-aa", [0], "cuda"),
        ("", [], "cuda"),
    ],
)
def test_on_a_shared_machine_only_our_own_are_named(smi, monkeypatch, mask, gpus, name):
    smi(THREE)
    monkeypatch.setenv(CUDA_VISIBLE, mask)
    assert device_name("cuda", gpus) == name


@pytest.mark.parametrize("program", ["exit 9", "true"])
def test_a_driver_that_does_not_say_costs_only_the_name(smi, program):
    smi(program)
    assert device_name("cuda:0") == "cuda:0"


def test_without_nvidia_smi_there_is_no_name(monkeypatch):
    monkeypatch.setattr(module.shutil, "which", lambda _: None)
    assert device_name("cuda") == "cuda"
