"""Training data of a study as of a snapshot: labels, preferences, demonstrations, and the fate of every vote.

The chosen response of a preference also serves as a demonstration, unless the question has corrections, which replace
it.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Generic, TypeAlias, TypeVar

from tutelage.base.errors import TutelageError
from tutelage.data.records import ALL_ROWS, Demonstration, Preference, StudyRows, UnpairedAnswer, spoken
from tutelage.data.traces import trace_messages
from tutelage.people.aggregation import SIDES, Label, Labels, aggregate, known_answers, pair_name, pair_votes
from tutelage.people.correction_data import CorrectedAnswer, corrected_answers, correction_fates
from tutelage.people.images import turn_with_parts, with_parts
from tutelage.people.selection import Selection, fate, refuse_mixed_versions
from tutelage.people.store.conversations import LIVE
from tutelage.people.store.engine import Store
from tutelage.people.store.item_catalogue import Question, list_questions
from tutelage.people.store.studies import study_of
from tutelage.people.store.votes import Snapshot, Vote, freeze, list_votes
from tutelage.stats.vote_codes import Votes

PairKey: TypeAlias = tuple[str, int, int]


@dataclass(frozen=True)
class Row:
    """A preference with its origin. `chosen` and `rejected` index the completions; `strength` is the mean strength in
    favour of the chosen one."""

    preference: Preference
    question: Question
    label: Label
    chosen: int
    rejected: int
    strength: float


@dataclass(frozen=True)
class StepRow:
    """A response with the label of each step, None for a step without one."""

    question: Question
    labels: tuple[Label | None, ...]

    @property
    def probabilities(self) -> tuple[float | None, ...]:
        """P(the step is right): the label, one half for one that most raters call neutral, None for one without."""
        return tuple(None if each is None else each.p_first for each in self.labels)


@dataclass(frozen=True)
class RatedRow:
    """A single response with the label of the whole: P(good)."""

    question: Question
    label: Label

    @property
    def answer(self) -> UnpairedAnswer:
        """The response as good or bad, whichever is more probable."""
        (turn,) = self.question.turns
        return UnpairedAnswer(with_parts(self.question.messages), turn_with_parts(turn), self.label.p_first >= 0.5)


@dataclass(frozen=True)
class LabelledStudy:
    """A study as of a snapshot, with labels and training rows, `steps` where steps are judged, `rated` where single
    responses are. `bad` are the questions whose pair the majority judged as both bad; `fates` and `correction_fates`
    count judgements and corrections by fate."""

    rows: tuple[Row, ...]
    steps: tuple[StepRow, ...]
    bad: tuple[Question, ...]
    labels: Labels
    fates: Mapping[str, int]
    votes: tuple[Vote, ...]
    snapshot: Snapshot
    corrections: tuple[CorrectedAnswer, ...]
    correction_fates: Mapping[str, int]
    rated: tuple[RatedRow, ...] = ()


def preferences(
    store: Store,
    study_id: int,
    selection: Selection | None = None,
    *,
    split: str | None = None,
    at: Snapshot | None = None,
) -> tuple[Preference, ...]:
    """The preferences of a study for training, optionally of one split or as of a snapshot. Raises TutelageError if a
    response is a trace of several messages."""
    labelled = label_study(store, study_id, selection or Selection(), at)
    _refuse_traces(labelled.rows)
    return tuple(row.preference for row in labelled.rows if split is None or row.question.prompt.split == split)


def label_study(store: Store, study_id: int, selection: Selection, at: Snapshot | None = None) -> LabelledStudy:
    """Aggregate the votes of a study, and assign a fate to each. Raises TutelageError if the votes are on several
    versions of the question, and the selection specifies none."""
    at = at or freeze(store, study_id)
    questions = {question.key: question for question in list_questions(store, study_id)}
    votes = list_votes(store, study_id, at=at, every_revision=True)
    fates = [fate(vote, selection) for vote in votes]
    evidence = [v for v, what in zip(votes, fates, strict=True) if what in ("counts", "gold", "adjudication")]
    refuse_mixed_versions(evidence, selection)
    decisions = [v for v, what in zip(votes, fates, strict=True) if what == "adjudication"]
    settled = {pair_name(pair): pair.verdict for pair in pair_votes(decisions)}
    gold = known_answers(
        {q.key: (q.item.gold, len(q.completions[0].steps)) for q in questions.values() if q.item.gold is not None},
        study_of(store, study_id).kind,
    )
    labels = aggregate(evidence, gold | settled, use_strength=selection.use_strength)
    decided = {_pair(label) for label in labels.labels if _kind(label, settled) == "decided"}
    outcomes = {_pair(label): _outcome(label, questions[label.item], settled, selection) for label in labels.labels}
    production = [label for label in labels.labels if questions[label.item].item.pool == "production"]
    used = [label for label in production if outcomes[_pair(label)] == "used"]
    final = Counter(_final(vote, what, outcomes, decided) for vote, what in zip(votes, fates, strict=True))
    bad = dict.fromkeys(label.item for label in production if outcomes[_pair(label)] == "both_bad")
    rows = tuple(_rows(used, questions, settled, selection))
    return LabelledStudy(
        rows,
        tuple(_step_rows(used, questions, settled)),
        tuple(questions[key] for key in bad),
        labels,
        dict(final),
        votes,
        at,
        corrected_answers(votes, fates, questions, labels.accuracy),
        correction_fates(votes, fates, labels.accuracy),
        tuple(_rated_rows(used, questions, settled)),
    )


def decided_votes(labelled: LabelledStudy, selection: Selection) -> Votes:
    """The counting votes for a side on production pairs, for agreement and its ceiling. Items are named by key, plus
    the letters of the pair for questions with more than two responses."""
    evidence = [vote for vote in labelled.votes if fate(vote, selection) == "counts"]
    decided = [pair for pair in pair_votes(evidence) if pair.verdict in SIDES]
    return Votes.of([pair_name(p) for p in decided], [p.rater for p in decided], [p.verdict for p in decided], SIDES)


def _pair(label: Label) -> PairKey:
    return label.item, label.first, label.second


def _kind(label: Label, settled: Mapping[str, str]) -> str:
    """`decided`, `tie` or `both_bad`: by adjudication if there is one, else by majority."""
    word = settled.get(pair_name(label))
    return label.kind if word is None else "decided" if word in ("a", "b") else word


def _outcome(label: Label, question: Question, settled: Mapping[str, str], selection: Selection) -> str:
    kind, decisive = _kind(label, settled), label.counts["a"] + label.counts["b"]
    if kind == "both_bad":
        return "both_bad"
    if label.step is None:
        one, other = (question.completions[side] for side in (label.first, label.second))
        if (one.text, one.steps) == (other.text, other.steps):
            return "identical"
    if kind == "tie":
        return "used" if selection.ties == "keep" or label.step is not None else "tied"
    return "used" if pair_name(label) in settled or decisive >= selection.min_votes else "too_few"


def _final(vote: Vote, what: str, outcomes: Mapping[PairKey, str], decided: Set[PairKey]) -> str:
    """The final fate of a vote. A counting vote has the fate of its pair; with several pairs, it is used if any pair
    is, and without any, as if skipped."""
    if what != "counts":
        return what
    pairs = [(vote.item, pair.first, pair.second) for pair in vote.pairs]
    if not pairs:
        return "skipped"
    fates = {outcomes[pair] for pair in pairs}
    outcome = "used" if "used" in fates else min(fates)
    beside = vote.verdict == "both_bad" or (vote.verdict == "tie" and pairs[0] in decided)
    return "outvoted" if outcome == "used" and beside else outcome


def _rows(
    labels: Sequence[Label], questions: Mapping[str, Question], settled: Mapping[str, str], selection: Selection
) -> Iterator[Row]:
    mean = sum(abs(label.strength) for label in labels) / max(1, len(labels)) or 1.0
    for label in labels:
        if label.step is not None:
            continue
        question = questions[label.item]
        p_first = label.p_first if _kind(label, settled) == "decided" else 0.5
        ahead = p_first >= 0.5
        chosen, rejected = (label.first, label.second) if ahead else (label.second, label.first)
        strength = max(0.0, label.strength if ahead else -label.strength)
        weight = (strength / mean if selection.weights else 1.0) / math.comb(len(question.texts), 2)
        preference = Preference(
            with_parts(question.messages),
            turn_with_parts(question.turns[chosen]),
            turn_with_parts(question.turns[rejected]),
            p_chosen=max(p_first, 1 - p_first),
            weight=weight,
            margin=strength if selection.margins else 0.0,
        )
        yield Row(preference, question, label, chosen, rejected, strength)


def _step_rows(
    labels: Sequence[Label], questions: Mapping[str, Question], settled: Mapping[str, str]
) -> Iterator[StepRow]:
    by_item: dict[str, dict[int, Label]] = {}
    for label in labels:
        if label.step is not None and questions[label.item].completions[0].steps:
            p_right = label.p_first if _kind(label, settled) == "decided" else 0.5
            by_item.setdefault(label.item, {})[label.step] = replace(label, p_first=p_right)
    for item, of_item in by_item.items():
        question = questions[item]
        yield StepRow(question, tuple(map(of_item.get, range(len(question.completions[0].steps)))))


def _rated_rows(
    labels: Sequence[Label], questions: Mapping[str, Question], settled: Mapping[str, str]
) -> Iterator[RatedRow]:
    for label in labels:
        question = questions[label.item]
        if label.step is not None and not question.completions[0].steps and _kind(label, settled) == "decided":
            yield RatedRow(question, label)


T = TypeVar("T", Preference, Demonstration)


@dataclass(frozen=True)
class TrainingRow(Generic[T]):
    """A training record with its question and source."""

    record: T
    question: Question
    rows: StudyRows


def training_pairs(labelled: LabelledStudy, rows: Sequence[StudyRows]) -> list[TrainingRow[Preference]]:
    """The preferences of a study from the sources `rows`, without those of `traces_in_talks`. Raises TutelageError if
    another response is a trace of several messages."""
    talks = {row.question.key for row in traces_in_talks(labelled)}
    compared = [row for row in labelled.rows if row.question.key not in talks]
    _refuse_traces(compared)
    pairs = [TrainingRow(row.preference, row.question, source_of(row)) for row in compared]
    for each in labelled.corrections:
        if each.correction.step is None and each.question.item.origin != LIVE:
            _refuse_trace(each.question, each.originals)
        if each.correction.step is not None or not _has_trace(each.question, each.originals):
            pairs += [TrainingRow(pair, each.question, "corrections") for _, pair in each.pairs]
    return [row for row in pairs if row.rows in rows]


def traces_in_talks(labelled: LabelledStudy) -> list[Row]:
    """The preferences of turns of live conversations in which a model called tools: they compare traces of several
    messages, of which only demonstrations are made."""
    return [row for row in labelled.rows if source_of(row) == "live" and _has_trace(row.question)]


def training_demonstrations(labelled: LabelledStudy, rows: Sequence[StudyRows]) -> list[TrainingRow[Demonstration]]:
    """The demonstrations of a study from the sources `rows`, with the weights of their preferences and corrections."""
    demonstrations = [
        TrainingRow(each.demonstration, each.question, "corrections")
        for each in labelled.corrections
        if "corrections" in rows
    ]
    corrected = {row.question.key for row in demonstrations}
    for row in labelled.rows:
        if row.question.key not in corrected and row.preference.p_chosen > 0.5 and source_of(row) in rows:
            better = chosen_turns(row, row.preference.weight)
            demonstrations += [TrainingRow(each, row.question, source_of(row)) for each in better]
    return demonstrations


def chosen_turns(row: Row, weight: float = 1.0) -> Iterator[Demonstration]:
    """The chosen response as demonstrations: each message that the assistant wrote in it, after those before it."""
    prompt, trace = row.question.messages, trace_messages(row.question.completions[row.chosen].steps)
    if not trace:
        yield Demonstration(row.preference.messages, row.preference.chosen, weight)
    for place, message in enumerate(trace):
        if message.role == "assistant":
            before = with_parts((*prompt, *trace[:place]))
            yield Demonstration(before, turn_with_parts(spoken(message)), weight)


def _refuse_traces(rows: Iterable[Row]) -> None:
    for row in rows:
        _refuse_trace(row.question, (row.chosen, row.rejected))


def _refuse_trace(question: Question, places: Iterable[int]) -> None:
    if _has_trace(question, places):
        raise TutelageError(
            f"Item '{question.key}' compares traces of several messages, which cannot be trained on as preferences; "
            "`tutelage collect export` writes them."
        )


def _has_trace(question: Question, places: Iterable[int] | None = None) -> bool:
    some = range(len(question.completions)) if places is None else places
    return any(len(trace_messages(question.completions[place].steps)) > 1 for place in some)


def source_of(row: Row) -> StudyRows:
    """The source of a preference derived from votes."""
    return "live" if row.question.item.origin == LIVE else "votes"


def counted(rows: Iterable[TrainingRow[T]]) -> str:
    """The number of rows as a sum over their sources."""
    counts = Counter(row.rows for row in rows)
    parts = [f"{counts[name]:,} {name}" for name in ALL_ROWS if counts[name]]
    return f"{counts.total():,} = {' + '.join(parts) or '0'}"
