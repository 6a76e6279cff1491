"""Annotations of responses, in one form for every tracker and labelling tool, and the training data in them.

A tool exports *subjects*, each a response to a prompt (a trace, an observation, a run, an answer of a record), and
*statements* of people or models about them (a score, a feedback, a response of an annotator), in one file or in
several. `join` makes annotations of both. An annotation is about

    one response     a rating (a number), a category (a word) or a better response (a correction)
    two responses    a choice (a word, see `vote_rows.CHOICES`)

and has the id that the tool gave it, so that it is recognised when it is imported again.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from statistics import mean
from typing import Literal, TypeAlias

from tutelage.base.errors import TutelageError
from tutelage.base.nouns import counted
from tutelage.data.pairing import distant_pairs
from tutelage.data.records import Demonstration, Messages, Preference, UnpairedAnswer, prompt_id, stable_id
from tutelage.data.vote_rows import CHOICES, fold_choice

RaterKind: TypeAlias = Literal["human", "model", "unknown"]
"""Who gives statements; unknown is a person or a model, which an export does not say."""
Role: TypeAlias = Literal["choice", "rating", "correction"]


@dataclass(frozen=True)
class Subject:
    """A response to a prompt. `alias` is another id that it is meant by, unless a subject has that id itself."""

    id: str
    messages: Messages
    response: str
    model: str = ""
    alias: str = ""


@dataclass(frozen=True)
class Statement:
    """What a rater said about one or two subjects: a number, a word, or the text of a better response (`corrects`).

    `question` is the name of the score or question, `time` milliseconds since 1970 (0: unknown). Statements of one
    `group` with a number each compare their subjects.
    """

    id: str
    subjects: tuple[str, ...]
    question: str
    value: float | str
    rater: str = ""
    kind: RaterKind = "human"
    reason: str = ""
    time: int = 0
    group: str = ""
    corrects: bool = False


@dataclass(frozen=True)
class Parts:
    """Names of the parts that hold the prompt and the one or two responses, in inputs, outputs and fields, and of the
    questions whose text is a better response; empty ones are those with usual names."""

    prompt: str = ""
    responses: tuple[str, ...] = ()
    corrections: tuple[str, ...] = ()


@dataclass(frozen=True)
class Exported:
    """The subjects and statements of a row of an export. `left_out` has the reason for each statement that is none,
    `without` the reason why there is no subject, where one belongs. `work` is a rater's name and the status of the
    rater's work on a recruiting platform."""

    subjects: tuple[Subject, ...] = ()
    statements: tuple[Statement, ...] = ()
    left_out: tuple[str, ...] = ()
    without: str = ""
    work: tuple[str, str] | None = None


@dataclass(frozen=True)
class Annotation:
    """A statement with the responses that it is about. The value of a choice is a word, that of a rating a number or a
    word, that of a correction the better response."""

    id: str
    role: Role
    question: str
    messages: Messages
    responses: tuple[str, ...]
    response_ids: tuple[str, ...]
    models: tuple[str, ...]
    value: float | str
    rater: str = ""
    kind: RaterKind = "human"
    reason: str = ""
    time: int = 0

    @property
    def item(self) -> str:
        """Id of what is judged: the prompt and the responses, in any order."""
        return stable_id(prompt_id(self.messages), *sorted(self.responses))


Place: TypeAlias = str
Fates: TypeAlias = dict[str, list[Place]]
"""Places of statements by what became of them."""


@dataclass
class Ledger:
    """What became of every statement: `became` what was made of them, `left_out` the reasons, each with places.
    `members` statements of groups were joined to `compared` choices."""

    became: Fates = field(default_factory=lambda: defaultdict(list))
    left_out: Fates = field(default_factory=lambda: defaultdict(list))
    members: int = 0
    compared: int = 0

    @property
    def read(self) -> int:
        """Number of statements."""
        return sum(map(len, (*self.became.values(), *self.left_out.values()))) + self.members - self.compared


Placed: TypeAlias = tuple[Statement, Place]


def join(subjects: Iterable[Subject], statements: Iterable[Placed], ledger: Ledger) -> list[tuple[Annotation, Place]]:
    """The annotations in statements about subjects, with their places. Statements about other subjects are counted in
    `ledger`."""
    listed = list(subjects)
    by_id = {subject.id: subject for subject in listed}
    for subject in listed:
        if subject.alias:
            by_id.setdefault(subject.alias, subject)
    alone: list[Placed] = []
    groups: dict[tuple[str, str], list[Placed]] = defaultdict(list)
    for statement, place in statements:
        missing = [key for key in statement.subjects if key not in by_id]
        if missing:
            ledger.left_out["about a response that is in none of the files, or without a text"].append(place)
        elif statement.group:
            groups[statement.group, statement.question].append((statement, place))
        else:
            alone.append((statement, place))
    for members in groups.values():
        alone += _compared(members, by_id, ledger)
    joined = []
    for statement, place in alone:
        about = [by_id[key] for key in statement.subjects]
        if any(subject.messages != about[0].messages for subject in about):
            ledger.left_out["the two responses are to different prompts"].append(place)
        else:
            role: Role = "correction" if statement.corrects else "choice" if len(about) == 2 else "rating"
            annotation = Annotation(
                statement.id, role, statement.question, about[0].messages,
                tuple(subject.response for subject in about),
                tuple(subject.id for subject in about),
                tuple(subject.model for subject in about),
                statement.value, statement.rater, statement.kind, statement.reason, statement.time,
            )  # fmt: skip
            joined.append((annotation, place))
    return joined


