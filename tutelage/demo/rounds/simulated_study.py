"""Studies with simulated raters."""

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import numpy as np

from tutelage.base.config.files import write_atomically
from tutelage.commands.display import progress
from tutelage.data.pairing import split_by_prompt
from tutelage.data.record_files import to_row, write_jsonl
from tutelage.data.records import Comparison, CompletionRecord, Preference, Prompt
from tutelage.data.worlds.gold import Utility
from tutelage.people import (
    Answer,
    Assignment,
    Item,
    Plan,
    Presentation,
    Question,
    Selection,
    Store,
    Study,
    Vote,
    add_items,
    add_rater,
    create_study,
    find_rater,
    list_questions,
    list_studies,
    list_votes,
    next_assignment,
    open_store,
    open_study,
    preferences,
    submit,
)
from tutelage.people.aggregation import Labels, aggregate
from tutelage.people.kinds.kind import timed
from tutelage.people.simulated_raters import ReliableRater, SimulatedRater
from tutelage.stats.agreement import mirrored_alpha, pair_agreement
from tutelage.stats.calibration import calibration
from tutelage.stats.vote_codes import Votes

SIDES = ("a", "b")
STUDY = "demo"


def remembered(utility: Utility) -> Utility:
    """The utility with a cache by prompt and response."""
    one = cache(lambda prompt, answer: utility([prompt], [answer])[0])
    return lambda prompts, answers: [one(p, a) for p, a in zip(prompts, answers, strict=True)]


class JudgementClock:
    """Clock that advances by a millisecond per judgement, so that timestamps, and the study's choice of next
    question, do not depend on the speed of the machine."""

    def __init__(self) -> None:
        self._seconds = time.time()

    def __call__(self) -> float:
        return self._seconds

    def tick(self) -> None:
        self._seconds += 1e-3


R = TypeVar("R", bound=SimulatedRater | ReliableRater)


def judge(
    store: Store,
    study_id: int,
    raters: Sequence[R],
    answer: Callable[[Assignment, R, Random, int], Answer],
    *,
    seed: int,
    done: Callable[[int], None] = lambda count: None,
) -> int:
    """Let the raters judge in random order until all questions are answered. Returns the number of new judgements.
    `answer` gives a rater's answer to a question, by its random numbers and the number of its earlier answers.

    The order is random because raters in sequence would only share items with their neighbours, and no statistic
    could identify outliers.
    """
    ids = {rater.name: _known_rater(store, study_id, rater) for rater in raters}
    counts = Counter(vote.rater for vote in list_votes(store, study_id))
    order = Random(f"{seed}/order/{counts.total()}")
    waiting, count = list(raters), 0
    while waiting:
        rater = order.choice(waiting)
        rater_id = ids[rater.name]
        question = next_assignment(store, rater_id)
        if question is None:
            waiting.remove(rater)
            continue
        rng = Random(f"{seed}/{rater.name}/{question.item}")
        submit(store, question.id, answer(question, rater, rng, counts[rater.name]), rater_id=rater_id)
        counts[rater.name] += 1
        count += 1
        done(count)
    return count


def _known_rater(store: Store, study_id: int, rater: SimulatedRater | ReliableRater) -> int:
    existing = find_rater(store, study_id, rater.name)
    return existing.id if existing else add_rater(store, study_id, rater.name, kind="simulated").id


def _answer(utility: Utility, question: Assignment, rater: SimulatedRater, rng: Random, answered: int) -> Answer:
    prompt = question.messages[-1].content
    left, right = question.texts
    gold_left, gold_right = utility([prompt, prompt], [left, right])
    vote = rater.judge(gold_left, gold_right, len(left.split()), len(right.split()), rng, answered)
    return timed(Answer(vote.verdict, strength=vote.strength), vote.seconds)


def describe_votes(votes: Sequence[Vote], labels: Labels) -> dict[str, Any]:
    """Statistics of a study for the report (`judgements.json`)."""
    decided = [vote for vote in votes if vote.verdict in SIDES and not vote.repeat]
    table = Votes.of([v.item for v in decided], [v.rater for v in decided], [v.verdict for v in decided], SIDES)
    agreement, alpha = pair_agreement(table), mirrored_alpha(table, (1, 0))
    return {
        "items": len({vote.item for vote in votes}),
        "votes": len(votes),
        "ties": sum(vote.verdict in ("tie", "both_bad") for vote in votes),
        "agreement": agreement.value,
        "agreement_interval": [agreement.low, agreement.high],
        "alpha": alpha.value,
        "raters": [_describe_rater(name, votes, labels) for name in sorted({vote.rater for vote in votes})],
    }


