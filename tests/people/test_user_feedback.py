"""Feedback of users, on both databases: kept with consent alone, said twice and counted once, forgotten without a
trace, and what raters make of it."""

import dataclasses
import tracemalloc
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa

from tutelage.base.errors import TutelageError
from tutelage.data.records import Message, user
from tutelage.people import (
    Answer,
    Selection,
    Store,
    Study,
    add_rater,
    create_study,
    get_rater,
    list_questions,
    list_raters,
    list_votes,
    next_assignment,
    open_store,
    submit,
)
from tutelage.people.export import export_study
from tutelage.people.restoration import import_export
from tutelage.people.settings import Consent, Plan
from tutelage.people.store import schema
from tutelage.people.store.completions import ServedCompletion, drop_texts, list_outcomes
from tutelage.people.store.consents import ask_consent, text_hash
from tutelage.people.store.engine import DAY_MS
from tutelage.people.store.rater_erasure import Retention, forget
from tutelage.people.training_data import label_study
from tutelage.people.user_feedback import (
    OutdatedConsent,
    UnknownCompletion,
    UserFeedback,
    admit_user,
    consent_text,
    forget_user,
    give_feedback,
    is_in_share,
    keep_completion,
    refuse_other_kinds,
    user_pseudonym,
)

from .worlds import SECRET, Clock, study_of

ASKED = user("What is light?")
SERVED = ServedCompletion("cmpl-1", ASKED, "A wave.", "model", True, 0.5)
PLAN = Plan(overlap=2, gold_rate=0.0, repeat_rate=0.0)


@pytest.fixture
def study(store: Store) -> Study:
    return create_study(store, "use", kind="thumbs", plan=PLAN, secret=SECRET)


def agreed(store: Store, study: Study, name: str = "zoe", language: str = "en") -> int:
    """The rater that a user is who agreed to the present text."""
    return admit_user(store, study.id, name, text_hash(consent_text(store, study.id, language))).id


def served(store: Store, study: Study, *keys: str, name: str = "zoe", **changes: object) -> int:
    """Completions of one conversation that a user got."""
    rater = agreed(store, study, name)
    for key in keys:
        one = dataclasses.replace(SERVED, key=key, text=f"Text {key}.", **changes)  # type: ignore[arg-type]
        keep_completion(store, study.id, rater, one)
    return rater


def say(store: Store, study: Study, *args: object, name: str = "zoe", days: float = 7.0, **said: object) -> None:
    give_feedback(store, study.id, name, UserFeedback(*args, **said), days=days)  # type: ignore[arg-type]


def test_a_user_is_a_pseudonym_and_agrees_to_the_present_text_in_a_language(store: Store, study: Study) -> None:
    rater = get_rater(store, agreed(store, study, language="de"))
    assert rater.name == user_pseudonym(study, "zoe")
    assert "zoe" not in rater.name
    assert (rater.consented, rater.agreed) != (None, 1)
    assert agreed(store, study) == rater.id
    other = dataclasses.replace(study, secret="77" * 32)
    assert user_pseudonym(other, "zoe") != rater.name
    old = text_hash(consent_text(store, study.id, "en"))
    ask_consent(store, study.id, Consent("You are read.", "erase", 30))
    with pytest.raises(OutdatedConsent):
        admit_user(store, study.id, "zoe", old)
    assert get_rater(store, agreed(store, study)).agreed == 1


def test_a_thumb_is_an_item_with_the_users_vote_and_the_last_word_counts(store: Store, study: Study) -> None:
    rater = served(store, study, "c")
    assert list_questions(store, study.id) == ()
    for good in (True, True, False, False, True):
        say(store, study, "c", good=good)
    (question,) = list_questions(store, study.id)
    assert question.texts == ("Text c.",)
    assert question.messages == ASKED
    votes = list_votes(store, study.id, every_revision=True)
    assert [(vote.verdict, vote.latest) for vote in votes] == [("a", False), ("b", False), ("a", True)]
    assert {vote.rater_id for vote in votes} == {rater}
    assert {vote.chosen_by for vote in votes} == {"use"}


def test_a_better_version_is_a_pair_and_another_takes_its_place(store: Store, study: Study) -> None:
    served(store, study, "c")
    for text in ("Better.", "Better.", "Best."):
        say(store, study, "c", better=text)
    first, second = list_questions(store, study.id)
    assert (first.excluded is not None, second.excluded) == (True, None)
    assert set(second.texts) == {"Text c.", "Best."}
    labelled = label_study(store, study.id, Selection())
    (row,) = labelled.rows
    assert (row.preference.chosen, row.preference.rejected) == ("Best.", "Text c.")
    with pytest.raises(TutelageError, match="without a change"):
        say(store, study, "c", better="Text c.")


