"""What an experiment must show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from swarmlab.errors import BadInput

EXPERIMENTS = Path(__file__).resolve().parents[3] / "experiments"


def read_expected(exp: str, path: Path | None = None) -> dict[str, Any]:
    """
    :param path: None means ``experiments/<exp>/expected.yaml``
    :raises BadInput: if nothing says it, or it is no mapping in YAML
    """
    source = path or EXPERIMENTS / exp / "expected.yaml"
    if path is None and not source.is_file():
        known = sorted(one.parent.name for one in EXPERIMENTS.glob("*/expected.yaml"))
        raise BadInput("exp", exp, f"one of {', '.join(known)}")
    try:
        expected = yaml.safe_load(source.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise BadInput("expected", str(source), f"a readable YAML file ({type(error).__name__})") from error
    if not isinstance(expected, dict):
        raise BadInput("expected", str(source), "a YAML mapping")
    return expected


def require_mappings(expected: dict[str, Any], *names: str) -> None:
    """
    :raises BadInput: if one of what a judge looks up by name is not there
    """
    for name in names:
        if not isinstance(expected.get(name), dict):
            raise BadInput("expected", name, f"a mapping called {name}")
