"""An environment, and the episodes that the policy plays with it.

Episodes wait for their next turn. They can be sampled in one batch when all of them wait for one or have ended (turn by
turn), or each as it arrives.
"""

import asyncio
import copy
import inspect
import math
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import partial
from queue import SimpleQueue
from random import Random
from typing import Literal

from tutelage.base import config
from tutelage.base.concurrency import threaded
from tutelage.base.errors import TutelageError
from tutelage.data.chat_tokens import encode, encode_next
from tutelage.data.records import Message, Messages, Prompt, tools_of
from tutelage.data.tool_calls import SampledTurn, call_form, read_turn
from tutelage.engines.sampling import TextVocabulary
from tutelage.rollout.episodes import BlockingEpisode, Episode, Play, Truncation
from tutelage.rollout.generator import SampledCompletion
from tutelage.rollout.tools.tool import Fault, Toolbox

REDRAWS = 2
"""Further attempts at an episode after a fault."""
Stop = Literal["done", "turns", "tokens", "fault"]


@dataclass(frozen=True)
class Environment:
    """What the policy acts in: `play`, the tools on offer, the most turns of an episode, the seconds that the
    environment may take between two turns, and the most episodes `at_once` (0: all), beyond those of one prompt."""

    play: Play
    tools: Toolbox = field(default_factory=lambda: Toolbox(()))
    turns: int = 16
    seconds: float = 120.0
    name: str = "environment"
    at_once: int = 0
    deterministic: bool = False
    """Whether all episodes take their next turn at once (see `player`)."""
    pays: bool = True
    """Whether `play` returns a reward; otherwise it returns 0, and others pay: `--reward`, or rewards of turns."""
    counts: Counter[str] = field(default_factory=Counter, compare=False)
    """Tokens of episodes that the policy read or wrote in forward passes ("read"), of these the tokens of their past
    that it had read before ("reread"), and tokens of drafts that it read in vain ("rejected"), since the last
    `metrics`."""
    reported: Counter[str] = field(default_factory=Counter, compare=False)
    """Calls of tools up to the last `metrics`."""

    def offer(self, prompts: Sequence[Prompt]) -> list[Prompt]:
        """The prompts with the schemas of the tools in their first message.

        Raises TutelageError for a prompt without a message, and for one that offers tools of its own.
        """
        schemas = self.tools.schemas
        if not schemas:
            return list(prompts)
        for prompt in prompts:
            if not prompt.messages or tools_of(prompt.messages):
                what = "offers tools of its own" if prompt.messages else "has no message"
                raise TutelageError(f"The prompt {prompt.id!r} {what}, so those of --tools cannot be offered in it.")
        return [replace(p, messages=(replace(p.messages[0], tools=schemas), *p.messages[1:])) for p in prompts]

    def metrics(self) -> dict[str, float]:
        """Counts since the last call: tokens/read, tokens/reread and tokens/rejected (see `counts`), unless a server
        samples, and with tools tools/calls, and of these tools/unknown, tools/unreadable, tools/timeouts,
        tools/failures and tools/faults; of each tool tools/NAME/calls and tools/NAME/failed."""
        counts = {f"tokens/{name}": float(count) for name, count in self.counts.items()}
        self.counts.clear()
        if self.tools.schemas:
            new = self.tools.calls - self.reported
            names = ("calls", "unknown", "unreadable", "timeouts", "failures", "faults")
            counts |= {f"tools/{name}": float(new[name]) for name in names}
            kinds = [(tool.name, kind) for tool in self.tools.tools for kind in ("calls", "failed")]
            counts |= {f"tools/{name}/{kind}": float(new[f"{kind}/{name}"]) for name, kind in kinds}
            self.reported.update(new)
        return counts


@dataclass
class BranchTokens:
    """Tokens that a branch has read and written, which are `messages`; `spans` are the places of those that were
    sampled in its `turns`, by number, and `said` the numbers of messages up to each turn."""

    prompt: int
    tokens: list[int]
    messages: Messages
    spans: list[tuple[int, int]] = field(default_factory=list)
    turns: list[int] = field(default_factory=list)
    said: list[int] = field(default_factory=list)
    before: str = ""
    """What the chat template writes before the last turn, if it is known."""
    last: str = ""
    """`write_turn` of that turn, if it is known."""


