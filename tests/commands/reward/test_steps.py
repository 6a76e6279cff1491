"""Process reward models from files of rated steps, on the command's own path."""

import json

import pytest
from offenders import for_each
from tiny_commands import model, write_jsonl

import tutelage as tt
from tutelage.base.errors import TutelageError
from tutelage.models.heads import STEPS

WORDS = {True: "air", False: "sun"}


def text_rows(count=24):
    """Completions of three steps, each good if it is about air; some labels are soft or missing."""
    for number in range(count):
        good = [bool((number >> place) & 1) for place in range(3)]
        labels = [good[0], 0.9 if good[1] else 0.1, good[2] if number % 4 else None]
        yield {
            "prompt": f"What is {number}?",
            "completions": [f"{WORDS[each]} {place}." for place, each in enumerate(good)],
            "labels": labels,
        }


def turn_rows(count=12):
    for row in text_rows(count):
        heard = {"role": "user", "content": "And?"}
        turns = [[{"role": "assistant", "content": text}, heard] for text in row["completions"]]
        yield row | {"completions": turns}


def settings(base, data, out, **changes):
    named = {"batch_size": 8, "epochs": 8.0, "optimiser": tt.Optimiser(lr=1e-2), "held_out": 0.25, "evaluate_every": 5}
    return tt.RewardSettings(
        **{"model": model(base), "data": data, "out": out, "quiet": True, "steps": True} | named | changes
    )


@pytest.mark.parametrize("rank", [0, 4])
def test_a_model_of_steps_learns_which_are_good(tiny_model, tmp_path, rank):
    data = write_jsonl(tmp_path / "steps.jsonl", text_rows())
    lora = tt.Lora(rank=rank)
    result = tt.reward(settings(tiny_model("llama"), data, tmp_path / "run", lora=lora, separator="\\n\\n"))
    rated = [label for row in text_rows() for label in row["labels"] if label is not None]
    assert result.rated_steps + result.metrics["n"] == len(rated)
    assert result.metrics["held_out_completions"] == 6
    assert result.metrics["loss"] < 0.5
    assert result.accuracy is not None
    assert result.accuracy > 0.7
    assert len(result.describe()) == 3
    assert json.loads((result.model / STEPS).read_text()) == {"separator": "\n\n"}
    assert result.load(device="cpu").separator == "\n\n"


def test_a_step_of_messages_ends_by_itself(tiny_model, tmp_path):
    data = write_jsonl(tmp_path / "turns.jsonl", turn_rows())
    result = tt.reward(settings(tiny_model("qwen3"), data, tmp_path / "run", epochs=1.0, held_out=0.0))
    assert result.load(device="cpu").separator == ""
    assert result.accuracy is None
    test = tt.reward(settings(tiny_model("qwen3"), data, tmp_path / "two", epochs=1.0, held_out=0.0, test=data))
    assert test.metrics["n"] == result.rated_steps


def test_a_stopped_run_goes_on_to_the_same_model(tiny_model, tmp_path):
    data = write_jsonl(tmp_path / "steps.jsonl", text_rows())
    whole = tt.reward(settings(tiny_model("llama"), data, tmp_path / "whole", epochs=2.0))
    every = tt.Checkpoints(every=2)
    stopped = settings(tiny_model("llama"), data, tmp_path / "stopped", epochs=2.0, checkpoints=every)
    with tt.prepare_reward(stopped) as training:
        for _ in zip(range(3), training, strict=False):
            pass
    again = tt.reward(settings(tiny_model("llama"), data, tmp_path / "stopped", epochs=2.0, resume=True))
    assert again.metrics["held_out/loss"] == whole.metrics["held_out/loss"]
    assert (again.model / "model.safetensors").read_bytes() == (whole.model / "model.safetensors").read_bytes()


@for_each(
    [
        ({"loss": "margin"}, "--loss"),
        ({"centre": "a.jsonl"}, "--centre"),
        ({"study": "mine"}, "--study"),
        ({"separator": ""}, "--separator"),
        ({"separator": ";", "steps": False}, "--separator"),
    ]
)
def test_settings_without_an_effect_on_steps_are_refused(changes, flag, tmp_path):
    with pytest.raises(TutelageError, match=flag):
        settings("none", "none.jsonl", tmp_path, **changes)


def test_steps_of_both_kinds_and_other_data_are_refused(tiny_model, tmp_path):
    both = write_jsonl(tmp_path / "both.jsonl", [*text_rows(2), *turn_rows(3)])
    turns = write_jsonl(tmp_path / "turns.jsonl", turn_rows(3))
    texts = write_jsonl(tmp_path / "texts.jsonl", text_rows(3))
    pairs = write_jsonl(tmp_path / "pairs.jsonl", [{"prompt": "a", "chosen": "b", "rejected": "c"}])
    cases = [
        ({"data": both}, "messages in 3"),
        ({"data": turns, "separator": ";"}, "--separator"),
        ({"data": pairs}, "preferences"),
        ({"data": str(tmp_path / "study.sqlite")}, "study"),
        ({"data": texts, "test": turns, "epochs": 0.1}, "--test"),
    ]
    for number, (changes, word) in enumerate(cases):
        given = {"data": texts, "held_out": 0.0} | changes
        with pytest.raises(TutelageError, match=word):
            tt.reward(settings(tiny_model("qwen3"), given.pop("data"), tmp_path / str(number), **given))


def test_a_separator_within_steps_is_said(tiny_model, tmp_path, caplog):
    rows = [{"prompt": "a", "completions": ["one; two", "three"], "labels": [True, False]}] * 2
    data = write_jsonl(tmp_path / "steps.jsonl", rows)
    with caplog.at_level("INFO"):
        tt.reward(settings(tiny_model("llama"), data, tmp_path / "run", separator=";", held_out=0.0, epochs=1.0))
    assert any("2 steps contain" in line for line in caplog.messages)
