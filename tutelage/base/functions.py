"""Functions of the user's own modules, by name."""

import importlib
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from tutelage.base.errors import TutelageError


def function_named(name: str) -> Callable[..., object]:
    """Import the callable `module:function`. Raises TutelageError if there is none."""
    function = value_named(name)
    if not callable(function):
        raise TutelageError(f"{name!r} is not a function.")
    return function


def value_named(name: str) -> object:
    """Import the value `module:NAME`. Raises TutelageError if there is none."""
    module, _, attribute = name.partition(":")
    try:
        return getattr(_imported(module, name), attribute)
    except AttributeError as error:
        raise TutelageError(f"The module {module!r} has no function {attribute!r}.") from error


def _imported(module: str, name: str) -> ModuleType:
    """Import the module of the function `name`."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        file = Path(*module.split(".")).with_suffix(".py")
        hint = ", where Python does not look: set PYTHONPATH=. before the command"
        is_here = file.is_file() and f"{module}.".startswith(f"{error.name}.")
        place = f". {file} lies in this folder{hint}" if is_here else ""
        raise TutelageError(f"The module of {name!r} cannot be imported: {error}{place}.") from error
    except Exception as error:  # imports run arbitrary code
        place = "" if isinstance(error, SyntaxError) else place_of(error)  # a SyntaxError includes its place
        reason = f"{type(error).__name__}: {error}{place}"
        raise TutelageError(f"The module of {name!r} cannot be imported: {reason}.") from error


def place_of(error: BaseException, file: str = "") -> str:
    """Innermost line of a traceback, in `file` if the traceback includes it: " (rewards.py:9)"."""
    frames = traceback.extract_tb(error.__traceback__)[1:]
    if not frames:
        return ""
    own = [frame for frame in frames if frame.filename == file]
    frame = (own or frames)[-1]
    return f" ({Path(frame.filename).name}:{frame.lineno})"
