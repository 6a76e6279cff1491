"""Environments of OpenEnv (0.10), which a server at an address plays: each episode has a session of its own there.

A server with tools (MCP) offers them to the policy, and an episode ends with a turn without a call. To any other server
the text of a turn is an action: a JSON object, or the value of its only required field. The first observation follows
the last message of the prompt, and further ones are messages of a user. A reward of a step is one of its turn.
"""

import asyncio
import json
import math
from collections.abc import Awaitable, Mapping
from functools import partial
from typing import Any

import httpx
from openenv import GenericEnvClient
from websockets.exceptions import ConnectionClosed

from tutelage.base.concurrency import awaited
from tutelage.base.errors import TutelageError
from tutelage.rollout.episodes import Episode, Row, play_with_actions, play_with_tools
from tutelage.rollout.tools.arguments import UnfitArguments, read_action
from tutelage.rollout.tools.mcp import ResultError, content_of, observation_text, tool_of_description
from tutelage.rollout.tools.tool import Fault, Tool, Toolbox

TOOL_ACTIONS = ("Action", "CallToolAction", "ListToolsAction")
"""Titles of the schemas of actions of servers with tools."""
FULL = "CAPACITY_REACHED"
PAUSE, ATTEMPTS = 0.2, 50
"""Seconds between two attempts to begin a session on a server that has as many as it allows, and their number: those
of episodes that have ended end a little later."""
OF_THE_POLICY = ("VALIDATION_ERROR", "EXECUTION_ERROR")
"""Codes of errors that an action can cause."""
ARGUMENTS = "reset"
"""Column of a prompt with the arguments of `reset`, an object."""


class OpenEnvEnvironment:
    """Episodes on a server; `tools` are those that it offers.

    Raises TutelageError if there is none, or if its actions have several fields that a text cannot name.
    """

    def __init__(self, address: str) -> None:
        self.address, self.name = address.rstrip("/"), f"openenv:{address}"
        try:
            reply = httpx.get(f"{self.address}/schema", timeout=10.0)
            self.action: Mapping[str, Any] = reply.raise_for_status().json()["action"]
        except (httpx.HTTPError, httpx.InvalidURL, ValueError, LookupError, TypeError) as error:
            raise TutelageError(f"--environment {self.name}: no server of OpenEnv answers there ({error}).") from error
        self.has_tools = self.action.get("title") in TOOL_ACTIONS
        self.tools = Toolbox(awaited(self._offered()).future.result() if self.has_tools else ())

    async def _offered(self) -> list[Tool]:
        async with GenericEnvClient(base_url=self.address) as client:
            found = await client.step({"type": "list_tools"})
        return [tool_of_description(each, _Session.call) for each in found.observation["tools"]]

    async def __call__(self, row: Row, episode: Episode) -> float:
        """Play an episode. Its reward is that of its turns."""
        arguments = row.get(ARGUMENTS, {})
        if not isinstance(arguments, Mapping):
            raise TutelageError(f"The column {ARGUMENTS} of a prompt is {arguments!r:.100}, not an object.")
        try:
            async with GenericEnvClient(base_url=self.address, message_timeout_s=math.inf) as client:
                session = _Session(client, episode)
                if first := await session.begin({"seed": episode.random.getrandbits(31)} | dict(arguments)):
                    episode.show(f"\n\n{first}")
                if not self.has_tools:
                    return await play_with_actions(episode, partial(session.act, self.action))
                own = {tool.name: partial(session.call, tool.name) for tool in self.tools.tools}
                episode.tools = self.tools.using(own)
                return await play_with_tools(row, episode, lambda: session.done)
        except OSError as error:
            raise ServerError(f"{self.name}: {error}") from error


class ServerError(Fault):
    """A fault of the server, or of the connection to it."""


class _Session:
    """A session of an episode on a server."""

    def __init__(self, client: Any, episode: Episode) -> None:
        self.client, self.episode, self.done = client, episode, False

    async def begin(self, arguments: Mapping[str, Any]) -> str:
        """The first observation. Raises TutelageError if the server allows too few sessions, or refuses the
        arguments."""
        for _ in range(ATTEMPTS):
            try:
                return observation_text((await _answered(self.client.reset(**arguments))).observation)
            except ServerError as error:
                if FULL not in str(error):
                    raise
                full = error
            except ResultError as error:
                raise TutelageError(f"reset({json.dumps(dict(arguments))}) fails: {error}") from error
            await asyncio.sleep(PAUSE)
        raise TutelageError(
            "The server of OpenEnv has no room for another session: let it allow as many as --agent-processes, and at "
            f"least as many as a prompt has samples ({full})."
        )

    async def step(self, action: Mapping[str, Any]) -> Any:
        """What is observed after an action; its reward is one of the last turn."""
        result = await _answered(self.client.step(dict(action)))
        self.done = bool(result.done)
        self.episode.reward(float(result.reward or 0.0))
        return result.observation

    async def act(self, schema: Mapping[str, Any], text: str) -> tuple[str, bool]:
        """What is observed after an action of this schema, and whether the episode is over."""
        try:
            return observation_text(await self.step(read_action(text, schema))) or "done", self.done
        except (ResultError, UnfitArguments) as error:
            return f"error: {error}", self.done

    async def call(self, name: str, /, **arguments: Any) -> str:
        """Result of a tool."""
        observation = await self.step({"type": "call_tool", "tool_name": name, "arguments": arguments})
        if error := observation.get("error"):
            raise ResultError(error.get("message", error) if isinstance(error, Mapping) else error)
        return content_of(observation.get("result"))


async def _answered(asked: Awaitable[Any]) -> Any:
    """What a server answers. Raises ResultError, or ServerError."""
    try:
        return await asked
    except RuntimeError as error:  # the client raises it with the code of the server
        kind = ResultError if any(code in str(error) for code in OF_THE_POLICY) else ServerError
        raise kind(str(error)) from error
    except (OSError, ConnectionClosed) as error:
        raise ServerError(f"The connection to the server is lost: {error or 'no answer in time'}") from error
