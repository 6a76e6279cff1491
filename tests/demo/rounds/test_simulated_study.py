"""Simulated raters over a study: what is asked and what they answer follows from the seed alone."""

import json
import time
from pathlib import Path

import pytest

from tutelage.data.records import Comparison, CompletionRecord, Message, Prompt
from tutelage.demo.rounds import simulated_study as judging
from tutelage.demo.rounds.simulated_study import JudgedQuestions, Judging, hold_study, remembered
from tutelage.people import list_votes, open_store, open_study
from tutelage.people.simulated_raters import panel

FILES = ("preferences.jsonl", "test_votes.jsonl", "judgements.json", "summary.json")


def questions() -> JudgedQuestions:
    """Twelve prompts with three answers each, all pairs of which are asked."""
    prompts, completions, comparisons = [], [], []
    for prompt in map(str, range(12)):
        prompts.append(Prompt(prompt, (Message("user", f"Question {prompt}?"),)))
        for answer in "abc":
            completions.append(CompletionRecord(prompt + answer, prompt, f"{answer} " * 3 + prompt, "model"))
        for a, b in ("ab", "ac", "bc"):
            comparisons.append(Comparison(prompt + a + b, prompt, prompt + a, prompt + b))
    return JudgedQuestions(prompts, completions, comparisons)


def hold(out: Path, seed: int) -> dict[str, str]:
    """The content of the files of a study that six raters answered."""
    settings = Judging(raters=6, overlap=2, test_overlap=3, seed=seed)
    hold_study(out, questions(), panel(seed), lambda _, answers: list(map(_utility, answers)), settings, quiet=True)
    return {name: (out / name).read_text() for name in FILES}


def _utility(answer: str) -> float:
    return "cba".index(answer[0]) - 1.0


def test_a_seed_gives_the_same_votes_on_a_slow_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quick, other = hold(tmp_path / "quick", 3), hold(tmp_path / "other", 4)
    assert len(quick["preferences.jsonl"].splitlines()) > 20
    answer = judging._answer
    monkeypatch.setattr(judging, "_answer", lambda *given: (time.sleep(0.005), answer(*given))[1])
    assert hold(tmp_path / "slow", 3) == quick
    assert other["preferences.jsonl"] != quick["preferences.jsonl"]


def test_a_study_goes_on_where_it_was_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupted one loses no vote, and asks for what is left."""
    count, answer = [0], judging._answer

    def interrupted(*given):  # type: ignore[no-untyped-def]
        count[0] += 1
        if count[0] == 40:
            raise KeyboardInterrupt
        return answer(*given)

    with monkeypatch.context() as patch:
        patch.setattr(judging, "_answer", interrupted)
        with pytest.raises(KeyboardInterrupt):
            hold(tmp_path / "study", 3)
    for study in ("study", "whole"):
        told = json.loads(hold(tmp_path / study, 3)["judgements.json"])
        assert told["votes"] == 11 * 3 * 2 + 3 * 3, "two of each pair, three of those that only test"


def test_a_utility_is_computed_once_for_each_answer() -> None:
    asked: list[tuple[str, str]] = []

    def utility(prompts: list[str], answers: list[str]) -> list[float]:
        asked.extend(zip(prompts, answers, strict=True))
        return [float(len(prompt + answer)) for prompt, answer in zip(prompts, answers, strict=True)]

    once = remembered(utility)
    assert once(["p", "p", "q"], ["one", "one", "one"]) == [4.0, 4.0, 4.0]
    assert once(["q", "p"], ["three", "one"]) == [6.0, 4.0]
    assert asked == [("p", "one"), ("q", "one"), ("q", "three")]


def test_labels_are_compared_with_the_utility(tmp_path: Path) -> None:
    """The first response of every pair is the better one, so what was foretold for it came true in every bin."""
    told = json.loads(hold(tmp_path / "study", 3)["judgements.json"])
    rows = told["calibration"]
    assert 0 < sum(row["n"] for row in rows) <= 36
    assert all(row["low"] <= row["predicted"] <= row["high"] for row in rows)
    assert all(row["observed"] == 1 for row in rows)


def test_the_truth_about_a_rater_is_the_share_of_its_votes_for_the_better_response(tmp_path: Path) -> None:
    told = json.loads(hold(tmp_path, 3)["judgements.json"])
    store = open_store(tmp_path / "study.sqlite")
    votes = [vote for vote in list_votes(store, open_study(store, judging.STUDY).id) if vote.verdict in ("a", "b")]
    store.close()
    for row in told["raters"]:
        right = [
            vote.verdict == "a" for vote in votes if vote.rater == row["name"]
        ]  # a is the better one of every pair
        assert row["truth"] == pytest.approx(sum(right) / len(right)), row["name"]
        assert row["votes"] == len(right)
