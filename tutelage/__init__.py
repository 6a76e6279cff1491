"""Tutelage: reinforcement learning from human feedback, with the people in the loop.

    import tutelage as tt

    sft = tt.sft(model="HuggingFaceTB/SmolLM2-135M", data="demonstrations.jsonl", out="runs/sft")
    reward = tt.reward(model=sft.model, data="preferences.jsonl", out="runs/reward")
    policy = tt.improve(model=sft.model, reward=reward.model, prompts="prompts.jsonl", out="runs/ppo")

Every name is imported when it is first used, so that `import tutelage` is quick and loads no torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

from tutelage.base import extras
from tutelage.base.version import __version__ as __version__

if TYPE_CHECKING:
    from tutelage import train as train
    from tutelage.algorithms.recipe import Recipe as Recipe
    from tutelage.algorithms.registry import RECIPES as RECIPES
    from tutelage.base.config.pieces import Checkpoints as Checkpoints
    from tutelage.base.config.pieces import Lora as Lora
    from tutelage.base.config.pieces import Model as Model
    from tutelage.base.config.pieces import Optimiser as Optimiser
    from tutelage.base.config.pieces import Sampling as Sampling
    from tutelage.base.config.pieces import Shape as Shape
    from tutelage.base.errors import TutelageError as TutelageError
    from tutelage.commands.terminal import complete as complete
    from tutelage.data.formats import load_demonstrations as load_demonstrations
    from tutelage.data.formats import load_preferences as load_preferences
    from tutelage.data.formats import load_prompts as load_prompts
    from tutelage.people.programs.client import StudyClient as StudyClient
    from tutelage.people.programs.signing import verify_webhook as verify_webhook
    from tutelage.workflows.distill import distill as distill
    from tutelage.workflows.distill import prepare_distill as prepare_distill
    from tutelage.workflows.dpo import dpo as dpo
    from tutelage.workflows.dpo import prepare_dpo as prepare_dpo
    from tutelage.workflows.evaluate import EvaluateResult as EvaluateResult
    from tutelage.workflows.evaluate import evaluate as evaluate
    from tutelage.workflows.export_gguf import export_gguf as export_gguf
    from tutelage.workflows.improve import improve as improve
    from tutelage.workflows.improve import prepare_improve as prepare_improve
    from tutelage.workflows.loading import load_policy as load_policy
    from tutelage.workflows.loading import load_reward as load_reward
    from tutelage.workflows.loading import load_reward_model as load_reward_model
    from tutelage.workflows.plan import PlanResult as PlanResult
    from tutelage.workflows.plan import plan as plan
    from tutelage.workflows.pretrain import prepare_pretrain as prepare_pretrain
    from tutelage.workflows.pretrain import pretrain as pretrain
    from tutelage.workflows.raters import RatersResult as RatersResult
    from tutelage.workflows.raters import raters as raters
    from tutelage.workflows.rejection import prepare_rejection as prepare_rejection
    from tutelage.workflows.rejection import rejection as rejection
    from tutelage.workflows.results import DistillResult as DistillResult
    from tutelage.workflows.results import DpoResult as DpoResult
    from tutelage.workflows.results import ImproveResult as ImproveResult
    from tutelage.workflows.results import LanguageResult as LanguageResult
    from tutelage.workflows.results import RejectionResult as RejectionResult
    from tutelage.workflows.results import RewardResult as RewardResult
    from tutelage.workflows.results import SftResult as SftResult
    from tutelage.workflows.reward import prepare_reward as prepare_reward
    from tutelage.workflows.reward import reward as reward
    from tutelage.workflows.sample import SampleResult as SampleResult
    from tutelage.workflows.sample import sample as sample
    from tutelage.workflows.serve import serve as serve
    from tutelage.workflows.settings.distill import DistillSettings as DistillSettings
    from tutelage.workflows.settings.dpo import DpoSettings as DpoSettings
    from tutelage.workflows.settings.evaluate import EvaluateSettings as EvaluateSettings
    from tutelage.workflows.settings.export import ExportGgufSettings as ExportGgufSettings
    from tutelage.workflows.settings.improve import ImproveSettings as ImproveSettings
    from tutelage.workflows.settings.plan import PlanSettings as PlanSettings
    from tutelage.workflows.settings.pretrain import PretrainSettings as PretrainSettings
    from tutelage.workflows.settings.raters import RatersSettings as RatersSettings
    from tutelage.workflows.settings.rejection import RejectionSettings as RejectionSettings
    from tutelage.workflows.settings.reward import RewardSettings as RewardSettings
    from tutelage.workflows.settings.sample import SampleSettings as SampleSettings
    from tutelage.workflows.settings.serve import ServeSettings as ServeSettings
    from tutelage.workflows.settings.sft import SftSettings as SftSettings
    from tutelage.workflows.sft import prepare_sft as prepare_sft
    from tutelage.workflows.sft import sft as sft

_NAMES = {
    "algorithms.recipe": ("Recipe",),
    "algorithms.registry": ("RECIPES",),
    "base.config.pieces": ("Checkpoints", "Lora", "Model", "Optimiser", "Sampling", "Shape"),
    "data.formats": ("load_demonstrations", "load_preferences", "load_prompts"),
    "base.errors": ("TutelageError",),
    "commands.terminal": ("complete",),
    "people.programs.client": ("StudyClient",),
    "people.programs.signing": ("verify_webhook",),
    "workflows.distill": ("distill", "prepare_distill"),
    "workflows.dpo": ("dpo", "prepare_dpo"),
    "workflows.evaluate": ("EvaluateResult", "evaluate"),
    "workflows.export_gguf": ("export_gguf",),
    "workflows.improve": ("improve", "prepare_improve"),
    "workflows.loading": ("load_policy", "load_reward", "load_reward_model"),
    "workflows.plan": ("PlanResult", "plan"),
    "workflows.pretrain": ("prepare_pretrain", "pretrain"),
    "workflows.raters": ("RatersResult", "raters"),
    "workflows.rejection": ("prepare_rejection", "rejection"),
    "workflows.results": (
        "DistillResult",
        "DpoResult",
        "ImproveResult",
        "LanguageResult",
        "RejectionResult",
        "RewardResult",
        "SftResult",
    ),
    "workflows.reward": ("prepare_reward", "reward"),
    "workflows.sample": ("SampleResult", "sample"),
    "workflows.settings.distill": ("DistillSettings",),
    "workflows.settings.dpo": ("DpoSettings",),
    "workflows.settings.evaluate": ("EvaluateSettings",),
    "workflows.settings.export": ("ExportGgufSettings",),
    "workflows.settings.improve": ("ImproveSettings",),
    "workflows.settings.plan": ("PlanSettings",),
    "workflows.settings.pretrain": ("PretrainSettings",),
    "workflows.settings.raters": ("RatersSettings",),
    "workflows.settings.rejection": ("RejectionSettings",),
    "workflows.settings.reward": ("RewardSettings",),
    "workflows.settings.sample": ("SampleSettings",),
    "workflows.serve": ("serve",),
    "workflows.settings.serve": ("ServeSettings",),
    "workflows.settings.sft": ("SftSettings",),
    "workflows.sft": ("prepare_sft", "sft"),
}
_PLACES = {name: module for module, names in _NAMES.items() for name in names}

__all__ = ["train", *sorted(_PLACES)]


def __getattr__(name: str) -> Any:
    if name == "train":
        return importlib.import_module("tutelage.train")
    if name not in _PLACES:
        raise AttributeError(f"module 'tutelage' has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(f"tutelage.{_PLACES[name]}"), name)
    except ModuleNotFoundError as error:
        raise (extras.missing(error, f"tutelage.{name}") or error) from error


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
