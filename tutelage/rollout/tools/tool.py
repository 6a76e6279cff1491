"""Tools: functions with a JSON schema and limits, and the toolbox that answers a policy's calls.

What sampled tokens can cause is the content of a message to the policy, which begins with "error:". Only a `Fault` is
an exception.
"""

import asyncio
import contextvars
import inspect
import json
import logging
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass, replace
from enum import Enum
from functools import cached_property
from typing import Any, TypeAlias, get_args, get_type_hints

from tutelage.base.concurrency import threaded
from tutelage.base.errors import TutelageError
from tutelage.base.modules import place_of
from tutelage.base.nouns import counted
from tutelage.data.records import Message, ToolCall
from tutelage.rollout.tools.arguments import UnfitArguments, read_arguments

log = logging.getLogger(__name__)

PAUSE = 1.0
"""Seconds between a fault and the first repetition of the call; doubled for each further one."""
SHORTEST = 200
"""Characters that a result may have at least."""

Outcome: TypeAlias = tuple[object, BaseException | None]
"""(result, None), or (None, what the function raised)."""


class Fault(TutelageError):
    """Raised if the infrastructure failed (a tool's host, a sandbox, a server): nothing that sampled tokens can
    cause."""


@dataclass(frozen=True)
class Tool:
    """Function that a policy may call by `name`. `schema` is JSON text in the form {"type": "function", "function":
    {"name": …, "parameters": …}}.

    A call has `timeout` seconds (`math.inf`: the function limits its own time); its result `longest` characters, beyond
    which its middle is left out visibly. A call that ends with a `Fault` is repeated `retries` times, after 1, 2, 4, …
    seconds.
    """

    name: str
    schema: str
    function: Callable[..., object]
    timeout: float = 10.0
    longest: int = 4_000
    retries: int = 0

    def __post_init__(self) -> None:
        named = self._description.get("name")
        if named != self.name:
            raise TutelageError(f"The schema of the tool {self.name!r} is that of {named!r}; give both one name.")
        for limit, fits, least in (
            ("timeout", self.timeout > 0, "more than 0 seconds"),
            ("longest", self.longest >= SHORTEST, f"{SHORTEST} characters or more"),
            ("retries", self.retries >= 0, "0 or more"),
        ):
            if not fits:
                raise TutelageError(f"{limit}={getattr(self, limit)} of the tool {self.name!r} must be {least}.")

    @cached_property
    def _description(self) -> Mapping[str, Any]:
        try:
            description = json.loads(self.schema)["function"]
        except (ValueError, LookupError, TypeError) as error:
            raise TutelageError(
                f'The schema of the tool {self.name!r} is no JSON of the form {{"type": "function", "function": …}}.'
            ) from error
        return description if isinstance(description, Mapping) else {}

    @property
    def parameters(self) -> Mapping[str, Any]:
        """Schema of the object of all arguments."""
        return self._description.get("parameters") or {}


def tool_of(function: Callable[..., object], **limits: Any) -> Tool:
    """Tool of a function, plain or async, with its own name. `limits` are `timeout`, `longest` and `retries` of `Tool`.

    The schema comes from type hints and the docstring by `transformers.utils.get_json_schema`: each argument needs a
    type hint and a line below "Args:". Values reach the function as JSON has them (a list for a tuple).

    Raises TutelageError for a function without these, and for one that cannot be called with arguments by name.
    """
    from transformers.utils.chat_template_utils import (
        DocstringParsingException,
        TypeHintParsingException,
        get_json_schema,
    )

    name = getattr(function, "__name__", "")
    if not name or not name.isidentifier():
        raise TutelageError(
            f"{function!r} has no name by which a policy could call it; give a function written with def."
        )
    try:
        _check_parameters(function)
        schema = get_json_schema(function)
    except (DocstringParsingException, TypeHintParsingException, NameError, TypeError, ValueError) as error:
        raise TutelageError(
            f"The function {name} cannot be a tool: {str(error).splitlines()[0].rstrip('.')}. It needs a type hint for "
            'each argument, and a docstring with its purpose and, below "Args:", a line "name: meaning" for each.'
        ) from error
    return Tool(name, json.dumps(schema, ensure_ascii=False), function, **limits)


