"""Settings are composed from configs/ and checked; what cannot work is refused by name, with what is allowed."""

from __future__ import annotations

import math

import pytest
import yaml

from swarmlab.errors import BadInput
from swarmlab.recovery.settings import RecoverySettings
from swarmlab.settings import ARMS_OF, CONFIGS, combinations, known_experiments, load

EXP = "+exp=failover"


def refused(*overrides):
    with pytest.raises(BadInput) as error:
        load(overrides)
    assert "\n" not in str(error.value)
    return error.value


@pytest.mark.parametrize("exp", known_experiments())
@pytest.mark.parametrize("model", ["tiny_llama", "smollm2"])
def test_every_experiment_composes_with_every_named_model(exp, model):
    settings, resolved = load([f"+exp={exp}", f"model={model}"])
    assert settings.experiment == exp
    assert settings.model.name == model
    assert set(settings.arms) <= set(ARMS_OF[exp])
    assert yaml.safe_load(yaml.safe_dump(resolved)) == resolved, "config.yaml gives back what was resolved"


def test_every_group_is_read_somewhere():
    groups = {
        path.name: {one.stem for one in path.glob("*.yaml")} for path in CONFIGS.iterdir() if path.is_dir()
    }
    assert groups.pop("exp") == set(known_experiments())
    for group, names in groups.items():
        for name in names:
            path = ["model.path=x"] if name == "path" else []
            load([EXP, f"{group}={name}", *path], elsewhere=True)


def test_there_is_an_experiment():
    assert "failover" in known_experiments()


def test_overrides_reach_the_settings_and_the_resolved_config():
    settings, resolved = load(
        [EXP, "client.max_retries=3", "recovery.suspect_factor=8", "arms=[swarmlab]", "seed=7"]
    )
    assert (settings.client.max_retries, settings.recovery_settings().suspect_factor) == (3, 8.0)
    assert (settings.arms, settings.seed) == (["swarmlab"], 7)
    assert resolved["client"]["max_retries"] == 3
    assert settings.client.as_petals()["max_retries"] == 3


def test_defaults_of_recovery_are_those_of_the_policy():
    settings, _ = load([EXP])
    assert settings.recovery_settings() == RecoverySettings()


