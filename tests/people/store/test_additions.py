"""Images in the database: once each, of one study, in backups and exports, and refused where only text is read."""

import json
from contextlib import closing
from pathlib import Path

import pytest
from pictures import png

from tutelage.base.errors import TutelageError
from tutelage.data.formats import load_preferences
from tutelage.data.images import image_file
from tutelage.data.llm_judge import Opinion
from tutelage.data.records import CompletionRecord, ImagePart, Message, Prompt, ToolCall, user
from tutelage.data.transcripts import transcript_text
from tutelage.people import (
    Answer,
    Assignment,
    Item,
    Store,
    add_items,
    add_rater,
    create_study,
    list_questions,
    list_votes,
    open_store,
    submit,
)
from tutelage.people.export import export_study
from tutelage.people.kinds.steps import judged
from tutelage.people.model_judges import judge_study
from tutelage.people.restoration import import_export
from tutelage.people.store.additions import image_content, image_sizes, list_images
from tutelage.people.store.archive import restore_archive, write_archive

from ..worlds import QUIET, Clock, add_pictures, asked, raters_of, study_of, work


def words_first(question: Assignment) -> Answer:
    """A vote for the response without an image."""
    return Answer("right" if "](images/" in question.left else "left", 2)


def test_an_image_is_stored_once_and_belongs_to_its_study(store: Store) -> None:
    study, other = study_of(store, 1), study_of(store, 1, QUIET, "other")
    names = add_pictures(store, study)
    add_pictures(store, study)
    assert dict(list_images(store, study.id)) == dict(zip(names, (png(), png(shade=1)), strict=True))
    assert image_sizes(store, study.id, [*names, "none"]) == dict.fromkeys(names, (6, 4))
    assert image_content(store, other.id, names[0]) is None
    assert image_sizes(store, other.id, names) == {}
    assert not list(list_images(store, other.id))


def test_items_that_are_refused_leave_no_image(store: Store) -> None:
    study = study_of(store, 1)
    with pytest.raises(TutelageError):
        add_items(store, study.id, [], [], [Item("k", "no prompt", ("x", "y"))], images=[image_file(png())])
    assert not list(list_images(store, study.id))


def test_a_backup_holds_the_images(store: Store, folder: Path) -> None:
    study = study_of(store, 1)
    names = add_pictures(store, study)
    assert write_archive(store, folder / "backup").rows["image"] == 2
    restore_archive(str(folder / "again" / "study.sqlite"), folder / "backup")
    with closing(open_store(str(folder / "again" / "study.sqlite"), create=False, clock=Clock())) as again:
        assert image_content(again, study.id, names[1]) == png(shade=1)


def test_an_export_holds_the_images_and_is_a_study_again(store: Store, folder: Path) -> None:
    study = study_of(store, 1)
    names = add_pictures(store, study)
    work(store, raters_of(store, study, 2), words_first)
    out = folder / "export"
    assert export_study(store, study.id, out).manifest["images"] == 2
    assert {path.name: path.read_bytes() for path in (out / "images").iterdir()} == dict(list_images(store, study.id))
    (pair,) = (
        row for row in load_preferences(out / "preferences.jsonl", images=True).records if row.messages[0].images
    )
    assert pair.messages[0].images == (ImagePart(len("What is this?"), f"images/{names[0]}", "a field"),)
    again = import_export(store, out, name="again")
    assert dict(list_images(store, again.id)) == dict(list_images(store, study.id))
    assert [q.texts for q in list_questions(store, again.id)] == [q.texts for q in list_questions(store, study.id)]
    (out / "images" / names[0]).write_bytes(png(shade=5))
    with pytest.raises(TutelageError, match=names[0]):
        import_export(store, out, name="changed")
    (out / "images" / names[0]).unlink()
    with pytest.raises(TutelageError, match="missing"):
        import_export(store, out, name="missing")


