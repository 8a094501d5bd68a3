"""Placement policies from what a server process is told on its way: names and numbers."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any, get_type_hints

from swarmlab.errors import BadInput
from swarmlab.placement.policy import Policy
from swarmlab.placement.registry import POLICIES


def policy_of(name: str, settings: str | None = None) -> Policy:
    """The policy of an arm.

    :param settings: JSON object with fields of the policy; nested objects for fields that have fields
    :raises BadInput: for a policy or a field that there is not
    """
    if name not in POLICIES:
        raise BadInput("policy", name, ", ".join(POLICIES))
    return _made(POLICIES[name], json.loads(settings) if settings else {}, name)


def _made(kind: Any, values: dict[str, Any], where: str) -> Any:
    known = {entry.name for entry in fields(kind)}
    for key, value in values.items():
        if key not in known:
            raise BadInput(f"{where}.{key}", value, ", ".join(sorted(known)))
    nested = {
        key: _made(get_type_hints(kind)[key], value, f"{where}.{key}") if isinstance(value, dict) else value
        for key, value in values.items()
    }
    return kind(**nested)
