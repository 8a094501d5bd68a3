"""How a run names what computes; nvidia-smi is played."""

from __future__ import annotations

import pytest

from swarmlab.health import device_name as module
from swarmlab.health.device_name import device_name


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
    smi("printf 'NVIDIA H200\\nNVIDIA A100\\nNVIDIA H200\\n'")
    assert device_name("cuda") == "cuda (2 x NVIDIA H200, NVIDIA A100)"
    assert device_name("cuda", [1]) == "cuda (NVIDIA A100)"
    assert device_name("cuda:2") == "cuda (NVIDIA H200)"


@pytest.mark.parametrize("program", ["exit 9", "true"])
def test_a_driver_that_does_not_say_costs_only_the_name(smi, program):
    smi(program)
    assert device_name("cuda:0") == "cuda:0"


def test_without_nvidia_smi_there_is_no_name(monkeypatch):
    monkeypatch.setattr(module.shutil, "which", lambda _: None)
    assert device_name("cuda") == "cuda"
