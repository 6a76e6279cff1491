"""`tutelage plan VERB`: the memory, the time and the cost of a run, before anything is loaded."""

import json
from dataclasses import dataclass
from pathlib import Path

from tutelage.workflows.settings.distill import DistillSettings
from tutelage.workflows.settings.dpo import DpoSettings
from tutelage.workflows.settings.improve import ImproveSettings
from tutelage.workflows.settings.plan import PlanSettings
from tutelage.workflows.settings.pretrain import PretrainSettings
from tutelage.workflows.settings.rejection import RejectionSettings
from tutelage.workflows.settings.reward import RewardSettings
from tutelage.workflows.settings.sft import SftSettings


@dataclass(frozen=True, kw_only=True)
class Settings(PlanSettings):
    """Plan a run: memory per GPU, time by phase, what bounds it, the cheapest setting that fits, cost. It takes the
    flags of the run. `tutelage VERB ... --dry-run` is the same."""

    out: Path = Path("unused")
    """Not written to by a plan."""
    json: bool = False
    """Print the plan as JSON: bytes, seconds, operations."""


@dataclass(frozen=True, kw_only=True)
class Pretrain(Settings, PretrainSettings):
    """Plan a run of pretrain, by its own flags."""

    def __post_init__(self) -> None:
        PlanSettings.__post_init__(self)
        PretrainSettings.__post_init__(self)


@dataclass(frozen=True, kw_only=True)
class Sft(Settings, SftSettings):
    """Plan a run of sft, by its own flags."""

    def __post_init__(self) -> None:
        PlanSettings.__post_init__(self)
        SftSettings.__post_init__(self)


@dataclass(frozen=True, kw_only=True)
class Reward(Settings, RewardSettings):
    """Plan a run of reward, by its own flags."""

    def __post_init__(self) -> None:
        PlanSettings.__post_init__(self)
        RewardSettings.__post_init__(self)


@dataclass(frozen=True, kw_only=True)
class Improve(Settings, ImproveSettings):
    """Plan a run of improve, by its own flags."""

    def __post_init__(self) -> None:
        PlanSettings.__post_init__(self)
        ImproveSettings.__post_init__(self)


@dataclass(frozen=True, kw_only=True)
class Distill(Settings, DistillSettings):
    """Plan a run of distill, by its own flags."""

    def __post_init__(self) -> None:
        PlanSettings.__post_init__(self)
        DistillSettings.__post_init__(self)


@dataclass(frozen=True, kw_only=True)
class Dpo(Settings, DpoSettings):
    """Plan a run of dpo, by its own flags."""

    def __post_init__(self) -> None:
        PlanSettings.__post_init__(self)
        DpoSettings.__post_init__(self)


@dataclass(frozen=True, kw_only=True)
class Rejection(Settings, RejectionSettings):
    """Plan a run of rejection, by its own flags."""

    def __post_init__(self) -> None:
        PlanSettings.__post_init__(self)
        RejectionSettings.__post_init__(self)


COMMANDS = {
    "pretrain": Pretrain,
    "sft": Sft,
    "reward": Reward,
    "improve": Improve,
    "dpo": Dpo,
    "rejection": Rejection,
    "distill": Distill,
}


def main(settings: Settings) -> int:
    """Print the plan; the status is 1 where no setting fits."""
    from tutelage.commands.tables.plan import print_plan
    from tutelage.workflows.plan import plan

    result = plan(settings, settings)
    if settings.json:
        print(json.dumps(result.to_json(), indent=1, allow_nan=False))
    else:
        print_plan(result)
    return 0 if result.fits else 1
