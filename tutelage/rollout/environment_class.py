"""Environments as classes, in the form of TRL's `environment_factory` (version 1.16).

    class Shop:
        def reset(self, **row) -> str | None: ...   # what it returns is added to the last message of the prompt
        def price(self, item: str) -> int: ...      # public methods are tools
        def get_reward(self) -> float: ...          # may be left out

Each episode has an object of its own, and goes on as long as the policy calls tools.
"""

import asyncio
import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

from tutelage.base.concurrency import threaded
from tutelage.data.records import message_row
from tutelage.rollout.episodes import Episode, Row, play_with_tools
from tutelage.rollout.tools.tool import Toolbox, tool_of


class EnvironmentClass:
    """Episodes with objects of a class; `tools` are offered beside its methods."""

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
