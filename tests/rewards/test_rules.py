"""Rules by hand."""

import json
import sys
from pathlib import Path

import pytest
from offenders import for_each

from tutelage.base.errors import TutelageError
from tutelage.core.rows import EncodedRow
from tutelage.data.text_counts import reading_grade
from tutelage.rewards.rules import ExactMatch, JsonFormat, LengthLimit, PatternMatch, Readability, Repetition, TagFormat

from .made import completion, sampled


def test_length_costs_nothing_up_to_the_limit_and_one_at_twice_the_limit() -> None:
    answers = [completion(" ".join(["word"] * count)) for count in (0, 3, 4, 6, 8, 12)]
    assert LengthLimit(4)(answers) == [0.0, 0.0, 0.0, -0.5, -1.0, -2.0]
    assert LengthLimit(2, "characters")([completion("abc")]) == [-0.5]
    rows = [EncodedRow((1,), (2, 3)), EncodedRow((1,), (2, 3, 4, 5))]
    assert LengthLimit(2, "tokens")(sampled(rows)) == [0.0, -1.0]


def test_characters_are_words_where_no_spaces_are_written() -> None:
    answers = [completion(text) for text in ("你好，世界。", "สวัสดีครับ", "你好 world")]
    assert LengthLimit(2)(answers) == [-1.0, -2.5, -0.5]
    assert Repetition(1)([completion("好好好好"), completion("你好世界")]) == [-0.75, 0.0]


def test_tokens_that_are_not_known_are_not_counted() -> None:
    with pytest.raises(TutelageError, match="Only the text of the answer to prompt p is known"):
        LengthLimit(2, "tokens")([completion("abc")])


@for_each(
    [("<think>a\nb</think>So.", 1.0), ("\n<think></think>So.\n", 1.0), ("Well: <think>a</think>So.", 0.0), ("So.", 0.0)]
)
def test_a_format_is_that_of_the_whole_answer(answer: str, score: float) -> None:
    assert PatternMatch(r"<think>.*</think>.+")([completion(answer)]) == [score]


@for_each(
    [
        ("", "forty  two\n", "forty two", 1.0),
        ("", "forty two.", "forty two", 0.0),
        ("", "42", 42, 1.0),
        (r"####\s*(\S+)", "1 #### 41 or #### 42", "42", 1.0),
        (r"####\s*(\S+)", "1 #### 42 or #### 41", "42", 0.0),
        (r"####\s*(\S+)", "42", "42", 0.0),
        (r"\d+", "It is 42.", "42", 1.0),
        (r"a(b)?", "a", "", 1.0),
    ]
)
def test_the_last_match_is_compared_with_the_column(pattern: str, answer: str, solution: object, score: float) -> None:
    assert ExactMatch("solution", pattern)([completion(answer, solution=solution)]) == [score]


@for_each(
    [
        ("Paris", ["paris", "Paris"], 1.0),
        ("Rome", ["paris", "Paris"], 0.0),
        ("true", True, 1.0),
        ("True", True, 1.0),
        ("1", True, 0.0),
        ("false", True, 0.0),
        ("42", 42.0, 1.0),
        ("42.0", 42, 1.0),
        ("42.5", 42.5, 1.0),
        ("42", 42.5, 0.0),
        ("Roma", {"value": "Rome", "aliases": ["Roma"], "type": "WikipediaEntity"}, 1.0),
        ("Rome", {"value": "Rome", "aliases": []}, 1.0),
        ("WikipediaEntity", {"value": "Rome", "type": "WikipediaEntity"}, 0.0),
        ("in May", {"text": ["May", "in May"], "answer_start": [3, 0]}, 1.0),
        ("Cafe\u0301", "Caf\u00e9", 1.0),
    ]
)
def test_any_of_several_values_counts_and_values_need_not_be_text(answer: str, solution: object, score: float) -> None:
    assert ExactMatch("solution")([completion(answer, solution=solution)]) == [score]


@for_each([[], ["42", None], {}, {"answer": "42"}, {"aliases": [{"x": 1}]}])
def test_a_column_of_another_form_is_refused(solution: object) -> None:
    with pytest.raises(TutelageError, match=r"row of prompt p .*'solution'"):
        ExactMatch("solution")([completion("42", solution=solution)])


@for_each([{}, {"reference": "42"}, {"solution": None}])
def test_a_row_without_the_column_is_named(data: dict[str, object]) -> None:
    with pytest.raises(TutelageError, match=r"The row of prompt p has no value in the column 'solution'"):
        ExactMatch("solution")([completion("42", **data)])


@for_each([lambda: PatternMatch("("), lambda: ExactMatch("x", "("), lambda: LengthLimit(0)])
def test_rules_that_are_none(rule) -> None:
    with pytest.raises(TutelageError, match=r"is not a regular expression|leaves no room"):
        rule()