@dataclass
class Trace:
    """Tokens, turns and rewards of an episode."""

    prompt: Prompt
    number: int
    attempt: int = 0
    contexts: list[BranchTokens] = field(default_factory=list)
    turns: list[SampledCompletion] = field(default_factory=list)
    episode: Episode | None = None
    messages: Messages = ()
    """Conversation of the last turn."""
    outcome: float = math.nan
    stop: Stop = "done"

    def close(self, episode: Episode) -> None:
        """Leave out turns that the environment has not received, and order the others by context, as those of a
        rollout are.

        Raises TutelageError for rewards of turns that are then not in the order in which they were paid, since the
        return of a turn is the sum of the rewards after it in the rollout.
        """
        for context in self.contexts:
            if context.turns[-1] in episode.unread:
                del context.turns[-1], context.spans[-1], context.said[-1]
        self.contexts = [context for context in self.contexts if context.turns]
        for context in self.contexts:
            context.tokens = context.tokens[: context.spans[-1][1]]
            context.messages = context.messages[: context.said[-1]]
        latest = max(self.contexts, key=lambda context: context.turns[-1], default=None)
        self.messages = () if latest is None else latest.messages
        order = [number for context in self.contexts for number in context.turns]
        if order != sorted(order) and any(episode.rewards):
            raise TutelageError(
                f"The environment rewards turns of an episode of the prompt {self.prompt.id!r} that has several "
                "conversations by turns; their returns could not follow the order in time. Return the reward from "
                "play, or end one conversation before the next."
            )
        self.turns, episode.rewards = [self.turns[n] for n in order], [episode.rewards[n] for n in order]

    @property
    def name(self) -> str:
        """Name of the random stream of the next turn."""
        return f"{self.prompt.id}\0{self.number}\0{self.attempt}\0{len(self.turns)}"


@dataclass(frozen=True)
class TurnRequest:
    """A turn that an episode waits for, after `tokens`, of which the first turn of its context read the first
    `prompt`."""

    trace: Trace
    tokens: tuple[int, ...]
    prompt: int
    room: int
    reply: Future[SampledCompletion]


class EpisodeText:
    """Messages of episodes as tokens, and sampled turns as messages; safe for several threads.

    Raises TutelageError if the chat template does not show the tools, or writes calls in an unknown form.
    """

    def __init__(self, vocabulary: TextVocabulary, tools: Toolbox) -> None:
        self.tokenizer, self.end_ids = copy.deepcopy(vocabulary.tokenizer), frozenset(vocabulary.end_ids)
        if tools.schemas:
            call_form(self.tokenizer)
        self._lock = threading.Lock()  # a tokenizer serves one thread at a time

    def turn(self, completion: SampledCompletion, conversation: Messages) -> SampledTurn:
        """The message of a sampled turn after a conversation, with its calls if that offers tools (see `read_turn`)."""
        if not tools_of(conversation):
            return SampledTurn(Message("assistant", completion.text))
        with self._lock:
            return read_turn(completion.tokens, completion.text, conversation, self.tokenizer, self.end_ids)

    def tokens_before(
        self, conversation: Messages, contexts: Sequence[BranchTokens]
    ) -> tuple[list[int], BranchTokens | None, str]:
        """Tokens that the policy reads before a turn after a conversation, the one of `contexts` that they continue, if
        any, and their text, if it is known."""
        held = next((one for one in reversed(contexts) if conversation[: len(one.messages)] == one.messages), None)
        with self._lock:
            if held is None:
                return encode(conversation, None, self.tokenizer)[0], None, ""
            ended = held.tokens[-1] in self.end_ids  # an end that was sampled is not read again
            ids, continues, text = encode_next(
                held.messages,
                conversation[len(held.messages) :],
                self.tokenizer,
                ended=ended,
                prompt=held.before,
                turn=held.last,
            )
        return ([*held.tokens, *ids], held, text) if continues else (ids, None, text)


