"""No text keeps a rule busy: time and memory of every rule on hostile answers."""

import json
import logging
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from offenders import for_each

from tutelage.rewards import sandbox as limits
from tutelage.rewards.factory import RULES, rule_named
from tutelage.rewards.rules import PatternMatch
from tutelage.rewards.sandbox import LimitExceeded, SandboxWorker, exceeded, limited
from tutelage.rewards.scores import reward_metrics

from .made import completion

LONG = 100_000
HOSTILE = {
    "exponent": "It is 3e9999999999.",
    "digits": "9" * LONG,
    "digits of an exponent": "1e" + "9" * LONG,
    "fractions": "1/2/3/" * (LONG // 6),
    "grouped": "1,111" * (LONG // 5),
    "percent": "100%%%%" * (LONG // 7),
    "Arabic digits": "٣" * LONG,
    "tower": "$9^{9^{9^{9}}}$",
    "factorials": "$((9!)!)!$",
    "unbalanced": r"$\frac{1}{" * (LONG // 10),
    "boxes": r"\boxed{" * (LONG // 7),
    "a sum": "$" + "+".join("x" * (LONG // 2)) + "$",
    "nested": "[" * LONG + "]" * LONG,
    "keys": '{"a":' * (LONG // 5),
    "letters": "a" * 100 + "!",
    "string": '"' + "a" * 100 + '!"',
    "words": "word " * (LONG // 5),
    "dots": "." * LONG + "a",
    "quotation marks": "." * (LONG // 2) + '"' * (LONG // 2) + "a",
    "empty fence": "```\n" + "\n" * LONG,
    "blank fence": "``` " + " \n" * (LONG // 2) + "x",
    "tags": "<think></think>" + " " * LONG,
    "surrogates": "\ud800" * 1000 + " 1",
    "NUL": "\0" * LONG,
}
ENDLESS = r"(\w+\s?)+\."
"""A pattern that takes 2^n steps on n letters without a full stop."""
SETTINGS = {
    "exact": f"(pattern={ENDLESS!r})",
    "number": f"(pattern={ENDLESS!r})",
    "regex": f"(pattern={ENDLESS!r})",
    "length": "(limit=3)",
}


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit of time that tests can wait for."""
    monkeypatch.setattr(limits, "SECONDS", 0.2)


@pytest.fixture
def shorter(monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit for texts that may exceed it, many of which do."""
    monkeypatch.setattr(limits, "SECONDS", 0.05)


def variants(name: str, folder: Path) -> list[str]:
    """A rule with the settings that let a text take longest, and as it is."""
    if name == "json":
        schema = folder / "schema.json"
        schema.write_text(json.dumps({"type": "string", "pattern": "^(a+)+$"}))
        return ["json", f"json(schema={str(schema)!r})"]
    if name == "number":
        return ["number", "number" + SETTINGS["number"]]
    return [name + SETTINGS.get(name, "")]


FEW = {"exponent", "digits", "tower", "a sum", "nested", "letters", "empty fence", "NUL"}
"""Those of `make test`: numbers, formulas, depth, patterns, blanks, and a byte."""


def check_that_none_keeps_it_busy(name: str, kinds: Iterable[str], folder: Path) -> None:
    stalled = {}
    for variant in variants(name, folder):
        rule = rule_named(variant)
        for kind in kinds:
            began = time.monotonic()
            (score,) = rule([completion(HOSTILE[kind], answer="42")])
            seconds = time.monotonic() - began
            if seconds > 10 or not -LONG <= float(score) <= 1:
                stalled[variant, kind] = seconds, score
    assert stalled == {}


@pytest.mark.usefixtures("shorter")
@for_each(RULES)
def test_no_text_keeps_a_rule_busy(name: str, tmp_path: Path) -> None:
    check_that_none_keeps_it_busy(name, sorted(FEW), tmp_path)


@pytest.mark.long
@pytest.mark.usefixtures("shorter")
@for_each(RULES)
def test_no_other_text_keeps_a_rule_busy(name: str, tmp_path: Path) -> None:
    check_that_none_keeps_it_busy(name, sorted(HOSTILE.keys() - FEW), tmp_path)


def test_an_answer_beyond_the_limits_does_not_match_and_the_others_score(
    short: None, caplog: pytest.LogCaptureFixture
) -> None:
    before = exceeded("regex")
    rule = PatternMatch(r"(a+)+")
    answers = ["aaa", "a" * 40 + "!", "b", "a" * 50 + "!", "aa"]
    limits._exceeded.pop("regex", None)
    with caplog.at_level(logging.WARNING):
        assert rule([completion(text) for text in answers]) == [1.0, 0.0, 0.0, 0.0, 1.0]
    assert reward_metrics(rule) == {"rules/over_limits": 2.0}
    assert [record.getMessage().count("rule:regex") for record in caplog.records] == [1]
    limits._exceeded["regex"] += before


def test_time_memory_and_depth_end_in_any_thread(short: None) -> None:
    calls = [(eval, "9 ** 9 ** 9"), (bytearray, 2 * limits.BYTES), (json.loads, "[" * 100_000)]
    with ThreadPoolExecutor(2) as pool:
        for call in calls:
            with pytest.raises(LimitExceeded):
                pool.submit(limited, *call).result()
        assert list(pool.map(lambda n: limited(pow, n, 2), range(20))) == [n * n for n in range(20)]


def test_errors_are_those_of_the_function_and_an_end_of_the_worker_is_a_defect() -> None:
    with pytest.raises(ZeroDivisionError):
        limited(divmod, 1, 0)
    with pytest.raises(RuntimeError, match="status 3"):
        limited(eval, "__import__('os')._exit(3)")
    assert limited(len, "abc") == 3


def test_a_worker_that_was_killed_computes_the_next_one_in_a_new_process() -> None:
    worker = SandboxWorker()
    for text in ("ab", "abc", "abcd"):
        assert worker.computed(len, (text,)) == len(text)
        worker.kill()
    worker.close()
