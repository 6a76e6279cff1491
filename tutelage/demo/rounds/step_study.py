"""Studies in which simulated raters judge every step of episodes."""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, TypeAlias

from tutelage.base.config.files import write_atomically
from tutelage.base.nouns import counted
from tutelage.data.pairing import split_by_prompt
from tutelage.data.record_files import to_row, write_jsonl
from tutelage.data.records import CompletionRecord, Prompt, RatedSteps, Step
from tutelage.demo.rounds.simulated_study import STUDY, Judging, judge, judgements, open_simulation
from tutelage.people import Answer, Assignment, Item, Presentation, Selection, Vote, add_items, label_study, list_votes
from tutelage.people.aggregation import Labels, agreements
from tutelage.people.export import step_rows
from tutelage.people.kinds import find_kind
from tutelage.people.kinds.kind import ResponseValues, Screen
from tutelage.people.kinds.steps import EACH
from tutelage.people.simulated_raters import ReliableRater

log = logging.getLogger(__name__)

KIND = "steps"
Truth: TypeAlias = Callable[[Prompt, Sequence[Step]], Sequence[bool]]
"""Whether each step of an episode is good."""


def hold_step_study(
    out: Path,
    prompts: Sequence[Prompt],
    episodes: Sequence[CompletionRecord],
    raters: Sequence[ReliableRater],
    truth: Truth,
    judging: Judging,
    *,
    quiet: bool,
) -> None:
    """Let simulated raters judge each step of the episodes, and write the study, its statistics and its labels.

    study.sqlite       the study itself
    judgements.json    raters, whose reliability is estimated from their votes, beside the true one, for the report
    steps.jsonl        labels to train on
    test_steps.jsonl   true labels of the episodes of other prompts
    summary.json       `label_accuracy`: the share of labels that agree with the truth
    """
    asked = {prompt.id: prompt for prompt in prompts}
    whole = [one for one in episodes if one.steps and "\0" not in one.text]  # which a study cannot store
    if len(whole) < len(episodes):
        log.info(f"{counted(len(episodes) - len(whole), 'episode')} without a turn to show left out.")
    aside = {prompt.id for prompt in split_by_prompt(prompts, judging.held_out, judging.seed)[1]}
    good = {one.id: list(truth(asked[one.prompt_id], one.steps)) for one in whole}
    shown = [one for one in whole if one.prompt_id not in aside]
    presentation = Presentation(str(find_kind(KIND).traits.question), EACH)
    store, study, clock = open_simulation(out, judging, kind=KIND, presentation=presentation)
    items = [Item(one.id, one.prompt_id, (one.id,)) for one in shown]
    add_items(store, study.id, [prompt for prompt in prompts if prompt.id not in aside], shown, items)

    def answer(question: Assignment, rater: ReliableRater, rng: Random, answered: int) -> Answer:
        gold = tuple(1.0 if each else -1.0 for each in good[question.item])
        words = tuple(10 for _ in gold)
        screen = Screen(1, EACH, steps=len(gold))
        return study.kind.simulate(ResponseValues(gold, words), screen, rater, rng, answered)

    with judgements(judging.overlap * len(items), clock, quiet=quiet) as judged:
        judge(store, study.id, raters, answer, seed=judging.seed, done=judged)
    labelled = label_study(store, study.id, Selection(kinds=("simulated",)))
    write_jsonl(out / "steps.jsonl", step_rows(labelled, STUDY))
    test = [
        RatedSteps(asked[one.prompt_id].messages, one.steps, tuple(map(float, good[one.id])))
        for one in whole
        if one.prompt_id in aside
    ]
    write_jsonl(out / "test_steps.jsonl", map(to_row, test))
    summary = describe_raters(list_votes(store, study.id), raters, labelled.labels) | {"items": len(items)}
    write_atomically(out / "judgements.json", json.dumps(summary, indent=2) + "\n")
    right = [
        (label > 0.5) == known
        for row in labelled.steps
        for label, known in zip(row.probabilities, good[row.question.key], strict=True)
        if label is not None
    ]
    figures = {"label_accuracy": sum(right) / len(right), "steps": len(right), "test_episodes": len(test)}
    write_atomically(out / "summary.json", json.dumps(figures, indent=2) + "\n")
    store.close()


def describe_raters(votes: Sequence[Vote], raters: Sequence[ReliableRater], labels: Labels) -> dict[str, Any]:
    """Statistics of the votes for the report (`judgements.json`)."""
    alpha = next(iter(agreements(votes).values()))
    rows = [rater_row(rater, labels, sum(vote.rater == rater.name for vote in votes)) for rater in raters]
    return {"votes": sum(len(list(vote.pairs)) for vote in votes), "alpha": alpha.value, "raters": rows}


def rater_row(rater: ReliableRater, labels: Labels, votes: int) -> Mapping[str, Any]:
    """Description of a rater for the report."""
    low, high = labels.interval[rater.name]
    estimate = labels.accuracy[rater.name]
    return {
        "name": rater.name,
        "votes": votes,
        "reliability": estimate,
        "interval": [low, high],
        "truth": rater.reliability,
        "flags": ["little better than chance"] if estimate < 0.6 else [],
    }