def describe_labels(labels: Labels, questions: Mapping[str, Question], utility: Utility) -> dict[str, Any]:
    """Calibration of the labels for the report: P(a is better) against the utility."""
    decided = [label for label in labels.labels if label.kind == "decided"]
    if not decided:
        return {}
    first, second = (
        utility(
            [questions[label.item].messages[-1].content for label in decided],
            [questions[label.item].texts[side] for label in decided],
        )
        for side in (0, 1)
    )
    better = (np.sign(np.subtract(first, second)) + 1) / 2
    diagram = calibration(np.array([label.p_first for label in decided]), better)
    return {"calibration": diagram.rows(), "ece": diagram.ece}


def _describe_rater(name: str, votes: Sequence[Vote], labels: Labels) -> dict[str, Any]:
    own = [vote for vote in votes if vote.rater == name and vote.verdict in SIDES]
    shown_left = [(vote.verdict == "a") == (vote.sides[0] == 0) for vote in own]
    low, high = labels.interval[name]
    doubtful = ["votes against the others"] if high < 0.5 else ["little better than chance"]
    flags = doubtful if labels.accuracy[name] < 0.6 else []
    return {
        "name": name,
        "votes": len(own),
        "reliability": labels.accuracy[name],
        "interval": [low, high],
        "left_rate": sum(shown_left) / max(1, len(shown_left)),
        "flags": flags,
    }


def right_shares(votes: Sequence[Vote], questions: Mapping[str, Question], utility: Utility) -> dict[str, float]:
    """Share of each rater's decisive votes that are for the response of higher utility; ties count half."""
    counted: dict[str, list[float]] = {}
    for vote in votes:
        if vote.verdict in SIDES:
            prompt = questions[vote.item].messages[-1].content
            first, second = utility([prompt, prompt], list(questions[vote.item].texts[:2]))
            for_first = (float(np.sign(first - second)) + 1) / 2
            counted.setdefault(vote.rater, []).append(for_first if vote.verdict == "a" else 1 - for_first)
    return {name: sum(own) / len(own) for name, own in counted.items()}


def single_votes(votes: Sequence[Vote], texts: Mapping[str, Question]) -> list[Preference]:
    """Every decisive vote as a preference, for measuring a reward model's accuracy."""
    rows = []
    for vote in votes:
        if vote.verdict in SIDES and not vote.repeat:
            question = texts[vote.item]
            better = SIDES.index(vote.verdict)
            rows.append(Preference(question.messages, question.texts[better], question.texts[1 - better]))
    return rows


@dataclass(frozen=True)
class JudgedQuestions:
    """Material to judge: prompts, their responses, and the pairs of responses."""

    prompts: Sequence[Prompt]
    completions: Sequence[CompletionRecord]
    comparisons: Sequence[Comparison]

    def differences(self, utility: Utility) -> dict[str, float]:
        """utility(a) − utility(b) of every comparison, by its id."""
        questions = {prompt.id: prompt.messages[-1].content for prompt in self.prompts}
        values = utility([questions[c.prompt_id] for c in self.completions], [c.text for c in self.completions])
        value = {c.id: v for c, v in zip(self.completions, values, strict=True)}
        return {c.id: value[c.a_id] - value[c.b_id] for c in self.comparisons}


@dataclass(frozen=True, kw_only=True)
class Judging:
    """Number of raters, in total and per pair."""

    raters: int
    overlap: int
    test_overlap: int
    """Raters per pair in the test set of the reward model; more raters give a less noisy accuracy."""
    held_out: float = 0.1
    """Fraction of the prompts whose pairs only test the reward model."""
    seed: int


def open_simulation(
    out: Path, judging: Judging, *, kind: str = "pair", presentation: Presentation | None = None
) -> tuple[Store, Study, JudgementClock]:
    """A new or begun study in a folder, with the clock of its store."""
    out.mkdir(parents=True, exist_ok=True)
    clock = JudgementClock()
    store = open_store(out / "study.sqlite", clock=clock, lasting=False)
    if STUDY in list_studies(store):
        return store, open_study(store, STUDY), clock
    plan = Plan(overlap=judging.overlap, gold_rate=0.0, repeat_rate=0.0)
    secret = sha256(f"{STUDY}/{judging.seed}".encode()).hexdigest()
    return store, create_study(store, STUDY, kind=kind, presentation=presentation, plan=plan, secret=secret), clock


