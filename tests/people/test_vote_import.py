"""Foreign votes and ready pairs."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from offenders import for_each

from tutelage.base.errors import TutelageError
from tutelage.data.records import Message, Preference, RatedSteps, user
from tutelage.data.tables import Table, read_table
from tutelage.people import (
    Answer,
    Selection,
    Store,
    create_study,
    get_rater,
    label_study,
    list_questions,
    list_raters,
    list_votes,
    preferences,
    survey,
)
from tutelage.people.store.item_catalogue import turn_of
from tutelage.people.store.items import add_items
from tutelage.people.vote_import import import_votes, pairs_to_judge, steps_to_judge
from tutelage.people.vote_mapping import VoteMapping, guess_mapping, meaning_of

from .worlds import QUIET, raters_of, work

NAMED = VoteMapping(model_a="model_a", model_b="model_b", time="timestamp", reason="why")
PARTIAL = replace(NAMED, partial=True)
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
    came = import_votes(store, study.id, table(folder), PARTIAL)
    assert (came.votes, came.revised, came.known, came.items, came.raters) == (4, 1, 0, 2, 2)
    assert {each.reason: each.count for each in came.dropped} == {
        "the prompt or a response is missing": 1,
        "the choice 'perhaps' is not known": 1,
        "no rater is named": 1,
        "both responses are the same text": 1,
    }
    assert [each.places for each in came.dropped if each.reason == "no rater is named"] == [("line 8",)]
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
    import_votes(store, study.id, table(folder), PARTIAL)
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
    first = import_votes(store, study.id, table(folder), PARTIAL)
    before = (list_votes(store, study.id, every_revision=True), survey(store, study.id), list_raters(store, study.id))
    again = import_votes(store, study.id, table(folder), PARTIAL)
    assert (again.votes, again.known, again.items, again.raters) == (0, first.votes, 0, 0)
    after = (list_votes(store, study.id, every_revision=True), survey(store, study.id), list_raters(store, study.id))
    assert after == before


def test_more_votes_join_the_ones_that_are_there(store: Store, folder: Path) -> None:
    study = create_study(store, "foreign")
    import_votes(store, study.id, table(folder), PARTIAL)
    more = HEADER + "Say hello,old,new,hi,hello there,tie,anna,2024-01-01,\nSay hello,old,new,hi,hello there,a,carl,,\n"
    came = import_votes(store, study.id, table(folder, more), NAMED)
    assert (came.votes, came.items, came.raters) == (2, 0, 1)
    anna = next(rater for rater in list_raters(store, study.id) if rater.name == "anna")
    assert [v.revision for v in list_votes(store, study.id) if v.rater == "anna"] == [2, 2]
    assert get_rater(store, anna.id).tallies.ties == 1


def test_people_go_on_where_an_import_left_off(store: Store, folder: Path) -> None:
    study = create_study(store, "foreign")
    import_votes(store, study.id, table(folder), PARTIAL)
    work(store, raters_of(store, study, 1))
    assert {question.answered for question in list_questions(store, study.id)} == {2}  # one had two votes already
    assert survey(store, study.id).matches[0].items == 2


def test_columns_and_words_can_be_named(lite: Store, folder: Path) -> None:
    study = create_study(lite, "foreign")
    text = "q,one,two,winner,who\nSay hello,hi,hello,second!,anna\n"
    columns = VoteMapping(("q",), "one", "two", "winner", ("second!=b-is-much-better",), "who")
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
        import_votes(store, study.id, table(folder), PARTIAL)
    assert not list_questions(store, study.id)
    assert not list_raters(store, study.id)


def test_names_that_differ_in_capitals_are_one_rater(store: Store, folder: Path) -> None:
    study = create_study(store, "foreign")
    rows = HEADER + "Say,o,n,x,y,a,Anna,,\nAsk,o,n,x,y,b, ANNA ,,\n"
    came = import_votes(store, study.id, table(folder, rows), NAMED)
    assert (came.votes, came.raters) == (2, 1)
    assert {vote.rater for vote in list_votes(store, study.id)} == {"Anna"}


def test_names_choices_and_texts_that_are_the_same_are_joined_and_named(store: Store, folder: Path) -> None:
    study = create_study(store, "foreign")
    rows = (
        "Caf\u00e9?,o,n,x,y,a,Jos\u00e9,,\nCafe\u0301?,o,n,x\u200b,y,A\u00a0,Jose\u0301,,\n"
        "Why?,o,n,x,y,b-is-BETTER,1.0,,\nWhy?,o,n,x,y,b\u200b,An\u200bn,,\n"
    )
    came = import_votes(store, study.id, table(folder, HEADER + rows), NAMED)
    assert (came.votes, came.revised, came.items, came.raters) == (4, 1, 2, 3)
    assert {rater.name for rater in list_raters(store, study.id)} == {"Jos\u00e9", "1", "Ann"}
    remarks = "\n".join(came.remarks)
    for spelling in (r"'Jose\u0301'", r"'Cafe\u0301?'", r"'x\u200b'", r"'An\u200bn'", "'A'"):
        assert spelling in remarks, spelling
    again = import_votes(store, study.id, table(folder, HEADER + rows), NAMED)
    assert (again.votes, again.known, again.raters) == (0, 4, 0)
    grown = rows + "Cafe\u0301?,o,n,x\u200b,y,b,jose\u0301,,\n" * 3  # now most rows spell them so
    again = import_votes(store, study.id, table(folder, HEADER + grown), NAMED)
    assert (again.known, again.items, again.raters) == (4, 0, 0)
    more = HEADER + "Why?,o,n,x,y,tie,JOSE\u0301,,\n"
    assert import_votes(store, study.id, table(folder, more), NAMED).raters == 0


MOMENT = 1_684_501_905_123
TIMES = (
    "1684501905.123", "1684501905123", "1684501905123000", "1684501905123000000", "1.684501905123e12",
    "2023-05-19T13:11:45.123Z", "2023-05-19 13:11:45.123", "2023-05-19T15:11:45.123+02:00",
    "2023-05-19 13:11:45.123 UTC", "2023-05-19 05:41:45.123-07:30",
)  # fmt: skip
NO_TIMES = ("12.5", "45065.55", "-1684501905", "1e300", "nan", "yesterday", "19/05/2023", "0001-01-01 00:00:00+14:00")


def test_a_time_is_the_same_in_every_notation(lite: Store, folder: Path) -> None:
    study = create_study(lite, "times")
    rows = "".join(f"Say {n},o,n,x,y,a,anna,{time},\n" for n, time in enumerate(TIMES))
    import_votes(lite, study.id, table(folder, HEADER + rows), NAMED)
    assert [vote.created for vote in list_votes(lite, study.id)] == [MOMENT] * len(TIMES)


def test_votes_whose_time_or_rater_cannot_be_read_are_named_with_their_lines(lite: Store, folder: Path) -> None:
    study = create_study(lite, "foreign")
    names = (*("anna" for _ in NO_TIMES), "x" * 81, "half\ttab")
    rows = "".join(
        f"Say {n},o,n,x,y,a,{name},{time},\n"
        for n, (name, time) in enumerate(zip(names, (*NO_TIMES, "", ""), strict=True))
    )
    text = HEADER + "Say,o,n,x,y,a,anna,,\n" + rows
    with pytest.raises(TutelageError, match=rf"{len(names)} of the votes"):
        import_votes(lite, study.id, table(folder, text), NAMED)
    came = import_votes(lite, study.id, table(folder, text), PARTIAL)
    assert came.votes == 1
    places = {place: each.reason for each in came.dropped for place in each.places}
    assert len(places) == len(names)
    assert "“12.5”" in places["line 3"]
    assert "xxx" in places[f"line {2 + len(names) - 1}"]


REJECTED = (
    "prompt,completion_a,completion_b,preference,evaluator,Status\nSay,x,y,a,anna,APPROVED\nSay,x,y,b,bert,RETURNED\n"
)


def test_rejected_work_is_left_out_unless_it_is_kept(lite: Store, folder: Path) -> None:
    study = create_study(lite, "platform")
    came = import_votes(lite, study.id, table(folder, REJECTED), VoteMapping())
    assert (came.votes, [(each.count, each.places) for each in came.dropped]) == (1, [(1, ("line 3",))])
    assert "Status" in came.dropped[0].reason
    assert came.remarks == ()  # the column has its use
    came = import_votes(lite, study.id, table(folder, REJECTED), VoteMapping(keep_rejected=True))
    assert (came.votes, came.known, came.dropped) == (1, 1, ())
    assert any("rejected work" in remark for remark in came.remarks)


def test_columns_without_use_are_named(lite: Store, folder: Path) -> None:
    study = create_study(lite, "foreign")
    text = (
        "prompt,completion_a,completion_b,preference,evaluator,model_a,empty\nSay,x,y,a,anna,,\nSay,x,y,b,bert,new,\n"
    )
    (remark,) = import_votes(lite, study.id, table(folder, text), VoteMapping()).remarks
    assert "model_a" in remark
    assert "line 3" in remark
    assert "empty" not in remark


def test_structure_in_a_cell_is_no_text_but_a_conversation(lite: Store, folder: Path) -> None:
    study = create_study(lite, "nested")
    vote = {"prompt": "Say", "completion_a": "x", "completion_b": "y", "preference": "a", "evaluator": "anna"}
    turns = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Say"}]
    answered = [*turns, {"role": "assistant", "content": "x"}]
    rows = [vote, vote | {"prompt": answered}, vote | {"prompt": json.dumps(turns)}, vote | {"preference": ["a"]}]
    rows.append(vote | {"prompt": '[{"x": 1}, 2, {"y": 3}]'})  # a text that happens to be JSON
    rows.append(vote | {"prompt": turns})
    (folder / "votes.json").write_text(json.dumps(rows))
    came = import_votes(lite, study.id, read_table(folder / "votes.json"), VoteMapping(partial=True))
    assert (came.votes - 1, sum(each.count for each in came.dropped)) == (2, 3)
    assert {place for each in came.dropped for place in each.places} == {"row 2", "row 3", "row 4"}
    asked = {tuple(message.role for message in question.messages) for question in list_questions(lite, study.id)}
    assert asked == {("user",), ("system", "user")}


def test_a_guess_takes_usual_names_and_what_is_given(folder: Path) -> None:
    text = "Question,response_1,Response_2,winner,worker,time,date\nSay,x,y,a,anna,12.5,2023-05-19\n"
    guess = guess_mapping(table(folder, text), rater="time")
    assert guess == VoteMapping(("Question",), "response_1", "Response_2", "winner", (), "time")


def test_one_column_for_each_annotator_and_a_prompt_of_several_columns(lite: Store, folder: Path) -> None:
    study = create_study(lite, "wide")
    text = "instruction,input,output_1,output_2,anna,Bert\nAdd,1 and 2,3,12,1,2\nAdd,,4,5,0,\nDivide,1 by 0,no,yes,,1\n"
    columns = VoteMapping(
        prompt=("instruction", "input"), a="output_1", b="output_2", annotators=("anna", "Bert"),
        choice=("1=a", "2=b", "0=tie"),
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
    columns = VoteMapping(choice=("1=a", "2=b"))
    assert import_votes(lite, study.id, read_table(path), columns).votes == 2
    assert [rater.name for rater in list_raters(lite, study.id)] == ["7"]


def test_a_long_list_of_unknown_words_is_cut(lite: Store, folder: Path) -> None:
    study = create_study(lite, "essays")
    rows = "".join(f"Say {n},o,n,x,y,{n} {'because ' * 30},anna,,\n" for n in range(300))
    with pytest.raises(TutelageError, match="295 others like it") as refused:
        import_votes(lite, study.id, table(folder, HEADER + rows), NAMED)
    assert len(str(refused.value)) < 1_000


def test_pairs_without_votes_are_told_what_to_do(lite: Store, folder: Path) -> None:
    study = create_study(lite, "pairs")
    text = "prompt,chosen,rejected\nSay,good,bad\n"
    with pytest.raises(TutelageError, match=r"pairs without votes.*collect init STUDY --from-pairs"):
        import_votes(lite, study.id, table(folder, text), NAMED)


@for_each(["", "c", "left", "A better"])
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


def test_at_most_so_many_questions_are_made_of_pairs() -> None:
    pairs = [Preference(user(f"q{n}"), "x", "x" if n == 0 else "y") for n in (0, 1, 1, 2, 3)]
    assert [len(pairs_to_judge(pairs, most=most).items) for most in (0, 1, 2, 3, 9, None)] == [0, 1, 2, 3, 3, 3]


def test_traces_of_the_same_words_are_different_responses(lite: Store) -> None:
    """They differ in their thinking or calls, which their texts do not tell."""

    def thought(text: str) -> Message:
        return Message("assistant", "same", thinking=text)

    pairs = [Preference(user("q"), thought("one"), thought("two")), Preference(user("q"), "same", thought("three"))]
    ready = pairs_to_judge(pairs)
    turns = {one.id: turn_of(one) for one in ready.completions}
    found = [{turns[key] for key in item.responses} for item in ready.items]
    assert found == [{thought("one"), thought("two")}, {"same", thought("three")}]
    study = create_study(lite, "thoughts", plan=QUIET)
    add_items(lite, study.id, ready.prompts, ready.completions, ready.items)
    work(lite, raters_of(lite, study, 2), lambda _: Answer("left", 1))
    assert {label.item for label in label_study(lite, study.id, Selection()).labels.labels} == {
        item.key for item in ready.items
    }
    assert "identical" not in label_study(lite, study.id, Selection()).fates


def test_the_same_steps_have_one_known_answer() -> None:
    wrong, right = (RatedSteps(user("q"), ("one", "two"), labels) for labels in ((1.0, 0.0), (1.0, 1.0)))
    assert [item.gold for item in steps_to_judge([wrong, wrong], pool="gold").items] == ["2"]
    with pytest.raises(TutelageError, match="2 and 0"):
        steps_to_judge([wrong, right], pool="gold")
    assert len(steps_to_judge([wrong, right]).items) == 1


RUBRIC = [
    {"criterion": "correct", "points": 3},
    {"criterion": "constructor", "points": 1},
    {"criterion": "rude", "points": -2},
]


def criteria_rows(**changes: object) -> dict[str, object]:
    row = {
        "prompt": "2 + 2?",
        "rubric": json.dumps(RUBRIC),
        "completion_a": "4",
        "completion_b": "5",
        "evaluator": "anna",
    }
    first = {"correct": "met", "constructor": True, "rude": "Unmet"}
    second = json.dumps({**first, "correct": "unmet", "constructor": None})
    return row | {"verdicts_a": first, "verdicts_b": second} | changes


def rows_table(folder: Path, rows: list[dict[str, object]]) -> Table:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return read_table(path)


def test_votes_on_criteria_are_imported_with_the_rubric_of_their_row(store: Store, folder: Path) -> None:
    study = create_study(store, "criteria", kind="checklist")
    rows = [
        criteria_rows(),
        criteria_rows(evaluator="bert", completion_a="5", completion_b="4"),  # the other order
        criteria_rows(evaluator="carl", verdicts_b="{}"),
        criteria_rows(evaluator="dora", rubric=json.dumps(RUBRIC[:2])),
        {**criteria_rows(evaluator="eve"), "rubric": None},
        criteria_rows(evaluator="fred", rubric=json.dumps(RUBRIC[1:])),  # with a verdict on no criterion of the row
        criteria_rows(
            evaluator="gwen", verdicts_a={"correct": "met", "constructor": "met", "rude": "met", "kind": "met"}
        ),
    ]
    yes = {"correct": "yes", "constructor": "1", "rude": "no"}
    rows += [criteria_rows(evaluator="hugo", verdicts_a=yes), {**criteria_rows(evaluator="ines"), "verdicts_b": None}]
    report = import_votes(store, study.id, rows_table(folder, rows), VoteMapping(partial=True))
    assert (report.votes, report.items, report.raters) == (2, 1, 2)
    assert sum(each.count for each in report.dropped) == 7
    places = {place: str(each.reason) for each in report.dropped for place in each.places}
    assert "verdicts_a" in places["line 8"]
    assert "missing" in places["line 9"]
    (question,) = list_questions(store, study.id)
    assert question.prompt.data["rubric"] == RUBRIC
    four = question.texts.index("4")
    by_rater = {vote.rater: vote for vote in list_votes(store, study.id)}
    verdicts = by_rater["anna"].content["verdicts"]
    assert {name: values[four] for name, values in verdicts.items()} == {
        "correct": "met", "constructor": "met", "rude": "unmet",
    }  # fmt: skip
    assert verdicts["constructor"][1 - four] == "unsure"
    assert by_rater["anna"].verdict == "ab"[four]
    assert by_rater["bert"].verdict == "ab"[1 - four]
    again = import_votes(store, study.id, rows_table(folder, rows), VoteMapping(partial=True))
    assert (again.votes, again.known) == (0, 2)


def test_votes_on_steps_are_imported_for_lists_of_texts_and_of_messages(store: Store, folder: Path) -> None:
    study = create_study(store, "steps", kind="steps")
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    trace = [
        [
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "content": "4", "tool_call_id": "c"},
        ],
        [{"role": "assistant", "content": "It is 4."}],
    ]
    rows: list[dict[str, object]] = [
        {"prompt": "2 + 2?", "completion_a": ["a\n\nb", "c"], "evaluator": "anna", "first_wrong": 2},
        {"prompt": "2 + 2?", "completion_a": json.dumps(["a\n\nb", "c"]), "evaluator": "bert", "first_wrong": 0},
        {"prompt": "2 + 2?", "completion_a": "a\n\nb\n\nc", "evaluator": "anna", "first_wrong": 3},
        {"prompt": "2 + 2?", "completion_a": trace, "evaluator": "anna", "step_1": 1, "step_2": -1},
    ]
    report = import_votes(store, study.id, rows_table(folder, rows), VoteMapping())
    assert (report.votes, report.items) == (4, 3)
    questions = {question.key: question.completions[0].steps for question in list_questions(store, study.id)}
    said = {(vote.rater, questions[vote.item]): vote.verdict for vote in list_votes(store, study.id)}
    assert said["anna", ("a\n\nb", "c")] == "2"
    assert said["bert", ("a\n\nb", "c")] == "0"
    assert said["anna", ("a", "b", "c")] == "3"
    (acted,) = [steps for steps in questions.values() if not isinstance(steps[0], str)]
    assert said["anna", acted] == "2"
    assert [[message.role for message in step] for step in acted] == [["assistant", "tool"], ["assistant"]]
