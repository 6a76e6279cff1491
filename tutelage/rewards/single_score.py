"""Reward of a run for other trainers, which score one completion at a time, from files."""

import json
from collections.abc import Sequence

from tutelage.base import config
from tutelage.base.errors import TutelageError
from tutelage.data.record_files import from_row, to_row
from tutelage.data.records import Prompt
from tutelage.rewards.factory import make_reward, rewards_without_model
from tutelage.rewards.judge import PairwiseJudgeReward
from tutelage.rewards.reward import Completions, made_of
from tutelage.rewards.rubric import RubricReward
from tutelage.rewards.scores import scores_of


def prompt_text(prompt: Prompt) -> str:
    """Prompt as one line of JSON, with its own columns; read by `ExportedReward`."""
    return json.dumps(to_row(prompt), ensure_ascii=False)


class ExportedReward:
    """scale · score, clipped to ± clip, for single completions. `names` are those of `--reward`."""

    def __init__(self, names: Sequence[str], model: str, *, scale: float = 1.0, clip: float | None = None) -> None:
        self.reward = make_reward(names, None, config.Model(model))
        self.scale, self.clip = scale, clip

    def __call__(self, prompt: str, answer: str) -> float:
        """Score of a completion of a prompt written by `prompt_text`."""
        completions = Completions([from_row(Prompt, json.loads(prompt))], [answer])
        score = self.scale * float(scores_of(self.reward, completions)[0])
        return score if self.clip is None else min(max(score, -self.clip), self.clip)


def refuse_groups(names: Sequence[str]) -> None:
    """Raise TutelageError for a reward that compares the completions of a prompt, or leaves out the same criteria for
    all of them."""
    for name, reward in rewards_without_model(names).items():
        if isinstance(reward, PairwiseJudgeReward):
            raise TutelageError(
                f"The reward {name} compares the completions of a prompt, but other trainers score one completion at a "
                "time: use a judge that rates."
            )
        if any(isinstance(part, RubricReward) and part.dropout for part in made_of(reward)):
            raise TutelageError(
                f"The reward {name} leaves the same criteria out for all completions of a prompt, but other trainers "
                "score one completion at a time: set dropout = 0 in its file."
            )
