"""Numbers of GPUs, on a machine of our own and on one where we were given some."""

from __future__ import annotations

import pytest

from swarmlab.errors import BadInput
from swarmlab.health.gpus import visible_gpus


@pytest.mark.parametrize(
    ("numbers", "mask", "names"),
    [
        ([0, 3], None, ["0", "3"]),
        ([0], "5", ["5"]),
        ([1, 0], "GPU-a, GPU-b", ["GPU-b", "GPU-a"]),
        ([0], "MIG-x", ["MIG-x"]),
        ([], "", []),
    ],
)
def test_numbers_count_among_those_that_we_were_given(numbers, mask, names):
    assert visible_gpus(numbers, mask) == names


@pytest.mark.parametrize(("number", "mask"), [(1, "5"), (0, "")])
def test_nobody_elses_gpu_is_taken(number, mask):
    with pytest.raises(BadInput, match=r"cluster\.gpus") as refused:
        visible_gpus([number], mask)
    assert f"CUDA_VISIBLE_DEVICES={mask}" in str(refused.value)
