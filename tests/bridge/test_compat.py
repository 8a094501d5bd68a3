"""petals finds in hivemind what it needs, name by name, and asks nobody outside the swarm."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest

from swarmlab.bridge import compat

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module", autouse=True)
def _applied():
    compat.apply()


def petals_sources() -> list[Path]:
    spec = importlib.util.find_spec("petals")
    assert spec is not None
    assert spec.origin is not None
    return sorted(Path(spec.origin).parent.rglob("*.py"))


def names_wanted_of_hivemind() -> list[str]:
    """Every name that petals takes from the top of hivemind, by import or as an attribute."""
    wanted = set()
    for path in petals_sources():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module == "hivemind" and node.level == 0:
                wanted |= {alias.name for alias in node.names}
            elif (
                isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Name)
                and node.value.id == "hivemind"
            ):
                wanted.add(node.attr)
    return sorted(wanted)


@pytest.mark.parametrize("name", sorted(compat.MOVED_NAMES))
def test_moved_name_is_what_its_module_has(name):
    import hivemind

    assert getattr(hivemind, name) is getattr(importlib.import_module(compat.MOVED_NAMES[name]), name)


@pytest.mark.parametrize("name", names_wanted_of_hivemind())
def test_petals_finds(name):
    import hivemind

    assert hasattr(hivemind, name)


def test_no_name_is_moved_that_petals_does_not_want_or_hivemind_has():
    code = "import hivemind; print(*dir(hivemind))"
    there = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    wanted = set(names_wanted_of_hivemind())
    assert set(compat.MOVED_NAMES) == wanted - set(there)


def test_a_name_that_hivemind_lost_is_named(monkeypatch):
    monkeypatch.setitem(compat.MOVED_NAMES, "LostName", "hivemind.utils")
    with pytest.raises(ImportError, match=r"no LostName in hivemind\.utils"):
        compat.apply()


def test_applying_twice_changes_nothing():
    import hivemind

    before = dict(vars(hivemind))
    compat.apply()
    assert dict(vars(hivemind)) == before


def test_the_version_check_asks_nobody(monkeypatch):
    import requests
    from petals.cli import run_server

    def refuse(*args, **_kwargs):
        raise AssertionError(f"asked the network: {args}")

    monkeypatch.setattr(requests, "get", refuse)
    monkeypatch.setattr(requests.Session, "request", refuse)
    run_server.validate_version()


def test_p2p_daemons_look_for_no_router_and_no_relay():
    from hivemind.p2p import P2P

    defaults = {name: p.default for name, p in inspect.signature(P2P.create).parameters.items()}
    for option in ("auto_nat", "nat_port_map", "use_relay", "use_auto_relay", "use_ipfs"):
        assert defaults[option] is False


def test_libraries_are_told_to_stay_offline():
    import huggingface_hub.constants
    import transformers.utils.hub

    assert huggingface_hub.constants.HF_HUB_OFFLINE
    assert transformers.utils.hub.is_offline_mode()


def test_a_fork_shares_no_lock_and_no_folder(tmp_path, monkeypatch):
    from hivemind.p2p import P2P
    from hivemind.utils.asyncio import _AsyncContextWrapper
    from hivemind.utils.mpfuture import MPFuture, SharedBytes

    def locks() -> list[object]:
        return [
            MPFuture._initialization_lock, MPFuture._update_lock, SharedBytes._lock,
            _AsyncContextWrapper.EXECUTOR_LOCK,
        ]  # fmt: skip

    monkeypatch.setattr(P2P, "_UNIX_SOCKET_PREFIX", P2P._UNIX_SOCKET_PREFIX)
    before = locks()
    compat.after_fork(tmp_path)
    assert not any(old is new for old, new in zip(before, locks(), strict=True))
    assert f"/unix{tmp_path}/" == P2P._UNIX_SOCKET_PREFIX


def test_no_other_lock_of_hivemind_or_petals_is_made_at_import():
    """A new version may add one; it would be shared by all forks, and held for ever by one that is killed in it."""
    import hivemind
    import petals

    known = {"MPFuture._initialization_lock", "MPFuture._update_lock", "SharedBytes._lock"}
    known |= {"_AsyncContextWrapper.EXECUTOR_LOCK"}
    found = set()
    for package in (hivemind, petals):
        prefix = package.__name__ + "."
        for module in [module for name, module in sys.modules.items() if name.startswith(prefix)]:
            for name, value in list(vars(module).items()):
                if type(value).__module__.startswith("multiprocessing.synchronize"):
                    found.add(name)
                elif inspect.isclass(value) and value.__module__ == module.__name__:
                    found |= {
                        f"{value.__name__}.{attribute}"
                        for attribute, held in vars(value).items()
                        if type(held).__module__.startswith("multiprocessing.synchronize")
                    }
    assert found == known


@pytest.mark.swarm
def test_a_client_process_ends_without_a_word(tmp_path):
    code = """
from swarmlab.bridge import compat
compat.apply()
import hivemind
from hivemind.moe.client.remote_expert_worker import RemoteExpertWorker
import petals, asyncio
dht = hivemind.DHT(start=True)
async def use():
    return (await dht.replicate_p2p()).peer_id
print(RemoteExpertWorker.run_coroutine(use()))
"""
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONWARNINGS": "ignore", "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=env, timeout=100, check=False
    )
    assert done.returncode == 0
    assert done.stdout.strip()
    assert "Traceback" not in done.stderr, done.stderr
    assert "no current event loop" not in done.stderr, done.stderr
