"""Tutelage: reinforcement learning from human feedback, with the people in the loop.

    import tutelage as tt

    sft = tt.sft(model="HuggingFaceTB/SmolLM2-135M", data="demonstrations.jsonl", out="runs/sft")
    reward = tt.reward(model=sft.model, data="preferences.jsonl", out="runs/reward")
    policy = tt.improve(model=sft.model, reward=reward.model, prompts="prompts.jsonl", out="runs/ppo")

Every name is imported when it is first used, so that `import tutelage` is quick and loads no torch. Functions,
settings and results of the commands follow from their table; `__init__.pyi` (`scripts/interface.py` writes it) has all
names for editors and type checkers.
"""

import importlib
from typing import Any

from tutelage.base import extras
from tutelage.base.modules import lazy_names
from tutelage.base.version import __version__ as __version__
from tutelage.commands.table import COMMANDS

_NAMES = {
    "algorithms.recipe": ("Recipe",),
    "algorithms.registry": ("RECIPES",),
    "base.concurrency": ("Calls",),
    "base.config.sections": ("Checkpoints", "Lora", "Model", "Optimiser", "Sampling", "Shape"),
    "base.errors": ("TutelageError",),
    "commands.export.run": ("export_gguf",),
    "commands.export.settings": ("ExportGgufSettings",),
    "commands.loading": ("load_policy", "load_reward", "load_reward_model"),
    "commands.terminal": ("complete",),
    "data.formats": ("load_demonstrations", "load_preferences", "load_prompts"),
    "people.programs.client": ("StudyClient",),
    "people.programs.signatures": ("verify_webhook",),
}
_PLACES = {name: f"tutelage.{module}" for module, names in _NAMES.items() for name in names}
for _command in COMMANDS:
    _PLACES |= _command.names

__all__ = ["train", *sorted(_PLACES)]


_get, _names = lazy_names(__name__, _PLACES)


def __getattr__(name: str) -> Any:
    if name == "train":
        return importlib.import_module("tutelage.train")
    try:
        return _get(name)
    except ModuleNotFoundError as error:
        raise (extras.missing(error, f"tutelage.{name}") or error) from error


def __dir__() -> list[str]:
    return sorted({*_names(), "train"})
