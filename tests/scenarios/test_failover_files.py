"""Scenario files: which are meant, in which order, and the same topology for every size of model."""

from __future__ import annotations

from itertools import groupby, pairwise

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from swarmlab.errors import BadInput
from swarmlab.faults.schedule import Fault
from swarmlab.scenarios.failover_files import FOLDER, UNITS, load_scenarios, scale
from swarmlab.types import Span

DEFAULT = {"kill_first", "kill_middle", "kill_last", "split_replacement", "batch_of_3", "prefill"}


def names(wanted, n_blocks=16, **more):
    return [one.name for one in load_scenarios(wanted, n_blocks, **more)]


def test_the_sets():
    files = {path.stem for path in (FOLDER / "scenarios").glob("*.yaml")}
    assert set(names("default")) == set(names(["default"])) == DEFAULT
    assert set(names("all")) == files >= DEFAULT


def test_a_name_or_a_list_of_names_each_once():
    assert names("kill_last") == ["kill_last"]
    assert set(names(["kill_last", "prefill", "kill_last"])) == {"kill_last", "prefill"}
    with pytest.raises(BadInput, match=r"scenarios: 'nosuch' .*kill_last"):
        names(["kill_last", "nosuch"])


def test_scenarios_of_one_topology_follow_each_other_so_that_each_swarm_starts_once():
    scenarios = load_scenarios("all", 16)
    order = [topology for topology, _ in groupby(one.topology for one in scenarios)]
    assert len(order) == len(set(order))
    in_file = list(yaml.safe_load((FOLDER / "topologies.yaml").read_text()))
    assert order == [name for name in in_file if name in order]
    assert names(["split_replacement", "kill_last"]) == ["kill_last", "split_replacement"]


@pytest.mark.parametrize("n_blocks", [16, 17, 30, 80])
def test_every_scenario_covers_the_model_and_keeps_its_chain(n_blocks):
    for scenario in load_scenarios("all", n_blocks):
        held = {block for span in scenario.servers.values() for block in span}
        assert held == set(range(n_blocks)), scenario.name
        chain = [scenario.servers[name] for name in scenario.chain]
        assert all(left.end == right.start for left, right in pairwise(chain)), scenario.name
        if chain:
            assert (chain[0].start, chain[-1].end) == (0, n_blocks)


def test_spans_as_blocks():
    (kill_last,) = load_scenarios("kill_last", 30)
    assert kill_last.servers["a1"] == kill_last.servers["a2"] == Span(0, 9)
    assert kill_last.servers["b1"] == Span(9, 20)
    assert kill_last.servers["c1"] == Span(20, 30)
    assert load_scenarios("kill_last", 16)[0].servers["c1"] == Span(11, 16)
    assert load_scenarios("kill_last", 80)[0].servers["c1"] == Span(55, 80)


@given(st.integers(UNITS, 200), st.integers(0, UNITS - 1), st.data())
def test_neighbours_stay_neighbours_and_nobody_is_empty(n_blocks, start, data):
    end = data.draw(st.integers(start + 1, UNITS))
    span = scale(start, end, n_blocks)
    assert span.length >= 1
    assert scale(0, UNITS, n_blocks) == Span(0, n_blocks)
    if end < UNITS:
        assert scale(end, UNITS, n_blocks).start == span.end


def test_a_model_with_fewer_blocks_is_refused():
    with pytest.raises(BadInput, match=r"model.n_blocks: 15 .*at least 16"):
        load_scenarios("default", 15)


def test_what_a_file_says_is_what_is_done():
    (scenario,) = load_scenarios("split_replacement", 16)
    assert (scenario.set_name, scenario.topology, scenario.chain) == ("default", "split", ("a1", "b1", "c1"))
    assert (scenario.workload.batch, scenario.workload.prompt_tokens, scenario.workload.new_tokens) == (
        1,
        12,
        40,
    )
    (fault,) = scenario.faults
    assert (fault.fault, fault.target, fault.before_token) == (Fault.KILL, "last", 12)
    replaced = [span for name, span in scenario.servers.items() if name not in scenario.chain]
    assert replaced == [Span(8, 12), Span(12, 16)]


def test_a_port_may_be_fixed(tmp_path):
    (tmp_path / "scenarios").mkdir()
    servers = [{"name": "a", "start": 0, "end": 16, "port": 31330}, {"name": "b", "start": 0, "end": 16}]
    (tmp_path / "topologies.yaml").write_text(yaml.safe_dump({"t": servers}))
    workload = {"batch": 1, "prompt_tokens": 2, "new_tokens": 2}
    (tmp_path / "scenarios" / "s.yaml").write_text(yaml.safe_dump({"topology": "t", "workload": workload}))
    (scenario,) = load_scenarios("s", 16, tmp_path)
    assert scenario.ports == {"a": 31330}
    assert (scenario.faults, scenario.set_name) == ((), "more")
    assert names("all", folder=tmp_path) == ["s"]


def test_a_set_that_is_empty_is_refused(tmp_path):
    (tmp_path / "scenarios").mkdir()
    (tmp_path / "topologies.yaml").write_text("{}")
    with pytest.raises(BadInput, match="default"):
        load_scenarios("default", 16, tmp_path)


@pytest.mark.parametrize("content", ["[1, 2]", "a: [", ""])
def test_a_file_that_is_not_a_mapping_is_named(tmp_path, content):
    (tmp_path / "topologies.yaml").write_text(content)
    with pytest.raises(BadInput, match=r"topologies.yaml.*a YAML"):
        load_scenarios("default", 16, tmp_path)