class Episodes:
    """The episodes of a rollout, and the turns that they wait for."""

    def __init__(
        self, environment: Environment, text: EpisodeText, sampling: config.Sampling, seed: int, context: int | None
    ) -> None:
        self.environment, self.text, self.sampling = environment, text, sampling
        self.seed, self.context = seed, context
        self.faults: list[str] = []
        self._arrivals: SimpleQueue[TurnRequest | BaseException | Trace] = SimpleQueue()

    def rounds(self, episodes: int) -> Iterator[Sequence[TurnRequest]]:
        """The turns that all unfinished episodes wait for, until all have ended. Raises what an episode raised."""
        while episodes:
            waiting: list[TurnRequest] = []
            while len(waiting) < episodes:
                arrival = self.next()
                if isinstance(arrival, Trace):
                    episodes -= 1
                    waiting = [one for one in waiting if one.trace is not arrival]  # nobody waits for its turn
                else:
                    waiting = [*(one for one in waiting if one.trace is not arrival.trace), arrival]
            if waiting:
                yield waiting

    def next(self) -> TurnRequest | Trace:
        """The next turn that an episode waits for, or an episode that has ended. Raises what an episode raised."""
        arrival = self._arrivals.get()
        if isinstance(arrival, BaseException):
            raise arrival
        return arrival

    def arrivals(self, *, wait: bool) -> Iterator[TurnRequest | Trace]:
        """What has arrived since (see `next`), at least one with `wait`."""
        if wait:
            yield self.next()
        while not self._arrivals.empty():
            yield self.next()

    def fail(self, error: BaseException) -> None:
        """Make `next` raise an error."""
        self._arrivals.put(error)

    async def play(self, trace: Trace) -> None:
        """Play an episode, again after a fault."""
        try:
            while not await self._attempt(trace):
                trace.contexts, trace.turns = [], []
                trace.attempt += 1
            self._arrivals.put(trace)
        except BaseException as error:  # also SystemExit and CancelledError: `rounds` waits for every episode
            self._arrivals.put(error)

    async def _attempt(self, trace: Trace) -> bool:
        """Play an episode once. False after a fault, if there is another attempt."""
        environment = self.environment
        deadline = asyncio.timeout(environment.seconds)
        random = Random(f"{self.seed} {trace.prompt.id} {trace.number} {trace.attempt}")
        sample = partial(self._turn, trace, trace.attempt, deadline)
        trace.episode = episode = Episode(trace.prompt.messages, environment.tools, random, environment.turns, sample)
        trace.outcome, trace.stop = 0.0, "done"
        try:
            async with deadline:
                trace.outcome = _number(await _played(environment, trace.prompt, episode), environment)
            trace.close(episode)
            if not trace.turns:
                raise TutelageError(
                    f"{environment.name} ended an episode of the prompt {trace.prompt.id!r} before a turn of the "
                    "policy, so there is nothing to reward: let it call chat, or leave the prompt out."
                )
        except Truncation as end:
            trace.stop = "turns" if str(end) == "turns" else "tokens"
            trace.close(episode)
            if not trace.turns:  # no room for any
                trace.outcome = math.nan
        except (Fault, TimeoutError) as error:
            if isinstance(error, TimeoutError) and not deadline.expired():
                raise  # of the environment itself, which has to handle it
            late = f"nothing happened for {environment.seconds:g} s after a turn"
            self.faults.append(late if isinstance(error, TimeoutError) else str(error))
            if trace.attempt < REDRAWS:
                return False
            trace.outcome, trace.stop = math.nan, "fault"
            trace.close(episode)
        finally:
            episode.close()
        return True

    async def _turn(
        self, trace: Trace, attempt: int, deadline: asyncio.Timeout, conversation: Messages
    ) -> tuple[SampledTurn, bool]:
        """The next turn of an episode after a conversation, and whether it was cut."""
        if trace.attempt != attempt:
            raise Truncation("fault")  # a plain function that went on after its time was over
        tokens, held, before = self.text.tokens_before(conversation, trace.contexts)
        context, limit = self.context, self.sampling.max_new_tokens
        room = limit if context is None else min(limit, context - len(tokens))
        if room < 1:
            raise Truncation("tokens")
        deadline.reschedule(None)
        prompt = len(tokens) if held is None else held.prompt
        request = TurnRequest(trace, tuple(tokens), prompt, room, Future())
        request.reply.set_running_or_notify_cancel()  # it is answered even if `play` gives up waiting for it
        self._arrivals.put(request)
        completion = await asyncio.wrap_future(request.reply)
        deadline.reschedule(asyncio.get_running_loop().time() + self.environment.seconds)
        turn = self.text.turn(completion, conversation)
        if held is None:
            held = BranchTokens(len(tokens), [], ())
            trace.contexts.append(held)
        elif trace.episode is not None:
            trace.episode.unread.discard(held.turns[-1])
        held.turns.append(len(trace.turns))
        trace.turns.append(completion)
        held.tokens, held.messages = [*tokens, *completion.tokens], (*conversation, turn.message)
        held.before, held.last = before, turn.written
        held.spans.append((len(tokens), len(held.tokens)))
        held.said.append(len(held.messages))
        return turn, not completion.terminated


async def _played(environment: Environment, prompt: Prompt, episode: Episode) -> object:
    """What `play` returns; a plain function runs in a thread of its own."""
    if any(map(inspect.iscoroutinefunction, (environment.play, type(environment.play).__call__))):
        try:
            return await environment.play(prompt.data, episode)
        except BaseExceptionGroup as group:  # of a TaskGroup
            raise _end_of(group) from None

    def play(blocking: BlockingEpisode) -> object:
        try:
            return environment.play(prompt.data, blocking)
        except StopIteration as error:  # no future can hold it
            raise RuntimeError(f"{environment.name} raised StopIteration") from error

    blocking = BlockingEpisode(episode)
    try:
        return await asyncio.wrap_future(threaded(play, blocking).future)
    finally:
        blocking.close()


def _end_of(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first limit or fault of a group that has nothing else; otherwise the group."""
    ends, others = group.split((Truncation, Fault))
    error: BaseException = group
    if others is None and ends is not None:
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
    return error


def _number(value: object, environment: Environment) -> float:
    """The reward that `play` returned; NaN for None. Raises TutelageError for anything but a finite number."""
    if value is None:
        return math.nan
    number = value.item() if getattr(value, "ndim", None) == 0 and hasattr(value, "item") else value  # of numpy, torch
    if isinstance(number, int | float) and math.isfinite(number):
        return float(number)
    raise TutelageError(
        f"{environment.name} returned {value!r:.100} for an episode: return its reward as a finite number, or None if "
        "none applies."
    )
