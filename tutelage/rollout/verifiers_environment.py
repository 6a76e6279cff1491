"""Environments of verifiers (0.4): NAME, an installed taskset, or FILE.toml, an `[env]` block of its configuration.

Requests of an agent reach the policy through the interception server of verifiers, by the address of its episode. An
agent without a harness of its own is a chat in this process, which calls the tools of the task.
"""

import json
import sys
import tomllib
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import verifiers.v1 as vf
from verifiers.v1.configs.agent import agent_config_fields
from verifiers.v1.dialects.chat import message_to_wire
from verifiers.v1.harnesses.utils.mcp import call_mcp, connect_mcp
from verifiers.v1.utils.loaders import default_harness_id, env_config_type

from tutelage.base.concurrency import HeldContext
from tutelage.base.errors import TutelageError
from tutelage.data.records import Message, Prompt
from tutelage.rollout.episode_endpoint import EpisodeEndpoint, EpisodeSession
from tutelage.rollout.episodes import Episode, Row
from tutelage.rollout.tools.tool import Fault

FAULTS = ("SandboxError", "InterceptionError", "TunnelError", "ToolsetError", "ProviderError")
"""Errors of verifiers that are faults; others are mistakes of an environment."""
KEY = "task"
"""Column of a prompt with the key of its task."""
CHAT = "tutelage_chat"
"""Id of `ChatHarness` for verifiers, which finds harnesses as modules."""
__all__ = ["ChatHarness"]


class VerifiersEnvironment:
    """Episodes of an environment with one agent that is trained. The reward of an episode is that of its tasks'
    functions, weighted as they say.

    Raises TutelageError for an environment that cannot be loaded, has several agents of the policy, or plays one again
    by itself.
    """

    def __init__(self, name: str) -> None:
        self.name = f"verifiers:{name}"
        try:
            self.env = vf.load_environment(_config(name))
            self.tasks = {task.key: task for task in _finite(self.env.taskset)}
        except (ImportError, AttributeError, OSError, TypeError, ValueError) as error:
            raise TutelageError(f"--environment {self.name}: {error}") from error
        roles = [role for role, each in agent_config_fields(self.env.config).items() if each.client is None]
        if len(roles) != 1:
            raise TutelageError(
                f"{self.name} has the agents {', '.join(roles) or 'of no policy'}, and one of them can be the policy: "
                "give each other one a client in a configuration, --environment verifiers:FILE.toml."
            )
        self.role = roles[0]
        own = agent_config_fields(self.env.config)[self.role]
        if any(each.retries.max_retries or each.retries.rules for each in (self.env.config, own)):
            raise TutelageError(
                f"{self.name} has retries, and turns of an attempt that failed would be trained: leave them out. An "
                "episode with a fault is played again in any case."
            )
        self._endpoint, self._servers = EpisodeEndpoint(), HeldContext(self.env.serving)

    def prompts(self) -> tuple[Prompt, ...]:
        """A prompt for each task, with its data. Raises TutelageError for a task without a prompt, or with images."""
        return tuple(self._prompt(task) for task in self.tasks.values())

    def _prompt(self, task: Any) -> Prompt:
        data, asked = task.data, task.data.prompt
        messages = [Message("system", data.system_prompt)] if data.system_prompt else []
        for one in [vf.UserMessage(content=asked)] if isinstance(asked, str) else asked or ():
            if one.role not in ("system", "user") or not isinstance(one.content, str):
                raise TutelageError(f"The prompt of task {data.idx} of {self.name} has more than texts of a user.")
            messages.append(Message(one.role, one.content))
        if not messages or messages[-1].role != "user":
            raise TutelageError(f"Task {data.idx} of {self.name} has no prompt: its environment begins the episode.")
        own = data.model_dump(mode="json", exclude_defaults=True, exclude={"prompt", "system_prompt"})
        return Prompt(task.key[:16], tuple(messages), data=own | {KEY: task.key})

    async def __call__(self, row: Row, episode: Episode) -> float:
        """Play an episode."""
        task = self.tasks.get(str(row.get(KEY)))
        if task is None:
            raise TutelageError(f"A prompt names no task of {self.name}: give its own, --prompts {self.name}.")
        await self._servers.enter()
        async with self._endpoint.session(episode) as session:
            client = vf.EvalClientConfig(base_url=self._endpoint.url, api_key_var="TUTELAGE_NO_KEY")
            context = vf.ModelContext(model="policy", client=client)
            named = self.env.run_episode(task, context, on_trace=lambda trace: self._endpoint.name(session, trace.id))
            return self._reward(await session.result_of(named), session)

    def _reward(self, played: Any, session: EpisodeSession) -> float:
        """Reward of the agent's traces. Raises Fault, also after a time-out, or TutelageError for a mistake."""
        if late := [each.stop_condition for each in played.traces if each.is_timeout] or played.is_timeout:
            stages = ", ".join(late) if isinstance(late, list) else "the environment"
            raise Fault(f"{self.name}: a time-out of its configuration is over: {stages}.")
        errors = [*played.errors, *(error for trace in played.traces for error in trace.errors)]
        if not played.ok and errors:
            error = errors[-1]
            text = f"{self.name}: {error.type}: {error.message}{session.remark}"
            raise Fault(text) if error.type in FAULTS and not session.refusal else TutelageError(text)
        rewards = [each for trace in played.traces if trace.agent.name == self.role for each in trace.rewards.values()]
        if any(each is None for each in rewards):
            raise Fault(f"{self.name}: the scoring of an episode has not ended.")
        return float(sum(each.value for each in rewards))


