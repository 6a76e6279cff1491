"""Simulated raters judge steps: their reliability is recovered from their votes, and their labels follow the truth."""

import json
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from tutelage.data.formats import load_steps
from tutelage.data.records import CompletionRecord, Message, Prompt, user
from tutelage.demo.rounds.simulated_study import STUDY, Judging
from tutelage.demo.rounds.step_study import JudgedEpisode, hold_step_study, judged_episodes
from tutelage.people import list_votes, open_store, open_study
from tutelage.people.simulated_raters import ReliableRater

RELIABILITY = {"Amina": 0.95, "Bruno": 0.9, "Chen": 0.85, "Dalia": 0.75, "Emeka": 0.55}
RATERS = [ReliableRater(name, reliability) for name, reliability in RELIABILITY.items()]
JUDGING = Judging(raters=5, overlap=5, test_overlap=0, held_out=0.2, seed=0)
EPISODES = 125
FILES = ("judgements.json", "steps.jsonl", "test_steps.jsonl", "summary.json")


def is_good(prompt: Prompt, steps) -> list[bool]:
    return [step[0].content.startswith("good") for step in steps]


def episodes(count: int) -> tuple[list[Prompt], list[CompletionRecord]]:
    """Episodes of one to four steps, two in three of which are good."""
    rng, prompts, completions = Random(0), [], []
    for number in range(count):
        prompts.append(Prompt(f"p{number}", user(f"Question {number}?")))
        words = [f"{'good' if rng.random() < 2 / 3 else 'bad'} {number}-{step}" for step in range(rng.randint(1, 4))]
        steps = [(Message("assistant", word), Message("user", "go on")) for word in words[:-1]]
        last = (Message("assistant", words[-1]),)
        completions.append(CompletionRecord(f"c{number}", f"p{number}", " ".join(words), "m", steps=(*steps, last)))
    return prompts, completions


def held(out: Path, count: int) -> dict[str, str]:
    hold_step_study(out, judged_episodes(*episodes(count), is_good), RATERS, JUDGING, quiet=True)
    return {name: (out / name).read_text() for name in FILES}


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("steps") / "judge"
    held(out, EPISODES)
    return out


def test_reliabilities_are_recovered_from_the_votes(study: Path) -> None:
    """The estimates are near the share of each rater's votes that are right, which the truth tells and they do not."""
    rows = {row["name"]: row for row in json.loads((study / "judgements.json").read_text())["raters"]}
    assert {name: row["truth"] for name, row in rows.items()} == RELIABILITY
    store = open_store(study / "study.sqlite")
    good = {one.id: is_good(Prompt(one.prompt_id, ()), one.steps) for one in episodes(EPISODES)[1]}
    right: dict[str, list[bool]] = {name: [] for name in RELIABILITY}
    for vote in list_votes(store, open_study(store, STUDY).id):
        right[vote.rater] += [(pair.verdict == "a") == good[vote.item][pair.first] for pair in vote.pairs]
    store.close()
    for name, row in rows.items():
        share = sum(right[name]) / len(right[name])
        assert share == pytest.approx(RELIABILITY[name], abs=0.1)
        assert row["reliability"] == pytest.approx(share, abs=0.05), name
        assert row["interval"][0] < row["reliability"] < row["interval"][1]


def test_labels_follow_the_truth_better_than_the_raters(study: Path) -> None:
    """A vote is right with the mean reliability, a label of five votes more often."""
    found = json.loads((study / "summary.json").read_text())["label_accuracy"]
    labelled = load_steps(study / "steps.jsonl").records
    pairs = [
        (label, step[0].content.startswith("good"))  # type: ignore[union-attr]
        for record in labelled
        for step, label in zip(record.steps, record.labels, strict=True)
        if label is not None
    ]
    assert found == pytest.approx(sum((label > 0.5) == good for label, good in pairs) / len(pairs))
    assert found > 0.9 > sum(RELIABILITY.values()) / 5


def test_the_test_set_has_the_true_labels_of_other_prompts(study: Path) -> None:
    test = load_steps(study / "test_steps.jsonl").records
    asked = {record.messages for record in load_steps(study / "steps.jsonl").records}
    assert 20 <= len(test) <= 60
    for record in test:
        assert record.messages not in asked
        assert list(record.labels) == [float(good) for good in is_good(Prompt("", record.messages), record.steps)]


def test_an_episode_that_a_study_cannot_store_is_left_out(tmp_path: Path) -> None:
    prompts, completions = episodes(10)
    completions[0] = replace(completions[0], text="\0", steps=((Message("assistant", "\0"),),))
    completions[1] = replace(completions[1], steps=())
    hold_step_study(tmp_path, judged_episodes(prompts, completions, is_good), RATERS, JUDGING, quiet=True)
    labelled = [load_steps(tmp_path / name).records for name in ("steps.jsonl", "test_steps.jsonl")]
    assert {r.messages for records in labelled for r in records} == {p.messages for p in prompts[2:]}


def test_a_seed_gives_the_same_labels_everywhere(tmp_path: Path) -> None:
    assert held(tmp_path / "one", 20) == held(tmp_path / "other", 20)


def test_the_end_of_an_episode_is_asked_after_the_conversation_before_it() -> None:
    prompt, (first, second, last) = Prompt("p", user("q")), [(Message("assistant", word),) for word in "abc"]
    second = (*second, Message("tool", "found", name="search"))
    episode = JudgedEpisode(
        prompt, CompletionRecord("c", "p", "", "m", steps=(first, second, last)), (True, False, True)
    )
    end = episode.end()
    assert end.prompt.messages == (*prompt.messages, *first, *second)
    assert end.completion.steps == (last,)
    assert end.completion.prompt_id == end.prompt.id
    assert end.good == (True,)
