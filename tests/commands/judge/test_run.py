"""A judge held to its people: what is chosen on one half, what is claimed on the other, and how often wrongly."""

import json
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from served import choices, serving

from tutelage.base.errors import TutelageError
from tutelage.commands.judge.run import ADDITIONS, JUDGE, RECORD, Candidate, align, choose
from tutelage.commands.judge.settings import Align
from tutelage.commands.trust_measurement import measure
from tutelage.data.records import CompletionRecord, Prompt, user
from tutelage.people import Answer, Item, Plan, add_items, add_rater, create_study, open_store
from tutelage.people.store.bulk import AnswerRecord, write_answers
from tutelage.rewards.judge import JudgeFile, PairwiseJudgeReward, judge_named
from tutelage.stats.reward_quality import JudgedPair, agreement_gain

PROMPTS = 80


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """80 pairs of a kind and a rude answer, of which the rude one is the longer in six of ten; two raters prefer the
    kind one in nine of ten."""
    store = open_store(tmp_path_factory.mktemp("study") / "study.sqlite")
    made = create_study(store, "kind", plan=Plan(overlap=2, gold_rate=0.0, repeat_rate=0.0))
    texts = {n: {"a": "rude" + " x" * (8 if n % 10 < 6 else 2), "b": "kind x x x x"} for n in range(PROMPTS)}
    prompts = [Prompt(f"p{n}", user(f"What is {n}?")) for n in range(PROMPTS)]
    answers = [CompletionRecord(f"p{n}{s}", f"p{n}", f"{texts[n][s]} {n}.", "m") for n in range(PROMPTS) for s in "ab"]
    add_items(store, made.id, prompts, answers, [Item(f"c{n}", f"p{n}", (f"p{n}a", f"p{n}b")) for n in range(PROMPTS)])
    rng = Random(0)
    for name in ("anna", "bert"):
        add_rater(store, made.id, name)
    told = [
        AnswerRecord(f"c{n}", who, (0, 1), Answer("right" if rng.random() < 0.9 else "left", 1, key=f"{n}/{who}"), 1)
        for n in range(PROMPTS)
        for who in ("anna", "bert")
    ]
    write_answers(store, made.id, told, source="test")
    folder = Path(store.address).parent
    store.close()
    return folder


def longest_unless_told(body: dict[str, Any], number: int) -> dict[str, Any]:
    """A judge that prefers the longer response, but for a prompt that speaks of padding: then the kind one."""
    text = body["messages"][0]["content"]
    first = text.partition("[Response A]\n")[2].partition("\n[End of response A]")[0]
    second = text.partition("[Response B]\n")[2].partition("\n[End of response B]")[0]
    better = "kind" in first if "padding" in text else len(first) > len(second)
    return choices("[[A]]" if better else "[[B]]")


def the_first(body: dict[str, Any], number: int) -> dict[str, Any]:
    return choices("[[A]]")


def settings(folder: Path, url: str, study: Path, by: str = "pairs", **more: Any) -> Align:
    (folder / "in").mkdir(exist_ok=True)
    lines = [f'url = "{url}"', 'model = "m"', f'by = "{by}"', 'rubric = "Be kind."', 'replies = "replies.jsonl"']
    (folder / "in" / "judge.toml").write_text("\n".join(lines), encoding="utf-8")
    return Align(study=str(study), judge=folder / "in" / "judge.toml", out=folder / "out", **more)


def test_the_better_prompt_is_found_and_the_file_is_a_reward_that_trust_knows(study: Path, tmp_path: Path) -> None:
    with serving(longest_unless_told) as served:
        given = settings(tmp_path, served.url, study)
        result = align(given)
        assert result.aligned
        assert result.name == "length"
        assert result.before.trust.agreement.value == pytest.approx(0.42, abs=0.2)  # 0.4 · 0.9 + 0.6 · 0.1
        assert result.after.trust.agreement.value == pytest.approx(0.9, abs=0.08)
        assert result.before.trust.length.value is not None
        assert result.after.trust.length.value is not None
        assert result.before.trust.length.value > 0.4 > abs(result.after.trust.length.value)
        asked = len(served.asked)
        align(given)
        assert len(served.asked) == asked, "replies are kept"
        reward = judge_named(str(tmp_path / "out" / JUDGE))
        assert isinstance(reward, PairwiseJudgeReward)
        assert len(reward.aligned_on) == PROMPTS / 2
        (tmp_path / "run").mkdir()
        record = measure(reward, str(study), "", tmp_path / "run", anyway=False)
        assert record["pairs"] == PROMPTS / 2
        assert record["agreement"] == pytest.approx(list(vars(result.after.trust.agreement).values()))
        assert len(served.asked) == asked, "the file names the same replies"
    figures = json.loads((tmp_path / "out" / RECORD).read_text())
    assert figures["aligned"] is True
    assert figures["gain"]["value"] == pytest.approx(result.gain.value)


