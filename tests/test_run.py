"""The command itself: bad input costs one clear line and leaves nothing behind; options of Hydra work.

``main`` runs in this process with the swarm taken away, so that a test fails if anything would be started.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from swarmlab import run
from swarmlab.bridge.models import ensure_model
from swarmlab.errors import BadInput, SwarmFailed
from swarmlab.record.load import load_run
from swarmlab.scenarios.failover import Failover
from swarmlab.scenarios.failover_files import FOLDER
from swarmlab.settings import known_experiments
from swarmlab.swarm import ports, spec

ROOT = Path(__file__).resolve().parents[1]
EXP = "+exp=failover"
SCENARIO = {
    "title": "one",
    "topology": "own",
    "workload": {"batch": 1, "prompt_tokens": 4, "new_tokens": 4},
    "faults": [{"fault": "kill", "target": "last", "before_token": 2}],
}


@pytest.fixture(scope="session")
def models(tmp_path_factory):
    """A folder with the generated model."""
    root = tmp_path_factory.mktemp("models")
    ensure_model("tiny_llama", root)
    return root


@pytest.fixture
def command(models, tmp_path, monkeypatch, capsys):
    """The command in an empty working folder; ``started`` lists the runs that would have started a swarm."""
    monkeypatch.chdir(tmp_path)
    started = []

    def command(*arguments):
        if EXP in arguments:
            place = arguments.index(EXP) + 1  # Hydra wants overrides side by side
            arguments = (*arguments[:place], f"models_dir={models}", *arguments[place:])
        monkeypatch.setattr(sys, "argv", ["run", *arguments])
        with pytest.raises(SystemExit) as leaving:
            run.main()
        out, err = capsys.readouterr()
        return SimpleNamespace(code=leaving.value.code, out=out, err=err, started=started)

    monkeypatch.setattr(Failover, "run", lambda self, *_: started.append(self))
    return command


def refused(result, field, *words):
    """One line on stderr that names the field and what is allowed; exit code 2, and nothing else happened."""
    assert result.code == 2
    assert result.out == ""
    assert result.err.count("\n") == 1
    assert result.err.startswith(f"swarmlab: {field}: ")
    assert "allowed: " in result.err
    for word in words:
        assert word in result.err
    assert result.started == []
    assert list(Path.cwd().rglob("run.json")) == []
    assert not Path("results").exists()


def extra(folder, servers, scenario=SCENARIO):
    """A scenarios folder with one topology and one scenario; the option that names it."""
    (folder / "scenarios").mkdir(parents=True)
    (folder / "topologies.yaml").write_text(yaml.safe_dump({"own": servers}))
    (folder / "scenarios" / "mine.yaml").write_text(yaml.safe_dump(scenario))
    return [EXP, f"scenarios_dir={folder}", "scenarios=[mine]"]


def server(name, start, end, **more):
    return {"name": name, "start": start, "end": end, **more}


@pytest.mark.parametrize(
    ("arguments", "field", "words"),
    [
        ([], "+exp", ["failover"]),
        (["+exp=nosuch"], "+exp", ["'nosuch'", "failover"]),
        ([EXP, "arms=[petals,foo]"], "arms", ["'foo'", "petals, issue_patch, swarmlab"]),
        ([EXP, "scenarios=[foo]"], "scenarios", ["'foo'", "default, all", "kill_last"]),
        ([EXP, "scenarios=foo"], "scenarios", ["'foo'", "default, all", "kill_last"]),
        ([EXP, "nonsense=1"], "nonsense", ["'1'", "a setting that exists"]),
        ([EXP, "+nonsense=1"], "nonsense", ["1", "a setting that exists"]),
        ([EXP, "deadline_s=soon"], "deadline_s", ["'soon'", "a number"]),
        ([EXP, "model=path", "model.path=/no/such"], "model.path", ["'/no/such'", "Llama checkpoint"]),
        ([EXP, "model=/no/such"], "model.path", ["'/no/such'", "Llama checkpoint"]),
        ([EXP, "model=./it's not"], "model.path", ["it's not", "Llama checkpoint"]),
        ([EXP, "model=smollm2"], "model.name", ["'smollm2'", "make models"]),
        ([EXP, "model.n_blocks=8"], "model.n_blocks", ["8", "16 to 80"]),
        ([EXP, "scenarios_dir=/no/such"], "/no/such/topologies.yaml", ["YAML"]),
        ([EXP, "swarm.attn_cache_tokens=3"], "swarm.attn_cache_tokens", ["3", "at least"]),
        ([EXP, "swarm.expiration_s=5"], "swarm.expiration_s", ["5.0", "more than update_period_s"]),
        (["-m", EXP, "seed=0,-1"], "seed", ["-1", "0 to"]),
        ([EXP, "--nonsense"], "command line", ["'--nonsense'", "--multirun", "--cfg"]),
        ([EXP, "--config-name=other"], "command line", ["--config-name=other", "--cfg"]),
        ([EXP, "--cfg"], "command line", ["'--cfg'", "job or hydra or all"]),
        ([EXP, "--cfg", "nope"], "command line", ["'--cfg'", "job or hydra or all"]),
        (
            [EXP, "swarmlab.horizon_s=-1"],
            "swarmlab.horizon_s",
            ["'-1'", "a setting that exists", "rebalance"],
        ),
        ([EXP, "seed=x", "--cfg", "job"], "seed", ["'x'", "a whole number"]),
        ([EXP, "=3"], "command line", ["'=3'", "name=value"]),
        ([EXP, "~=3"], "command line", ["'~=3'", "name=value"]),
        ([EXP, "+exp=rebalance"], "+exp", ["failover rebalance", "one experiment"]),
        ([EXP, "seed=1,2"], "seed", ["'1,2'", "one value", "-m"]),
        ([EXP, "++seed=3", "seed=x"], "seed", ["'x'", "a whole number"]),
        ([EXP, "model.name="], "model.name", ["''", "tiny_llama"]),
        (["+exp=failover_soak", "scenarios=[foo]"], "scenarios", ["foo", "has none to choose"]),
        (["-m", EXP, "arms=[petals],[foo]"], "arms", ["'foo'", "petals"]),
    ],
)
def test_bad_words_on_the_command_line(command, arguments, field, words):
    refused(command(*arguments), field, *words)


@pytest.fixture
def checkpoint(models, tmp_path):
    """A copy of the generated model to spoil; the arguments that name it."""
    source = next(models.glob("tiny_llama-16-*"))
    copy = tmp_path / "copy"
    shutil.copytree(source, copy)
    return copy


def test_a_checkpoint_whose_bytes_were_changed(command, checkpoint):
    weights = checkpoint / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    refused(command(EXP, f"model={checkpoint}"), "model.path", str(weights), "sha256")


def test_a_checkpoint_that_was_cut_short(command, checkpoint):
    weights = checkpoint / "model.safetensors"
    os.truncate(weights, weights.stat().st_size // 2)
    refused(command(EXP, f"model={checkpoint}"), "model.path", str(weights), "a complete safetensors file")


def test_a_model_with_fewer_blocks_than_servers_need(command, checkpoint):
    config = json.loads((checkpoint / "config.json").read_text())
    (checkpoint / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 15}))
    (checkpoint / "swarmlab.json").unlink()
    refused(command(EXP, f"model={checkpoint}"), "model.n_blocks", "15", "at least 16")


@pytest.mark.parametrize(
    ("servers", "field", "words"),
    [
        ([server("a", 0, 5), server("b", 6, 16)], "topologies.own", ["a gap at block 5", "[0, 16)"]),
        ([server("a", 0, 5), server("b", 5, 17)], "topologies.own[1].end", ["17", "6 to 16"]),
        ([server("a", 0, 5), server("b", -1, 16)], "topologies.own[1].start", ["-1", "0 to 15"]),
        ([server("a", 0, 16), server("b", 8, 8)], "topologies.own[1].end", ["8", "9 to 16"]),
        ([server("a", 0, 16), server("a", 0, 16)], "topologies.own[1].name", ["'a'", "used once"]),
        ([server("a b", 0, 16)], "swarm.servers.name", ["'a b'", "letters"]),
        ([server("a", 0, 16, port="x")], "topologies.own[0].port", ["'x'", "a number"]),
        ([server("a", 0, 16, port=80)], "swarm.servers.port", ["80", "1024 to 65535"]),
        ([server("a", 0, 16, colour="red")], "topologies.own[0]", ["name, start"]),
        ([{"name": "a", "start": 0}], "topologies.own[0]", ["end, name, start"]),
        ([], "topologies.own", ["a list of servers"]),
    ],
)
def test_a_topology_that_cannot_work(command, tmp_path, servers, field, words):
    refused(command(*extra(tmp_path / "extra", servers)), field, *words)


@pytest.mark.parametrize(
    ("change", "field", "words"),
    [
        ({"topology": "none"}, "scenarios.mine.topology", ["'none'", "own"]),
        ({"colour": "red"}, "scenarios.mine.colour", ["topology"]),
        ({"workload": {"batch": 1}}, "scenarios.mine.workload", ["prompt_tokens"]),
        ({"workload": {**SCENARIO["workload"], "batch": 0}}, "scenarios.mine.workload.batch", ["at least 1"]),
        ({"faults": [{"fault": "melt"}]}, "scenarios.mine.faults[0].fault", ["'melt'", "kill"]),
        (
            {"faults": [{**SCENARIO["faults"][0], "target": "z"}]},
            "scenarios.mine.faults[0].target",
            ["'z'", "first, middle, last"],
        ),
        (
            {"faults": [{**SCENARIO["faults"][0], "before_token": 4}]},
            "scenarios.mine.faults[0].before_token",
            ["4", "0 to 3"],
        ),
        ({"chain": ["z"]}, "scenarios.mine.chain", ["'z'", "a"]),
    ],
)
def test_a_scenario_that_cannot_work(command, tmp_path, change, field, words):
    refused(command(*extra(tmp_path / "extra", [server("a", 0, 16)], {**SCENARIO, **change})), field, *words)


def test_a_port_in_use(command, tmp_path):
    with socket.socket() as taken:
        taken.bind((ports.HOST, 0))
        taken.listen()
        port = taken.getsockname()[1]
        arguments = extra(tmp_path / "extra", [server("a", 0, 16, port=port)])
        refused(command(*arguments), "swarm.servers.port", str(port), "nothing listens")
    assert len(command(*arguments).started) == 1


def test_too_little_memory(command, monkeypatch):
    monkeypatch.setattr(spec.psutil, "virtual_memory", lambda: SimpleNamespace(available=2**30))
    refused(command(EXP), "swarm.servers", "6 servers, about ", "the 1.0 GiB of memory available")


def test_a_models_folder_that_cannot_be_written(command):
    refused(
        command(EXP, "models_dir=/proc/models"),
        "models_dir",
        "'/proc/models'",
        "a folder that can be written",
    )


def test_a_long_error_of_an_arm_is_shortened_between_words(command, monkeypatch):
    error = "AssertionError: Broken input cache: " + "word " * 100
    monkeypatch.setattr(
        Failover, "run", lambda _self, _dir, progress: progress.end("s", "petals", "exception", error)
    )
    (line,) = [one for one in command(EXP).out.splitlines() if one.startswith("s / petals")]
    assert "exception" in line
    assert "Broken input cache: word" in line
    assert line.endswith(" word ...")
    assert len(line) < 200


@pytest.mark.parametrize("parent", ["/proc", "/dev/null"])
def test_a_results_folder_that_cannot_be_written(command, parent):
    refused(command(EXP, f"results_dir={parent}/runs"), "results_dir", parent, "a folder that can be written")


def test_a_prompt_longer_than_the_model(command, tmp_path):
    long = {**SCENARIO, "workload": {"batch": 1, "prompt_tokens": 10**6, "new_tokens": 4}}
    arguments = extra(tmp_path / "extra", [server("a", 0, 16)], long)
    refused(command(*arguments, "swarm.attn_cache_tokens=100000000"), "workload.prompt_tokens", "1000004")


def test_what_is_about_to_happen_is_said_first(command):
    result = command(EXP, "arms=[petals,swarmlab]")
    first, scenarios, clients, minutes, folder = result.out.splitlines()[:5]
    assert "tiny_llama" in first
    assert "6 scenarios (" in scenarios
    assert "4 clients (reference, plain, petals, swarmlab)" in clients
    assert "on 2 swarms (spares, split)" in clients
    assert "about 4 minutes" in minutes
    path = Path(folder.removeprefix("run folder: "))
    assert load_run(path).info["status"] == "complete"
    assert (result.code, len(result.started)) == (3, 1), "a run that recorded nothing supports no verdict"


def test_a_run_leaves_only_its_own_folder(command, tmp_path):
    command(EXP)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["results"]
    assert sorted(path.name for path in Path("results/runs").iterdir()) == ["failover"]
    assert {path.name for path in Path("results/runs/failover/latest/").iterdir()} == {
        "config.yaml", "figures", "history", "report.html", "run.json", "states", "summary.json", "tables"
    }  # fmt: skip


def test_the_overrides_as_given_are_recorded(command):
    command(EXP, "seed=7")
    info = load_run("results/runs/failover/latest").info
    assert (info["overrides"][0], info["overrides"][-1]) == (EXP, "seed=7")
    assert info["seed"] == 7


def test_scenarios_of_ones_own_run_too(command, tmp_path):
    result = command(*extra(tmp_path / "extra", [server("a", 0, 16)]))
    assert [one.name for one in result.started[0].scenarios] == ["mine"]
    assert "no expectations" in result.out or "unknown" in result.out


def test_a_model_folder_is_named_directly(command, checkpoint):
    result = command(EXP, f"model={checkpoint}")
    assert result.started[0].checkpoint.path == checkpoint


def test_help_says_what_to_type(command):
    result = command("--help")
    assert result.code in (0, None)
    for word in ("+exp=failover", "scenarios=[kill_last]", "max_retries", "Exit code", *known_experiments()):
        assert word in result.out
    assert "powered by Hydra" not in result.out


def test_settings_are_shown_without_a_run(command):
    result = command(EXP, "seed=7", "--cfg", "job")
    assert result.code in (0, None)
    assert yaml.safe_load(result.out)["seed"] == 7
    assert result.started == []


def test_a_multirun_runs_every_job_and_the_worst_decides(command, monkeypatch):
    seeds = []
    monkeypatch.setattr(Failover, "run", lambda self, *_: seeds.append(self.seed))
    monkeypatch.setattr(run, "show", lambda *_: {0: 0, 1: 1, 2: 3}[seeds[-1]])
    assert command("-m", EXP, "seed=0,1,2").code == 1
    assert seeds == [0, 1, 2]
    assert command(EXP, "-m", "seed=0,2").code == 3
    assert command("-m", EXP, "seed=0,0").code == 0
    assert len(list(Path("results/runs/failover").glob("2*"))) == 7
    assert not Path("multirun").exists()
    assert not Path("outputs").exists()


@pytest.mark.parametrize(
    "error", [SwarmFailed("server a1 ended with status 1"), BadInput("server a1", 1, "2")]
)
def test_a_swarm_that_fails_is_told_with_its_reason(command, monkeypatch, error):
    """Also when what was checked before the start is no longer so: something was started, so it is no bad input."""

    def fail(*_):
        raise error

    monkeypatch.setattr(Failover, "run", fail)
    result = command(EXP)
    assert result.code == 1
    assert f"The swarm failed: {error}" in result.out
    (path,) = Path("results/runs/failover").glob("2*")
    info = load_run(path).info
    assert info["status"] == "failed"
    assert "server a1" in info["reason"]
    assert not Path("results/runs/failover/latest").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_interrupts_the_run_and_the_whole_multirun(command, monkeypatch, number):
    began, told = [], []

    def interrupted(self, run_dir, *_):
        began.append(self)
        try:
            signal.raise_signal(number)
        finally:  # a swarm is torn down, and perhaps never to the end
            told.append(load_run(run_dir.path).info)

    before = signal.signal(signal.SIGINT, signal.default_int_handler), signal.getsignal(signal.SIGTERM)
    hangup = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup, if that runs the tests, has it ignored
    monkeypatch.setattr(Failover, "run", interrupted)
    try:
        result = command("-m", EXP, "seed=0,1")
        assert signal.getsignal(signal.SIGTERM) == before[1], "handlers are put back"
    finally:
        signal.signal(signal.SIGINT, before[0])
        signal.signal(signal.SIGHUP, hangup)
    assert result.code == 128 + number
    assert len(began) == 1
    (path,) = Path("results/runs/failover").glob("2*")
    info = load_run(path).info
    assert (info["status"], info["reason"]) == ("interrupted", number.name)
    assert (told[0]["status"], told[0]["reason"]) == ("interrupted", number.name), "said before the teardown"
    assert str(path) in result.out


def test_ctrl_c_while_modules_are_imported_costs_one_line(tmp_path):
    """hydra is replaced by a module whose import goes on until it is interrupted."""
    (tmp_path / "hydra.py").write_text("import time\nprint('importing', flush=True)\ntime.sleep(600)\n")
    process = subprocess.Popen(
        [sys.executable, "-m", "swarmlab.run", EXP], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"},
    )  # fmt: skip
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "importing\n"
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (process.returncode, error) == (130, "swarmlab: interrupted\n")


def test_ctrl_c_before_the_run_costs_one_line(command, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "build", interrupt)
    result = command(EXP)
    assert (result.code, result.err) == (130, "swarmlab: interrupted\n")


def test_a_signal_that_was_ignored_stays_ignored(command, monkeypatch):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    monkeypatch.setattr(Failover, "run", lambda *_: signal.raise_signal(signal.SIGHUP))
    try:
        assert command(EXP).code == 3
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_name_that_is_too_long_for_the_terminal_is_not_cut(command, monkeypatch):
    path = "/a/very/long/folder" * 20
    monkeypatch.setattr(Failover, "run", lambda _self, _dir, progress: progress.on_state("a1", "dead", path))
    out = command(EXP).out
    assert path in out
    assert "\r" not in out
    assert "\x1b" not in out


def test_as_a_process(tmp_path):
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [sys.executable, "-m", "swarmlab.run", EXP, "scenarios=[foo]", f"models_dir={tmp_path / 'models'}"],
        env=env, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=100,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("swarmlab: scenarios: 'foo' is not usable; allowed: default, all")
    assert done.stderr.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["models"]


def test_the_default_scenarios_are_those_of_the_repository():
    assert (FOLDER / "scenarios" / "kill_last.yaml").is_file()