class ChatHarness(vf.Harness[vf.HarnessConfig]):
    """A chat that goes on as long as the policy calls tools of the task."""

    APPENDS_SYSTEM_PROMPT = SUPPORTS_MCP = SUPPORTS_RESUME = True
    EXECUTES_CODE = NEEDS_CONTAINER = False

    async def launch(
        self, ctx: Any, trace: Any, runtime: Any, endpoint: str, secret: str, mcp_urls: dict[str, str], data: Any
    ) -> Any:
        """See `Harness.launch`; a refused request ends the chat."""
        system, asked = self.resolve_prompt(data)
        messages: list[Any] = [{"role": "system", "content": system}] if system else []
        messages += (
            [{"role": "user", "content": asked}] if isinstance(asked, str) else list(map(message_to_wire, asked or ()))
        )
        own = {
            "mcpServers": {name: {"url": url, "timeout": self.config.tool_timeout} for name, url in mcp_urls.items()}
        }
        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(httpx.AsyncClient(timeout=None, trust_env=False))
            tools, places, servers = await connect_mcp(own, stack)
            while True:
                body = {"model": ctx.model, "messages": messages} | ({"tools": tools} if tools else {})
                headers = {"Authorization": f"Bearer {secret}"}
                reply = await client.post(f"{endpoint}/chat/completions", json=body, headers=headers)
                if reply.status_code != httpx.codes.OK:
                    return vf.ProgramResult(1, "", reply.text)
                said = reply.json()["choices"][0]["message"]
                messages.append(said)
                if not said.get("tool_calls"):
                    return vf.ProgramResult(0, "", "")
                for call in said["tool_calls"]:
                    content = await _result(call["function"], places, servers)
                    messages.append({"role": "tool", "tool_call_id": call["id"], "content": content})


async def _result(call: Any, places: Any, servers: Any) -> Any:
    """Result of a call, or what is wrong with it."""
    if call["name"] not in places:
        return f"error: there is no tool {call['name']!r:.100}; the tools are: {', '.join(places) or 'none'}"
    return await call_mcp(servers, places, call["name"], json.loads(call["arguments"]))


def _config(name: str) -> Any:
    """Configuration of an environment. Roles without a runtime have processes of this machine, and those without a
    harness, if the taskset has none, a chat."""
    sys.modules.setdefault(CHAT, sys.modules[__name__])
    own: dict[str, Any] = {"taskset": {"id": name}}
    if name.endswith(".toml"):
        own = tomllib.loads(Path(name).read_text(encoding="utf-8"))
        own = own.get("env", own)
    taskset = own.get("taskset", {}).get("id", "")
    kind = env_config_type(taskset, own.get("id", ""))
    chats = default_harness_id(taskset) == "bash"
    for role, field in kind.model_fields.items():
        if isinstance(field.default, vf.AgentConfig):
            given = field.default.model_fields_set
            usual: dict[str, Any] = {} if "runtime" in given else {"runtime": {"type": "subprocess"}}
            usual |= {"harness": {"id": CHAT}} if chats and "harness" not in given else {}
            own[role] = usual | own.get(role, {})
    return kind.model_validate(own)


def _finite(taskset: Any) -> Any:
    if not taskset.bounded:
        raise ValueError("its taskset has no end, and a run counts its prompts: choose a finite one")
    return taskset
