"""Rollouts of episodes: a generator that plays each with an environment, turn by turn.

A row depends on the seed, its prompt and its number alone, as those of other generators do.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain, groupby

import torch

from tutelage.base import config
from tutelage.base.concurrency import awaited
from tutelage.base.nouns import counted
from tutelage.core.batch import Branches, Rollout
from tutelage.core.rows import EncodedRow, collate, right_padded
from tutelage.data.chat_tokens import pad_token_id
from tutelage.data.records import Messages, Prompt
from tutelage.engines.interface import PromptTokens
from tutelage.engines.sampling import TextVocabulary
from tutelage.rollout.environment import REDRAWS, Environment, Episodes, EpisodeText, Trace, TurnRequest
from tutelage.rollout.generator import Generator, RolloutError, SampledCompletion, assemble

LOST = 0.1
"""Share of prompts that may be left out of a rollout for faults."""


class Player:
    """Generator of episodes with an environment; `generator` samples their turns.

    `prompts` are the records of all prompts by id, whose own columns the environment reads, `context` is the length of
    the policy's context; that of a generator with a shorter one (`generator.context`) applies as well. An episode that
    ends at a limit is truncated, and its environment returns 0. After a fault an episode is played again, up to REDRAWS
    times; then its outcome is NaN, so that its prompt is left out of the step, as is one that leaves no room for a
    turn.

    Raises TutelageError if the chat template does not show the tools, and whatever `play` raises.
    """

    def __init__(
        self,
        generator: Generator,
        environment: Environment,
        prompts: Mapping[str, Prompt],
        vocabulary: TextVocabulary,
        context: int | None = None,
    ) -> None:
        self.generator, self.environment, self.prompts, self.context = generator, environment, prompts, context
        self.text = EpisodeText(vocabulary, environment.tools)
        self._device = torch.device("cpu")

    def sync(self, version: int) -> None:
        """See `Generator.sync`."""
        self.generator.sync(version)

    def generate(
        self,
        prompts: PromptTokens,
        n: int,
        sampling: config.Sampling,
        *,
        seed: int,
        scored_first: frozenset[str] = frozenset(),
    ) -> Rollout:
        """`n` episodes of each prompt, see `Generator`. No row is scored first."""
        traces = [Trace(self.prompts[name], number) for name in prompts.ids for number in range(n)]
        contexts = [one for one in (self.context, getattr(self.generator, "context", None)) if one is not None]
        table = Episodes(self.environment, self.text, sampling, seed, min(contexts, default=None))
        first = dict(zip(prompts.ids, prompts.tokens, strict=True))
        playing = [awaited(table.play(trace)) for trace in traces]
        try:
            for requests in table.rounds(len(traces)):
                self._sample(requests, first, n, sampling, seed)
        finally:
            for call in playing:
                call.stop()
        _check_faults(traces, table.faults)
        return self._rollout(prompts, n, traces)

    def _sample(
        self,
        requests: Sequence[TurnRequest],
        first: Mapping[str, tuple[int, ...]],
        n: int,
        sampling: config.Sampling,
        seed: int,
    ) -> None:
        """Sample the turns of some episodes. First turns of all samples of a prompt are those that the generator gives
        it without an environment."""
        plain = Counter(
            one.trace.prompt.id
            for one in requests
            if one.tokens == first[one.trace.prompt.id] and not (one.trace.turns or one.trace.attempt)
        )
        whole = [name for name, count in plain.items() if count == n]
        grouped = sorted(
            (one for one in requests if one.trace.prompt.id in whole),
            key=lambda one: (whole.index(one.trace.prompt.id), one.trace.number),
        )
        if grouped:
            batch = PromptTokens(tuple(first[name] for name in whole), tuple(whole))
            self._reply(grouped, batch, n, sampling, seed)
        rest = [one for one in requests if one.trace.prompt.id not in whole]
        for room, group in groupby(sorted(rest, key=lambda one: (one.room, one.trace.name)), lambda one: one.room):
            own = list(group)
            batch = PromptTokens(tuple(one.tokens for one in own), tuple(one.trace.name for one in own))
            self._reply(own, batch, 1, replace(sampling, max_new_tokens=room), seed)

    def _reply(
        self, requests: Sequence[TurnRequest], batch: PromptTokens, n: int, sampling: config.Sampling, seed: int
    ) -> None:
        rollout = self.generator.generate(batch, n, sampling, seed=seed)
        self._device = rollout.response.device
        lengths = rollout.mask.sum(1).tolist()
        versions = [None] * len(requests) if rollout.version is None else rollout.version.tolist()
        tokens, logp = rollout.response.tolist(), rollout.logp.tolist()
        columns = (lengths, tokens, logp, rollout.terminated.tolist(), rollout.texts, versions)
        for request, length, row, own_logp, ended, text, version in zip(requests, *columns, strict=True):
            own = None if version is None else tuple(version[:length])
            request.reply.set_result(SampledCompletion(tuple(row[:length]), tuple(own_logp[:length]), ended, text, own))

    def _rollout(self, prompts: PromptTokens, n: int, traces: Sequence[Trace]) -> Rollout:
        """The rollout of all episodes: their sampled tokens, and the contexts of these."""
        pad = pad_token_id(self.text.tokenizer)
        whole = [_joined(trace) for trace in traces]
        rows = assemble(prompts, whole, pad=pad)
        if max(len(trace.turns) for trace in traces) == 0:
            raise RolloutError(
                f"No episode of {self.environment.name} had a turn of the policy: what it reads first leaves no room "
                "in the context, or there was a fault before."
            )
        contexts, sampled, episode = list[EncodedRow](), list[list[int]](), list[int]()
        for row, trace in enumerate(traces):
            for one in trace.contexts:
                contexts.append(EncodedRow(tuple(one.tokens[: one.prompt]), tuple(one.tokens[one.prompt :])))
                sampled.append([place for span in one.spans for place in range(*span)])
                episode.append(row)
        read = collate(contexts, pad, torch.device("cpu"))
        marks = torch.zeros_like(read.mask)
        for row, (places, context) in enumerate(zip(sampled, contexts, strict=True)):
            marks[row, torch.tensor(places, dtype=torch.long) - len(context.prompt)] = True
        numbers = [[i for i, turn in enumerate(trace.turns) for _ in turn.tokens] for trace in traces]
        rewards = torch.zeros_like(rows.logp)
        for row, trace in enumerate(traces):
            ends = torch.tensor([len(turn.tokens) for turn in trace.turns]).cumsum(0) - 1
            own = [] if trace.episode is None else trace.episode.rewards
            rewards[row, ends.long()] = torch.tensor(own[: len(ends)], dtype=rewards.dtype)
        turn, _ = right_padded(numbers, 0, torch.device("cpu"))
        single = all(_is_single(trace, prompts.tokens[row // n]) for row, trace in enumerate(traces))
        stops = [trace.stop for trace in traces]
        return replace(
            rows,
            terminated=torch.tensor([stop == "done" for stop in stops]),
            truncated=torch.tensor([stop in ("turns", "tokens") for stop in stops]),
            turn=None if single else turn,
            turn_reward=rewards if rewards.any() else None,
            outcome=torch.tensor([trace.outcome for trace in traces]),
            transcripts=tuple(_transcript(trace) for trace in traces),
            branches=None if single else Branches(read, marks, torch.tensor(episode)),
        ).to(self._device)


def _check_faults(traces: Sequence[Trace], faults: Sequence[str]) -> None:
    """Raise RolloutError if more than one prompt, and more than a share LOST of them, has an episode with a fault."""
    prompts, lost = ({trace.prompt.id for trace in traces if not only or trace.stop == "fault"} for only in (0, 1))
    if len(lost) > max(1, LOST * len(prompts)):
        raise RolloutError(
            f"{counted(len(lost), 'prompt')} of {len(prompts)} had an episode that failed {REDRAWS + 1} times for a "
            f"fault outside of the policy, the last of them: {faults[-1]}"
        )


def _joined(trace: Trace) -> SampledCompletion:
    """All turns of an episode as one completion, with the text of the last."""
    turns = trace.turns
    versions = [turn.version for turn in turns if turn.version is not None]
    said = trace.episode.messages if trace.episode is not None else ()
    return SampledCompletion(
        tuple(chain.from_iterable(turn.tokens for turn in turns)),
        tuple(chain.from_iterable(turn.logp for turn in turns)),
        trace.stop == "done",
        said[-1].content if turns and said else "",
        tuple(chain.from_iterable(versions)) if len(versions) == len(turns) else None,
    )


def _transcript(trace: Trace) -> Messages:
    """Messages of an episode after its prompt."""
    said = () if trace.episode is None else trace.episode.messages
    return said[len(trace.prompt.messages) :]


def _is_single(trace: Trace, prompt: tuple[int, ...]) -> bool:
    """Whether an episode is one turn after its prompt."""
    return len(trace.turns) == 1 and tuple(trace.contexts[0].tokens[: trace.contexts[0].prompt]) == prompt
