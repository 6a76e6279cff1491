"""Environments of OpenEnv (0.10), which a server at an address plays: each episode has a session of its own there.

A server with tools (MCP) offers them to the policy, and an episode ends with a turn without a call. To any other server
the text of a turn is an action: a JSON object, or the value of its only required field. The first observation follows
the last message of the prompt, and further ones are messages of a user. A reward of a step is one of its turn.
"""

import asyncio
import json
import math
from collections.abc import Awaitable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import httpx
from openenv import GenericEnvClient
from websockets.exceptions import ConnectionClosed

from tutelage.base.concurrency import awaited
from tutelage.base.errors import TutelageError
from tutelage.data.json_values import parse_json
from tutelage.data.records import Message
from tutelage.rollout.episodes import Episode, Row, play_with_tools
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
        return [_tool(each) for each in found.observation["tools"]]

    async def __call__(self, row: Row, episode: Episode) -> float:
        """Play an episode. Its reward is that of its turns."""
        arguments = row.get(ARGUMENTS, {})
        if not isinstance(arguments, Mapping):
            raise TutelageError(f"The column {ARGUMENTS} of a prompt is {arguments!r:.100}, not an object.")
        try:
            async with GenericEnvClient(base_url=self.address, message_timeout_s=math.inf) as client:
                session = _Session(client, episode)
                seed = {"seed": episode.random.getrandbits(31)}
                first = text_of((await session.begin(seed | dict(arguments))).observation)
                *before, last = episode.messages
                if first:
                    episode.messages = (*before, replace(last, content=f"{last.content}\n\n{first}"))
                if self.has_tools:
                    own = {tool.name: partial(session.call, tool.name) for tool in self.tools.tools}
                    episode.tools = self.tools.using(own)
                    return await play_with_tools(row, episode, lambda: session.done)
                await self._act(session, episode)
        except OSError as error:
            raise ServerError(f"{self.name}: {error}") from error
        return 0.0

    async def _act(self, session: "_Session", episode: Episode) -> None:
        answer = await episode.chat()
        while True:
            try:
                result = await session.step(action_of(answer.content, self.action))
            except ActionError as error:
                said = f"error: {error}"
            else:
                said = text_of(result.observation) or "done"
            if session.done:
                return
            answer = await episode.chat(Message("user", said))


class ServerError(Fault):
    """A fault of the server, or of the connection to it."""


class ActionError(Exception):
    """An action that cannot be read, or that the server refuses."""


class _Session:
    """A session of an episode on a server."""

    def __init__(self, client: Any, episode: Episode) -> None:
        self.client, self.episode, self.done = client, episode, False

    async def begin(self, arguments: Mapping[str, Any]) -> Any:
        """The first observation. Raises TutelageError if the server allows too few sessions, or refuses the
        arguments."""
        for _ in range(ATTEMPTS):
            try:
                return await _answered(self.client.reset(**arguments))
            except ServerError as error:
                if FULL not in str(error):
                    raise
                full = error
            except ActionError as error:
                raise TutelageError(f"reset({json.dumps(dict(arguments))}) fails: {error}") from error
            await asyncio.sleep(PAUSE)
        raise TutelageError(
            "The server of OpenEnv has no room for another session: let it allow as many as --agent-processes, and at "
            f"least as many as a prompt has samples ({full})."
        )

    async def step(self, action: Mapping[str, Any]) -> Any:
        """Result of an action, whose reward is one of the last turn."""
        result = await _answered(self.client.step(dict(action)))
        self.done = bool(result.done)
        self.episode.reward(float(result.reward or 0.0))
        return result

    async def call(self, name: str, /, **arguments: Any) -> object:
        """Result of a tool."""
        result = await self.step({"type": "call_tool", "tool_name": name, "arguments": arguments})
        error = result.observation.get("error")
        if error:
            raise ActionError(error.get("message", error) if isinstance(error, Mapping) else error)
        return _content(result.observation.get("result"))


async def _answered(asked: Awaitable[Any]) -> Any:
    """What a server answers. Raises ActionError, or ServerError."""
    try:
        return await asked
    except RuntimeError as error:  # the client raises it with the code of the server
        kind = ActionError if any(code in str(error) for code in OF_THE_POLICY) else ServerError
        raise kind(str(error)) from error
    except (OSError, ConnectionClosed) as error:
        raise ServerError(f"The connection to the server is lost: {error or 'no answer in time'}") from error


def action_of(text: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Action of a turn: a JSON object, also in a fence, or the value of the only required field of the schema. Raises
    ActionError."""
    body = text.strip()
    if body.startswith("```") and body.endswith("```") and "\n" in body:
        body = body.partition("\n")[2].removesuffix("```").strip()
    try:
        value = parse_json(body)
    except ValueError:
        value = body
    if isinstance(value, dict):
        return value
    required = schema.get("required", [])
    if len(required) != 1:
        raise ActionError(f"an action is a JSON object with {', '.join(required) or 'the fields of its schema'}")
    kinds = schema.get("properties", {}).get(required[0], {}).get("type")
    return {required[0]: body if kinds == "string" else value}


def text_of(observation: object) -> str:
    """An observation as text: of an object its only text, or else its JSON; nothing for an empty one."""
    if isinstance(observation, Mapping):
        held = {name: value for name, value in observation.items() if value not in (None, "", [], {})}
        texts = [value for value in held.values() if isinstance(value, str)]
        return texts[0] if len(texts) == len(held) == 1 else json.dumps(held, ensure_ascii=False) if held else ""
    return observation if isinstance(observation, str) else json.dumps(observation, ensure_ascii=False)


def _content(result: object) -> str:
    """Result of a tool as text: the blocks of MCP, or any other value. Raises ActionError for one that is an error."""
    blocks = result.get("content") if isinstance(result, Mapping) else None
    if not isinstance(blocks, list):
        return text_of(result)
    text = "\n".join(each["text"] if each.get("type") == "text" else json.dumps(each) for each in blocks)
    if isinstance(result, Mapping) and result.get("is_error"):
        raise ActionError(text)
    return text


def _tool(described: Mapping[str, Any]) -> Tool:
    """Tool of its description by MCP."""
    parameters = described.get("input_schema") or {"type": "object", "properties": {}}
    function = {"name": described["name"], "description": described.get("description", ""), "parameters": parameters}

    def unbound(**arguments: object) -> object:
        raise AssertionError("a tool of a session")

    schema = json.dumps({"type": "function", "function": function})
    return Tool(described["name"], schema, unbound, timeout=math.inf)  # a session ends with a call that is given up