@contextmanager
def judgements(expected: int, clock: JudgementClock, *, quiet: bool) -> Iterator[Callable[[int], None]]:
    """Function to be called with the number of judgements so far, which shows them and advances the clock."""
    with progress("judgements", expected, quiet=quiet) as advance:

        def judged(count: int) -> None:
            clock.tick()
            advance(min(count, expected), {})

        yield judged


def hold_study(
    out: Path,
    questions: JudgedQuestions,
    raters: Sequence[SimulatedRater],
    utility: Utility,
    judging: Judging,
    *,
    quiet: bool,
) -> None:
    """Let simulated raters judge all questions, and write the study, its statistics and its preferences.

    study.sqlite        the study itself
    judgements.json     raters, agreement and calibration of the labels, for the report
    preferences.jsonl   labels to train on
    test_votes.jsonl    single votes, on other prompts, of raters without a flag
    summary.json        `ceiling`: the accuracy on these of a predictor with the utility itself
    """
    store, study, clock = open_simulation(out, judging)
    compared = {key for comparison in questions.comparisons for key in (comparison.a_id, comparison.b_id)}
    completions = [completion for completion in questions.completions if completion.id in compared]
    aside = {prompt.id for prompt in split_by_prompt(questions.prompts, judging.held_out, judging.seed)[1]}
    items = [
        replace(Item.of(c), overlap=judging.test_overlap if c.prompt_id in aside else judging.overlap)
        for c in questions.comparisons
    ]
    add_items(store, study.id, questions.prompts, completions, items)
    expected = sum(item.overlap or 0 for item in items)
    with judgements(expected, clock, quiet=quiet) as judged:
        judge(store, study.id, raters, partial(_answer, utility), seed=judging.seed, done=judged)
    votes = list_votes(store, study.id)
    by_key = {question.key: question for question in list_questions(store, study.id)}
    decided = aggregate(votes, {})
    summary = describe_votes(votes, decided) | describe_labels(decided, by_key, utility)
    right = right_shares(votes, by_key, utility)
    summary["raters"] = [rater | {"truth": right.get(rater["name"])} for rater in summary["raters"]]
    write_atomically(out / "judgements.json", json.dumps(summary, indent=2) + "\n")
    tested = {prompt.messages for prompt in questions.prompts if prompt.id in aside}
    labels = preferences(store, study.id, Selection(kinds=("simulated",)))
    rest = (label for label in labels if label.messages not in tested)
    write_jsonl(out / "preferences.jsonl", map(to_row, rest))
    everybody = {rater["name"] for rater in summary["raters"]}
    good = {rater["name"] for rater in summary["raters"] if not rater["flags"]} or everybody
    test = [v for v in votes if v.rater in good and v.verdict in SIDES and by_key[v.item].messages in tested]
    write_jsonl(out / "test_votes.jsonl", map(to_row, single_votes(test, by_key)))
    best = vote_ceiling(votes, {v.id for v in test}, by_key, {rater.name: rater for rater in raters}, utility)
    write_atomically(out / "summary.json", json.dumps({"ceiling": best, "test_votes": len(test)}, indent=2) + "\n")
    store.close()


def vote_ceiling(
    votes: Sequence[Vote],
    counted: Set[int],
    questions: Mapping[str, Question],
    raters: Mapping[str, SimulatedRater],
    utility: Utility,
) -> float:
    """Mean probability, in closed form, that a decisive vote favours the response of higher utility.

    It bounds the accuracy, on the votes `counted` (by id), of predictors that see neither the side nor the rater.
    All votes are needed, in order, because raters tire.
    """
    total, counts = 0.0, Counter[str]()
    for vote in votes:
        before = counts[vote.rater]
        counts[vote.rater] += 1
        if vote.id not in counted:
            continue
        question = questions[vote.item]
        prompt = question.messages[-1].content
        first, second = utility([prompt, prompt], list(question.texts[:2]))
        one, other = (len(text.split()) for text in question.texts[:2])
        rater = raters[vote.rater]
        left, _, right = rater.probabilities(first, second, one, other, before)
        turned_left, _, turned_right = rater.probabilities(second, first, other, one, before)
        p_first = (left / (left + right) + turned_right / (turned_left + turned_right)) / 2
        total += p_first if first >= second else 1 - p_first
    return total / max(1, len(counted))
