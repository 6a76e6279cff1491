"""What a file of prompts has beside its prompts reaches the prompt, and is written and read again."""

import csv
import gzip
import json
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow
import pytest
from offenders import for_each
from pyarrow import parquet

from tutelage.base.errors import TutelageError
from tutelage.data.formats import load_prompts
from tutelage.data.record_files import to_row, write_jsonl
from tutelage.data.record_formats import NotJson, json_value, own_columns
from tutelage.data.records import Message, Prompt, user

ROWS: list[dict[str, object]] = [
    {"prompt": "What is 1 + 1?", "solution": "2", "level": 1, "tags": ["sum", "small"], "source": {"page": 3}},
    {"prompt": "What is 2 * 3?", "solution": "6", "level": 2, "tags": [], "source": {"page": 4}},
]
TURNS = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why?"}]


def data(*rows: dict[str, object]) -> list[dict[str, object]]:
    return [{name: value for name, value in row.items() if name != "prompt"} for row in rows]


def written(folder: Path, ending: str) -> Path:
    """ROWS as a file; csv can hold the columns of text alone."""
    path = folder / f"prompts{ending}"
    lines = "".join(json.dumps(row) + "\n" for row in ROWS)
    match ending:
        case ".json":
            path.write_text(json.dumps(ROWS))
        case ".jsonl":
            path.write_text(lines)
        case ".jsonl.gz":
            path.write_bytes(gzip.compress(lines.encode()))
        case ".parquet":
            parquet.write_table(pyarrow.Table.from_pylist(ROWS), path)
        case ".csv":
            with path.open("w", newline="") as file:
                writer = csv.writer(file)
                writer.writerow(["prompt", "solution", "level"])
                writer.writerows([row["prompt"], row["solution"], row["level"]] for row in ROWS)
    return path


@for_each([".json", ".jsonl", ".jsonl.gz", ".parquet"])
def test_columns_of_any_type_are_kept_by_every_kind_of_file(ending: str, tmp_path: Path) -> None:
    loaded = load_prompts(written(tmp_path, ending))
    assert [prompt.data for prompt in loaded.records] == data(*ROWS)
    assert loaded.notes == ("own columns, for rewards: solution, level, tags, source",)


def test_a_csv_file_keeps_its_columns_as_text(tmp_path: Path) -> None:
    loaded = load_prompts(written(tmp_path, ".csv"))
    assert [prompt.data for prompt in loaded.records] == [
        {"solution": "2", "level": "1"},
        {"solution": "6", "level": "2"},
    ]


@for_each(
    [
        ({"question": "Why?", "answer": "So."}, {"answer": "So."}),
        ({"instruction": "Why?", "input": "Rain.", "output": "So."}, {"output": "So."}),
        ({"instruction": "Why?", "context": "", "response": "So.", "topic": "qa"}, {"response": "So.", "topic": "qa"}),
        ({"prompt": "Why?", "completion": "So.", "label": True}, {"completion": "So.", "label": True}),
        ({"prompt": "Why?", "chosen": "So.", "rejected": "No."}, {"chosen": "So.", "rejected": "No."}),
        ({"messages": [*TURNS, {"role": "assistant", "content": "So."}], "level": 1}, {"level": 1}),
        ({"chosen": "Q: Why?\nYes.", "rejected": "Q: Why?\nNo.", "rater": "r"}, {"rater": "r"}),
        ({"prompt": "\n\nHuman: Why?\n\nAssistant:", "level": 1}, {"level": 1}),
        ({"text": "Why?", "level": None}, {"level": None}),
        ({"prompt": "Why?", "id": "a", "split": "test", "system": "Be brief."}, {}),
    ]
)
def test_a_column_is_a_field_or_kept_and_never_both(
    row: dict[str, object], kept: dict[str, object], tmp_path: Path
) -> None:
    """Demonstrations and preferences serve as prompts, with their answers as own columns where they are columns."""
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(row) + "\n")
    (prompt,) = load_prompts(path).records
    assert prompt.data == kept


def test_a_name_that_is_a_field_of_another_format_is_said(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"question": "Why?", "id": 7, "split": "test", "answer": "So."}) + "\n")
    loaded = load_prompts(path)
    assert loaded.records[0].data == {"answer": "So."}
    lost, kept = loaded.notes
    assert kept == "own columns, for rewards: answer"
    assert lost.startswith("not used: split (line 1")


def test_data_under_the_name_of_a_field_is_not_written() -> None:
    with pytest.raises(TutelageError, match=r"prompt 'p' has the name 'split'"):
        to_row(Prompt("p", user("Why?"), data={"split": "odd"}))


def test_own_columns_survive_being_written_and_read(tmp_path: Path) -> None:
    """What `sample` writes to prompts.jsonl is what it read, conversations with a system message included."""
    source = tmp_path / "rows.jsonl"
    rows: list[dict[str, object]] = [*ROWS, {"messages": TURNS, "level": 3}]
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    first = load_prompts(source).records
    assert first[2].messages == (Message("system", "Be brief."), *user("Why?"))
    write_jsonl(tmp_path / "prompts.jsonl", map(to_row, first))
    assert load_prompts(tmp_path / "prompts.jsonl").records == first


def test_repeated_prompts_with_other_columns_are_told_apart_in_the_account(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    rows = [{"prompt": "Why?", "n": n} for n in (1, 1, 2, 3)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    loaded = load_prompts(path)
    assert [prompt.data for prompt in loaded.records] == [{"n": 1}]
    assert loaded.notes[:2] == (
        "1 row left out: the prompt is in an earlier row, and is kept once",
        "2 rows left out: the prompt is in an earlier row, with other columns, which are kept",
    )


def test_a_prompt_stays_a_value() -> None:
    one, other = (Prompt("p", user("Why?"), data={"level": level}) for level in (1, 2))
    assert one != other
    assert len({one, other, Prompt("p", user("Why?"), data={"level": 1})}) == 2


@for_each(
    [
        ((1, (2.5, "a")), [1, [2.5, "a"]]),
        ({"when": date(2024, 2, 29)}, {"when": "2024-02-29"}),
        (datetime(2024, 2, 29, 12, 30), "2024-02-29T12:30:00"),
        (Decimal("0.10"), "0.10"),
        (float("nan"), None),
        ({3: True}, {"3": True}),
    ]
)
def test_values_of_tables_become_json(value: object, held: object) -> None:
    assert json_value(value) == held
    assert json.loads(json.dumps(json_value(value), allow_nan=False)) == held


def nested(depth: int) -> list[object]:
    """[[[…]]]"""
    value: list[object] = []
    for _ in range(depth):
        value = [value]
    return value


@for_each([b"PNG", float("inf"), "\ud800", {"inner": [b"PNG"]}, {"\ud800": 1}, {1, 2}, nested(5_000)])
def test_values_that_json_cannot_hold_are_null_and_counted(value: object, tmp_path: Path) -> None:
    with pytest.raises(NotJson):
        json_value(value)
    assert own_columns({"prompt": "Why?", "image": value}, ["prompt"]) == {"image": None}


def test_bytes_of_a_parquet_file_are_counted(tmp_path: Path) -> None:
    rows = [{"prompt": "Why?", "blob": None}, {"prompt": "How?", "blob": b"PNG"}]
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "p.parquet")
    loaded = load_prompts(tmp_path / "p.parquet")
    assert [prompt.data for prompt in loaded.records] == [{"blob": None}] * 2
    assert loaded.notes[1] == "null in place of 1 value of blob that JSON cannot hold (row 2, …)"
