"""Chat models that say what a test tells them, piece by piece."""

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

from tutelage.base.errors import TutelageError
from tutelage.data.chat_stream import ReplyPiece
from tutelage.data.records import Messages, ToolCall

T = TypeVar("T")
Step: TypeAlias = str | float | Exception | threading.Event | ToolCall
"""A piece of text, a pause in seconds, a failure, an event to wait for, or a call at the end of the answer."""
Script: TypeAlias = Callable[[Messages], Iterable[Step]]


@dataclass
class ScriptedModel:
    """A model that answers by a script. `asked` keeps the conversations, `options` what was sent with them, `spoke` the
    times (`time.perf_counter`) of the first pieces, `ended` counts the answers that are over, complete or not."""

    script: Script
    asked: list[Messages] = field(default_factory=list)
    options: list[dict[str, Any]] = field(default_factory=list)
    spoke: list[float] = field(default_factory=list)
    ended: int = 0

    async def pieces(self, messages: Messages, **options: object) -> AsyncGenerator[ReplyPiece]:
        """See `ChatModel.pieces`."""
        self.asked.append(messages)
        self.options.append(options)
        first, calls = True, list[ToolCall]()
        try:
            for step in self.script(messages):
                calls += [step] if isinstance(step, ToolCall) else []
                await asyncio.sleep(step if isinstance(step, float) else 0)
                while isinstance(step, threading.Event) and not step.is_set():
                    await asyncio.sleep(0.01)
                if isinstance(step, Exception):
                    raise step
                if isinstance(step, str):
                    if first:
                        self.spoke.append(time.perf_counter())
                    first = False
                    yield ReplyPiece(step)
            yield ReplyPiece("", "tool_calls" if calls else "stop", tuple(calls))
        finally:
            self.ended += 1


@dataclass
class Scripted:
    """The models of a study, by name."""

    models: dict[str, ScriptedModel]

    @classmethod
    def of(cls, **scripts: Script) -> "Scripted":
        return cls({name: ScriptedModel(script) for name, script in scripts.items()})

    def __call__(self, name: str) -> ScriptedModel:
        if name not in self.models:
            raise TutelageError(f"There is no model {name} here.")
        return self.models[name]


def saying(*steps: Step) -> Script:
    """The same answer to everything."""
    return lambda messages: steps


def echoing(word: str) -> Script:
    """An answer that says the word, and what was asked."""
    return lambda messages: [f"{word} ", "says: ", messages[-1].content]


def finished(scene: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine, in an event loop and a thread of its own: Playwright leaves one running in the main
    thread."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, scene).result()
