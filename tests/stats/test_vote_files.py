"""The votes.csv of a study's export: what counts, and studies without choices. tests/people/test_export.py reads a real
one."""

import csv
import json
from dataclasses import replace

import pytest
from offenders import for_each

from tutelage.base.errors import TutelageError
from tutelage.stats.vote_files import VoteFileColumns, harmless, read_votes, write_table

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
    found = read_votes(table(tmp_path, HEADER + ROWS), VoteFileColumns("item", "rater"))
    votes = found.votes
    said = [(votes.items[i], votes.choices[c]) for i, c in zip(votes.item, votes.choice, strict=True)]
    assert said == [("x", "a"), ("x", "tie"), ("y", "both_bad")]
    assert found.notes == ("1 row (line 4) left out: skipped", "1 row (line 5) left out: excluded from the study")
    assert found.rows == 5


def test_a_column_that_was_named_is_read_as_it_stands(tmp_path):
    found = read_votes(table(tmp_path, HEADER + ROWS), VoteFileColumns("item", "rater", "strength"))
    assert len(found.votes) == 5


def test_a_table_with_a_column_choice_is_no_export(tmp_path):
    text = HEADER.replace("strength", "choice") + ROWS
    assert read_votes(table(tmp_path, text), VoteFileColumns("item", "rater")).votes.choices == ("0", "1", "2")


def test_verdicts_that_are_no_choices_are_refused(tmp_path):
    with pytest.raises(TutelageError, match=r"kind 'ranked'.*--choice.*preferences\.jsonl"):
        read_votes(table(tmp_path, HEADER + "1,x,Ada,human,production,ranked,0,\n"), VoteFileColumns("item", "rater"))


COLUMNS = VoteFileColumns("item", "who", "label")
WITH_GOLD = VoteFileColumns("item", "who", "label", "gold")


def file(tmp_path, text, name="votes.csv"):
    path = tmp_path / name
    path.write_text(text)
    return str(path)


def told(votes):
    return [
        (votes.items[i], votes.raters[r], votes.choices[c])
        for i, r, c in zip(votes.item, votes.rater, votes.choice, strict=True)
    ]


ROWS_vote_files = [("x", "r", "yes"), ("x", "s", "no"), ("y", "r", "no")]


@for_each(["csv", "tsv", "jsonl", "json"])
def test_the_same_votes_come_out_of_every_kind_of_file(kind, tmp_path):
    names = ("item", "who", "label")
    if kind in ("csv", "tsv"):
        separator = "," if kind == "csv" else "\t"
        text = "\n".join(separator.join(row) for row in (names, *ROWS_vote_files)) + "\n"
    else:
        objects = [dict(zip(names, row, strict=True)) for row in ROWS_vote_files]
        text = json.dumps(objects) if kind == "json" else "\n".join(map(json.dumps, objects))
    found = read_votes(file(tmp_path, text, f"votes.{kind}"), COLUMNS)
    assert told(found.votes) == ROWS_vote_files
    assert found.votes.choices == ("no", "yes")
    assert (found.rows, found.notes, found.gold) == (3, (), None)


def test_every_row_left_out_is_counted_and_named(tmp_path):
    text = "item,who,label\nx,r,1\n,r,1\ny,r,\ny,,\nz,r,0,9\nx,r,0\nx,s,1\n"
    found = read_votes(file(tmp_path, text), COLUMNS)
    assert told(found.votes) == [("x", "r", "0"), ("x", "s", "1")]
    assert sorted(found.notes) == [
        "1 row (line 2) left out: the same rater judged the item again further down",
        "1 row (line 3) left out: without item",
        "1 row (line 4) left out: without label",
        "1 row (line 5) left out: without who and label",
        "1 row (line 6) left out: unreadable, 4 cells instead of 3",
    ]
    assert found.rows == len(found.votes) + 5


def test_many_rows_left_out_are_counted_and_the_first_named(tmp_path):
    text = "item,who,label\nx,r,1\n" + "y,s,\n" * 1200
    (note,) = read_votes(file(tmp_path, text), COLUMNS).notes
    assert note == "1,200 rows (line 3, line 4, line 5 and 1,197 more) left out: without label"