def test_images_of_steps_are_parts_of_an_export_and_return(lite: Store, tmp_path: Path) -> None:
    """Also those that only a step names; and a name without an image is a text like any other."""
    study = create_study(lite, "steps", kind="steps")
    image, shown = image_file(png()), f"images/{image_file(png()).name}"
    call = Message("assistant", "", calls=(ToolCall("look", "{}", "1"),))
    result = Message("tool", f"Seen:\n\n![a field]({shown})", call_id="1")
    stranger = f"Here is ![none](images/{'0' * 64}.png)"
    response = CompletionRecord("r", "p", "in short", "m", steps=((call, result), (Message("assistant", stranger),)))
    add_items(lite, study.id, [Prompt("p", user("q"))], [response], [Item("i", "p", ("r",))], images=[image])
    rater = add_rater(lite, study.id, "anna").id
    submit(lite, asked(lite, rater).id, judged([1, -1]), rater_id=rater)
    export_study(lite, study.id, tmp_path / "export")
    row = json.loads((tmp_path / "export" / "steps.jsonl").read_text(encoding="utf-8"))
    parts = [{"type": "text", "text": "Seen:"}, {"type": "image", "path": shown, "alt": "a field"}]
    assert row["completions"][0][1]["content"] == parts
    again = import_export(lite, tmp_path / "export", name="again")
    assert dict(list_images(lite, again.id)) == {image.name: png()}
    assert list_questions(lite, again.id)[0].completions == (response,)


@pytest.mark.parametrize("verdict", ["left", "both_bad"])
def test_a_trace_with_an_image_is_exported_as_messages_with_parts(lite: Store, tmp_path: Path, verdict: str) -> None:
    study, file = create_study(lite, "pairs"), image_file(png())
    turn = Message("assistant", f"![](images/{file.name})", calls=(ToolCall("look", "{}", "1"),))
    responses = [
        CompletionRecord("r", "p", transcript_text((turn,)), "m", steps=((turn,),)),
        CompletionRecord("s", "p", "words", "m"),
    ]
    add_items(lite, study.id, [Prompt("p", user("q"))], responses, [Item("i", "p", ("r", "s"))], images=[file])
    rater = add_rater(lite, study.id, "anna").id
    question = asked(lite, rater)
    left = "left" if question.order[0] == 0 else "right"
    submit(lite, question.id, Answer("both_bad") if verdict == "both_bad" else Answer(left, 1))
    export_study(lite, study.id, tmp_path / "export")
    name, column = ("unpaired", "completion") if verdict == "both_bad" else ("preferences", "chosen")
    row, *_ = map(json.loads, (tmp_path / "export" / f"{name}.jsonl").read_text(encoding="utf-8").splitlines())
    assert row[column][0]["content"] == [{"type": "image", "path": f"images/{file.name}"}]
    assert row[column][0]["tool_calls"][0]["function"]["name"] == "look"


def test_a_judge_of_text_refuses_an_image(store: Store) -> None:
    study = study_of(store, 0)
    add_pictures(store, study)
    with pytest.raises(TutelageError, match="'pictures'"):
        judge_study(store, study.id, "judge", lambda *_: Opinion("first", 1))


def test_a_judge_of_criteria_refuses_an_image(lite: Store) -> None:
    study, file = create_study(lite, "criteria", kind="checklist"), image_file(png())
    prompt = Prompt("p", user(f"What is ![this](images/{file.name})?"), data={"rubric": ["Names it"]})
    responses = [CompletionRecord(key, "p", key, "m") for key in ("r", "s")]
    add_items(lite, study.id, [prompt], responses, [Item("i", "p", ("r", "s"))], images=[file])
    with pytest.raises(TutelageError, match="'i'"):
        judge_study(lite, study.id, "judge", lambda *_: True)
    assert list_votes(lite, study.id) == ()


def test_files_for_text_alone_refuse_an_image(store: Store, folder: Path) -> None:
    study = study_of(store, 0)
    add_pictures(store, study)
    work(store, raters_of(store, study, 2), words_first)
    with pytest.raises(TutelageError, match="'pictures'"):
        export_study(store, study.id, folder / "out", tools=("openai",))
    assert not list(folder.glob("*out*"))
    assert export_study(store, study.id, folder / "out", tools=("langfuse",)).manifest["rows"]["preferences"] == 1
