"""From a study straight to a reward model: the frozen moment, the losses, and what it is held against."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tiers import long_except
from tiny_commands import model

from tutelage.base import config
from tutelage.base.errors import TutelageError
from tutelage.commands.line import main
from tutelage.commands.reward.run import inert_columns, read_data
from tutelage.commands.table import find
from tutelage.data.records import CompletionRecord, Prompt, user
from tutelage.people import (
    Answer,
    Item,
    Plan,
    Presentation,
    add_items,
    add_rater,
    create_study,
    list_votes,
    open_store,
    open_study,
    present,
    submit,
)
from tutelage.people.assignment import next_assignment
from tutelage.people.kinds.likert import rated
from tutelage.people.store.bulk import AnswerRecord, write_answers

reward = find("reward")

PAIRS = 40
HELD_OUT = 8


def chosen(side: str, strength: int) -> Answer:
    """A side of a pair, or that both are equal."""
    return Answer(side, strength)


def rating(side: str, strength: int) -> Answer:
    """The same by ratings from 1 to 5: a difference of 1 is a strength of 1, and of 4 one of 3."""
    low, high = {0: (3, 3), 1: (3, 4), 3: (1, 5)}[strength]
    return rated({"overall": (high, low) if side == "left" else (low, high)})


def make_study(
    folder: Path,
    *,
    ties: int = 4,
    held_out: int = HELD_OUT,
    kind: str = "pair",
    say: Callable[[str, int], Answer] = chosen,
) -> Path:
    """A study of 40 pairs with three votes each: two raters who prefer kind responses, strongly or slightly by turns,
    and one who is right half the time. The first `ties` pairs are found equal, the last `held_out` prompts are kept
    aside."""
    store = open_store(folder / "study.sqlite")
    study = create_study(store, "kind", kind=kind, plan=Plan(overlap=3, gold_rate=0.0, repeat_rate=0.0))
    numbers = range(PAIRS)
    prompts = [
        Prompt(f"p{n}", user(f"What is thing {n}?"), "held_out" if n >= PAIRS - held_out else "train") for n in numbers
    ]
    completions = [CompletionRecord(f"p{n}a", f"p{n}", f"No idea {n}.", "old") for n in numbers]
    completions += [CompletionRecord(f"p{n}b", f"p{n}", f"A kind and clear word {n}.", "new") for n in numbers]
    items = [Item(f"c{n}", f"p{n}", (f"p{n}a", f"p{n}b")) for n in numbers]
    add_items(store, study.id, prompts, completions, items)
    for name in ("anna", "bert", "coin"):
        add_rater(store, study.id, name, kind="simulated")

    def said(n: int, name: str) -> Answer:
        if n < ties:
            return replace(say("tie", 0), key=f"{n}/{name}")
        right = name != "coin" or n % 4 < 2
        return replace(say("right" if right else "left", 1 + 2 * (n % 2)), key=f"{n}/{name}")

    told = [AnswerRecord(f"c{n}", who, (0, 1), said(n, who), 1) for n in numbers for who in ("anna", "bert", "coin")]
    write_answers(store, study.id, told, source="test")
    store.close()
    return folder


def settings(base: str, data: object, out: Path, **changes: Any) -> reward.settings:
    return reward.settings(
        **{
            "model": model(base),
            "data": str(data),
            "out": out,
            "quiet": True,
            "batch_size": 8,
            "max_length": 64,
            "evaluate_every": 32,
            "epochs": 8.0,
            "optimiser": config.Optimiser(lr=3e-3),
        }
        | changes
    )


def summary(out: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((out / "summary.json").read_text())
    return found


@pytest.mark.parametrize(("kind", "say"), [("pair", chosen), ("likert", rating)])
def test_a_reward_model_learns_from_a_study_and_is_held_against_its_votes(
    tmp_path: Path, tiny_model: Any, capsys: pytest.CaptureFixture[str], kind: str, say: Callable[[str, int], Answer]
) -> None:
    study, out = make_study(tmp_path / "s", kind=kind, say=say), tmp_path / "run"
    words = ["--model", tiny_model("llama"), "--data", str(study), "--out", str(out), "--epochs", "8"]
    words += ["--optimiser.lr", "3e-3", "--evaluate-every", "10", "--max-length", "64", "--device", "cpu"]
    assert main(["reward", *words]) == 0
    told = capsys.readouterr().err
    assert "kind at judgement 120: 36 preferences, 8 held out" in told
    assert "120 judgements = 108 used + 12 tied" in told
    assert "two raters agree" in told
    found = summary(out)
    assert (found["pairs"], found["held_out_pairs"]) == (PAIRS - 4 - HELD_OUT, HELD_OUT)
    assert found["accuracy"] == 1.0  # kind responses are told from others by a word
    assert {each["strength"] for each in found["by_strength"]} >= {"slightly", "much better"}
    assert sum(each["n"] for each in found["by_strength"]) == HELD_OUT
    assert found["votes"] == {"n": 2 * HELD_OUT, "accuracy": 1.0, "interval": found["votes"]["interval"]}
    assert found["ceiling"]["agreement"] == 1.0  # of the two who are trusted; whoever guesses is left out
    record = json.loads((out / "study.json").read_text())
    assert record["snapshot"]["last_judgement"] == 120
    assert record["judgements"] == {"used": 108, "tied": 12}


def test_a_run_reads_the_moment_when_it_began(tmp_path: Path, tiny_model: Any) -> None:
    """Votes that arrive while it is interrupted, and a new version of the question, change nothing."""
    study = make_study(tmp_path / "s")
    once, twice = tmp_path / "once", tmp_path / "twice"
    base = tiny_model("llama")
    assert reward.main(settings(base, study, once, epochs=2.0)) == 0
    given = settings(base, study, twice, epochs=2.0)
    read_data(given)  # nothing is kept before the run begins
    assert not (twice / "study.json").exists()
    twice.mkdir()
    (twice / "study.json").write_text((once / "study.json").read_text())
    store = open_store(study / "study.sqlite")
    known = open_study(store)
    present(store, known.id, Presentation("Which is shorter?"))
    late = add_rater(store, known.id, "late", kind="simulated")
    add_items(store, known.id, [], [], [Item("again", "p1", ("p1b", "p1a"), overlap=4)])
    question = next_assignment(store, late.id)
    assert question is not None
    submit(store, question.id, Answer("left", 3))
    assert len(list_votes(store, known.id)) == 121
    store.close()
    read = read_data(given)
    assert read.study is not None
    assert json.loads(json.dumps(read.study.record)) == json.loads((once / "study.json").read_text())
    assert set(read.train) | set(read.held_out) == set(read_data(settings(base, study, once)).study.votes)  # type: ignore[union-attr]
    with pytest.raises(TutelageError, match="say which of them"):
        read_data(settings(base, study, tmp_path / "new"))


@pytest.mark.parametrize("loss", long_except(["davidson"], ["bt", "margin", "scaled", "davidson"]))
def test_every_loss_learns_from_a_study(tmp_path: Path, tiny_model: Any, loss: str) -> None:
    out = tmp_path / "run"
    given = settings(tiny_model("llama"), make_study(tmp_path / "s"), out, loss=loss, epochs=16.0)
    assert reward.main(given) == 0
    found = summary(out)
    assert found["accuracy"] == 1.0
    assert found["pairs"] == PAIRS - HELD_OUT - (0 if loss == "davidson" else 4)
    assert ("davidson/nu" in found) == (loss == "davidson")
    if loss == "davidson":
        assert found["davidson/nu"] != pytest.approx(1.0, abs=1e-3)  # it was learnt


def test_without_prompts_kept_aside_a_share_of_them_is_held_out(tmp_path: Path, tiny_model: Any) -> None:
    given = settings(tiny_model("llama"), make_study(tmp_path / "s", held_out=0), tmp_path / "run", held_out=0.25)
    read = read_data(given)
    assert (len(read.train), len(read.held_out)) == (27, 9)
    assert not {pair.messages for pair in read.train} & {pair.messages for pair in read.held_out}


def test_what_a_loss_cannot_use_is_said(tmp_path: Path, tiny_model: Any) -> None:
    rows = [{"prompt": f"Q {n}?", "chosen": "yes", "rejected": f"no {n}", "margin": 2.0} for n in range(20)]
    plain = tmp_path / "plain.jsonl"
    plain.write_text("".join(json.dumps({**row, "margin": 0.0}) + "\n" for row in rows))
    strong = tmp_path / "strong.jsonl"
    strong.write_text("".join(json.dumps(row) + "\n" for row in rows))
    base, out = tiny_model("llama"), tmp_path / "run"
    for loss in ("margin", "scaled"):
        with pytest.raises(TutelageError, match=r"every margin in .* is 0: use --loss soft"):
            reward.main(settings(base, plain, out, loss=loss))
    assert not out.exists()
    given = settings(base, strong, out)
    (said,) = inert_columns(given, read_data(given))
    assert said.endswith("pairs have a margin, which the loss soft does not use.")
    ties = settings(base, plain, out, loss="davidson")
    assert inert_columns(ties, read_data(ties)) == ("No pair is a tie, so the loss davidson equals the loss soft.",)


def test_studies_that_cannot_be_read_are_told(tmp_path: Path, tiny_model: Any) -> None:
    base = tiny_model("llama")
    with pytest.raises(TutelageError, match="There is no database"):
        reward.main(settings(base, tmp_path / "nowhere.sqlite", tmp_path / "run"))
    store = open_store(tmp_path / "empty.sqlite")
    create_study(store, "empty")
    store.close()
    with pytest.raises(TutelageError, match="'empty' has no preference to train on: 0 judgements"):
        reward.main(settings(base, tmp_path / "empty.sqlite", tmp_path / "run"))
    study = make_study(tmp_path / "s")
    with pytest.raises(TutelageError, match="other"):
        reward.main(settings(base, study, tmp_path / "run", study="other"))
    assert not (tmp_path / "run").exists()
