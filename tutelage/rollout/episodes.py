"""Episodes of several turns, as the author of an environment sees them.

async def play(row, episode):                        # or a plain function
    answer = await episode.chat()                    # the conversation of the prompt, then messages of its own
    while answer.calls:
        answer = await episode.chat(*[await episode.run(call) for call in answer.calls])
    return float(answer.content == row["answer"])    # the reward of the end; None if none applies
"""

import asyncio
import inspect
import math
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import Any, TypeAlias

from tutelage.base.concurrency import Call, awaited, threaded
from tutelage.base.errors import TutelageError
from tutelage.data.records import Message, Messages, ToolCall, message_row
from tutelage.data.tool_calls import SampledTurn
from tutelage.rollout.tools.tool import Toolbox, tool_of

Row: TypeAlias = Mapping[str, object]
Play: TypeAlias = Callable[[Row, Any], Any]
"""An episode with one row of the prompts: a coroutine function, or a function."""


class Truncation(BaseException):
    """The end of an episode at a limit: "turns", or "tokens". Raised in `Episode.chat`; like a cancellation no
    Exception, so that `play` does not take it for a failure of its own."""


@dataclass
class Episode:
    """A conversation of the policy with an environment.

    `messages` is the conversation so far; `random` is seeded by the run, the row and the number of the sample.
    `problem` describes calls of the last turn that cannot be read; these stay in its text.
    """

    messages: Messages
    tools: Toolbox
    random: Random
    turns: int
    """Most turns of the policy."""
    sample: Callable[[Messages], Awaitable[tuple[SampledTurn, bool]]] = field(repr=False)
    """Samples the next turn after a conversation; the second value tells whether it was cut at the limit of tokens."""
    rewards: list[float] = field(default_factory=list)
    """Reward of each turn so far."""
    problem: str = ""
    unread: set[int] = field(default_factory=set)
    """Numbers of turns that the environment has not received, which are not trained unless one continues them."""
    _waiting: "asyncio.Task[Any] | None" = field(default=None, repr=False)

    async def chat(self, *new: Message | Mapping[str, str]) -> Message:
        """The next turn of the policy after the messages `new`, each a `Message` or a mapping with role and content."""
        said = tuple(one if isinstance(one, Message) else message_of(one) for one in new)
        for one in said:
            if one.role not in ("system", "user", "tool") or not isinstance(one.content, str):
                raise TutelageError(f"chat takes messages of a system, a user or a tool with a text, not {one}.")
        if self.messages and self.messages[-1].role == "assistant" and not said:
            raise TutelageError("chat() needs a message after a turn of the policy.")
        return await self.turn((*self.messages, *said))

    async def turn(self, conversation: Messages) -> Message:
        """The next turn of the policy after a conversation, which need not continue `messages`."""
        if len(self.rewards) == self.turns:
            raise Truncation("turns")
        if self._waiting is not None:
            raise TutelageError("An episode has one turn at a time: await each chat before the next.")
        self._waiting = asyncio.current_task()
        try:
            turn, cut = await self.sample(conversation)
        finally:
            self._waiting = None
        self.messages = (*conversation, turn.message)
        self.rewards.append(0.0)
        self.problem = turn.problem
        if cut:
            raise Truncation("tokens")
        return turn.message

    async def run(self, call: ToolCall) -> Message:
        """The result of a call of a tool, as a message."""
        return await self.tools.run(call)

    def close(self) -> None:
        """Cancel a turn that a task of the environment still waits for."""
        if self._waiting is not None:
            self._waiting.cancel()

    def show(self, text: str) -> None:
        """Add what the environment shows first to the last message."""
        *before, last = self.messages
        self.messages = (*before, replace(last, content=f"{last.content}{text}"))

    def reward(self, value: float) -> None:
        """Add to the reward of the last turn, apart from what `play` returns."""
        if not self.rewards:
            raise TutelageError("A reward belongs to a turn of the policy, and there is none yet: call chat first.")
        if not math.isfinite(value):
            raise TutelageError(f"The reward of a turn is {value}; it has to be a finite number.")
        self.rewards[-1] += float(value)


def message_of(row: Mapping[str, str]) -> Message:
    """The message with a mapping's role and content."""
    if set(row) != {"role", "content"}:
        raise TutelageError(f"A message needs role and content, not {', '.join(map(str, row)) or 'nothing'}.")
    return Message(row["role"], row["content"])  # type: ignore[arg-type]


class BlockingEpisode:
    """An episode for a plain function, which waits in its own thread for turns and results."""

    def __init__(self, episode: Episode) -> None:
        self._episode = episode
        self._call: Call[Message] | None = None

    def chat(self, *new: Message | Mapping[str, str]) -> Message:
        return self._result(self._episode.chat(*new))

    def run(self, call: ToolCall) -> Message:
        return self._result(self._episode.run(call))

    def close(self) -> None:
        """Release a thread that still waits."""
        if self._call is not None:
            self._call.stop()

    def _result(self, coroutine: Coroutine[Any, Any, Message]) -> Message:
        self._call = awaited(coroutine)
        return self._call.future.result()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._episode, name)


async def play_with_tools(row: Row, episode: Episode, is_over: Callable[[], bool] = lambda: False) -> float:
    """An episode with nothing but tools, which ends with the first turn without a call, or as soon as it `is_over`. Its
    own reward is 0."""
    answer = await episode.chat()
    while (answer.calls or episode.problem) and not is_over():
        results = [await episode.run(call) for call in answer.calls]
        if not is_over():
            said = results or [Message("user", f"The call cannot be read: {episode.problem}.")]
            answer = await episode.chat(*said)
    return 0.0


async def play_with_actions(episode: Episode, act: Callable[[str], Awaitable[tuple[str, bool]]]) -> float:
    """An episode in which the text of each turn is an action. `act` returns what the policy reads next, and whether the
    episode is over. Its own reward is 0."""
    answer = await episode.chat()
    while True:
        seen, is_over = await act(answer.content)
        if is_over:
            return 0.0
        answer = await episode.chat(Message("user", seen))


class EnvironmentClass:
    """Episodes with objects of a class, in the form of TRL's `environment_factory` (version 1.16); `tools` are offered
    beside its methods.

        class Shop:
            def reset(self, **row) -> str | None: ...   # what it returns is added to the last message of the prompt
            def price(self, item: str) -> int: ...      # public methods are tools
            def get_reward(self) -> float: ...          # may be left out

    Each episode has an object of its own, and goes on as long as the policy calls tools.
    """

    def __init__(self, made: type, tools: Toolbox) -> None:
        self.made, instance = made, made()
        self.pays = callable(getattr(instance, "get_reward", None))
        names = [name for name, _ in inspect.getmembers(made, inspect.isfunction) if not name.startswith("_")]
        methods = [getattr(instance, name) for name in names if name not in ("reset", "get_reward")]
        self.tools = Toolbox([*tools.tools, *map(tool_of, methods)])

    async def __call__(self, row: Row, episode: Episode) -> object:
        """Play an episode; its reward is that of `get_reward`, 0 without it."""
        own = self.made()
        episode.tools = self.tools.bound(own)
        observation = await _result(partial(own.reset, **{"prompt": list(map(message_row, episode.messages)), **row}))
        if observation is not None:
            episode.show(observation)
        await play_with_tools(row, episode)
        return await _result(own.get_reward) if self.pays else 0.0


async def _result(function: Callable[[], Any]) -> Any:
    """Result of a function, plain or async; a plain one runs in a thread of its own."""
    value = await asyncio.wrap_future(threaded(lambda call: call(), function).future)
    return await value if inspect.isawaitable(value) else value