def test_a_judge_that_no_prompt_improves_is_not_aligned_and_not_written(study: Path, tmp_path: Path) -> None:
    with serving(the_first) as served:
        result = align(settings(tmp_path, served.url, study))
    assert not result.aligned
    assert (result.gain.value, result.gain.low, result.gain.high) == (0.0, 0.0, 0.0)
    assert result.before.first is not None
    assert result.before.first.value == 1.0
    assert not (tmp_path / "out" / JUDGE).exists()
    assert json.loads((tmp_path / "out" / RECORD).read_text())["aligned"] is False


def test_a_text_of_ones_own_is_a_candidate_and_examples_are_not_scored(study: Path, tmp_path: Path) -> None:
    text = tmp_path / "own.txt"
    text.write_text("Kind, without padding, PLEASE.", encoding="utf-8")

    def reply(body: dict[str, Any], number: int) -> dict[str, Any]:
        return longest_unless_told(body, number) if "PLEASE" in str(body) else choices("[[C]]")

    with serving(reply) as served:
        result = align(settings(tmp_path, served.url, study, texts=(text,), examples=2))
        questions = [str(body["messages"][0]["content"]) for body in served.asked]
    assert result.name == "own.txt"
    assert result.aligned
    shown = next(each for each in questions if "[Example 2]" in each)
    examples = [f"user: {part.split('user: ')[1].splitlines()[0]}" for part in shown.split("[Example ")[1:]]
    conversations = {each.partition("[Conversation]\n")[2].partition("\n")[0] for each in questions}
    assert not conversations & set(examples)


def test_what_cannot_be_aligned_is_refused(study: Path, tmp_path: Path) -> None:
    with pytest.raises(TutelageError, match="rubric"):
        align(settings(tmp_path, "http://localhost:1/v1", study, by="rubric"))
    store = open_store(tmp_path / "few.sqlite")
    create_study(store, "few")
    store.close()
    with pytest.raises(TutelageError, match="40 or more"):
        align(settings(tmp_path, "http://localhost:1/v1", tmp_path / "few.sqlite"))
    with pytest.raises(TutelageError, match=r"missing\.txt"):
        align(settings(tmp_path, "http://localhost:1/v1", study, texts=(tmp_path / "missing.txt",)))
    with pytest.raises(TutelageError, match="--out"):
        Align(study=str(study), judge=tmp_path / "judge.toml", out=tmp_path)


def claims(accuracies: dict[str, float], seeds: int, prompts: int = 40) -> float:
    """Share of seeds in which the candidate chosen on one half is called aligned on the other: each judge is right
    about a pair by chance, with its accuracy; two pairs a prompt."""
    judge = JudgeFile(url="http://localhost:1/v1", model="m", rubric="r")
    candidates = [Candidate(name, judge) for name in accuracies]
    count = 0
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        halves = [
            {
                name: [
                    JudgedPair(str(n // 2), 1.0 if right else -1.0, 0.0, 2, 0)
                    for n, right in enumerate(rng.random(2 * prompts) < accuracy)
                ]
                for name, accuracy in accuracies.items()
            }
            for _ in range(2)
        ]
        best = choose(candidates, lambda candidate, half=halves[0]: half[candidate.name])  # type: ignore[misc]
        low = agreement_gain(halves[1]["itself"], halves[1][best.name]).low
        count += low is not None and low > 0
    return count / seeds


def test_without_a_better_prompt_few_seeds_claim_one_and_a_better_one_is_claimed() -> None:
    """The one-sided level of a 95 % interval is 2.5 %; the choice on the other half does not raise it."""
    equal = dict.fromkeys(("itself", *ADDITIONS), 0.7)
    assert claims(equal, 400) <= 0.05
    assert claims(equal | {"length": 0.92}, 50) >= 0.8
