"""Studies in which simulated raters judge every step of episodes."""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from random import Random
from typing import Any, TypeAlias, cast

from tutelage.base.config.files import write_atomically
from tutelage.base.nouns import counted
from tutelage.data.pairing import split_by_prompt
from tutelage.data.record_files import to_row, write_jsonl
from tutelage.data.records import CompletionRecord, Messages, Prompt, RatedSteps, Step
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


@dataclass(frozen=True)
class JudgedEpisode:
    """Steps to be judged after a conversation, and whether each of them is good in truth."""

    prompt: Prompt
    completion: CompletionRecord
    good: tuple[bool, ...]

    def end(self) -> "JudgedEpisode":
        """The last step alone, after the conversation before it."""
        *before, last = self.completion.steps
        messages = (*self.prompt.messages, *chain.from_iterable(cast(Sequence[Messages], before)))
        prompt = replace(self.prompt, id=self.completion.id, messages=messages)
        return JudgedEpisode(prompt, replace(self.completion, prompt_id=prompt.id, steps=(last,)), self.good[-1:])


def judged_episodes(
    prompts: Sequence[Prompt], episodes: Sequence[CompletionRecord], truth: Truth
) -> list[JudgedEpisode]:
    """The episodes that a study can store and show, with the truth about their steps."""
    by_id = {prompt.id: prompt for prompt in prompts}
    whole = [one for one in episodes if one.steps and "\0" not in one.text]
    if len(whole) < len(episodes):
        log.info(f"{counted(len(episodes) - len(whole), 'episode')} without a turn to show left out.")
    return [JudgedEpisode(by_id[one.prompt_id], one, tuple(truth(by_id[one.prompt_id], one.steps))) for one in whole]


def hold_step_study(
    out: Path, episodes: Sequence[JudgedEpisode], raters: Sequence[ReliableRater], judging: Judging, *, quiet: bool
) -> None:
    """Let simulated raters judge each step of the episodes, and write the study, its statistics and its labels.

    study.sqlite       the study itself
    judgements.json    raters, whose reliability is estimated from their votes, beside the true one, for the report
    steps.jsonl        labels to train on
    test_steps.jsonl   true labels of the episodes of other questions
    summary.json       `label_accuracy`: the share of labels that agree with the truth
    """
    prompts = list({one.prompt.id: one.prompt for one in episodes}.values())
    aside = {prompt.id for prompt in split_by_prompt(prompts, judging.held_out, judging.seed)[1]}
    for_study, test = ([one for one in episodes if (one.prompt.id in aside) == tested] for tested in (False, True))
    good = {one.completion.id: one.good for one in for_study}
    presentation = Presentation(str(find_kind(KIND).traits.question), EACH)
    store, study, clock = open_simulation(out, judging, kind=KIND, presentation=presentation)
    items = [Item(one.completion.id, one.prompt.id, (one.completion.id,)) for one in for_study]
    questions = [prompt for prompt in prompts if prompt.id not in aside]
    add_items(store, study.id, questions, [one.completion for one in for_study], items)

    def answer(question: Assignment, rater: ReliableRater, rng: Random, answered: int) -> Answer:
        gold = tuple(1.0 if each else -1.0 for each in good[question.item])
        words = tuple(10 for _ in gold)
        screen = Screen(1, EACH, steps=len(gold))
        return study.kind.simulate(ResponseValues(gold, words), screen, rater, rng, answered)

    with judgements(judging.overlap * len(items), clock, quiet=quiet) as judged:
        judge(store, study.id, raters, answer, seed=judging.seed, done=judged)
    labelled = label_study(store, study.id, Selection(kinds=("simulated",)))
    write_jsonl(out / "steps.jsonl", step_rows(labelled, STUDY))
    labels = (RatedSteps(one.prompt.messages, one.completion.steps, tuple(map(float, one.good))) for one in test)
    write_jsonl(out / "test_steps.jsonl", map(to_row, labels))
    summary = describe_raters(list_votes(store, study.id), raters, labelled.labels) | {"items": len(items)}
    write_atomically(out / "judgements.json", json.dumps(summary, indent=2) + "\n")
    right = [
        (label > 0.5) == true
        for row in labelled.steps
        for label, true in zip(row.probabilities, good[row.question.key], strict=True)
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