def _check_parameters(function: Callable[..., object]) -> None:
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise TypeError(f"its argument {parameter} cannot be given by name")
    for name, hint in get_type_hints(function).items():
        if name != "return" and any(isinstance(part, type) and issubclass(part, Enum) for part in _parts(hint)):
            raise TypeError(f"its argument {name} is an Enum, while JSON has plain values; use typing.Literal")


def _parts(hint: object) -> Iterator[object]:
    yield hint
    for part in get_args(hint):
        yield from _parts(part)


class Toolbox:
    """Tools that a conversation offers.

    `calls` counts calls as "calls", and of these "unknown" (there is no such tool), "unreadable" (arguments that do not
    parse or fit), "timeouts", "failures" (the function raised, or returned what is neither text nor JSON) and "faults";
    of each tool "calls/NAME", and of these "failed/NAME", which had a time-out, a failure or a fault in the end. Counts
    of several toolboxes add up.

    A function that is not async runs in a thread of its own, so that any number of calls wait side by side. A thread
    cannot be stopped: after its time-out the call has ended for the policy, but the function runs on.

    Raises TutelageError for two tools of one name.
    """

    def __init__(self, tools: Sequence[Tool]) -> None:
        self.tools = tuple(tools)
        self.schemas = tuple(tool.schema for tool in tools)
        self.calls: Counter[str] = Counter()
        self._remarked: set[str] = set()
        self._by_name = {tool.name: tool for tool in tools}
        twice = [name for name, count in Counter(tool.name for tool in tools).items() if count > 1]
        if twice:
            raise TutelageError(f"Two tools have the name {twice[0]!r}; a policy calls tools by name: rename one.")

    def bound(self, owner: object) -> "Toolbox":
        """The same tools, counted together; those that are methods of an object of the same class are methods of
        `owner`."""
        return self.using({tool.name: _bound(tool.function, owner) for tool in self.tools})

    def using(self, functions: Mapping[str, Callable[..., object]]) -> "Toolbox":
        """The same tools, counted together, with other functions by name."""
        return self._with([replace(tool, function=functions.get(tool.name, tool.function)) for tool in self.tools])

    def among(self, schemas: Sequence[str]) -> "Toolbox":
        """Those of the tools that a conversation with these schemas offers, counted together."""
        names = {json.loads(schema)["function"]["name"] for schema in schemas}
        return self._with([tool for tool in self.tools if tool.name in names])

    def _with(self, tools: Sequence[Tool]) -> "Toolbox":
        box = Toolbox(tools)
        box.calls, box._remarked = self.calls, self._remarked
        return box

    async def run(self, call: ToolCall) -> Message:
        """Message with the result of a call, or with what is wrong with it. Raises Fault."""
        content = await self._content(call)
        return Message("tool", escape_surrogates(content), name=escape_surrogates(call.name), call_id=call.id)

    async def _content(self, call: ToolCall) -> str:
        self.calls["calls"] += 1
        tool = self._by_name.get(call.name)
        if tool is None:
            self.calls["unknown"] += 1
            names = ", ".join(self._by_name) or "none"
            return f"error: there is no tool {without_middle(repr(call.name), SHORTEST)}; the tools are: {names}"
        self.calls[f"calls/{tool.name}"] += 1
        try:
            arguments = read_arguments(call.arguments, tool.parameters)
        except UnfitArguments as error:
            self.calls["unreadable"] += 1
            return without_middle(f"error: {error}", tool.longest)
        return without_middle(await self._answer(tool, arguments), tool.longest)

    async def _answer(self, tool: Tool, arguments: Mapping[str, Any]) -> str:
        for repetition in range(tool.retries + 1):
            if repetition:
                await asyncio.sleep(PAUSE * 2 ** (repetition - 1))
            value, error = await _within(tool, arguments)
            if not isinstance(error, Fault):
                break
            self.calls["faults"] += 1
        if error is not None:
            self.calls[f"failed/{tool.name}"] += 1
        if isinstance(error, Fault | KeyboardInterrupt):
            raise error
        if isinstance(error, TimeoutError):
            self.calls["timeouts"] += 1
            return f"error: {str(error) or 'the time is over'}"
        if error is None:
            try:
                return result_text(value)
            except (TypeError, ValueError, RecursionError) as unfit:
                error = unfit
                self.calls[f"failed/{tool.name}"] += 1
        return self._failure(tool, error)

    def _failure(self, tool: Tool, error: BaseException) -> str:
        """What the policy reads about an exception of the function; the first of each tool is logged."""
        self.calls["failures"] += 1
        text = f"{type(error).__name__}: {error}"
        if tool.name not in self._remarked:
            self._remarked.add(tool.name)
            place = place_of(error, getattr(getattr(tool.function, "__code__", None), "co_filename", ""))
            log.warning(
                f"The tool {tool.name} raised {without_middle(text, SHORTEST)}{place}. The policy reads it as the "
                "result; further failures are counted."
            )
        return f"error: {text}"


