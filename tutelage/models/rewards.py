"""What is said about sampled answers: the reward's score, the reference's log-probabilities, the critic's values."""

import importlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from numbers import Real
from typing import Protocol

import torch
from torch import Tensor

from tutelage import config
from tutelage.core.batch import Rows
from tutelage.data.chat import encode, pad_token_id
from tutelage.data.records import Prompt
from tutelage.errors import TutelageError
from tutelage.models.budget import Budget
from tutelage.models.heads import ScalarModel, load_reward_model
from tutelage.models.policy import Policy
from tutelage.models.rows import Encoded, by_tokens, collate

TextReward = Callable[[list[str], list[str]], Sequence[float]]


class Reward(Protocol):
    """Scores answers. `rows` are their tokens as sampled, `texts` the same answers decoded. Float[B]"""

    def __call__(self, rows: Rows, prompts: Sequence[Prompt], texts: Sequence[str]) -> Tensor: ...


@dataclass(frozen=True)
class ModelReward:
    """A reward model. It reads the sampled tokens themselves where it has the policy's vocabulary, and the
    decoded text, tokenised its own way, where it has another."""

    model: ScalarModel
    same_tokens: bool
    budget: Budget = field(default_factory=lambda: Budget(16_384))

    @torch.no_grad()
    def __call__(self, rows: Rows, prompts: Sequence[Prompt], texts: Sequence[str]) -> Tensor:
        if not self.same_tokens:
            rows = self._encoded(prompts, texts)
        return self.budget.spend(self._scores, rows.to(self.model.device))

    def _scores(self, rows: Rows) -> Tensor:
        scores = torch.zeros(len(rows), device=self.model.device)
        for index in self.budget.parts(partial(by_tokens, rows.lengths())):
            scores[index] = self.model.scores(Rows.trimmed(rows.rows(index)))
        return scores

    def _encoded(self, prompts: Sequence[Prompt], texts: Sequence[str]) -> Rows:
        tokenizer = self.model.tokenizer
        pairs = (encode(p.messages, text, tokenizer) for p, text in zip(prompts, texts, strict=True))
        encoded = [Encoded(tuple(prompt), tuple(response)) for prompt, response in pairs]
        return collate(encoded, pad_token_id(tokenizer), self.model.device)


@dataclass(frozen=True)
class FunctionReward:
    """A function over texts: (last user messages, answers) → scores."""

    function: TextReward
    name: str

    def __call__(self, rows: Rows, prompts: Sequence[Prompt], texts: Sequence[str]) -> Tensor:
        questions = [prompt.messages[-1].content if prompt.messages else "" for prompt in prompts]
        try:
            scores = list(self.function(questions, list(texts)))
        except Exception as error:
            raise TutelageError(
                f"The reward function {self.name} raised {type(error).__name__}: {error}"
            ) from error
        if len(scores) != len(texts):
            raise TutelageError(
                f"The reward function {self.name} returned {len(scores)} scores for {len(texts)} answers."
            )
        for number, score in enumerate(scores):
            if not _is_a_score(score):
                raise TutelageError(
                    f"The reward function {self.name} returned {score!r} for answer {number + 1} of {len(texts)} "
                    f"({texts[number][:60]!r}); it must be a finite number."
                )
        return torch.tensor([float(score) for score in scores], device=rows.prompt.device)


def _is_a_score(given: object) -> bool:
    return not isinstance(given, bool) and isinstance(given, Real) and math.isfinite(given)


@dataclass(frozen=True)
class WeightedReward:
    """Several rewards added up: Σ weight · score."""

    parts: tuple[tuple[float, Reward], ...]

    def __call__(self, rows: Rows, prompts: Sequence[Prompt], texts: Sequence[str]) -> Tensor:
        scores = [weight * part(rows, prompts, texts).to(rows.prompt.device) for weight, part in self.parts]
        return torch.stack(scores).sum(0)


def text_function(name: str) -> TextReward:
    """The function that `module:function` names."""
    module, _, attribute = name.partition(":")
    try:
        function = getattr(importlib.import_module(module), attribute)
    except ImportError as error:
        raise TutelageError(f"The module of {name!r} cannot be imported: {error}.") from error
    except AttributeError as error:
        raise TutelageError(f"The module {module!r} has no function {attribute!r}.") from error
    if not callable(function):
        raise TutelageError(f"{name!r} is not a function.")
    return function


def make_reward(names: Sequence[str], policy: Policy | None, model: config.Model) -> Reward:
    """A reward from its names: folders of reward models, or `module:function`, each with an optional `=weight`.

    Without a policy whose tokens they could read, reward models read the text of the answers: see `score_texts`.
    """
    parts = []
    for given in names:
        name, equals, text = given.partition("=")
        parts.append((_weight(given, text) if equals else 1.0, _one_reward(name, policy, model)))
    if not parts:
        raise TutelageError(
            "No reward was given: name a reward-model folder or module:function with --reward."
        )
    return parts[0][1] if len(parts) == 1 and parts[0][0] == 1.0 else WeightedReward(tuple(parts))


def _weight(given: str, text: str) -> float:
    try:
        weight = float(text)
    except ValueError as error:
        raise TutelageError(f"The weight of the reward {given!r} is not a number.") from error
    if not math.isfinite(weight) or not weight:
        raise TutelageError(f"The weight of the reward {given!r} must be a finite number other than 0.")
    return weight


def score_texts(reward: Reward, prompts: Sequence[Prompt], texts: Sequence[str]) -> list[float]:
    """Scores of answers of which only the text is known. `reward` was made without a policy."""
    nothing = torch.zeros(len(texts), 0)
    rows = Rows(
        prompt=nothing.long(), prompt_mask=nothing.bool(), response=nothing.long(), mask=nothing.bool()
    )
    return [float(score) for score in reward(rows, prompts, texts)]


def _one_reward(name: str, policy: Policy | None, model: config.Model) -> Reward:
    if ":" in name and "/" not in name.partition(":")[0]:
        return FunctionReward(text_function(name), name)
    scalar = load_reward_model(config.Model(path=name, dtype=model.dtype, device=model.device))
    readable = policy is not None and same_vocabulary(policy.tokenizer, scalar.tokenizer)
    return ModelReward(scalar, same_tokens=readable)


def same_vocabulary(first: object, second: object) -> bool:
    """Whether ids of one tokenizer mean the same to the other; a pad token of its own does not count."""
    own: dict[str, int] = dict(first.get_vocab())  # type: ignore[attr-defined]
    other: dict[str, int] = dict(second.get_vocab())  # type: ignore[attr-defined]
    shared = own.keys() & other.keys()
    return all(own[token] == other[token] for token in shared) and len(own.keys() ^ other.keys()) <= 1
