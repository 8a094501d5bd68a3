"""A plan adds up, says what is too large, and would take what it proposes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from swarmlab.errors import BadInput
from swarmlab.health.capacity import GIB, BlockShape, weight_bytes
from swarmlab.health.swarm_plan import Blocks, Holder, Place, Plan, Rates, check_plan, plan_swarm, render

SHAPE = BlockShape(80, 8192, 22016, 64, 64)
BLOCKS = Blocks(SHAPE, "float16", "nf4", source="drawn", keeps=True)
RATES = Rates(disk_bytes_per_s=1e9, drawn_per_s=4e8, weights_per_s=1e8, stored_bytes_per_s=5e8)


def planned(gib: float = 80, tokens: int = 8192, blocks: Blocks = BLOCKS, reserved: int = 0) -> Plan:
    holders = [
        Holder("a", range(40), 0, tokens),
        Holder("b", range(40, 80), 0, tokens),
        Holder("c", range(20), 1, 128),
    ]
    places = [Place("gpu0", round(gib * GIB), reserved), Place("gpu1", 24 * GIB)]
    return plan_swarm("pair", blocks, places, holders, RATES, fixed_bytes=GIB // 2)


def test_what_is_taken_is_the_sum_of_its_parts():
    plan = planned(reserved=GIB)
    first, second = (row.needs for row in plan.rows[:2])
    assert first.weights == 40 * weight_bytes(SHAPE, "float16", "nf4")
    assert first.total == first.weights + first.cache + first.autograd + GIB // 2
    assert plan.taken_bytes[0] == first.total + second.total + GIB
    assert plan.taken_bytes[1] == plan.rows[2].needs.total


def test_the_store_holds_each_block_once():
    assert planned().store_bytes == 80 * weight_bytes(SHAPE, "float16", "nf4")
    assert planned(blocks=replace(BLOCKS, keeps=False)).store_bytes == 0


def test_what_fits_passes_and_the_table_has_all_of_it():
    plan = planned()
    check_plan(plan, free_disk_bytes=plan.store_bytes)
    lines = render(plan).splitlines()
    assert [line.split()[0] for line in lines[2:5]] == ["a", "b", "c"]
    taken = plan.taken_bytes[0] / GIB
    assert lines[5].strip() == f"gpu0: {taken:.2f} GiB of 80.00 GiB, {80 - taken:.2f} GiB to spare"
    assert "block store: 32.36 GiB of disk" in lines[7]
    assert "TOO MUCH" not in render(plan)


def test_caches_are_named_when_smaller_ones_would_do_and_then_it_fits():
    with pytest.raises(BadInput, match=r"gpu0 has 48\.00 GiB, its 2 servers need 55\.6") as refused:
        check_plan(planned(gib=48))
    assert (refused.value.field, refused.value.value) == ("swarm.attn_cache_tokens", 8192)
    tokens = int(refused.value.allowed.split()[2])
    check_plan(planned(gib=48, tokens=tokens))
    with pytest.raises(BadInput):
        check_plan(planned(gib=48, tokens=tokens + 128))
    assert "TOO MUCH" in render(planned(gib=48))


def test_blocks_are_named_when_even_small_caches_do_not_help():
    with pytest.raises(BadInput, match="at most 50 blocks on gpu0") as refused:
        check_plan(planned(gib=24))
    assert (refused.value.field, refused.value.value) == ("blocks", "80 in nf4 on gpu0")
    assert "model.quant=nf4" not in refused.value.allowed
    with pytest.raises(BadInput, match=r"or model\.quant=nf4"):
        check_plan(planned(gib=24, blocks=replace(BLOCKS, quant="none")))


def test_a_disk_that_is_too_small_is_named():
    with pytest.raises(BadInput, match=r"a disk with 32\.36 GiB free") as refused:
        check_plan(planned(), free_disk_bytes=GIB)
    assert refused.value.field == "swarm.store_dir"


@pytest.mark.parametrize(
    ("source", "keeps", "quant", "per_block_s"),
    [
        # with a third of the disk for each of three servers
        ("drawn", False, "nf4", 8.095 + 2.024),
        ("drawn", True, "nf4", 8.095 + 2.024 + 3 * 0.4343),
        ("checkpoint", False, "nf4", 3 * 1.619 + 8.095),
        ("checkpoint", False, "none", 3 * 1.619 + 1.635 / 0.5),
        ("store", False, "nf4", 0.4343 * (3 + 2)),
    ],
)
def test_seconds_follow_from_the_rates(source, keeps, quant, per_block_s):
    plan = planned(gib=200, blocks=replace(BLOCKS, source=source, keeps=keeps, quant=quant))
    assert plan.rows[0].load_s == pytest.approx(40 * per_block_s, rel=2e-3)
    assert plan.rows[2].load_s == pytest.approx(20 * per_block_s, rel=2e-3)
