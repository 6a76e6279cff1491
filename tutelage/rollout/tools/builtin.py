"""Tools by their names on the command line."""

from collections.abc import Callable, Mapping, Sequence

from tutelage.base.errors import TutelageError
from tutelage.base.modules import function_named, value_named
from tutelage.rollout.tools.calculator import calculator
from tutelage.rollout.tools.python_process import python_tool
from tutelage.rollout.tools.search import search_of
from tutelage.rollout.tools.tool import Tool, Toolbox, tool_of

BUILT_IN: Mapping[str, Callable[[], Tool]] = {"calculator": lambda: tool_of(calculator), "python": python_tool}


def load_tools(names: Sequence[str]) -> Toolbox:
    """Toolbox of names: "calculator", "python", "search:FILE", and "module:function", where `function` may also be a
    `Tool` with limits of its own.

    Raises TutelageError for an unknown name, a function that cannot be a tool, and two tools of one name.
    """
    return Toolbox([_tool(name) for name in names])


def _tool(name: str) -> Tool:
    kind, colon, rest = name.partition(":")
    if kind == "search" and colon:
        return search_of(rest)
    if name in BUILT_IN:
        return BUILT_IN[name]()
    if not (kind and rest):
        names = ", ".join([*BUILT_IN, "search:FILE"])
        raise TutelageError(f"There is no tool {name!r}; give {names} or a function of your own as module:function.")
    own = value_named(name)
    return own if isinstance(own, Tool) else tool_of(function_named(name))
