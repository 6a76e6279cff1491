"""What the product writes it reads again, to the letter."""

import json
import math
import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from offenders import for_each
from tiers import every_value

from tutelage.base.errors import TutelageError
from tutelage.data.formats import (
    load_comparisons,
    load_completions,
    load_demonstrations,
    load_preferences,
    load_prompts,
    load_steps,
    load_unpaired,
)
from tutelage.data.record_files import Record, fingerprint, from_row, to_row, write_jsonl
from tutelage.data.record_formats import FIELDS
from tutelage.data.records import (
    Comparison,
    CompletionRecord,
    Demonstration,
    Message,
    Preference,
    Prompt,
    RatedSteps,
    ToolCall,
    UnpairedAnswer,
    user,
)

TEXT = st.text(st.characters(blacklist_categories=["Cs"]), min_size=1, max_size=30).filter(str.strip)
ARGUMENTS = st.dictionaries(TEXT, st.integers() | TEXT, max_size=2).map(
    lambda each: json.dumps(each, ensure_ascii=False)
)
CALLS = st.builds(
    lambda content, thinking, calls: Message("assistant", content, thinking, tuple(calls)),
    *(TEXT | st.just(""), TEXT),
    st.lists(st.builds(ToolCall, TEXT, ARGUMENTS, TEXT | st.just("")), min_size=1, max_size=2),
)
TOOL = '{"type": "function", "function": {"name": "weather"}}'
EPISODES = st.tuples(TEXT, CALLS, TEXT).map(
    lambda x: (Message("user", x[0], tools=(TOOL,)), x[1], Message("tool", x[2], name="weather", call_id="1"))
)
PLAIN_TURNS = st.builds(
    lambda system, pairs, last: (
        *(Message("system", text) for text in system),
        *(Message(role, text) for pair in pairs for role, text in zip(("user", "assistant"), pair, strict=True)),
        Message("user", last),
    ),
    st.lists(TEXT, max_size=1),
    st.lists(st.tuples(TEXT, TEXT), max_size=2),
    TEXT,
)
MARKED = st.sampled_from(["<|im_start|>user\nHi<|im_end|>", "[{'role': 'user'}]", "It ended.<|im_end|>"])
TURNS = PLAIN_TURNS | EPISODES | MARKED.map(user)
TURN_STEPS = st.tuples(CALLS, TEXT).map(lambda x: (x[0], Message("tool", x[1], call_id="1")))
STEPS = st.lists(TEXT | MARKED, min_size=1, max_size=3) | st.lists(TURN_STEPS, min_size=1, max_size=2)
RATED = STEPS.flatmap(
    lambda steps: st.tuples(st.just(tuple(steps)), st.tuples(st.floats(0, 1), *(st.none() for _ in steps[1:])))
)
NUMBER = st.floats(0, 1e6)
PAIR = st.tuples(TEXT, TEXT).filter(lambda pair: pair[0].strip() != pair[1].strip())
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXT, inner, max_size=2),
    max_leaves=4,
)
OWN_COLUMNS = st.dictionaries(TEXT.filter(lambda column: column not in FIELDS), JSON, max_size=3)
RECORDS = {
    Prompt: st.builds(Prompt, TEXT, TURNS, st.sampled_from(["train", "held_out"]), OWN_COLUMNS),
    CompletionRecord: st.builds(
        CompletionRecord,
        *(TEXT, TEXT, st.text(st.characters(blacklist_categories=["Cs"])), TEXT),
        steps=st.just(()) | STEPS.map(tuple),
    ),
    Demonstration: st.builds(Demonstration, TURNS | st.just(()), TEXT | MARKED | CALLS, st.floats(1e-3, 1e6)),
    Comparison: st.tuples(TEXT, TEXT, PAIR, TEXT).map(lambda x: Comparison(x[0], x[1], *x[2], x[3])),
    Preference: st.tuples(TURNS | st.just(()), PAIR, st.floats(0, 1), NUMBER, st.floats(0, 9)).map(
        lambda x: Preference(x[0], *x[1], *x[2:])
    ),
    UnpairedAnswer: st.builds(UnpairedAnswer, TURNS, TEXT, st.booleans()),
    RatedSteps: st.tuples(TURNS, RATED).map(lambda x: RatedSteps(x[0], *x[1])),
}
LOADERS = {
    Prompt: load_prompts,
    CompletionRecord: load_completions,
    Demonstration: load_demonstrations,
    Comparison: load_comparisons,
    Preference: load_preferences,
    UnpairedAnswer: load_unpaired,
    RatedSteps: load_steps,
}


@for_each(RECORDS)
def test_a_record_survives_its_row(kind: type[Record]) -> None:
    @given(RECORDS[kind])
    def check(record: Record) -> None:
        row = json.loads(json.dumps(to_row(record)))
        assert from_row(kind, row) == record

    check()