def test_numbers_are_one_choice_however_they_are_written(tmp_path):
    rows = [
        {"item": "007", "who": 7, "label": 1, "gold": "1"},
        {"item": "7", "who": "7", "label": "1.0", "gold": None},
        {"item": "8", "who": "7", "label": -2.50, "gold": float("nan")},
    ]
    text = "\n".join(map(json.dumps, rows))
    found = read_votes(file(tmp_path, text, "votes.jsonl"), WITH_GOLD)
    assert told(found.votes) == [("007", "7", "1"), ("7", "7", "1"), ("8", "7", "-2.5")]
    assert found.votes.choices == ("-2.5", "1")
    assert found.gold.tolist() == [1, -1, -1]


def test_numbers_are_one_choice_among_words_too(tmp_path):
    text = "item,who,label\nx,r,1\ny,r,1.0\nz,r,skip\n"
    found = read_votes(file(tmp_path, text), COLUMNS)
    assert found.votes.choices == ("1", "skip")
    assert "1.0" in found.notes[0]


SEPARATED = [
    ("x\u2028y", "r", "yes"),
    ('he said "no"', "s", "b, or so"),
    ("two\nlines", "r", "no"),
    ("tab\there", "s", "a"),
]


def test_a_cell_with_separators_quotes_and_lines_is_one_cell_in_every_kind_of_file(tmp_path):
    for kind, mark in {"csv": ",", "tsv": "\t"}.items():
        with (tmp_path / f"votes.{kind}").open("w", newline="", encoding="utf-8") as opened:
            csv.writer(opened, delimiter=mark).writerows([("item", "who", "label"), *SEPARATED])
        found = read_votes(str(tmp_path / f"votes.{kind}"), COLUMNS)
        assert told(found.votes) == SEPARATED, kind
        assert found.notes == (), kind
    plain = "item\twho\tlabel\n" + "\n".join(map("\t".join, SEPARATED[:1])) + "\n"
    assert told(read_votes(file(tmp_path, plain, "plain.tsv"), COLUMNS).votes) == SEPARATED[:1]


def test_names_that_are_the_same_are_joined_and_the_last_vote_counts(tmp_path):
    rows = [
        ("q1", "Jos\u00e9", "A"), ("q1", "Jose\u0301", "b"), ("q1 ", "Ann", "a\u200b"), ("q2", "ann", "a\u00a0"),
        ("Q2", "Ann", "a"), ("q2", "Bo", "true"),
    ]  # fmt: skip
    path = tmp_path / "votes.jsonl"
    objects = [dict(zip(("item", "who", "label"), row, strict=True)) for row in rows]
    objects += [{"item": 3.0, "who": 7.0, "label": True}, {"item": "3", "who": "7", "label": "a"}]
    path.write_text("\n".join(map(json.dumps, objects)))
    found = read_votes(str(path), COLUMNS)
    assert told(found.votes) == [
        ("q1", "Jos\u00e9", "b"), ("q1", "Ann", "A"), ("q2", "Ann", "A"), ("Q2", "Ann", "A"), ("q2", "Bo", "true"),
        ("3", "7", "A"),
    ]  # fmt: skip
    notes = "\n".join(found.notes)
    for spelling in (r"'Jose\u0301'", "'ann'", r"'a\u200b'", r"'A'"):
        assert spelling in notes


STATUSES = [
    ("status", "APPROVED", "REJECTED"),
    ("Status", "AWAITING REVIEW", "RETURNED"),
    ("AssignmentStatus", "Submitted", "Rejected"),
    ("ASSIGNMENT:status", "SUBMITTED", "REJECTED"),
    ("submission_status", "approved", "TIMED-OUT"),
    ("responses.status", "submitted", "discarded"),
    ("was_cancelled", False, True),
    ("was_cancelled", "False", "True"),
    ("_tainted", 0, 1.0),
]


def test_rejected_work_is_left_out_unless_it_is_kept(tmp_path):
    wrong = []
    for column, good, bad in STATUSES:
        rows = [
            {"item": "x", "who": "r", "label": "a", column: good},
            {"item": "x", "who": "s", "label": "b", column: bad},
        ]
        path = file(tmp_path, json.dumps(rows), "votes.json")
        without, whole = read_votes(path, COLUMNS), read_votes(path, COLUMNS, keep_rejected=True)
        if told(without.votes) != [("x", "r", "a")] or len(whole.votes) != 2:
            wrong.append(column)
        assert any("row 2" in note and column in note for note in without.notes), column
        assert any("--keep-rejected" in note for note in whole.notes), column
    assert not wrong