SCHEMA = {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}


@for_each(
    [
        (("think",), "<think>a\nb</think>So.", 1.0),
        (("think",), "\n<think></think>\nSo.\n", 1.0),
        (("think",), "<think>a</think>\n", 0.0),
        (("think",), "Well: <think>a</think>So.", 0.0),
        (("think",), "<think>a</think>So.<think>b</think>", 0.0),
        (("think",), "</think>a<think>So.", 0.0),
        (("think", "answer"), "<think>a</think>\n<answer>b</answer>\n", 1.0),
        (("think", "answer"), "<think>a</think> then <answer>b</answer>", 0.0),
        (("think", "answer"), "<answer>b</answer><think>a</think>", 0.0),
        (("think", "answer"), "<think>a</think><answer>b</answer> and more", 0.0),
        (("think", "answer"), "<think><answer>a</think>b</answer>", 0.0),
    ]
)
def test_sections_in_tags(tags: tuple[str, ...], answer: str, score: float) -> None:
    assert TagFormat(tags)([completion(answer)]) == [score]


@pytest.mark.parametrize("tags", [(), ("<think>",), ("two words",)])
def test_tags_are_words(tags: tuple[str, ...]) -> None:
    with pytest.raises(TutelageError, match="Tags are words"):
        TagFormat(tags)


@for_each(
    [
        ('{"name": "Ada"}', 1.0, 1.0),
        ('```json\n{"name": "Ada"}\n```', 1.0, 1.0),
        ('{"name": 3}', 1.0, 0.0),
        ("[1, 2]", 1.0, 0.0),
        ('Here: {"name": "Ada"}', 0.0, 0.0),
        ("", 0.0, 0.0),
        ("[" * 100_000, 0.0, 0.0),
        (' \n```  \n\n {"name": "Ada"}\n\n ``` \n', 1.0, 1.0),
        ('```python\n{"name": "Ada"}\n```', 0.0, 0.0),
        ('```json {"name": "Ada"}\n```', 0.0, 0.0),
        ('```json\n{"name": "Ada"}```', 0.0, 0.0),
        ("```\n```", 0.0, 0.0),
        ('{"name": "x", "n": NaN}', 0.0, 0.0),
        ('{"name": "x", "n": -Infinity}', 0.0, 0.0),
    ]
)
def test_json_with_and_without_a_schema(answer: str, plain: float, fulfilled: float, tmp_path: Path) -> None:
    schema = tmp_path / "schema.json"
    schema.write_text(json.dumps(SCHEMA))
    assert JsonFormat()([completion(answer)]) == [plain]
    assert JsonFormat(str(schema))([completion(answer)]) == [fulfilled]


@for_each([(None, "Cannot read"), ("{", "not a JSON schema"), ('{"type": "thing"}', "not a JSON schema")])
def test_a_schema_that_is_none(content: str | None, told: str, tmp_path: Path) -> None:
    schema = tmp_path / "schema.json"
    if content is not None:
        schema.write_text(content)
    with pytest.raises(TutelageError, match=told):
        JsonFormat(str(schema))


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jsonschema", None)
    monkeypatch.delitem(sys.modules, "tutelage.rewards.schemas", raising=False)
    monkeypatch.delattr("tutelage.rewards.schemas", raising=False)
    assert JsonFormat()([completion("1")]) == [1.0]
    with pytest.raises(TutelageError, match=r"tutelage\[rules\]"):
        JsonFormat("schema.json")


def test_repetition_costs_the_share_that_was_said_before() -> None:
    """ "a b c a b c" has four runs of three words, of which one comes again."""
    answers = ["a b c a b c", "a b c d e f", "a b", "", "A b c. a, b c!"]
    assert Repetition()([completion(text) for text in answers]) == [-0.25, 0.0, 0.0, 0.0, -0.25]
    assert Repetition(1)([completion("no no no no")]) == [-0.75]


def test_readability_costs_nothing_up_to_the_grade_and_one_at_twice_the_grade() -> None:
    text = "Solar radiation illuminates terrestrial environments."
    grade = reading_grade(text)
    assert grade is not None
    assert Readability(grade)([completion(text)]) == [0.0]
    assert Readability(grade / 2)([completion(text)]) == pytest.approx([-1.0])
    assert Readability()([completion("The sun is hot."), completion("...")]) == [0.0, -1.0]


@pytest.mark.parametrize("rule", [lambda: Repetition(0), lambda: Readability(0.0)])
def test_rules_that_are_none_text_rules(rule) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(TutelageError, match=r"runs of 1 word or more|A school year"):
        rule()