def test_a_preferred_completion_is_a_pair_in_whatever_order_it_is_told(store: Store, study: Study) -> None:
    served(store, study, "c", "d")
    say(store, study, "c", preferred="d")
    say(store, study, "d", preferred="c")
    (question,) = list_questions(store, study.id)
    assert set(question.texts) == {"Text c.", "Text d."}
    (row,) = label_study(store, study.id, Selection()).rows
    assert row.preference.chosen == "Text c."
    served(store, study, "e", messages=(*ASKED, Message("assistant", "A."), Message("user", "B?")))
    with pytest.raises(TutelageError, match="different conversations"):
        say(store, study, "c", preferred="e")
    assert len(list_questions(store, study.id)) == 1


def test_all_at_once_or_nothing(store: Store, study: Study) -> None:
    served(store, study, "c")
    with pytest.raises(UnknownCompletion):
        say(store, study, "c", good=True, preferred="unknown")
    assert list_questions(store, study.id) == ()
    with pytest.raises(TutelageError, match="empty"):
        UserFeedback("c")
    with pytest.raises(TutelageError, match="itself"):
        UserFeedback("c", preferred="c")


def test_ids_are_of_their_user_and_expire(store: Store, study: Study, clock: Clock) -> None:
    served(store, study, "c", "d")
    served(store, study, "e", name="other")
    for key, name in (("c", "other"), ("unknown", "zoe"), ("c", "nobody")):
        with pytest.raises(UnknownCompletion, match=key):
            say(store, study, key, name=name, good=True)
    say(store, study, "c", good=True)
    clock.seconds += 7 * DAY_MS / 1000 + 1
    with pytest.raises(UnknownCompletion):
        say(store, study, "d", good=True)
    served(store, study, "f")
    Retention(store, study.id, completion_days=7).look()
    with store.read() as connection:
        rows = connection.execute(sa.select(schema.completion.c.key, schema.completion.c.text)).all()
    assert sorted(tuple(row) for row in rows if row.key != "f") == [("c", None)]  # what is a question stays one
    say(store, study, "f", good=False)
    assert [question.texts for question in list_questions(store, study.id)] == [("Text c.",), ("Text f.",)]


def test_raters_confirm_and_users_get_a_reliability_as_raters_do(store: Store, study: Study) -> None:
    """Three users; one says the opposite of what three raters find, 12 times."""
    for name in ("right", "also right", "wrong"):
        for number in range(4):
            key = f"{name} {number}"
            served(store, study, key, name=name)
            say(store, study, key, name=name, good=(number % 2 == 0) == (name != "wrong"))
    for number in range(3):
        rater = add_rater(store, study.id, f"rater {number}").id
        while (question := next_assignment(store, rater)) is not None:
            good = int(question.texts[0].rstrip(".")[-1]) % 2 == 0
            submit(store, question.id, Answer("good" if good else "bad"))
    accuracy = label_study(store, study.id, Selection()).labels.accuracy
    right, also, wrong = (accuracy[user_pseudonym(study, name)] for name in ("right", "also right", "wrong"))
    assert min(right, also) > 0.7 > 0.6 > wrong
    answered = {question.answered for question in list_questions(store, study.id)}
    assert answered == {2}


@pytest.mark.parametrize("votes", ["keep", "erase"])
def test_a_forgotten_user_is_nowhere(store: Store, study: Study, votes: str) -> None:
    ask_consent(store, study.id, Consent("Text.", votes))  # type: ignore[arg-type]
    rater = served(store, study, "c", "d", messages=user("pomegranate?"))
    say(store, study, "c", good=True, better="pomegranate!")
    name = get_rater(store, rater).name
    forget_user(store, study.id, "zoe")
    with store.read() as connection:
        rows = [row for table in schema.metadata.sorted_tables for row in connection.execute(sa.select(table))]
    cells = "\n".join(str(cell) for row in rows for cell in row)
    assert name not in cells
    assert "pomegranate" not in cells
    assert "Text c." not in cells  # whatever the text says about votes: the conversation is the user's
    assert list_votes(store, study.id) == ()
    with pytest.raises(UnknownCompletion):
        forget_user(store, study.id, "zoe")
    with pytest.raises(UnknownCompletion):
        say(store, study, "d", good=True)
    assert not keep_completion(store, study.id, rater, dataclasses.replace(SERVED, key="late"))


