"""Finds mistakes in the arguments of petals' server command before any server starts.

The options are read from petals' source with ``ast``: importing it would take seconds, and its parser exists only
inside its ``main``.
"""

from __future__ import annotations

import argparse
import ast
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn

from swarmlab.errors import BadInput
from swarmlab.health.addresses import ANYWHERE, own_addresses, unroutable_block

TYPES = {
    "int": int,
    "float": float,
}  # of any other, any text is let through: petals says what it thinks of it
PLAIN = ("action", "nargs")


class _Parser(argparse.ArgumentParser):
    """Raises what argparse would print."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(message)


def check_server_argv(argv: Sequence[str], field: str, *, here: bool = False) -> None:
    """
    :param field: the setting that the arguments come from
    :param here: whether the whole swarm is on this machine
    :raises BadInput: if petals' server would not start with them, or if no client would find a way to it
    """
    try:
        given = _parser().parse_args([str(one) for one in argv])
    except ValueError as error:
        raise BadInput(field, " ".join(map(str, argv)), f"arguments of petals' server ({error})") from None
    told = [*(given.announce_maddrs or ()), *([given.public_ip] if given.public_ip else ())]
    for text in (*told, *(given.host_maddrs or ())):
        address = text.removeprefix("/ip4/").partition("/")[0]
        _check_address(address, field, listens=text not in told, here=here)
    # petals takes neither beside the addresses that each server of a swarm gets, and would end at its start
    for name, value in (("--public_ip", given.public_ip), ("--port", given.port)):
        if value is not None:
            raise BadInput(
                field, f"{name} {value}", f"arguments without addresses; {_behind_nat(given.public_ip)}"
            )


def _behind_nat(address: str | None) -> str:
    return f"behind NAT: cluster.public_ip={address or 'ADDRESS'} cluster.bind=node"


def _check_address(address: str, field: str, *, listens: bool, here: bool) -> None:
    if listens and address == ANYWHERE:
        return
    if (block := unroutable_block(address)) is not None:
        raise BadInput(field, address, f"an address that libp2p tells others of, unlike those in {block}")
    is_ipv4 = address.count(".") == 3
    own = [one for one in own_addresses() if unroutable_block(one) is None]
    if here and is_ipv4 and not address.startswith("127.") and address not in own:
        elsewhere = "" if listens else f"; {_behind_nat(address)}"
        raise BadInput(field, address, f"an address of this machine: {', '.join(own)}{elsewhere}")


@cache
def _parser() -> argparse.ArgumentParser:
    package = find_spec("petals")  # found, not imported
    assert package is not None
    assert package.origin is not None
    source = Path(package.origin).parent / "cli" / "run_server.py"
    parser = _Parser(add_help=False, allow_abbrev=True)
    for call in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        if isinstance(call, ast.Call) and getattr(call.func, "attr", "") == "add_argument":
            names = [one.value for one in call.args if isinstance(one, ast.Constant)]
            if all(str(name).startswith("-") for name in names):
                parser.add_argument(*map(str, names), **_options(call))
    return parser


def _options(call: ast.Call) -> dict[str, Any]:
    given = {one.arg: one.value for one in call.keywords}
    options: dict[str, Any] = {
        name: value.value for name in PLAIN if isinstance(value := given.get(name), ast.Constant)
    }
    kind = given.get("type")
    if isinstance(kind, ast.Name) and kind.id in TYPES:
        options["type"] = TYPES[kind.id]
    return options