@pytest.mark.parametrize(
    ("overrides", "field", "value", "allowed"),
    [
        ([], "+exp", None, "failover"),
        (["+exp=nosuch"], "+exp", "nosuch", "failover"),
        (["+exp"], "+exp", None, "failover"),
        (["exp=failover"], "exp", "failover", "with a plus"),
        ([EXP, "model=nosuch"], "model", "nosuch", "path, smollm2, tiny_llama"),
        ([EXP, "swarm=nosuch"], "swarm", "nosuch", "local"),
        ([EXP, "model=path"], "model.path", None, "model=FOLDER"),
        ([EXP, "arms=[petals,foo]"], "arms", "foo", "petals, issue_patch, swarmlab"),
        ([EXP, "arms=petals"], "arms", "petals", "a list"),
        ([EXP, "arms=[]"], "arms", [], "each once"),
        ([EXP, "arms=[petals,petals]"], "arms", ["petals", "petals"], "each once"),
        ([EXP, "scenarios=3"], "scenarios", 3, "a list of names"),
        ([EXP, "scenarios=[]"], "scenarios", [], "a list of names"),
        ([EXP, "scenarios={a: 1}"], "scenarios", {"a": 1}, "a list of names"),
        ([EXP, "scenarios=[1]"], "scenarios", 1, "names"),
        ([EXP, "foo=3"], "foo", "3", "a setting that exists: experiment, seed"),
        ([EXP, "+foo=3"], "foo", 3, "a setting that exists: experiment, seed"),
        ([EXP, "client.foo=3"], "client.foo", "3", "client.max_retries, client.request_timeout_s"),
        ([EXP, "+client.foo=3"], "client.foo", 3, "client.max_retries, client.request_timeout_s"),
        ([EXP, "recovery.bogus=1"], "recovery.bogus", "1", "recovery.suspect_factor"),
        ([EXP, "client=3"], "client", "3", "client.max_retries=..."),
        ([EXP, "seed=abc"], "seed", "abc", "a whole number"),
        ([EXP, "seed=-1"], "seed", -1, "0 to 2**32 - 1"),
        ([EXP, f"seed={2**32}"], "seed", 2**32, "0 to 2**32 - 1"),
        ([EXP, "seed=null"], "seed", "null", "a whole number"),
        ([EXP, "deadline_s=abc"], "deadline_s", "abc", "a number"),
        ([EXP, "deadline_s=0"], "deadline_s", 0.0, "a number above 0"),
        ([EXP, "deadline_s=inf"], "deadline_s", math.inf, "a number above 0"),
        ([EXP, "tolerance=-1"], "tolerance", -1.0, "a number above 0"),
        ([EXP, "floor_repeats=-1"], "floor_repeats", -1, "0 or more"),
        ([EXP, "client.max_retries=0"], "client.max_retries", 0, "at least 1"),
        ([EXP, "client.max_retries=1.5"], "client.max_retries", "1.5", "a whole number"),
        ([EXP, "client.max_pinged=0"], "client.max_pinged", 0, "above 0"),
        ([EXP, "client.request_timeout_s=0"], "client.request_timeout_s", 0.0, "above 0"),
        ([EXP, "recovery.suspect_factor=-1"], "recovery.suspect_factor", -1.0, "above 0"),
        ([EXP, "model.n_blocks=many"], "model.n_blocks", "many", "a whole number or null"),
        ([EXP, "swarm.torch_dtype=int3"], "swarm.torch_dtype", "int3", "float32"),
        ([EXP, "swarm.torch_dtype=float16"], "swarm.torch_dtype", "float16", "bfloat16"),
        ([EXP, "swarm.log_level=loud"], "swarm.log_level", "loud", "DEBUG"),
        ([EXP, "swarm.store_dir=' '"], "swarm.store_dir", " ", "a folder"),
        ([EXP, "swarm.store_max_bytes=0"], "swarm.store_max_bytes", 0, "1 or more"),
        ([EXP, "model.quant=int4"], "model.quant", "int4", "none, int8, nf4"),
        ([EXP, "swarm.device=gpu"], "swarm.device", "gpu", "cuda"),
        ([EXP, "swarm.throughput_tps=-4"], "swarm.throughput_tps", -4.0, "more than 0"),
        (["+exp=scale", "scale.sizes=[abc]"], "scale.sizes", "[abc]", "a list of whole numbers"),
        (["+exp=scale", "scale.sizes=[100,1.5]"], "scale.sizes", "[100,1.5]", "'scale.sizes=[128,1024]'"),
        (["+exp=scale", "scale.sizes=[[100]]"], "scale.sizes", [[100]], "a list of whole numbers"),
        (["+exp=failure_rates", "rates.rates=[x]"], "rates.rates", "[x]", "'rates.rates=[0,0.01]'"),
        ([EXP, "swarm.argv=[{a: 1}]"], "swarm.argv", [{"a": 1}], "a list"),
        ([EXP, "results_dir=[a]"], "results_dir", "[a]", "text"),
        ([EXP, "a b"], "command line", "a b", "quoted"),
        ([EXP, "arms=[petals"], "command line", "arms=[petals", "quoted"),
        (["failover"], "command line", "failover", "name=value"),
        ([EXP, ""], "command line", "", "name=value"),
    ],
)  # fmt: skip
def test_what_cannot_work_is_refused(overrides, field, value, allowed):
    error = refused(*overrides)
    assert (error.field, error.value) == (field, value)
    assert allowed in error.allowed


def test_nan_is_not_a_number_above_0():
    assert refused(EXP, "tolerance=nan").field == "tolerance"


def test_a_gpu_that_is_not_there_is_refused(monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert "doctor" in refused(EXP, "swarm.device=cuda").allowed
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert load([EXP, "swarm.device=cuda:1"])[0].swarm.device == "cuda:1"


def test_a_multirun_is_every_combination():
    jobs = list(combinations([EXP, "seed=0,1", "arms=[petals],[swarmlab]", "deadline_s=9"]))
    assert [
        [EXP, f"seed={seed}", f"arms={arms}", "deadline_s=9"]
        for seed in (0, 1)
        for arms in ("[petals]", "[swarmlab]")
    ] == jobs
    assert list(combinations([EXP])) == [[EXP]]


def test_a_sweep_that_cannot_be_read_is_refused():
    with pytest.raises(BadInput):
        combinations([EXP, "seed=range("])


@pytest.mark.parametrize("name", ["results_dir", "models_dir"])
def test_a_folder_without_a_name_is_refused(name):
    with pytest.raises(BadInput) as refused:
        load(["+exp=failover", f"{name}="])
    assert refused.value.field == name
