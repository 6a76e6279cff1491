"""Foreign votes and ready pairs."""

import json
from pathlib import Path

import pytest

from tutelage.base.errors import TutelageError
from tutelage.data.records import Preference, user
from tutelage.data.tables import Table, read_table
from tutelage.people import Store, create_study, get_rater, list_questions, list_raters, list_votes, preferences, survey
from tutelage.people.store.items import add_items
from tutelage.people.vote_import import import_votes, pairs_to_judge
from tutelage.people.vote_tables import Columns, meaning_of

from .worlds import raters_of, work

NAMED = Columns(model_a="model_a", model_b="model_b", time="timestamp", reason="why")
HEADER = "prompt,model_a,model_b,completion_a,completion_b,preference,evaluator,timestamp,why\n"
ROWS = """\
Say hello,old,new,hi,hello there,b-is-better,anna,2023-05-19 13:11:45,kinder
Say hello,new,old,hello there,hi,a-is-slightly-better,bert,2023-05-20T08:00:00+02:00,
Say goodbye,old,new,bye,farewell,tie,anna,1684501905,
Say goodbye,old,new,bye,farewell,A-is-better,anna,1684501999,changed my mind
Say nothing,old,new,,silence,b-is-better,anna,,
Say it,old,new,one,two,perhaps,anna,,
Say it,old,new,one,two,tie,,,
Say it,old,old,same,same,tie,bert,,
"""


def table(folder: Path, text: str = HEADER + ROWS) -> Table:
    path = folder / "votes.csv"
    path.write_text(text, encoding="utf-8")
    return read_table(path)


def test_votes_of_another_tool_keep_their_meaning(store: Store, folder: Path) -> None:
    study = create_study(store, "foreign")
    came = import_votes(store, study.id, table(folder), NAMED, partial=True)
    assert (came.votes, came.revised, came.known, came.items, came.raters) == (4, 1, 0, 2, 2)
    assert {reason: count for reason, (count, _) in came.dropped.items()} == {
        "the prompt or a response is missing": 1,
        "the choice 'perhaps' is not known": 1,
        "no rater is named": 1,
        "both responses are the same text": 1,
    }
    assert came.dropped["no rater is named"][1] == ("line 8",)
    questions = {question.key: question for question in list_questions(store, study.id)}
    hello = [v for v in list_votes(store, study.id) if questions[v.item].messages == user("Say hello")]
    for vote in hello:
        question = questions[vote.item]
        assert question.texts["ab".index(vote.verdict)] == "hello there"
        shown = [question.texts[index] for index in vote.sides]
        assert shown == (["hi", "hello there"] if vote.rater == "anna" else ["hello there", "hi"])
    assert [(vote.rater, vote.strength, vote.created) for vote in hello] == [
        ("anna", 2, 1684501905000),
        ("bert", 1, 1684562400000),
    ]
    assert hello[0].reason == "kinder"


def test_a_second_vote_is_a_change_of_mind_and_the_first_is_kept(store: Store, folder: Path) -> None:
    study = create_study(store, "foreign")
    import_votes(store, study.id, table(folder), NAMED, partial=True)
    questions = {question.key: question for question in list_questions(store, study.id)}
    every = list_votes(store, study.id, every_revision=True)
    goodbye = [v for v in every if questions[v.item].messages == user("Say goodbye")]
    assert [(vote.revision, vote.latest, vote.verdict == "tie") for vote in goodbye] == [
        (1, False, True),
        (2, True, False),
    ]
    (counted,) = [q for q in questions.values() if q.messages == user("Say goodbye")]
    assert (counted.answered, counted.counts["tie"]) == (1, 0)


def test_the_same_file_again_adds_nothing(store: Store, folder: Path) -> None:
    study = create_study(store, "foreign")
    first = import_votes(store, study.id, table(folder), NAMED, partial=True)
    before = (list_votes(store, study.id, every_revision=True), survey(store, study.id), list_raters(store, study.id))
    again = import_votes(store, study.id, table(folder), NAMED, partial=True)
    assert (again.votes, again.known, again.items, again.raters) == (0, first.votes, 0, 0)
    after = (list_votes(store, study.id, every_revision=True), survey(store, study.id), list_raters(store, study.id))
    assert after == before


