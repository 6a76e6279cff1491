"""A row without a column that a reward reads is found before anything is sampled."""

import json
from pathlib import Path

import pytest

from tutelage.base.errors import TutelageError
from tutelage.data.formats import load_prompts
from tutelage.rewards.columns import require_columns


def write(folder: Path, rows: list[dict[str, object]]) -> Path:
    path = folder / "sums.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_the_first_row_without_the_column_is_named_by_its_place(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [
        {"prompt": f"{i} + 1?", "answer": i + 1, "hint": "count"} for i in range(20)
    ]
    rows[3] = {"prompt": "", "answer": 4}  # unusable, and no row of the prompts
    rows[7] = rows[6]  # repeated
    rows[16] = {"prompt": "16 + 1?", "solution": 17}
    rows[18]["answer"] = None
    loaded = load_prompts(write(tmp_path, rows))
    told = r"rule:math reads the column 'answer', which line 17 of .* not have \(2 of 18 rows lack it\).*: solution"
    with pytest.raises(TutelageError, match=told):
        require_columns(["rule:length(limit=3)", "rule:math=.5"], loaded)
    require_columns(["rule:length(limit=3)", "runs/reward/model"], loaded)


def test_rows_that_have_the_column_pass(tmp_path: Path) -> None:
    loaded = load_prompts(write(tmp_path, [{"prompt": "1 + 1?", "answer": 2}]))
    assert loaded.places == ("line 1",)
    require_columns(["rule:number", "rule:exact(column=answer)"], loaded)