def _compared(members: Sequence[Placed], by_id: Mapping[str, Subject], ledger: Ledger) -> Iterator[Placed]:
    """Every two statements of a group, as last edited, as a choice: the higher number is better, equal ones a tie."""
    latest: dict[str, Placed] = {}
    for each in sorted(members, key=lambda each: each[0].time):
        if each[0].id in latest:
            ledger.left_out["the files have a later edit of it"].append(latest[each[0].id][1])
        latest[each[0].id] = each
    members = list(latest.values())
    usable = sorted((each for each in members if isinstance(each[0].value, float)), key=lambda each: each[0].subjects)
    for _, place in (each for each in members if each not in usable):
        ledger.left_out["a member of a compared group without a score"].append(place)
    if len(usable) == 1:
        ledger.left_out["the only member of a compared group in the files"].append(usable[0][1])
        return
    ledger.members += len(usable)
    ledger.compared += len(usable) * (len(usable) - 1) // 2
    for (one, place), (other, place_of_other) in combinations(usable, 2):
        assert isinstance(one.value, float)
        assert isinstance(other.value, float)
        word = "a" if one.value > other.value else "b" if one.value < other.value else "tie"
        about = (*one.subjects, *other.subjects)
        choice = Statement(
            f"{one.group}/{one.question}/{'/'.join(about)}", about, one.question, word, one.rater or other.rater,
            one.kind, one.reason or other.reason, max(one.time, other.time),
        )  # fmt: skip
        yield choice, f"{place} and {place_of_other}"


# Training data in annotations ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reading:
    """How annotations are read: the question of each role, meanings of words for choices, categories that are good, the
    number above which a rating is good, and whether models count as raters. `rejected` has the status of the work of
    raters who do not count."""

    questions: tuple[str, ...] = ()
    choices: Mapping[str, str] = field(default_factory=dict)
    good: tuple[str, ...] = ()
    threshold: float | None = None
    models: bool = False
    rejected: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Derived:
    """What annotations say. `votes` are choices with their words in `CHOICES`, `ratings` have numbers."""

    votes: tuple[tuple[Annotation, str], ...]
    ratings: tuple[tuple[Annotation, float], ...]
    preferences: tuple[Preference, ...]
    labels: tuple[UnpairedAnswer, ...]
    demonstrations: tuple[Demonstration, ...]
    remarks: tuple[str, ...]


def derive(annotations: Sequence[tuple[Annotation, Place]], reading: Reading, ledger: Ledger) -> Derived:
    """The votes, ratings and training data in annotations. What became of each of them is counted in `ledger`.

    Preferences are the pairs with more votes for one side than for the other, where `p_chosen` is the share of its
    votes; every two responses to a prompt of different mean ratings; and every correction over what it corrects. Labels
    are those of the mean ratings of a response: above the threshold it is good.

    Raises:
        TutelageError: there are several questions of one role, of which none is selected; an unknown one is selected.
    """
    used = _selected(annotations, reading, ledger)
    votes: list[tuple[Annotation, str]] = []
    ratings: list[tuple[Annotation, float]] = []
    demonstrations: list[Demonstration] = []
    preferences: list[Preference] = []
    for each, place in used:
        if each.role == "choice":
            word = reading.choices.get(str(each.value)) or fold_choice(str(each.value))
            if word not in CHOICES:
                ledger.left_out[f"the choice '{each.value}' is not known (--choice '{each.value}=a')"].append(place)
            elif each.responses[0] == each.responses[1]:
                ledger.left_out["both responses are the same text"].append(place)
            else:
                votes.append((each, word))
                ledger.became["vote"].append(place)
        elif each.role == "correction":
            better = str(each.value)
            demonstrations.append(Demonstration(each.messages, better))
            if better.strip() != each.responses[0].strip():
                preferences.append(Preference(each.messages, better, each.responses[0]))
            ledger.became["correction"].append(place)
        else:
            rating = _rating(each, reading)
            if rating is None:
                ledger.left_out[f"the category '{each.value}' is not known: name good ones (--good)"].append(place)
            else:
                ratings.append((each, rating))
                ledger.became["rating"].append(place)
    means = _means(ratings)
    remarks: list[str] = []
    labels = _labels(means, ratings, reading, remarks)
    preferences = [*_voted(votes, remarks), *_rated(means, remarks), *preferences]
    return Derived(
        tuple(votes), tuple(ratings), tuple(preferences), tuple(labels), tuple(demonstrations), tuple(remarks)
    )


