"""Rows of RewardBench 2."""

from pathlib import Path

import pytest
from offenders import for_each
from tiny_commands import write_jsonl

from tutelage.base.errors import TutelageError
from tutelage.data.reward_benchmark import load_benchmark

ROW = {"id": "12", "subset": "Math", "prompt": "1 + 1?", "chosen": ["2"], "rejected": ["1", "3", "4"]}
EXTRA = {"num_correct": 1, "total_completions": 4, "models": ["a", "b"], "additional_metadata": {"x": 1}}


def test_a_row_of_the_published_form(tmp_path: Path) -> None:
    tie = ROW | {"id": "tied:3", "subset": "Ties", "chosen": ["red", "blue"], "num_correct": 2}
    one, other = load_benchmark(write_jsonl(tmp_path / "rows.jsonl", [ROW | EXTRA, tie])).records
    assert (one.completions, one.correct, one.prompt[0].content) == (("2", "1", "3", "4"), 1, "1 + 1?")
    assert not one.has_ties
    assert (other.has_ties, other.tie, other.correct) == (True, ("tied", 3), 2)


@for_each(
    [
        ({"num_correct": 2}, "num_correct is 2"),
        ({"total_completions": 3}, "total_completions is 3"),
        ({"chosen": "2"}, "chosen"),
        ({"rejected": []}, "rejected"),
        ({"subset": "Ties"}, "neither ref:N nor tied:N"),
        ({"subset": "Ties", "id": "tied:1"}, "tied:1 has 1 correct"),
    ]
)
def test_a_row_that_is_none(change: dict[str, object], words: str, tmp_path: Path) -> None:
    file = write_jsonl(tmp_path / "rows.jsonl", [ROW, ROW | {"id": "13"} | change])
    with pytest.raises(TutelageError, match=f"{words}(.|\n)*line 2|line 2(.|\n)*{words}"):
        load_benchmark(file)


def test_an_id_that_repeats(tmp_path: Path) -> None:
    with pytest.raises(TutelageError, match="'12' repeats"):
        load_benchmark(write_jsonl(tmp_path / "rows.jsonl", [ROW, ROW]))