def test_a_column_in_use_and_other_words_for_a_state_reject_nothing(tmp_path):
    text = "item,who,label,student status,rejected\nx,r,rejected,Yes,a text\nx,s,kept,No,true\n"
    found = read_votes(file(tmp_path, text), COLUMNS)
    assert len(found.votes) == 2
    assert "student status" in found.notes[0]
    text = "item,who,label,status\nx,r,a,REJECTED\nx,s,b,REJ\n"  # a word that is not known is said
    found = read_votes(file(tmp_path, text), COLUMNS)
    assert told(found.votes) == [("x", "s", "b")]
    assert any("status (2 values" in note for note in found.notes)
    text = "item,who,label_status\nx,r,rejected\nx,s,approved\n"
    assert len(read_votes(file(tmp_path, text), VoteFileColumns("item", "who", "label_status")).votes) == 2


def test_columns_without_use_are_named_with_their_first_place(tmp_path):
    text = "item,who,label,comment,empty\nx,r,1,,\nx,s,1,long,\ny,r,1,short,\n"
    (note,) = read_votes(file(tmp_path, text), COLUMNS).notes
    assert "comment (2 values, the first in line 3)" in note
    assert "empty" not in note


def test_a_list_is_no_choice(tmp_path):
    rows = [{"item": "x", "who": "r", "label": "a"}, {"item": "y", "who": "r", "label": ["a"]}]
    found = read_votes(file(tmp_path, json.dumps(rows), "votes.json"), COLUMNS)
    assert told(found.votes) == [("x", "r", "a")]
    assert "row 2" in found.notes[0]
    assert "label" in found.notes[0]


def test_gold_may_be_partial_contradict_itself_or_name_what_nobody_chose(tmp_path):
    text = "item,who,label,gold\nx,r,a,a\nx,s,b,\ny,r,a,a\ny,s,b,b\nz,r,b,c\nw,r,a,\n"
    found = read_votes(file(tmp_path, text), WITH_GOLD)
    assert found.votes.choices == ("a", "b", "c")
    assert dict(zip(found.votes.items, found.gold.tolist(), strict=True)) == {"x": 0, "y": -1, "z": 2, "w": -1}
    assert found.notes == (
        "items with contradicting gold, taken as unknown: 1 (y)",
        "gold answers that no rater chose: c",
    )


@for_each(
    [
        (
            "item,annotator,label\nx,r,1\n",
            COLUMNS,
            r"no column 'who' for the rater; .* item, annotator, label.*--rater",
        ),
        ("item,who,label\nx,r,1\n", WITH_GOLD, "no column 'gold' for the gold"),
        ("item,who,label\nx,,1\n", COLUMNS, "No row .*item, who and label"),
        ("item,who,label,gold\nx,r,1,true\n", WITH_GOLD, r"no value in common with 'label' \(true against 1\)"),
        ("item,who,label,gold\nx,r,1,\n", WITH_GOLD, "it is empty"),
        (
            "item,who,label\n" + "".join(f"x{n},r,text {n}\n" for n in range(51)),
            COLUMNS,
            "51 different values.*'text 0'",
        ),
    ]
)
def test_a_table_that_cannot_be_meant_is_refused(text, columns, message, tmp_path):
    with pytest.raises(TutelageError, match=message):
        read_votes(file(tmp_path, text), columns)


def test_tab_separated_files_have_their_errors_too(tmp_path):
    with pytest.raises(TutelageError, match="is empty"):
        read_votes(file(tmp_path, "", "votes.tsv"), COLUMNS)
    with pytest.raises(TutelageError, match=r"absent\.tsv"):
        read_votes(str(tmp_path / "absent.tsv"), COLUMNS)
    found = read_votes(file(tmp_path, "item\twho\tlabel\nx\tr\t1\nx\ts\n\n", "votes.tsv"), COLUMNS)
    assert found.notes == ("1 row (line 3) left out: unreadable, 2 cells instead of 3",)


@for_each(["=1+1", "+cmd", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "=HYPERLINK('x')"])
def test_a_formula_gets_an_apostrophe(cell, tmp_path):
    path = tmp_path / "out.csv"
    write_table(str(path), ["item", cell], [[cell, 1]])
    with path.open(newline="") as opened:
        assert list(csv.reader(opened)) == [["item", f"'{cell}"], [f"'{cell}", "1"]]


