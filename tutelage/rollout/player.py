"""Rollouts of episodes: a generator that plays each with an environment.

A row depends on the seed, its prompt and its number alone, as those of other generators do. There are three schedules:

    continuous     a policy in this process samples a turn as soon as it arrives, beside those in progress
    concurrent     servers are asked for a turn as soon as it arrives, and batch turns themselves
    turn by turn   all unfinished episodes take their next turn in one batch: no result depends on the time of tools
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from itertools import chain, groupby

import torch

from tutelage.base import config
from tutelage.base.concurrency import awaited
from tutelage.base.nouns import counted
from tutelage.base.progress.phases import phase
from tutelage.core.batch import Branches, Rollout
from tutelage.core.rows import EncodedRow, collate, right_padded
from tutelage.data.chat_tokens import pad_token_id
from tutelage.data.records import Prompt
from tutelage.engines.interface import PromptTokens
from tutelage.engines.ranks.ranks import ALONE, Ranks
from tutelage.engines.sampling import TextVocabulary
from tutelage.rollout.continuous_batch import ContinuousBatch
from tutelage.rollout.environment import REDRAWS, Environment, Episodes, EpisodeText, Trace, TurnRequest
from tutelage.rollout.generator import Generator, RolloutError, SampledCompletion, assemble
from tutelage.rollout.local import LocalGenerator

CPU = torch.device("cpu")
LOST = 0.1
"""Share of prompts that may be left out of a rollout for faults."""


class Player:
    """Generator of episodes with an environment; `generator` samples their turns.

    `prompts` are the records of all prompts by id, whose own columns the environment reads, `context` is the length of
    the policy's context; that of a generator with a shorter one (`generator.context`) applies as well. Rollouts are on
    `device`, with or without turns. An episode that ends at a limit is truncated, and its environment returns 0. After
    a fault an episode is played again, up to REDRAWS times; then its outcome is NaN, so that its prompt is left out of
    the step, as is one that leaves no room for a turn.

    Raises TutelageError if the chat template does not show the tools, and whatever `play` raises.
    """

    def __init__(
        self,
        generator: Generator,
        environment: Environment,
        prompts: Mapping[str, Prompt],
        vocabulary: TextVocabulary,
        context: int | None = None,
        device: torch.device = CPU,
    ) -> None:
        self.generator, self.environment, self.prompts, self.context = generator, environment, prompts, context
        self.text, self.device = EpisodeText(vocabulary, environment.tools), device
        self.last_fault = ""

    def sync(self, version: int) -> None:
        self.generator.sync(version)

    def generate(self, prompts: PromptTokens, n: int, sampling: config.Sampling, *, seed: int) -> Rollout:
        """`n` episodes of each prompt, see `Generator`. Raises RolloutError for too many faults
        (see `check`)."""
        rollout = self.play(prompts, n, sampling, seed)
        self.check(rollout, ALONE)
        return rollout

    def play(self, prompts: PromptTokens, n: int, sampling: config.Sampling, seed: int) -> Rollout:
        """`n` episodes of each prompt, however many end with a fault."""
        traces = [Trace(self.prompts[name], number) for name in prompts.ids for number in range(n)]
        contexts = [one for one in (self.context, getattr(self.generator, "context", None)) if one is not None]
        table = Episodes(self.environment, self.text, sampling, seed, min(contexts, default=None))
        first = dict(zip(prompts.ids, prompts.tokens, strict=True))
        sample = partial(self._sample, first=first, n=n, sampling=sampling, seed=seed)
        size = n * max(1, self.environment.at_once // n) if self.environment.at_once else len(traces)
        with self._continuous(sampling, seed, table.context) as batch:
            for start in range(0, len(traces), size):
                playing = [awaited(table.play(trace)) for trace in traces[start : start + size]]
                try:
                    if batch is not None:
                        self._play_freely(table, len(playing), batch, first)
                    elif self._width:
                        self._ask_freely(table, len(playing), n, sample)
                    else:
                        for requests in table.rounds(len(playing)):
                            sample(requests)
                finally:
                    for call in playing:
                        call.stop()
            if batch is not None:
                read, rejected = batch.lines.computed - batch.lines.rejected, batch.lines.rejected
                self.environment.counts.update(read=read, reread=batch.reread, rejected=rejected)
        self.last_fault = next(reversed(table.faults), "")
        return self._rollout(prompts, n, traces)

    def check(self, rollout: Rollout, ranks: Ranks) -> None:
        """Raise RolloutError if more than one prompt of a step, which all ranks have, and more than a share LOST of
        them, has an episode with a fault; and if no episode had a turn."""
        own, self.last_fault = self.last_fault, ""
        fault = torch.zeros(len(rollout)).bool() if rollout.truncated is None else ~rollout.truncated.cpu()
        fault = fault & ~rollout.terminated.cpu()
        lost = {name for name, row in zip(rollout.ids, fault.tolist(), strict=True) if row}
        too_many = len(lost) > max(1, LOST * len(set(rollout.ids)))
        if rollout.mask.any() and not too_many:
            return
        last = next(filter(None, ranks.gather(own)), "")
        if not too_many:
            raise RolloutError(
                f"No episode of {self.environment.name} had a turn of the policy: what it reads first leaves no room "
                f"in the context, or there was a fault before. {last}".rstrip()
            )
        raise RolloutError(
            f"{counted(len(lost), 'prompt')} of {len(set(rollout.ids))} had an episode that failed {REDRAWS + 1} times "
            f"for a fault outside of the policy, the last of them: {last}"
        )

    def _continuous(
        self, sampling: config.Sampling, seed: int, longest: int | None
    ) -> AbstractContextManager[ContinuousBatch | None]:
        """The context of a batch that turns may join as they arrive; None for the schedule turn by turn."""
        if self.environment.deterministic or not isinstance(self.generator, LocalGenerator):
            return nullcontext()
        return self.generator.continuous(sampling, seed=seed, longest=longest)

    def _play_freely(
        self, table: Episodes, episodes: int, batch: ContinuousBatch, first: Mapping[str, tuple[int, ...]]
    ) -> None:
        """Sample turns as they arrive, together with those in progress."""
        with phase("generate", episodes) as generating:
            left = episodes
            while left:
                for arrival in table.arrivals(wait=batch.is_idle):
                    if isinstance(arrival, Trace):
                        batch.forget(arrival)
                        left -= 1
                    elif _is_plain(arrival, first):
                        batch.add(arrival, arrival.trace.prompt.id, arrival.trace.number)
                    else:
                        batch.add(arrival, arrival.trace.name, 0)
                generating.advance(episodes - left)
                if not batch.is_idle:
                    batch.step()

    def _ask_freely(self, table: Episodes, episodes: int, n: int, sample: Callable[[list[TurnRequest]], None]) -> None:
        """Request turns from servers as they arrive, the first turns of a prompt together."""

        def ask(requests: list[TurnRequest]) -> None:
            try:
                sample(requests)
            except BaseException as error:
                table.fail(error)

        begun, first = set[int](), defaultdict[str, list[TurnRequest]](list)
        waits_for = Counter(dict.fromkeys(self.prompts, n))
        pool = ThreadPoolExecutor(max(1, self._width), thread_name_prefix="turns")
        try:
            while episodes:
                arrival = table.next()
                trace = arrival if isinstance(arrival, Trace) else arrival.trace
                episodes -= isinstance(arrival, Trace)
                requests = [] if isinstance(arrival, Trace) else [arrival]
                name = trace.prompt.id
                if id(trace) not in begun:
                    begun.add(id(trace))
                    waits_for[name] -= 1
                    first[name] += requests
                    requests = [] if waits_for[name] else first.pop(name)
                if requests:
                    pool.submit(ask, requests)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    @property
    def _width(self) -> int:
        """Requests that the generator serves at once; 0 if it takes one batch at a time."""
        return 0 if self.environment.deterministic else int(getattr(self.generator, "width", 0))

    def _count(self, requests: Sequence[TurnRequest], written: Sequence[int]) -> None:
        """Count the tokens of turns that read their whole context, of first turns of a prompt once, and wrote so many
        tokens, of which nothing read the last."""
        later = [one for one in requests if one.trace.turns]
        read = [*{one.tokens for one in requests if not one.trace.turns}, *(one.tokens for one in later)]
        past = [len(one.trace.contexts[-1].tokens) - 1 for one in later if one.prompt < len(one.tokens)]
        self.environment.counts.update(read=sum(map(len, read)) + sum(written) - len(written), reread=sum(past))

    def _sample(
        self,
        requests: Sequence[TurnRequest],
        first: Mapping[str, tuple[int, ...]],
        n: int,
        sampling: config.Sampling,
        seed: int,
    ) -> None:
        """Sample the turns of some episodes, in an order apart from the time of requests. First turns of all samples of
        a prompt are those that the generator gives it without an environment."""
        plain = Counter(one.trace.prompt.id for one in requests if _is_plain(one, first))
        whole = [name for name in first if plain[name] == n]
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
        lengths = rollout.mask.sum(1).tolist()
        if isinstance(self.generator, LocalGenerator):
            self._count(requests, lengths)
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
        contexts, sampled, episode = list[EncodedRow](), list[list[int]](), list[int]()
        for row, trace in enumerate(traces):
            for one in trace.contexts:
                contexts.append(EncodedRow(tuple(one.tokens[: one.prompt]), tuple(one.tokens[one.prompt :])))
                sampled.append([place for span in one.spans for place in range(*span)])
                episode.append(row)
        read = collate(contexts, pad, CPU)
        marks = torch.zeros_like(read.mask)
        for row, (places, context) in enumerate(zip(sampled, contexts, strict=True)):
            marks[row, torch.tensor(places, dtype=torch.long) - len(context.prompt)] = True
        numbers = [[i for i, turn in enumerate(trace.turns) for _ in turn.tokens] for trace in traces]
        rewards = torch.zeros_like(rows.logp)
        for row, trace in enumerate(traces):
            ends = torch.tensor([len(turn.tokens) for turn in trace.turns]).cumsum(0) - 1
            own = [] if trace.episode is None else trace.episode.rewards
            rewards[row, ends.long()] = torch.tensor(own[: len(ends)], dtype=rewards.dtype)
        turn, _ = right_padded(numbers, 0, CPU)
        single = all(_is_single(trace, prompts.tokens[row // n]) for row, trace in enumerate(traces))
        stops = [trace.stop for trace in traces]
        return replace(
            rows,
            terminated=torch.tensor([stop == "done" for stop in stops]),
            truncated=torch.tensor([stop in ("turns", "tokens") for stop in stops]),
            turn=None if single else turn,
            turn_reward=rewards if rewards.any() else None,
            outcome=torch.tensor([trace.outcome for trace in traces]),
            transcripts=tuple(trace.messages for trace in traces),
            branches=None if single else Branches(read, marks, torch.tensor(episode, dtype=torch.long)),
        ).to(self.device)


def _is_plain(request: TurnRequest, first: Mapping[str, tuple[int, ...]]) -> bool:
    """Whether a turn is the first after a prompt alone, as of a completion without an environment."""
    trace = request.trace
    return request.tokens == first[trace.prompt.id] and not (trace.turns or trace.attempt)


def _joined(trace: Trace) -> SampledCompletion:
    """All turns of an episode as one completion, with the text of the last."""
    turns = trace.turns
    versions = [turn.version for turn in turns if turn.version is not None]
    return SampledCompletion(
        tuple(chain.from_iterable(turn.tokens for turn in turns)),
        tuple(chain.from_iterable(turn.logp for turn in turns)),
        trace.stop == "done",
        trace.messages[-1].content if turns else "",
        tuple(chain.from_iterable(versions)) if len(versions) == len(turns) else None,
    )


def _is_single(trace: Trace, prompt: tuple[int, ...]) -> bool:
    """Whether an episode is one turn after its prompt."""
    return len(trace.turns) == 1 and tuple(trace.contexts[0].tokens[: trace.contexts[0].prompt]) == prompt
