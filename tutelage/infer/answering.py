"""Answers to prompts as records: what sampling for people, evaluation and chat share."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from tutelage import config
from tutelage.core.batch import Rollout
from tutelage.data.chat import encode
from tutelage.data.identity import stable_id
from tutelage.data.records import Completion, Prompt
from tutelage.engines.sampling import PromptTokens, answers
from tutelage.errors import TutelageError
from tutelage.models.policy import Policy
from tutelage.rewards.completions import Completions


@dataclass(frozen=True)
class Answered:
    """Prompts, each repeated once per sample, with the tokens and texts of their answers, row by row."""

    prompts: tuple[Prompt, ...]
    rollout: Rollout
    texts: tuple[str, ...]

    @property
    def completions(self) -> Completions:
        """The answers as rewards take them."""
        return Completions(self.prompts, self.texts, self.rollout)


def answer(
    policy: Policy, prompts: Sequence[Prompt], n: int, sampling: config.Sampling, *, seed: int
) -> Answered:
    """Sample `n` answers to each prompt. Raises TutelageError when a prompt leaves no room for one."""
    if not prompts:
        raise TutelageError("There is no prompt to answer.")
    tokens = tuple(tuple(encode(prompt.messages, None, policy.tokenizer)[0]) for prompt in prompts)
    rollout = policy.generate(PromptTokens(tokens, tuple(p.id for p in prompts)), n, sampling, seed=seed)
    repeated = tuple(prompt for prompt in prompts for _ in range(n))
    return Answered(repeated, rollout, tuple(answers(policy, rollout)))


def completions(answered: Answered, sampler: str, sampling: config.Sampling) -> list[Completion]:
    """The answers as records. An id depends on the sampler, the prompt, the sample's number and the text."""
    asked = " ".join(f"{name}={value}" for name, value in asdict(sampling).items())
    group = answered.rollout.group
    return [
        Completion(
            id=stable_id(sampler, prompt.id, str(row % group), text),
            prompt_id=prompt.id,
            text=text,
            sampler=sampler,
            sampling=asked,
            finished=bool(answered.rollout.terminated[row]),
        )
        for row, (prompt, text) in enumerate(zip(answered.prompts, answered.texts, strict=True))
    ]
