"""What the command line of ``python -m swarmlab.run`` asks for, checked before anything is started."""

from __future__ import annotations

from collections.abc import Sequence

from swarmlab.errors import BadInput
from swarmlab.settings.compose import combinations, load
from swarmlab.settings.schema import RunSettings

MULTIRUN = {"-m", "--multirun"}
SHOWN = ("job", "hydra", "all")
# of Hydra's options those that make sense here, and what a value of theirs can be
OPTIONS: dict[str, Sequence[str] | None] = {
    "-m": None, "--multirun": None, "--help": None, "-h": None, "--hydra-help": None, "--version": None,
    "--cfg": SHOWN, "-c": SHOWN, "--resolve": None,
}  # fmt: skip


def check_command_line(arguments: Sequence[str]) -> list[RunSettings]:
    """Settings of every job that a command line asks for.

    :returns: the settings of each job; none if Hydra is asked for something else
    :raises BadInput: for the first job that cannot work, before any is run
    """
    options, overrides = _split(arguments)
    if not options:
        return [load(overrides)[0]]
    if options <= MULTIRUN:
        return [load(combination)[0] for combination in combinations(overrides)]
    if any(override.startswith("+exp=") for override in overrides):
        load(overrides)
    return []  # other options, such as --help and --cfg, start nothing and are Hydra's own business


def _split(arguments: Sequence[str]) -> tuple[set[str], list[str]]:
    """Options without their values, and overrides.

    :raises BadInput: for an option that there is not, or one that lacks its value
    """
    options: set[str] = set()
    overrides: list[str] = []
    left = iter(arguments)
    for argument in left:
        if not argument.startswith("-"):
            overrides.append(argument)
            continue
        name, given, value = argument.partition("=")
        if name not in OPTIONS:
            raise BadInput("command line", argument, f"settings as name=value, and {', '.join(OPTIONS)}")
        choices = OPTIONS[name]
        if choices is not None and (value if given else next(left, None)) not in choices:
            raise BadInput("command line", argument, f"{name} {' or '.join(choices)}")
        options.add(name)
    return options, overrides