def test_more_votes_join_the_ones_that_are_there(store: Store, folder: Path) -> None:
    study = create_study(store, "foreign")
    import_votes(store, study.id, table(folder), NAMED, partial=True)
    more = HEADER + "Say hello,old,new,hi,hello there,tie,anna,2024-01-01,\nSay hello,old,new,hi,hello there,a,carl,,\n"
    came = import_votes(store, study.id, table(folder, more), NAMED)
    assert (came.votes, came.items, came.raters) == (2, 0, 1)
    anna = next(rater for rater in list_raters(store, study.id) if rater.name == "anna")
    assert [v.revision for v in list_votes(store, study.id) if v.rater == "anna"] == [2, 2]
    assert get_rater(store, anna.id).tallies.ties == 1


def test_people_go_on_where_an_import_left_off(store: Store, folder: Path) -> None:
    study = create_study(store, "foreign")
    import_votes(store, study.id, table(folder), NAMED, partial=True)
    work(store, raters_of(store, study, 1))
    assert {question.answered for question in list_questions(store, study.id)} == {2}  # one had two votes already
    assert survey(store, study.id).matches[0].items == 2


def test_columns_and_words_can_be_named(lite: Store, folder: Path) -> None:
    study = create_study(lite, "foreign")
    text = "q,one,two,winner,who\nSay hello,hi,hello,second!,anna\n"
    columns = Columns("q", "one", "two", "winner", "who", choices={"second!": ("b", 3)})
    import_votes(lite, study.id, table(folder, text), columns)
    (preference,) = preferences(lite, study.id)
    assert (preference.chosen, preference.rejected) == ("hello", "hi")
    assert list_votes(lite, study.id)[0].strength == 3


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (
            "prompt,completion_a\nx,y\n",
            r"no column 'completion_b', 'preference', 'evaluator'.*it has prompt, completion_a",
        ),
        (
            HEADER + "Say,a,b,x,y,perhaps,anna,,\n",
            r"No row of .* can be used: the choice 'perhaps' is not known \(1: line 2\)",
        ),
        (HEADER + "Say,a,b,x,y,tie,anna,yesterday,\n", "“yesterday” is no time"),
        (HEADER + "Say,a,b,x,y,tie,anna,1e300,\n", "“1e300” is no time"),
    ],
)
def test_tables_that_hold_no_votes_are_refused(lite: Store, folder: Path, text: str, complaint: str) -> None:
    study = create_study(lite, "foreign")
    with pytest.raises(TutelageError, match=complaint):
        import_votes(lite, study.id, table(folder, text), NAMED)
    assert not list_questions(lite, study.id)


def test_nothing_is_imported_where_a_vote_cannot_be_used(store: Store, folder: Path) -> None:
    study = create_study(store, "foreign")
    with pytest.raises(
        TutelageError, match=r"Nothing was imported: 3 of the votes .*'perhaps' is not known \(1: line 7\)"
    ):
        import_votes(store, study.id, table(folder), NAMED)
    assert not list_questions(store, study.id)
    assert not list_raters(store, study.id)
    two = HEADER + "Say,o,n,x,y,a,anna,,\nSay,o,o,same,same,tie,anna,,\n"  # two equal texts only say nothing
    assert import_votes(store, study.id, table(folder, two), NAMED).votes == 1


