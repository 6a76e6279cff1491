"""Common starting point of the experiments."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

import torch

from tutelage.base import config
from tutelage.base.errors import TutelageError
from tutelage.commands.loading import load_policy
from tutelage.commands.sample.settings import SampleSettings
from tutelage.data.formats import load_prompts
from tutelage.data.records import Split
from tutelage.data.worlds import gold
from tutelage.demo.rounds.round import ROUND, RoundPlace, Story, run_stages
from tutelage.demo.rounds.tutoring import GOLD, TutoringScale, tutoring
from tutelage.models.policy import Policy
from tutelage.rewards.factory import make_reward
from tutelage.rewards.function import FunctionReward
from tutelage.rewards.reward import Reward
from tutelage.rollout.generator import EncodedPrompt, encode_prompts

NEEDED = ("pretrain", "sft", "sample", "judge", "reward", "improve")
"""Stages of a demonstration that the experiments require."""


@dataclass(frozen=True)
class Start:
    """Finished demonstration. `fingerprint` changes with anything that its models depend on."""

    folder: Path
    fingerprint: str
    sampling: config.Sampling
    engine: config.EngineName = "auto"

    def policy(self, stage: str = "sft") -> Policy:
        """Load the model of a stage."""
        return load_policy(self.model(stage), trainable=True)

    def model(self, stage: str) -> config.Model:
        """Path of the model of a stage."""
        return config.Model(path=str(self.folder / stage / "model"), engine=self.engine)

    def score(self, policy: Policy) -> Reward:
        """The demonstration's reward model, for the completions of `policy`."""
        model = self.model("reward")
        return make_reward([model.path], policy, model)

    def questions(self, split: Split, policy: Policy) -> list[EncodedPrompt]:
        """Prompts of a split, as text and as tokens."""
        name = "prompts_train.jsonl" if split == "train" else "prompts_held_out.jsonl"
        prompts = load_prompts(self.folder / "data" / name).records
        return encode_prompts(prompts, policy.tokenizer)


def gold_reward() -> Reward:
    """Gold reward of the simulated raters, hidden from the policy."""
    return FunctionReward(lambda prompts, answers: gold(prompts, answers), GOLD)


def find(folder: Path, engine: config.EngineName = "auto") -> Start:
    """Demonstration in a folder. Raises TutelageError if one of the stages in NEEDED is not finished."""
    try:
        entries = json.loads((folder / ROUND).read_text(encoding="utf-8"))["stages"]
        stages = {stage["name"]: stage for stage in entries}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TutelageError(
            f"{folder} holds no demonstration ({type(error).__name__}): give the folder that tutelage demo wrote, or "
            "leave --from out and one is made."
        ) from error
    foreign = [name for name in NEEDED if name not in stages]
    if foreign:
        raise TutelageError(
            f"The round in {folder} has no stage {', '.join(foreign)}, with which the experiments begin: give the "
            "folder of a tutelage demo on the tutoring world, or leave --from out and one is made."
        )
    missing = [name for name in NEEDED if stages[name].get("status") != "done"]
    if missing:
        raise TutelageError(
            f"The demonstration in {folder} has not finished {', '.join(missing)}; run tutelage demo --out {folder} "
            "again."
        )
    fingerprint = "/".join(str(stages[name]["fingerprint"]) for name in NEEDED)
    sampling = config.load(SampleSettings, folder / "sample" / "config.json")
    return Start(folder, hashlib.sha256(fingerprint.encode()).hexdigest()[:16], sampling.sampling, engine)


def make(folder: Path, *, seed: int, quiet: bool, engine: config.EngineName = "auto") -> Start:
    """Run the unfinished stages of the demonstration that the experiments require."""
    round_ = tutoring(RoundPlace(folder, seed, quiet, engine), TutoringScale())
    stages = [stage for stage in round_.stages() if stage.name in NEEDED]
    story = Story(
        title="The world of the laboratory",
        about="The models that the experiments begin with, made as the demonstration makes them.",
        command=f"tutelage lab --seed {seed}",
    )
    run_stages(folder, story, stages)
    return find(folder, engine)


@torch.no_grad()
def between(start: Start, share: float) -> Policy:
    """θ_SFT + share · (θ_PPO − θ_SFT), with the SFT model as its reference: 0 is SFT, 1 the demonstration's policy,
    and values beyond 1 extrapolate."""
    policy = start.policy("sft")
    policy.freeze_reference()
    for own, other in zip(policy.model.parameters(), start.policy("improve").model.parameters(), strict=True):
        own += share * (other - own)
    return policy