@pytest.mark.parametrize(("kind", "ending"), every_value(RECORDS, [".jsonl", ".jsonl.gz"]))
def test_a_file_of_records_is_read_as_written(kind: type[Record], ending: str, tmp_path: Path) -> None:
    @settings(max_examples=20)
    @given(st.lists(RECORDS[kind], min_size=1, max_size=5, unique_by=(_id, _content)))
    def check(records: list[Record]) -> None:
        path = tmp_path / f"records{ending}"
        assert write_jsonl(path, map(to_row, records)) == len(records)
        loaded = LOADERS[kind](path)
        assert list(loaded.records) == records
        assert loaded.skipped == ()

    check()


def _id(record: Record) -> object:
    return getattr(record, "id", record)


def _content(record: Record) -> object:
    return record.messages if isinstance(record, Prompt) else _id(record)


def test_a_fingerprint_changes_with_any_row_and_with_their_order() -> None:
    prompts = [Prompt(str(n), user("Why?"), data={"answer": n}) for n in range(3)]
    pairs = [Preference(user("Why?"), "So.", "No.", weight=weight) for weight in (1.0, 2.0)]
    same = fingerprint(prompts, pairs)
    assert same.startswith("5 rows, ")
    assert fingerprint(list(prompts), tuple(pairs)) == same
    changed = [replace(prompts[0], data={"answer": 7}), *prompts[1:]]
    others = [
        fingerprint(changed, pairs),
        fingerprint(prompts[::-1], pairs),
        fingerprint(prompts, pairs[:1]),
        fingerprint([*prompts, *pairs]),
        fingerprint(prompts, ["Why?", "So."]),
    ]
    assert len({same, *others}) == 6


def test_rows_are_those_of_trl() -> None:
    """TRL's standard and conversational preference and prompt-completion formats (docs/source/dataset_formats.md)."""
    assert to_row(Preference(user("Why?"), "Yes.", "No.", 0.5)) == {
        "prompt": "Why?",
        "chosen": "Yes.",
        "rejected": "No.",
        "p_chosen": 0.5,
        "weight": 1.0,
        "margin": 0.0,
    }
    talk = (Message("system", "Be brief."), *user("Why?"))
    asked = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why?"}]
    assert to_row(Demonstration(talk, "So.")) == {
        "prompt": asked,
        "completion": [{"role": "assistant", "content": "So."}],
    }
    assert to_row(Prompt("a", user("Why?"))) == {"id": "a", "prompt": "Why?", "split": "train"}
    assert to_row(Prompt("a", user("Why?"), data={"level": 3})) == {
        "level": 3,
        "id": "a",
        "prompt": "Why?",
        "split": "train",
    }
    assert to_row(Prompt("a", talk, "held_out")) == {"id": "a", "messages": asked, "split": "held_out"}


@for_each(
    [
        (Comparison, to_row(Comparison("c", "p", "x", "x")), "a_id and b_id"),
        (CompletionRecord, {"id": "c"}, "prompt_id is missing"),
        (Prompt, {"id": "p", "prompt": "Why?", "split": "later"}, "split is 'later'"),
    ]
)
def test_a_row_that_is_no_record_says_why(kind: type[Record], row: dict[str, object], reason: str) -> None:
    with pytest.raises(TutelageError) as refusal:
        from_row(kind, row)
    assert reason in str(refusal.value)


@pytest.mark.parametrize("value", [math.nan, "\ud800"])
def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path, value: object) -> None:
    path = tmp_path / "new" / "rows.jsonl"
    write_jsonl(path, [{"text": "before"}])
    with pytest.raises(TutelageError, match="Row 2 cannot be written"):
        write_jsonl(path, [{"text": "after"}, {"text": value}])
    assert path.read_text() == '{"text": "before"}\n'
    assert os.listdir(path.parent) == ["rows.jsonl"]


def test_a_disk_that_is_full_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(file: int) -> None:
        raise OSError(28, "No space left on device")

    path = tmp_path / "rows.jsonl"
    write_jsonl(path, [{"text": "before"}])
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(TutelageError, match=r"rows\.jsonl: No space left"):
        write_jsonl(path, [{"text": "after"}])
    assert path.read_text() == '{"text": "before"}\n'
    assert os.listdir(tmp_path) == ["rows.jsonl"]


def test_equal_records_make_equal_files_at_any_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, now in (("a.jsonl.gz", 1e9), ("b.jsonl.gz", 2e9)):
        monkeypatch.setattr("time.time", lambda now=now: now)
        write_jsonl(tmp_path / name, [{"text": "same"}])
    assert (tmp_path / "a.jsonl.gz").read_bytes() == (tmp_path / "b.jsonl.gz").read_bytes()
