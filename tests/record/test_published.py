from __future__ import annotations

import pytest

from swarmlab.record.load import Run
from swarmlab.record.published import Published, most_alike, public_config, public_info


def run(tmp_path, exp, *overrides):
    return Run(tmp_path, {"exp": exp, "overrides": [f"+exp={exp}", *overrides]}, {})


@pytest.fixture
def published(tmp_path):
    kinds = {
        "failover": run(tmp_path, "failover"),
        "failover_all": run(tmp_path, "failover", "scenarios=all", "arms=[petals,swarmlab]"),
        "failover_smollm2": run(tmp_path, "failover", "model=smollm2", "seed=4"),
        "scale": run(tmp_path, "scale", "model=smollm2"),
    }
    return [Published(name, one, ()) for name, one in kinds.items()]


@pytest.mark.parametrize(
    ("overrides", "name"),
    [
        (["model=tiny_llama", "results_dir=/tmp/x", "seed=9"], "failover"),
        (["scenarios=all"], "failover_all"),
        (["model=smollm2", "seed=0"], "failover_smollm2"),
    ],
)
def test_a_run_is_set_beside_what_was_asked_for_like_it(tmp_path, published, overrides, name):
    found = most_alike(run(tmp_path, "failover", *overrides), published)
    assert found is not None
    assert found.name == name


def test_what_is_not_published_has_nothing_beside_it(tmp_path, published):
    assert most_alike(run(tmp_path, "churn"), published) is None


def test_what_names_a_folder_or_a_machine_is_not_published():
    private = ["cluster.address=10.0.0.5:6379", "cluster.bind=10.1.0.0/16", "sim.from_record=/home/me/rec",
               "swarm.store_dir=/home/me/s", "results_dir=/home/me/r"]  # fmt: skip
    assert public_info({"overrides": ["+exp=churn", *private, "seed=3"]}) == {
        "overrides": ["+exp=churn", "seed=3"]
    }
    assert public_config({"sim": {"from_record": "/home/me/rec", "repeats": 2}}) == {"sim": {"repeats": 2}}
