"""Test-time preference optimisation (Li et al. 2025, arXiv 2501.12895): a search over completions, guided by textual
critiques.

    cache ← W sampled completions, each with its score
    D times:  textual loss      why is the best completion in the cache better than the worst?
              textual gradient  what should be changed in the best one?
              revise            W new completions that follow this advice; score them into the cache
    the result is the best of the cache, from any round

No weights change: the "loss" and the "gradient" are texts written by the model, about completions selected by the
score. D = 2 and W = 5 are the paper's settings.

Requirements: the model must be able to compare two completions, derive advice and follow it. The published results are
for models of 22 and 70 billion parameters; the authors name instruction following as the condition. Revisions by a
weaker model score no better than plain samples, and the best of W (D + 1) plain samples (`best_of_n`) is then as good
and cheaper. `followed` tells the two cases apart.

Not to be confused with triple preference optimisation, a training loss that other libraries call TPO.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tutelage.base import config
from tutelage.base.config.sections import SearchSettings
from tutelage.data.llm_judge import conversation_text
from tutelage.data.records import Messages, Prompt, user
from tutelage.rewards.reward import Completions, Reward
from tutelage.rewards.scores import scores_of
from tutelage.rollout.inference.best_of_n import ScoredReply, best_first, best_of_n
from tutelage.rollout.samplers import EndpointReply, Sampler

LOSS = """\
Two answers were given to the request below. Somebody who knows what is wanted found the first one better.

[Request]
{request}
[End of request]

[Better answer]
{chosen}
[End of better answer]

[Worse answer]
{rejected}
[End of worse answer]

What does the better answer do well that the worse one does not? What is weak in the worse one, and what is still weak \
in the better one? Write a short critique. Do not write a new answer."""

GRADIENT = """\
Below are a request, an answer to it, and a critique that compares this answer with a worse one.

[Request]
{request}
[End of request]

[Answer]
{chosen}
[End of answer]

[Critique]
{critique}
[End of critique]

From the critique, derive what should be changed in the answer so that it becomes better still. Write a short list of \
concrete instructions. Do not write a new answer."""

UPDATE = """\
Improve an answer by following instructions.

[Request]
{request}
[End of request]

[Answer]
{chosen}
[End of answer]

[Instructions]
{advice}
[End of instructions]

Write the improved answer to the request, and nothing else."""


@dataclass(frozen=True)
class SearchResult:
    """Search result for one prompt: all completions, best first, and the advice of each round.

    `rounds` may be smaller than requested: the search stops if all completions have the same score.
    """

    prompt: Prompt
    candidates: tuple[ScoredReply, ...]
    advice: tuple[str, ...] = ()

    @property
    def best(self) -> ScoredReply:
        return self.candidates[0]

    @property
    def best_sampled(self) -> ScoredReply:
        """Best completion of those sampled before the first round."""
        return next(one for one in self.candidates if one.round == 0)

    @property
    def rounds(self) -> int:
        """Number of completed rounds."""
        return len(self.advice)


def optimise_at_test_time(
    sampler: Sampler,
    reward: Reward,
    prompts: Sequence[Prompt],
    search: SearchSettings,
    sampling: config.Sampling,
    *,
    seed: int,
    done: Callable[[int], None] = lambda round: None,
) -> list[SearchResult]:
    """Complete every prompt by test-time preference optimisation; `done` is called after every round.

    Duplicate completions of a prompt are scored once. Raises TutelageError without prompts, and the errors of
    sampler and reward.
    """
    sampled = best_of_n(sampler, reward, prompts, search.width, sampling, seed=seed)
    results = [SearchResult(prompt, tuple(group)) for prompt, group in zip(prompts, sampled, strict=True)]
    spoken = config.Sampling(temperature=sampling.temperature, max_new_tokens=search.words)
    for number in range(1, search.rounds + 1):
        going = [i for i, one in enumerate(results) if _differ(one)]
        if not going:
            break
        some = [results[i] for i in going]
        own = seed + 3 * number  # a separate stream for each question of each round
        losses = [_question(LOSS, one, rejected=one.candidates[-1].text) for one in some]
        critiques = _single(sampler(losses, 1, spoken, seed=own))
        gradients = [_question(GRADIENT, one, critique=text) for one, text in zip(some, critiques, strict=True)]
        advice = _single(sampler(gradients, 1, spoken, seed=own + 1))
        updates = [_question(UPDATE, one, advice=text) for one, text in zip(some, advice, strict=True)]
        revisions = sampler(updates, search.width, sampling, seed=own + 2)
        scored = _scored(reward, some, revisions, number)
        for i, text, revised in zip(going, advice, scored, strict=True):
            candidates = best_first([*results[i].candidates, *revised])
            results[i] = SearchResult(results[i].prompt, tuple(candidates), (*results[i].advice, text))
        done(number)
    return results


def followed(found: Sequence[SearchResult]) -> bool | None:
    """Whether the revisions score better on average than the plain samples of the same prompts; None without
    revisions."""
    pairs = []
    for one in found:
        revised = [c.score for c in one.candidates if c.round]
        plain = [c.score for c in one.candidates if not c.round]
        if revised:
            pairs.append(sum(revised) / len(revised) - sum(plain) / len(plain))
    return sum(pairs) > 0 if pairs else None


def _differ(found: SearchResult) -> bool:
    """Whether the best and the worst completion have different scores."""
    ends = found.candidates[0], found.candidates[-1]
    return (ends[0].score, ends[0].finished) != (ends[1].score, ends[1].finished)


def _scored(
    reward: Reward, found: Sequence[SearchResult], replies: Sequence[Sequence[EndpointReply]], number: int
) -> list[list[ScoredReply]]:
    """Replies as scored candidates; only texts that are new for their prompt are scored."""
    score_of = [{one.text: one.score for one in item.candidates} for item in found]
    fresh = [
        (place, reply)
        for place, group in enumerate(replies)
        for reply in {reply.text: reply for reply in group}.values()
        if reply.text not in score_of[place]
    ]
    prompts = [found[place].prompt for place, _ in fresh]
    answers, ended = [reply.text for _, reply in fresh], [reply.finished for _, reply in fresh]
    completions = Completions(prompts, answers, terminated=ended)
    scores = scores_of(reward, completions).tolist() if fresh else []
    for (place, reply), value in zip(fresh, scores, strict=True):
        score_of[place][reply.text] = value
    return [
        [ScoredReply(reply.text, score_of[place][reply.text], reply.finished, number) for reply in group]
        for place, group in enumerate(replies)
    ]


def _single(replies: Sequence[Sequence[EndpointReply]]) -> list[str]:
    """Text of the only reply to each conversation."""
    return [group[0].text.strip() for group in replies]


def _question(template: str, result: SearchResult, **parts: str) -> Messages:
    """Template filled with the best completion and the conversation: one text, unless it is a single question."""
    messages = result.prompt.messages
    request = messages[0].content if len(messages) == 1 else conversation_text(messages)
    return user(template.format(request=request, chosen=result.best.text, **parts))
