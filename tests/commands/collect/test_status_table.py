"""The state of a study on the terminal."""

import re
from pathlib import Path

import pytest

from tutelage.commands.collect.settings import Status
from tutelage.commands.collect.status_table import LISTED, tell
from tutelage.data.records import Comparison, CompletionRecord, Prompt, user
from tutelage.people import add_items, add_rater, create_study, open_store, submit
from tutelage.people.answers import Answer
from tutelage.people.assignment import next_assignment


def test_thousands_of_raters_are_a_line_below_those_with_the_most_answers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = open_store(str(tmp_path / "study.sqlite"))
    study = create_study(store, "s")
    completions = [CompletionRecord(name, "p", text, "m") for name, text in (("a", "One."), ("b", "Two."))]
    add_items(store, study.id, [Prompt("p", user("Why?"))], completions, [Comparison("c", "p", "a", "b")])
    raters = [add_rater(store, study.id, f"user-{number:03}") for number in range(LISTED + 3)]
    last = raters[-1]
    question = next_assignment(store, last.id)
    assert question is not None
    submit(store, question.id, Answer("left", 1))
    store.close()
    tell(Status(study=str(tmp_path)))
    out = capsys.readouterr().out
    assert len(re.findall(r"^user-\d", out, re.MULTILINE)) == LISTED
    assert re.search(rf"^{last.name} +1 ", out, re.MULTILINE)
    assert "3 raters more with 0 answers" in out
