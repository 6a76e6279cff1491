"""Rules from the words of the command line: `rule:math`, `rule:length(limit=200, unit=words)`."""

import ast
import re
from collections.abc import Mapping
from difflib import get_close_matches

from tutelage.base import config
from tutelage.base.errors import TutelageError
from tutelage.base.lazy import LazyTable
from tutelage.rewards.reward import Reward

FILES: Mapping[str, Mapping[str, str]] = {
    "rules": {"exact": "ExactMatch", "regex": "PatternMatch", "length": "LengthLimit"},
    "math_rules": {"number": "NumberMatch", "math": "MathMatch"},
    "text_rules": {
        "format": "TagFormat",
        "json": "JsonFormat",
        "repetition": "Repetition",
        "readability": "Readability",
    },
}
"""The rules of each file: names and classes."""

RULES: LazyTable[type] = LazyTable(
    {
        name: (f"tutelage.rewards.{file}", rule)
        for file, rules in FILES.items()
        for name, rule in rules.items()
    }
)
"""The rules by the names under which the command line knows them; their settings are the fields of the classes."""

_CALL = re.compile(r"(\w*)(?:\((.*)\))?", re.DOTALL)


def rule_named(text: str) -> Reward:
    """The rule that a text such as `math` or `length(limit=200)` names.

    Raises TutelageError for an unknown rule, an unknown setting, and a value of another type.
    """
    match = _CALL.fullmatch(text.strip())
    name = match[1] if match else text
    if match is None or name not in RULES:
        near = get_close_matches(name.partition("(")[0], RULES, n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise TutelageError(f"There is no rule {text!r}: the rules are {', '.join(RULES)}.{hint}")
    values = _settings(text, match[2] or "")
    try:
        rule: Reward = config.from_mapping(RULES[name], values)
    except TutelageError as error:
        raise TutelageError(f"The reward rule:{text}: {error}") from error
    return rule


def _settings(text: str, inside: str) -> dict[str, object]:
    """name=value, … with numbers, texts in quotation marks, plain words, and lists of these in brackets."""
    try:
        call = ast.parse(f"rule({inside})", mode="eval").body
    except SyntaxError as error:
        raise _unreadable(text) from error
    if not isinstance(call, ast.Call) or call.args:
        raise _unreadable(text)
    return {keyword.arg or "": _value(keyword.value, text) for keyword in call.keywords}


def _value(node: ast.expr, text: str) -> object:
    if isinstance(node, ast.Name):
        return {"true": True, "false": False}.get(node.id, node.id)
    if isinstance(node, ast.List | ast.Tuple):
        return [_value(item, text) for item in node.elts]
    try:
        return ast.literal_eval(node)
    except ValueError as error:
        raise _unreadable(text) from error


def _unreadable(text: str) -> TutelageError:
    return TutelageError(
        f"The settings of rule:{text} cannot be read: write rule:length(limit=200, unit=words), with quotation marks "
        "around texts that are no plain words, as in rule:regex(pattern='[A-D]')."
    )