@for_each(["-2", "+1.5", "-1e-3", "plain", "a=b", "", "1-2"])
def test_numbers_and_plain_text_are_left_alone(cell):
    assert harmless(cell) == cell


def test_a_file_that_cannot_be_written_leaves_the_old_one(tmp_path):
    path = tmp_path / "out.csv"
    write_table(str(path), ["a"], [[1]])

    def rows():
        yield [2]
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left on device"):
        write_table(str(path), ["a"], rows())
    assert path.read_text() == "a\n1\n"
    with pytest.raises(TutelageError, match=r"absent/out\.csv"):
        write_table(str(tmp_path / "absent" / "out.csv"), ["a"], [])


def test_a_tie_stands_between_the_two_others_and_an_order_is_kept(tmp_path):
    rows = "item,rater,choice\n1,Ada,b\n1,Bo,Equal\n2,Ada,a\n"
    found = read_votes(file(tmp_path, rows), VoteFileColumns("item", "rater"))
    assert (found.votes.choices, found.ordered) == (("a", "Equal", "b"), True)
    turned = read_votes(file(tmp_path, rows), VoteFileColumns("item", "rater", order=("b", "Equal", "a")))
    assert (turned.votes.choices, turned.ordered) == (("b", "Equal", "a"), True)
    assert turned.votes.choice.tolist() == [0, 1, 2]
    plain = read_votes(file(tmp_path, rows.replace("Equal", "c")), VoteFileColumns("item", "rater"))
    assert (plain.votes.choices, plain.ordered) == (("a", "b", "c"), False)


def test_an_order_names_points_that_nobody_chose_and_choices_in_any_spelling(tmp_path):
    rows = "item,rater,choice\n1,Ada,1\n1,Bo,2\n2,Ada,4\n2,Bo,5\n"
    found = read_votes(file(tmp_path, rows), VoteFileColumns("item", "rater", order=("1", "2", "3", "4.0", "5")))
    assert (found.votes.choices, found.votes.choice.tolist()) == (("1", "2", "3", "4", "5"), [0, 1, 3, 4])
    assert [note for note in found.notes if note.endswith(": 3")]
    words = read_votes(
        file(tmp_path, "item,rater,choice\n1,Ada,Worse\n1,Bo,better\n"),
        VoteFileColumns("item", "rater", order=("worse", "BETTER")),
    )
    assert (words.votes.choices, words.notes) == (("Worse", "better"), ())


def test_sides_with_a_strength_stand_around_the_tie(tmp_path):
    rows = "item,rater,choice,s\n1,Ada,b,1\n1,Bo,tie,0\n2,Ada,a,1\n2,Bo,a,3\n3,Bo,b,2\n"
    columns = VoteFileColumns("item", "rater", strength="s")
    found = read_votes(file(tmp_path, rows), columns)
    seven = ("a 3", "a 2", "a 1", "tie", "b 1", "b 2", "b 3")  # the tie is in the middle, whoever chose what
    assert (found.votes.choices, found.ordered) == (seven, True)
    one_sided = read_votes(file(tmp_path, "item,rater,choice,s\n1,Ada,a,2.0\n1,Bo,a,1\n2,Ada,b,1.0\n"), columns)
    assert one_sided.votes.choices == ("a 2", "a 1", "b 1", "b 2")  # none of them is a tie
    export = HEADER + "1,i,r,human,production,a,3,\n2,i,s,human,production,both_bad,0,\n3,j,r,human,production,tie,0,\n"
    found = read_votes(file(tmp_path, export + "4,j,s,human,production,b,1,\n"), replace(columns, strength="strength"))
    assert (found.votes.choices, len(found.votes)) == (("a 3", "a 1", "tie", "b 1", "b 3"), 3)
    assert [note for note in found.notes if "both bad" in note and "line 3" in note]
    for wrong, named in ((rows.replace("b,2", "c,2"), "c 2"), (rows.replace("b,2", "b,"), "'s'")):
        with pytest.raises(TutelageError, match="--strength s") as refusal:
            read_votes(file(tmp_path, wrong), columns)
        assert named in str(refusal.value)
