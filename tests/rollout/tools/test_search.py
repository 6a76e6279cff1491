"""BM25 against its formula, and search over files."""

import json
import math

import pytest

from tutelage.base.errors import TutelageError
from tutelage.rollout.tools.search import Index, search_of

DOCUMENTS = ["the cat sat", "the dog and the cat", "a bird", ""]


def formula(f: int, n: int, length: int) -> float:
    """k₁ = 1.2, b = .75, four documents of 3, 5, 2 and 0 words."""
    idf = math.log(1 + (4 - n + 0.5) / (n + 0.5))
    return idf * f * 2.2 / (f + 1.2 * (1 - 0.75 + 0.75 * length / 2.5))


def test_scores_are_those_of_the_formula():
    scores = Index(DOCUMENTS).scores("The cat")
    assert scores == {
        0: pytest.approx(formula(1, 2, 3) + formula(1, 2, 3)),
        1: pytest.approx(formula(2, 2, 5) + formula(1, 2, 5)),
    }


def test_a_word_that_is_asked_twice_counts_twice():
    index = Index(DOCUMENTS)
    assert index.scores("bird bird") == {2: pytest.approx(2 * formula(1, 1, 2))}
    assert index.scores("whale") == {}
    assert index.scores("") == {}


def test_equal_scores_are_in_the_order_of_rows():
    index = Index(["x y", "y x", "x x", "x y"])
    assert index.best("x", 4) == [2, 0, 1, 3]
    assert index.best("x", 1) == [2]


def results(tool, **arguments):
    return [block.partition("]")[0] + "]" for block in tool.function(**arguments).split("\n\n")]


def test_rows_have_their_ids_or_places(tmp_path):
    rows = [{"id": 7, "text": "red apple"}, {"text": "green apple, green leaf"}, {"id": "z", "text": "sky"}]
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    tool = search_of(str(file))
    assert tool.name == "search"
    assert results(tool, query="green apple") == ["[line 2]", "[7]"]
    assert results(tool, query="apple", results=1) == ["[7]"]
    assert tool.function(query="apple", results=1) == "[7] red apple"
    assert "No document" in tool.function(query="whale")
    assert results(tool, query="sky", results=-5) == ["[z]"]


def test_columns_are_named_and_text_files_are_split_at_blank_lines(tmp_path):
    (tmp_path / "t.csv").write_text("id,name,height\nm1,Eiger,3967\nm2,Rigi,1798\n")
    assert search_of(str(tmp_path / "t.csv")).function(query="1798") == "[m2] name: Rigi\nheight: 1798"
    (tmp_path / "t.txt").write_text("One whale.\n\nTwo cats\nand a dog.\n")
    assert search_of(str(tmp_path / "t.txt")).function(query="dog") == "[line 3] Two cats\nand a dog."


def test_long_documents_are_cut(tmp_path):
    (tmp_path / "t.txt").write_text("whale " * 1_000)
    assert len(search_of(str(tmp_path / "t.txt")).function(query="whale")) < 1_100


def test_files_that_are_not_there_or_have_no_text(tmp_path):
    with pytest.raises(TutelageError, match=r"none\.jsonl"):
        search_of(str(tmp_path / "none.jsonl"))
    (tmp_path / "empty.jsonl").write_text('{"flags": [1]}\n')
    with pytest.raises(TutelageError, match="flags"):
        search_of(str(tmp_path / "empty.jsonl"))


def test_rows_that_cannot_be_read_are_named(tmp_path, caplog):
    (tmp_path / "t.jsonl").write_text('{"text": "whale"}\nnonsense\n')
    search_of(str(tmp_path / "t.jsonl"))
    assert "line 2" in caplog.text