def _bound(function: Callable[..., object], owner: object) -> Callable[..., object]:
    own = getattr(function, "__self__", None)
    return getattr(owner, function.__name__) if own is not None and type(own) is type(owner) else function


async def _within(tool: Tool, arguments: Mapping[str, Any]) -> Outcome:
    """Outcome of a call; a TimeoutError after the tool's time-out, a CancelledError if the function cancelled itself.
    An async function that ignores its cancellation is not waited for."""
    task = asyncio.ensure_future(_outcome(tool, arguments))
    try:
        done, _ = await asyncio.wait({task}, timeout=None if math.isinf(tool.timeout) else tool.timeout)
    finally:
        task.cancel()
    if done:
        return (None, asyncio.CancelledError()) if task.cancelled() else task.result()
    return None, TimeoutError(f"{tool.name} has no result after {tool.timeout:g} seconds, its time-out")


async def _outcome(tool: Tool, arguments: Mapping[str, Any]) -> Outcome:
    try:
        if inspect.iscoroutinefunction(tool.function):
            return await tool.function(**arguments), None
        value, error = await _in_thread(tool, arguments)
        return (await value, None) if inspect.isawaitable(value) else (value, error)
    except (Exception, SystemExit) as error:
        return None, error


def _in_thread(tool: Tool, arguments: Mapping[str, Any]) -> "asyncio.Future[Outcome]":
    """Future of the outcome in a new daemon thread, which does not delay the end of the program."""
    context = contextvars.copy_context()

    def compute(arguments: Mapping[str, Any]) -> Outcome:
        try:
            return context.run(tool.function, **arguments), None
        except BaseException as error:  # no asyncio future can hold a StopIteration
            return None, error

    try:
        call = threaded(compute, arguments)
    except RuntimeError as error:
        raise Fault(f"The tool {tool.name} cannot start a thread: {error}.") from error
    return asyncio.wrap_future(call.future)


def result_text(value: object) -> str:
    """Result of a tool as text: a text itself, anything else as JSON. Raises TypeError, ValueError, RecursionError."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=_plain)


def _plain(value: Any) -> object:
    """Arrays as lists and data classes as objects."""
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, bytes | bytearray | memoryview):
        raise TypeError(f"the result holds {counted(len(bytes(value)), 'byte')} of binary data, which are no text")
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"the result holds an object of type {type(value).__name__}, which is neither text nor JSON")


def without_middle(text: str, longest: int) -> str:
    """The text, at most `longest` characters of it: beyond, its beginning and its end, with what is left out."""
    if len(text) <= longest:
        return text
    mark = f"\n… [{counted(len(text) - longest, 'character')} or more left out] …\n"
    begin = (longest - len(mark) + 1) // 2
    return f"{text[:begin]}{mark}{text[len(text) - (longest - len(mark) - begin) :]}"


def escape_surrogates(text: str) -> str:
    r"""The text with halves of surrogate pairs, which UTF-8 does not have, as \udXXX."""
    return text.encode("utf-8", "backslashreplace").decode()
