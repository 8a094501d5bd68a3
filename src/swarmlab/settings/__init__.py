"""The settings of a run: a schema with units, checked before anything starts."""

from swarmlab.settings.choices import ARMS_OF, CONFIGS, ROOT, STEERED, known_experiments
from swarmlab.settings.command_line import MULTIRUN, check_command_line
from swarmlab.settings.compose import combinations, from_config, load, quoted, register, spelled_out
from swarmlab.settings.schema import ClientSettings, RunSettings

__all__ = [
    "ARMS_OF",
    "CONFIGS",
    "MULTIRUN",
    "ROOT",
    "STEERED",
    "ClientSettings",
    "RunSettings",
    "check_command_line",
    "combinations",
    "from_config",
    "known_experiments",
    "load",
    "quoted",
    "register",
    "spelled_out",
]