def _selected(
    annotations: Sequence[tuple[Annotation, Place]], reading: Reading, ledger: Ledger
) -> list[tuple[Annotation, Place]]:
    """The annotations of the selected questions by raters who count."""
    names: dict[Role, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    kept: list[tuple[Annotation, Place]] = []
    for each, place in annotations:
        if each.rater in reading.rejected:
            ledger.left_out[f"by a rater whose work was {reading.rejected[each.rater]}"].append(place)
            continue
        if each.kind != "human" and not reading.models:
            who = "a model" if each.kind == "model" else "a person or a model, which the export does not say"
            ledger.left_out[f"by {who}; --models counts models"].append(place)
            continue
        if each.role != "correction":
            names[each.role][each.question] += 1
        kept.append((each, place))
    every = {name for questions in names.values() for name in questions}
    unknown = [name for name in reading.questions if name not in every]
    if unknown:
        raise TutelageError(
            f"--question {unknown[0]}: there is no such score or question; there are {', '.join(sorted(every))}."
        )
    for role, questions in names.items():
        chosen = [name for name in questions if name in reading.questions] or list(questions)
        if len(chosen) > 1:
            each_name = ", ".join(f"{name} ({questions[name]:,})" for name in chosen)
            what = "choices between responses" if role == "choice" else "ratings of responses"
            raise TutelageError(
                f"There are {what} under several names, which may mean opposite things: {each_name}. Choose one with "
                "--question."
            )
        questions.clear()
        questions[chosen[0]] = 1
    selected = []
    for each, place in kept:
        if each.role == "correction" or each.question in names[each.role]:
            selected.append((each, place))
        else:
            ledger.left_out["of a question that --question does not name"].append(place)
    return selected


def _rating(each: Annotation, reading: Reading) -> float | None:
    """The number of a rating: 1 for a good category and 0 for another one, None if none is declared good."""
    if isinstance(each.value, float):
        return each.value
    return float(each.value in reading.good) if reading.good else None


_Means: TypeAlias = Mapping[Messages, Mapping[str, float]]


def _means(ratings: Sequence[tuple[Annotation, float]]) -> _Means:
    """Mean rating by prompt and response."""
    numbers: dict[Messages, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for each, rating in ratings:
        numbers[each.messages][each.responses[0]].append(rating)
    return {
        messages: {response: mean(values) for response, values in responses.items()}
        for messages, responses in numbers.items()
    }


def _labels(
    means: _Means, ratings: Sequence[tuple[Annotation, float]], reading: Reading, remarks: list[str]
) -> Iterator[UnpairedAnswer]:
    threshold = reading.threshold
    if threshold is None and any(rating not in (0.0, 1.0) for _, rating in ratings):
        remarks.append("no labels: --threshold says above which rating a response is good")
        return
    even = 0
    for messages, responses in means.items():
        for response, value in responses.items():
            if threshold is None and value == 0.5:
                even += 1
            else:
                yield UnpairedAnswer(messages, response, value > (0.5 if threshold is None else threshold))
    if even:
        remarks.append(f"{counted(even, 'response')} without a label: as many raters found it good as bad")


MOST_PAIRS = 10
"""Maximum number of preferences between rated responses to one prompt: all pairs of five responses. The pairs of n
responses are n (n - 1) / 2, so that a prompt with many would outweigh all others."""


def _rated(means: _Means, remarks: list[str]) -> Iterator[Preference]:
    """Two responses to a prompt of different mean ratings each, at most `MOST_PAIRS` of a prompt."""
    equal = beyond = 0
    for messages, responses in means.items():
        count, same = len(responses), Counter(responses.values())
        alike = sum(number * (number - 1) // 2 for number in same.values())
        different = count * (count - 1) // 2 - alike
        equal, beyond = equal + alike, beyond + max(0, different - MOST_PAIRS)
        for one, other in distant_pairs(responses, min(different, MOST_PAIRS)):
            better, worse = (one, other) if responses[one] > responses[other] else (other, one)
            yield Preference(messages, better, worse)
    if equal:
        remarks.append(f"{counted(equal, 'pair')} of equal ratings without a preference")
    if beyond:
        remarks.append(f"{counted(beyond, 'pair')} of rated responses left out: at most {MOST_PAIRS} of a prompt")


def _voted(votes: Sequence[tuple[Annotation, str]], remarks: list[str]) -> Iterator[Preference]:
    shares: dict[tuple[Messages, str, str], list[int]] = defaultdict(lambda: [0, 0])
    for each, word in votes:
        verdict = CHOICES[word][0]
        one, other = sorted(each.responses)
        count = shares[each.messages, one, other]
        if verdict in ("a", "b"):
            count[int(each.responses["ab".index(verdict)] == other)] += 1
    undecided = 0
    for (messages, one, other), (for_one, for_other) in shares.items():
        if for_one == for_other:
            undecided += 1
        else:
            better, worse = (one, other) if for_one > for_other else (other, one)
            yield Preference(messages, better, worse, max(for_one, for_other) / (for_one + for_other))
    if undecided:
        remarks.append(
            f"{counted(undecided, 'pair')} without a preference: as many votes for one side as for the other"
        )
