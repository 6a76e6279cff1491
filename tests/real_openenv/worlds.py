"""Environments of OpenEnv: a number to guess, and a map with a tool."""

from typing import Any

from fastmcp import FastMCP
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.mcp_environment import MCPEnvironment
from openenv.core.env_server.types import Action, Observation, State


class Guess(Action):
    value: int


class Hint(Observation):
    hint: str = ""


class Number(Environment[Guess, Hint, State]):
    """Guess a number: a reward of 1, and −.25 for each wrong guess."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self, seed: int | None = None, episode_id: str | None = None, **more: Any) -> Hint:
        self.number = more.get("number", 3)
        return Hint(hint=f"Between 1 and {more.get('most', 9)}.")

    def step(self, action: Guess, timeout_s: float | None = None, **more: Any) -> Hint:
        if action.value == self.number:
            return Hint(hint="Right.", reward=1.0, done=True)
        return Hint(hint="Higher." if action.value < self.number else "Lower.", reward=-0.25)

    @property
    def state(self) -> State:
        return State()


class Map(MCPEnvironment):
    """Distances by a tool; looking one up costs .125."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        tools = FastMCP("map")

        @tools.tool
        def far(place: str) -> str:
            """Miles to a place."""
            return {"Ayr": "6.5"}[place]

        super().__init__(tools)

    def reset(self, seed: int | None = None, episode_id: str | None = None, **more: Any) -> Observation:
        return Observation()

    def step(self, action: Any, timeout_s: float | None = None, **more: Any) -> Any:
        seen = super().step(action, timeout_s=timeout_s, **more)
        return self._cost(seen, action)

    async def step_async(self, action: Any, timeout_s: float | None = None, **more: Any) -> Any:
        seen = await super().step_async(action, timeout_s=timeout_s, **more)
        return self._cost(seen, action)

    def _cost(self, seen: Any, action: Any) -> Any:
        return seen.model_copy(update={"reward": -0.125}) if getattr(action, "tool_name", "") else seen

    def _step_impl(self, action: Any, timeout_s: float | None = None, **more: Any) -> Observation:
        raise ValueError("no such action")

    @property
    def state(self) -> State:
        return State()
