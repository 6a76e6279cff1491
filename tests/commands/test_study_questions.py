"""The questions that `tutelage collect init` makes of what there is."""

import json
from collections import Counter
from pathlib import Path

import pytest
from offenders import for_each
from pictures import png

from tutelage.base.errors import TutelageError
from tutelage.commands.collect.settings import Init, Judge, Simulate
from tutelage.commands.iterate import IterateSettings
from tutelage.commands.study_questions import known_questions, main_questions
from tutelage.data.record_files import to_row, write_jsonl
from tutelage.data.records import Comparison, CompletionRecord, Message, Preference, Prompt, ToolCall, user


@pytest.fixture
def sample(tmp_path: Path) -> Path:
    """Output of `tutelage sample`: three prompts with four completions and three pairs each."""
    prompts = [Prompt(f"p{n}", user(f"Question {n}?")) for n in range(3)]
    completions = [CompletionRecord(f"{p.id}c{k}", p.id, f"response {k}", "m") for p in prompts for k in range(4)]
    pairs = [Comparison(f"{p.id}-{k}", p.id, f"{p.id}c{k}", f"{p.id}c{k + 1}") for p in prompts for k in range(3)]
    for name, records in {"prompts": prompts, "completions": completions, "comparisons": pairs}.items():
        write_jsonl(tmp_path / f"{name}.jsonl", map(to_row, records))
    return tmp_path


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 7, 9, 20, None])
def test_a_limit_counts_questions_spread_over_the_prompts(sample: Path, limit: int | None) -> None:
    made = main_questions(Init(study="s", from_sample=sample, limit=limit))
    assert len(made.items) == min(9, limit or 9)
    each = Counter(item.prompt for item in made.items)
    assert max(each.values()) - min(each.get(f"p{n}", 0) for n in range(3)) <= 1
    assert {prompt.id for prompt in made.prompts} == set(each)
    assert {text.id for text in made.completions} == {key for item in made.items for key in item.responses}


@for_each(
    [
        (Init, {"study": "s", "from_pairs": "f"}),
        (Judge, {"study": "s", "reward": "r"}),
        (IterateSettings, {"study": "s", "policy": "p", "prompts": "f"}),
    ]
)
def test_a_limit_below_one_is_refused(settings: type, words: dict[str, object]) -> None:
    for limit in (0, -3):
        with pytest.raises(TutelageError, match=rf"--limit is {limit};"):
            settings(**words, limit=limit)


def test_answers_of_simulated_raters_are_at_least_one() -> None:
    with pytest.raises(TutelageError, match="--answers is -1;"):
        Simulate(study="s", answers=-1)


def test_images_of_pairs_and_of_known_answers_come_with_the_questions(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(png())
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "b.png").write_bytes(png(shade=1))
    pair = {"prompt": "What is it?", "images": ["a.png"], "chosen": "![x](b.png)", "rejected": "B"}
    known = pair | {"prompt": "And this?", "explanation": "It is an A."}
    for name, row in (("pairs", pair), ("known", known)):
        write_jsonl(tmp_path / f"{name}.jsonl", [row])
    settings = Init(study="s", from_pairs=str(tmp_path / "pairs.jsonl"))
    made = main_questions(settings)
    (shown,) = made.images
    assert made.prompts[0].messages[0].content == f"![](images/{shown.name})\n\nWhat is it?"
    assert any("b.png" not in line and "1 image is shown as text" in line for line in made.notes)
    golds = known_questions(settings, str(tmp_path / "known.jsonl"), "gold")
    assert golds.items[0].explanation == "It is an A."
    assert golds.images == (shown,)
    folder = tmp_path / "elsewhere"
    with pytest.raises(TutelageError, match=r"line 1: the image 'a.png' .*elsewhere"):
        main_questions(Init(study="s", from_pairs=settings.from_pairs, images=folder))
    with pytest.raises(TutelageError, match="--images"):
        Init(study="s", images=folder)


def test_images_of_samples_are_those_of_the_questions_that_are_asked(sample: Path) -> None:
    (sample / "a.png").write_bytes(png())
    parts = [{"type": "text", "text": "Question 0?"}, {"type": "image", "path": "a.png"}]
    rows = [{"id": "p0", "messages": [{"role": "user", "content": parts}]}]
    rows += [{"id": f"p{n}", "prompt": "![x](none.png)"} for n in (1, 2)]
    write_jsonl(sample / "prompts.jsonl", rows)
    made = main_questions(Init(study="s", from_sample=sample, limit=1))
    assert [file.content for file in made.images] == [png()]
    assert made.prompts[0].messages[0].content.startswith("Question 0?\n\n![](images/")
    assert len(made.notes) == 2