def test_an_import_that_fails_halfway_leaves_nothing(
    store: Store, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = create_study(store, "foreign")

    def fail(*_: object, **__: object) -> None:
        raise TutelageError("the power went")

    monkeypatch.setattr("tutelage.people.vote_import.insert_answers", fail)
    with pytest.raises(TutelageError, match="the power went"):
        import_votes(store, study.id, table(folder), NAMED, partial=True)
    assert not list_questions(store, study.id)
    assert not list_raters(store, study.id)


def test_names_that_differ_in_capitals_are_one_rater(store: Store, folder: Path) -> None:
    study = create_study(store, "foreign")
    rows = HEADER + "Say,o,n,x,y,a,Anna,,\nAsk,o,n,x,y,b, ANNA ,,\n"
    came = import_votes(store, study.id, table(folder, rows), NAMED)
    assert (came.votes, came.raters) == (2, 1)
    assert {vote.rater for vote in list_votes(store, study.id)} == {"Anna"}


def test_one_column_for_each_annotator_and_a_prompt_of_several_columns(lite: Store, folder: Path) -> None:
    study = create_study(lite, "wide")
    text = "instruction,input,output_1,output_2,anna,Bert\nAdd,1 and 2,3,12,1,2\nAdd,,4,5,0,\nDivide,1 by 0,no,yes,,1\n"
    columns = Columns(
        prompt=("instruction", "input"), a="output_1", b="output_2", annotators=("anna", "Bert"),
        choices={"1": meaning_of("a"), "2": meaning_of("b"), "0": meaning_of("tie")},
    )  # fmt: skip
    came = import_votes(lite, study.id, table(folder, text), columns)
    assert (came.votes, came.items, came.raters) == (4, 3, 2)
    asked = {question.key: question for question in list_questions(lite, study.id)}
    said = {
        (asked[vote.item].messages[0].content, vote.rater): (
            asked[vote.item].texts["ab".index(vote.verdict)] if vote.verdict in "ab" else vote.verdict
        )
        for vote in list_votes(lite, study.id)
    }
    assert said == {
        ("Add\n\n1 and 2", "anna"): "3",
        ("Add\n\n1 and 2", "Bert"): "12",
        ("Add", "anna"): "tie",
        ("Divide\n\n1 by 0", "Bert"): "no",
    }


def test_numbers_in_json_are_the_words_that_people_write(lite: Store, folder: Path) -> None:
    study = create_study(lite, "numbers")
    path = folder / "votes.jsonl"
    rows = [
        {"prompt": f"q{n}", "completion_a": "x", "completion_b": "y", "preference": n, "evaluator": 7} for n in (1, 2.0)
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    columns = Columns(choices={"1": ("a", 2), "2": ("b", 2)})
    assert import_votes(lite, study.id, read_table(path), columns).votes == 2
    assert [rater.name for rater in list_raters(lite, study.id)] == ["7"]


def test_a_long_list_of_unknown_words_is_cut(lite: Store, folder: Path) -> None:
    study = create_study(lite, "essays")
    rows = "".join(f"Say {n},o,n,x,y,{'because ' * 30}{n},anna,,\n" for n in range(300))
    with pytest.raises(TutelageError, match="295 other choices are not known") as refused:
        import_votes(lite, study.id, table(folder, HEADER + rows), NAMED)
    assert len(str(refused.value)) < 1_000


def test_pairs_without_votes_are_told_what_to_do(lite: Store, folder: Path) -> None:
    study = create_study(lite, "pairs")
    text = "prompt,chosen,rejected\nSay,good,bad\n"
    with pytest.raises(TutelageError, match=r"pairs without votes.*collect init STUDY --from-pairs"):
        import_votes(lite, study.id, table(folder, text), NAMED)


@pytest.mark.parametrize("word", ["", "c", "left", "A better"])
def test_a_meaning_that_is_none_is_refused(word: str) -> None:
    with pytest.raises(TutelageError, match="is no meaning of a choice; it is one of a, b, tie"):
        meaning_of(word)


def test_ready_pairs_become_questions_that_do_not_betray_their_label(lite: Store) -> None:
    ready = [Preference(user(f"q{n}"), f"good {n}", f"bad {n}") for n in range(200)]
    pairs = pairs_to_judge([*ready, Preference(user("q"), "same", "same")])
    assert pairs.identical == 1
    study = create_study(lite, "pairs")
    assert add_items(lite, study.id, pairs.prompts, pairs.completions, pairs.items).items == 200
    good_first = sum(question.texts[0].startswith("good") for question in list_questions(lite, study.id))
    assert 70 < good_first < 130  # more than four standard deviations around a half
    turned = [Preference(p.messages, p.rejected, p.chosen) for p in ready]
    assert set(pairs_to_judge(turned).items) == set(pairs.items)
    held_out = sum(prompt.split == "held_out" for prompt in pairs.prompts)
    assert 3 < held_out < 40
