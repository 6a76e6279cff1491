"""Rules from the words of the command line."""

import pytest

from tutelage.base.errors import TutelageError
from tutelage.rewards.math_rules import MathMatch, NumberMatch
from tutelage.rewards.named_rules import RULES, rule_named
from tutelage.rewards.reward import Reward, reward_name
from tutelage.rewards.rules import ExactMatch, LengthLimit, PatternMatch
from tutelage.rewards.text_rules import TagFormat


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("math", MathMatch()),
        ("format", TagFormat()),
        ("format(tags=[think, answer])", TagFormat(("think", "answer"))),
        ("length(limit=200, unit=tokens)", LengthLimit(200, "tokens")),
        ("number(tolerance=0)", NumberMatch(tolerance=0.0)),
        ("regex(pattern='[A-D]\\\\.')", PatternMatch(r"[A-D]\.")),
        (r"exact(column='solution', pattern=r'\((\w)\)')", ExactMatch("solution", r"\((\w)\)")),
    ],
)
def test_a_rule_has_the_settings_that_it_is_given(text: str, rule: Reward) -> None:
    assert rule_named(text) == rule


def test_every_rule_is_called_by_its_name() -> None:
    needed = {"length": "(limit=1)", "regex": "(pattern=a)"}
    for name in RULES:
        assert reward_name(rule_named(name + needed.get(name, ""))) == name


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("maths", "There is no rule 'maths'.*Did you mean math"),
        ("", "the rules are exact"),
        ("length", "rule:length: limit is required"),
        ("length(limit=many)", "limit must be a whole number, not the text 'many'"),
        ("length(limit=5, unit=pages)", "unit must be"),
        ("length(limt=5)", "did you mean 'limit'"),
        ("length(5)", "write rule:length"),
        ("length(limit=)", "write rule:length"),
        ("length(limit=1+1j*x)", "write rule:length"),
        ("regex(pattern='(')", "is no regular expression"),
    ],
)
def test_rules_that_are_none(text: str, told: str) -> None:
    with pytest.raises(TutelageError, match=told):
        rule_named(text)