def test_a_known_answer_may_be_a_call(tmp_path: Path) -> None:
    """The responses differ in their calls and thinking alone."""
    call = ToolCall("look", "{}", "1")
    chosen, rejected = Message("assistant", "", "first", (call,)), Message("assistant", "", "then", (call,))
    write_jsonl(
        tmp_path / "known.jsonl", [to_row(Preference(user("q"), chosen, rejected)) | {"explanation": "It looks."}]
    )
    golds = known_questions(Init(study="s", from_pairs="f"), str(tmp_path / "known.jsonl"), "gold")
    (item,), steps = golds.items, {one.id: one.steps for one in golds.completions}
    assert steps[item.responses["ab".index(item.gold or "")]] == ((chosen,),)
    assert item.explanation == "It looks."


def test_a_known_answer_is_the_chosen_one_of_its_own_prompt(tmp_path: Path) -> None:
    """The same two texts answer two questions, and each is right once."""
    rows = [
        {"prompt": "Is 2 + 2 = 4?", "chosen": "Yes.", "rejected": "No.", "explanation": "It is."},
        {"prompt": "Is 2 + 2 = 5?", "chosen": "No.", "rejected": "Yes.", "explanation": "It is not."},
    ]
    file = tmp_path / "known.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    golds = known_questions(Init(study="s", from_pairs="f"), str(file), "gold")
    texts = {completion.id: completion.text for completion in golds.completions}
    asked = {prompt.id: prompt.messages[0].content for prompt in golds.prompts}
    right = {
        asked[item.prompt]: (texts[item.responses["ab".index(item.gold or "")]], item.explanation)
        for item in golds.items
    }
    assert right == {"Is 2 + 2 = 4?": ("Yes.", "It is."), "Is 2 + 2 = 5?": ("No.", "It is not.")}
    turned = {**rows[0], "chosen": "No.", "rejected": "Yes."}
    file.write_text("".join(json.dumps(row) + "\n" for row in (rows[0], turned)))
    with pytest.raises(TutelageError, match="both sides"):
        known_questions(Init(study="s", from_pairs="f"), str(file), "gold")


CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
TRACE = [
    {"role": "assistant", "content": "", "tool_calls": [CALL]},
    {"role": "tool", "content": "4", "tool_call_id": "c"},
    {"role": "assistant", "content": "It is 4."},
]
ASKED = {"role": "user", "content": "2 + 2?"}
ALONE = {"role": "assistant", "content": "It is 5."}


@for_each(
    [
        {"prompt": "2 + 2?", "chosen": TRACE, "rejected": [ALONE]},
        {"prompt": [ASKED], "chosen": [ASKED, *TRACE], "rejected": [ASKED, ALONE]},
        {"chosen": [ASKED, *TRACE], "rejected": [ASKED, ALONE]},
        {"chosen": [ASKED, ALONE], "rejected": [ASKED, *TRACE]},
        {"input": {"messages": [ASKED]}, "preferred_output": TRACE, "non_preferred_output": [ALONE]},
    ]
)
def test_pairs_of_traces_become_questions_about_all_their_messages(row: dict[str, object], tmp_path: Path) -> None:
    file = tmp_path / "pairs.jsonl"
    plain = {name: [ALONE] if name.endswith(("chosen", "_output")) else value for name, value in row.items()}
    file.write_text(json.dumps(row) + "\n" + json.dumps(plain) + "\n")
    made = main_questions(Init(study="s", from_pairs=str(file)))
    (item,), (prompt,) = made.items, made.prompts
    assert prompt.messages == user("2 + 2?")
    completions = {one.id: one for one in made.completions}
    texts = [completions[key] for key in item.responses]
    (acted,) = [one for one in texts if one.steps]
    assert [[message.role for message in step] for step in acted.steps] == [["assistant", "tool"], ["assistant"]]
    assert [one.text for one in texts if not one.steps] == ["It is 5."]


def test_traces_may_differ_after_turns_that_they_share(tmp_path: Path) -> None:
    """The prompt of two conversations ends before the first message of the assistant that differs."""
    file = tmp_path / "pairs.jsonl"
    wrong = {"role": "assistant", "content": "It is 5."}
    file.write_text(
        json.dumps({"chosen": [ASKED, *TRACE, ASKED, *TRACE], "rejected": [ASKED, *TRACE[:2], wrong]}) + "\n"
    )
    made = main_questions(Init(study="s", from_pairs=str(file)))
    (prompt,) = made.prompts
    assert [message.role for message in prompt.messages] == ["user", "assistant", "tool"]
    assert sorted(len(one.steps) for one in made.completions) == [0, 3]
