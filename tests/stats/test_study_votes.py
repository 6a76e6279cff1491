"""The votes.csv of a study's export: what counts, and studies without choices. tests/people/test_export.py reads a real
one."""

import pytest

from tutelage.base.errors import TutelageError
from tutelage.stats.vote_files import Columns, read_votes

HEADER = "id,item,rater,rater_kind,pool,verdict,strength,excluded\n"
ROWS = (
    "1,x,Ada,human,production,a,2,\n"
    "2,x,Bea,human,production,tie,0,\n"
    "3,y,Ada,human,production,skip,0,\n"
    "4,y,Bea,human,production,b,1,too quick\n"
    "5,y,Cem,human,production,both_bad,0,\n"
)


def table(tmp_path, text):
    path = tmp_path / "votes.csv"
    path.write_text(text)
    return str(path)


def test_skipped_and_excluded_judgements_are_left_out(tmp_path):
    found = read_votes(table(tmp_path, HEADER + ROWS), Columns("item", "rater"))
    votes = found.votes
    said = [(votes.items[i], votes.choices[c]) for i, c in zip(votes.item, votes.choice, strict=True)]
    assert said == [("x", "a"), ("x", "tie"), ("y", "both_bad")]
    assert found.notes == (
        "1 row (line 4) left out: skipped",
        "1 row (line 5) left out: excluded from the study",
    )
    assert found.rows == 5


def test_a_column_that_was_named_is_read_as_it_stands(tmp_path):
    found = read_votes(table(tmp_path, HEADER + ROWS), Columns("item", "rater", "strength"))
    assert len(found.votes) == 5


def test_a_table_with_a_column_choice_is_no_export(tmp_path):
    text = HEADER.replace("strength", "choice") + ROWS
    assert read_votes(table(tmp_path, text), Columns("item", "rater")).votes.choices == ("0", "1", "2")


def test_verdicts_that_are_no_choices_are_refused(tmp_path):
    with pytest.raises(TutelageError, match=r"kind 'ranked'.*--choice.*preferences\.jsonl"):
        read_votes(table(tmp_path, HEADER + "1,x,Ada,human,production,ranked,0,\n"), Columns("item", "rater"))
