"""Published data sets of rated answers, in the shape in which they are published."""

import json
from pathlib import Path
from typing import Any

from tutelage.data.formats import load_demonstrations, load_preferences, load_prompts
from tutelage.data.records import Demonstration, Message, Preference, user

ASKED = user("Why is it dark?")


def nectar(*ranks: float, prompt: str = "\n\nHuman: Why is it dark?\n\nAssistant: ") -> dict[str, Any]:
    return {
        "prompt": prompt,
        "answers": [{"answer": f"At rank {rank:g}.", "model": f"model-{rank:g}", "rank": rank} for rank in ranks],
        "turns": 1,
        "num_responses": len(ranks),
        "source": ["lmsys-chat-1m"],
        "good_natured": True,
    }


def write(folder: Path, *rows: dict[str, Any]) -> Path:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_ranked_answers_are_all_pairs_with_the_better_rank_chosen(tmp_path: Path) -> None:
    loaded = load_preferences(write(tmp_path, nectar(2.0, 1.0, 3.0, 3.0)))
    pairs = [("1", "2"), ("2", "3"), ("2", "3"), ("1", "3"), ("1", "3")]
    assert sorted(loaded.records, key=repr) == sorted(
        (Preference(ASKED, f"At rank {one}.", f"At rank {other}.") for one, other in pairs), key=repr
    )
    assert any("1 pair left out" in note for note in loaded.notes)
    assert not any("not used" in note for note in loaded.notes)


def test_the_best_ranked_answer_is_the_demonstration(tmp_path: Path) -> None:
    path = write(tmp_path, nectar(4.0, 2.0, 7.0))
    assert load_demonstrations(path).records == (Demonstration(ASKED, "At rank 2."),)


def test_the_turns_of_a_ranked_prompt_are_messages(tmp_path: Path) -> None:
    talk = "\n\nHuman: Hi\n\nAssistant: Hello.\n\nHuman: Why is it dark?\n\nAssistant: "
    asked = (*user("Hi"), Message("assistant", "Hello."), *ASKED)
    path = write(tmp_path, nectar(1.0, 2.0, prompt=talk))
    assert [record.messages for record in load_preferences(path).records] == [asked]
    assert [prompt.messages for prompt in load_prompts(path).records] == [asked]


def test_an_answer_without_a_rank_is_named_with_its_row(tmp_path: Path) -> None:
    broken = nectar(1.0, 2.0)
    broken["answers"][1]["rank"] = None
    loaded = load_preferences(write(tmp_path, nectar(1.0, 2.0), broken))
    assert [(item.reason, item.examples) for item in loaded.skipped] == [("rank is missing", ("line 2",))]
