"""Which servers each experiment would start, and the command that says whether they fit."""

from __future__ import annotations

import json

import pytest

from swarmlab import doctor
from swarmlab.errors import BadInput
from swarmlab.health.capacity import GIB, BlockShape
from swarmlab.health.swarm_plan import Place
from swarmlab.scenarios.planning import IMPORT_S, check_in_time, machine, plans_of, shape_of, swarms_of
from swarmlab.settings import ARMS_OF, load

NO_SERVERS = {"report_389", "appendix_e", "churn", "scale", "record_dht"}


@pytest.mark.parametrize("experiment", sorted(set(ARMS_OF) - NO_SERVERS))
def test_the_servers_of_every_experiment_are_known_and_fit_a_small_model(experiment):
    settings, _ = load([f"+exp={experiment}"])
    n_blocks = shape_of(settings).n_blocks
    for servers in swarms_of(settings, n_blocks).values():
        held = {block for span, _ in servers.values() for block in span}
        assert held == set(range(n_blocks))
    assert plans_of(settings, [machine(8 * GIB)])


@pytest.mark.parametrize("experiment", sorted(NO_SERVERS))
def test_an_experiment_without_servers_has_no_plan(experiment):
    settings, _ = load([f"+exp={experiment}"])
    with pytest.raises(BadInput, match="starts none"):
        swarms_of(settings, 16)


def test_topologies_and_their_own_caches_are_those_of_the_scenarios():
    settings, _ = load(["+exp=failover", "scenarios=all", "model=llama_65b_synthetic"])
    plans = {plan.name: plan for plan in plans_of(settings, [Place("gpu0", 141 * GIB)])}
    assert plans["split"].rows[2].holder.blocks == range(40, 80)
    caches = {row.holder.name: row.holder.cache_tokens for row in plans["full_cache"].rows}
    assert caches["b2"] == 16
    assert caches["a1"] == settings.swarm.attn_cache_tokens


def test_servers_are_dealt_as_the_cluster_deals_them():
    settings, _ = load(["+exp=failover_soak", "cluster.deal=in_groups"])
    (plan,) = plans_of(settings, [Place("gpu0", GIB), Place("gpu1", GIB)])
    assert [row.holder.place for row in plan.rows] == [0, 0, 0, 0, 1, 1, 1, 1]


def test_a_model_of_ones_own_is_known_by_its_config(tmp_path):
    config = {
        "num_hidden_layers": 30,
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    settings, _ = load(["+exp=failover", "model=path", f"model.path={tmp_path}"])
    assert shape_of(settings) == BlockShape(30, 576, 1536, 9, 3)
    settings, _ = load(["+exp=failover", "model=path", f"model.path={tmp_path}/no"])
    with pytest.raises(BadInput, match=r"config\.json"):
        shape_of(settings)


def test_a_plan_that_fits_is_shown(capsys):
    # float16 swarms of the whole 65B, on one large GPU; no weights, no GPU and no download are needed
    arguments = ["--gpus", "141", "+exp=recovery_speed", "model=llama_65b", "swarm.torch_dtype=float16"]
    assert doctor.main(["plan", *arguments, "swarm.start_deadline_s=900"]) == 0
    said = capsys.readouterr()
    assert "It fits." in said.out
    assert "25:55 gpu0" in said.out
    assert "note: model.name: 'llama_65b'" in said.out
    assert said.err == ""


SLOW = ["--gpus", "141", "+exp=recovery_speed", "model=llama_65b_synthetic", "swarm.torch_dtype=float16"]


def test_servers_that_load_too_slowly_are_refused_with_the_number_that_would_do(capsys):
    assert doctor.main(["plan", *SLOW]) == 2
    said = capsys.readouterr()
    assert "It fits." not in said.out
    assert said.err.startswith("swarmlab: swarm.start_deadline_s: '120' is not usable; allowed: at least ")
    enough_s = int(said.err.split("at least ")[1].split(",")[0])
    assert doctor.main(["plan", *SLOW, f"swarm.start_deadline_s={enough_s}"]) == 0
    assert doctor.main(["plan", *SLOW, f"swarm.start_deadline_s={enough_s - 1}"]) == 2


def test_a_filled_store_helps(capsys):
    assert doctor.main(["plan", "--stored", "--disk-mb-s", "3000", *SLOW]) == 0
    assert "It fits." in capsys.readouterr().out


def test_time_that_passes_before_a_server_begins_to_load_counts():
    settings, _ = load(["+exp=failover"])
    settings.swarm.start_deadline_s = IMPORT_S - 1
    with pytest.raises(BadInput, match=f"after {IMPORT_S:g} s until it begins"):
        check_in_time(settings, plans_of(settings, [machine(8 * GIB)]))


@pytest.mark.parametrize(
    ("overrides", "code"),
    [
        (["+exp=failover", "model=llama_65b", "cluster=slurm"], 0),
        (["+exp=failover", "model=/not/on/this/machine"], 0),
        (["+exp=nope"], 2),
        (["+exp=failover", "seed=-1"], 2),
    ],
)
def test_settings_are_checked_for_another_machine(overrides, code, capsys):
    assert doctor.main(["settings", *overrides]) == code
    assert len(capsys.readouterr().err.splitlines()) == (1 if code else 0)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--gpus", "24", "+exp=failover_soak", "model=llama_65b"], "at most 24 blocks on gpu0"),
        (
            ["--gpus", "120", "+exp=failover", "model=llama_65b"],
            "swarm.attn_cache_tokens: 8192 is not usable",
        ),
        (["--gpus", "24,x", "+exp=failover"], "--gpus: '24,x' is not usable"),
        (["--gpus", "24", "+exp=churn"], "+exp: 'churn'"),
        (["+exp=failover", "model.quant=nf3"], "model.quant: 'nf3' is not usable; allowed: none, int8, nf4"),
        (["model=tiny_llama"], "+exp: None"),
    ],
)
def test_what_cannot_be_is_one_line_and_exit_code_2(arguments, error, capsys):
    assert doctor.main(["plan", *arguments]) == 2
    said = capsys.readouterr()
    assert error in said.err
    assert said.err.count("\n") == 1
    assert "It fits." not in said.out


def test_a_disk_that_reads_nothing_is_refused(capsys):
    with pytest.raises(SystemExit) as left:
        doctor.main(["plan", "--disk-mb-s", "0", "+exp=failover"])
    assert left.value.code == 2
    assert "not above 0" in capsys.readouterr().err
