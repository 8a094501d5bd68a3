"""From a command line to checked settings, by Hydra."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from swarmlab.errors import BadInput
from swarmlab.settings.bounds import check
from swarmlab.settings.choices import CONFIGS, known_experiments, options
from swarmlab.settings.refusals import NAME_VALUE, in_our_words, refuse_unknown
from swarmlab.settings.schema import RunSettings


def register() -> None:
    """Make the schema known to Hydra, as the first entry of the defaults list."""
    ConfigStore.instance().store(name="schema", node=RunSettings)


def load(overrides: Sequence[str], *, elsewhere: bool = False) -> tuple[RunSettings, dict[str, Any]]:
    """Compose and check the settings that a command line means.

    :param elsewhere: they are for another machine, so that what this one lacks does not matter
    :returns: the settings, and the same fully resolved as plain values for ``config.yaml``
    :raises BadInput: if they cannot work, with one line that says what to change
    """
    register()
    overrides = spelled_out(overrides)
    _check_choices(overrides)
    try:
        with initialize_config_dir(str(CONFIGS), version_base="1.3"):
            config = compose("config", overrides=list(overrides))
    except (HydraException, OmegaConfBaseException) as error:
        raise in_our_words(error, overrides) from error
    return from_config(config, elsewhere=elsewhere)


def spelled_out(overrides: Sequence[str]) -> list[str]:
    """``model=FOLDER`` in the words of the config: it has a slash, and no name of a model has one."""
    return [part for override in overrides for part in _spelled_out(override)]


def _spelled_out(override: str) -> list[str]:
    name, _, value = override.partition("=")
    return ["model=path", f"model.path={quoted(value)}"] if name == "model" and "/" in value else [override]


def quoted(value: str) -> str:
    """As Hydra reads any text back."""
    escaped = value.replace("\\", r"\\").replace("'", r"\'")
    return f"'{escaped}'"


def combinations(overrides: Sequence[str]) -> Iterator[list[str]]:
    """The command lines of a multirun's jobs: every combination of the values that are to be swept.

    :raises BadInput: if an override cannot be read
    """
    try:
        parsed = OverridesParser.create().parse_overrides(list(overrides))
        choices = [
            [f"{one.get_key_element()}={value}" for value in one.sweep_string_iterator()]
            if one.is_sweep_override()
            else [str(one.input_line)]
            for one in parsed
        ]
    except HydraException as error:
        raise in_our_words(error, overrides) from error
    return (list(choice) for choice in product(*choices))


def from_config(config: DictConfig, *, elsewhere: bool = False) -> tuple[RunSettings, dict[str, Any]]:
    """The settings of a composed config, checked.

    :param elsewhere: as in :func:`load`
    :raises BadInput: if they cannot work
    """
    if OmegaConf.is_missing(config, "experiment"):
        raise BadInput("+exp", None, f"an experiment: {', '.join(known_experiments())}")
    try:
        resolved = OmegaConf.to_container(config, resolve=True)
        assert isinstance(resolved, dict)
        refuse_unknown(resolved, RunSettings)
        settings = OmegaConf.to_object(config)
    except OmegaConfBaseException as error:
        raise in_our_words(error, ()) from error
    assert isinstance(settings, RunSettings)
    check(settings, elsewhere=elsewhere)
    return settings, {str(name): value for name, value in resolved.items()}


def _check_choices(overrides: Sequence[str]) -> None:
    """Refuse files that configs/ does not have, and settings without a name, before Hydra looks for them."""
    groups = {path.name for path in CONFIGS.iterdir() if path.is_dir()}
    for override in overrides:
        name, _, value = override.partition("=")
        group = name.lstrip("+")
        if not group.lstrip("~").strip():
            raise BadInput("command line", override, NAME_VALUE)
        if group in groups and value not in options(group):
            raise BadInput(name, value or None, ", ".join(options(group)))
        if name == "exp":
            raise BadInput("exp", value, f"+exp={value}, with a plus")
    named = [one.partition("=")[2] for one in overrides if one.startswith("+exp=")]
    if len(named) > 1:
        raise BadInput("+exp", " ".join(named), "one experiment at a time")