def test_outcomes_of_a_split_test_outlive_the_texts(store: Store, study: Study, clock: Clock) -> None:
    rater = served(store, study, "c", "d", trial="runs/b", arm="b", seconds=2.0)
    served(store, study, "e", trial="runs/other", arm="b", failed=True)
    say(store, study, "c", good=True)
    say(store, study, "d", better="Better.")
    clock.seconds += 100
    drop_texts(store, study.id, store.now())
    outcomes = list_outcomes(store, study.id, "runs/b")
    assert [(each.arm, each.outcome, each.failed, each.seconds) for each in outcomes] == [
        ("b", 1.0, False, 2.0),
        ("b", 0.0, False, 2.0),
    ]
    assert {each.user for each in outcomes} == {get_rater(store, rater).name}


def test_the_outcomes_of_a_split_test_are_read_without_the_texts(store: Store, study: Study) -> None:
    keys, length = [f"c{number}" for number in range(50)], 100_000
    served(store, study, *keys, trial="runs/b", arm="b", messages=user("x" * length))
    tracemalloc.start()
    outcomes = list_outcomes(store, study.id, "runs/b")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(outcomes) == len(keys)
    assert peak < len(keys) * length / 5


def test_the_outcome_of_a_split_test_is_what_was_said_first(store: Store, study: Study, clock: Clock) -> None:
    served(store, study, "c", trial="runs/b", arm="b")
    first = store.now()
    say(store, study, "c", good=True)
    clock.seconds += 100
    say(store, study, "c", good=False, better="Better.")
    (outcome,) = list_outcomes(store, study.id, "runs/b")
    assert outcome.outcome == 1.0
    assert first < outcome.said < first + 100
    assert [vote.verdict for vote in list_votes(store, study.id) if vote.item == "use-c"] == ["b"]


def test_a_version_of_a_truncated_completion_is_complete(store: Store, study: Study) -> None:
    served(store, study, "c", finished=False)
    say(store, study, "c", better="Better.")
    with store.read() as connection:
        finished = dict(connection.execute(sa.select(schema.response.c.text, schema.response.c.finished)).all())
    assert finished == {"Text c.": 0, "Better.": 1}


def test_users_have_no_side(store: Store, study: Study, tmp_path: Path) -> None:
    """Versions are on the right of what they replace, which says nothing of the user, nor in a restored study."""
    for number in range(6):
        rater = served(store, study, f"c{number}", f"d{number}")
        say(store, study, f"c{number}", better=f"Better {number}.", preferred=f"d{number}")
    export_study(store, study.id, tmp_path / "out")
    with closing(open_store(tmp_path / "restored.sqlite")) as other:
        restored = import_export(other, tmp_path / "out")
        (copy,) = list_raters(other, restored.id)
        for tallies in (get_rater(store, rater).tallies, copy.tallies):
            assert (tallies.answered, tallies.left_chosen, tallies.right_chosen) == (12, 0, 0)


def test_a_user_of_a_restored_study_is_forgotten_with_the_conversations(
    store: Store, study: Study, tmp_path: Path
) -> None:
    served(store, study, "c", messages=user("pomegranate?"))
    say(store, study, "c", good=True, better="pomegranate!")
    export_study(store, study.id, tmp_path / "out")
    with closing(open_store(tmp_path / "restored.sqlite")) as other:
        (copy,) = list_raters(other, import_export(other, tmp_path / "out").id)
        forget(other, copy.id)
        with other.read() as connection:
            rows = [row for table in schema.metadata.sorted_tables for row in connection.execute(sa.select(table))]
        cells = "\n".join(str(cell) for row in rows for cell in row)
    assert "pomegranate" not in cells
    assert "Text c." not in cells


def test_completions_of_one_text_are_no_pair(store: Store, study: Study) -> None:
    rater = served(store, study, "c")
    keep_completion(store, study.id, rater, dataclasses.replace(SERVED, key="d", text="Text c."))
    with pytest.raises(TutelageError, match="same text"):
        say(store, study, "c", preferred="d")
    assert list_questions(store, study.id) == ()


def test_no_id_harms_the_database(store: Store, study: Study) -> None:
    served(store, study, "c")
    for odd in ("\x00", "c\x00", "c" * 100_000, "'; DROP TABLE completion; --", "\ud800"):
        with pytest.raises(UnknownCompletion):
            say(store, study, odd, good=True)
        with pytest.raises(UnknownCompletion):
            say(store, study, "c", preferred=odd)


def test_a_share_of_completions_is_kept(lite: Store) -> None:
    study = create_study(lite, "use", kind="thumbs", secret=SECRET)
    kept = sum(is_in_share(study, f"c{n}", 0.2) for n in range(4_000))
    assert abs(kept / 4_000 - 0.2) < 4 * (0.2 * 0.8 / 4_000) ** 0.5
    assert is_in_share(study, "c", 1.0)


def test_a_study_of_another_kind_is_refused(lite: Store, tmp_path: Path) -> None:
    with pytest.raises(TutelageError, match="tutoring"):
        refuse_other_kinds(study_of(lite, 1))
