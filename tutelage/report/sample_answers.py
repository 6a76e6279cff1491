"""Sampled completions on a report: pairs before and after training, and completions to one prompt through training."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from tutelage.base.nouns import counted
from tutelage.base.number_text import fixed, percent, shortened
from tutelage.report.folders import RunContent
from tutelage.report.json_files import Object, number, string, truth

EACH = 3  # completions per group
CHANGES, MOMENTS = 2, 3  # prompts to follow through training, and completions to each
SAMPLED, PER_PROMPT = 3, 3


@dataclass(frozen=True)
class SampleAnswer:
    """A completion with its scores as text; `cut` if it reached the length limit."""

    text: str
    marks: tuple[str, ...] = ()
    cut: bool = False


@dataclass(frozen=True)
class AnswerPair:
    """The completions to one prompt before and after, or only after if there was no comparison; `gain` is the change as
    text, and `sign` is 1, 0 or -1."""

    prompt: str
    before: SampleAnswer | None
    after: SampleAnswer
    gain: str = ""
    sign: int = 0


@dataclass(frozen=True)
class AnswerGroup:
    """Pairs selected by the same rule."""

    title: str
    pairs: tuple[AnswerPair, ...]


@dataclass(frozen=True)
class Strand:
    """Several completions to one prompt, each with a heading."""

    prompt: str
    answers: tuple[tuple[str, SampleAnswer], ...]


def measure(rows: Sequence[Object]) -> str:
    """The measure that compares completions: gold if known, otherwise score, otherwise empty."""
    for name in ("gold", "score"):
        if any(gain(row, name) is not None for row in rows):
            return name
    return ""


def gain(row: Object, name: str) -> float | None:
    """The change of a measure from the completion before to the completion after; None if either is unknown."""
    before, after = number(row, f"{name}_before"), number(row, f"{name}_after")
    return None if before is None or after is None else after - before


def gains(rows: Sequence[Object]) -> tuple[str, dict[int, float]]:
    """The measure that compares completions, and its change in each row that has one."""
    name = measure(rows)
    return name, {i: change for i, row in enumerate(rows) if (change := gain(row, name)) is not None}


def groups(rows: Sequence[Object]) -> tuple[AnswerGroup, ...]:
    """The pairs nearest to the median change, the largest gains and the largest losses; without a measure, the first
    ones.

    No pair is in two groups, and the losses are negative changes only.
    """
    name, changes = gains(rows)
    if not changes:
        first = tuple(pair(row, "") for row in rows[: 2 * EACH])
        return (AnswerGroup("The first ones", first),) if rows else ()
    middle = median(changes.values())
    typical = sorted(changes, key=lambda i: abs(changes[i] - middle))[:EACH]
    rest = sorted((i for i in changes if i not in typical), key=lambda i: changes[i])
    worst = [i for i in rest[:EACH] if changes[i] < 0]
    best = [i for i in rest[::-1][:EACH] if changes[i] > 0]
    picked = (("Typical: nearest to the median change", typical), ("Largest gains", best), ("Largest losses", worst))
    return tuple(
        AnswerGroup(title, tuple(pair(rows[i], name) for i in members)) for title, members in picked if members
    )


def pair(row: Object, name: str) -> AnswerPair:
    """The pair in a row of `answers.jsonl`."""
    change = gain(row, name)
    return AnswerPair(
        prompt=shortened(string(row, "prompt")),
        before=answer(row, "before") if "before" in row else None,
        after=answer(row, "after"),
        gain="" if change is None else f"{'+' if change > 0 else ''}{fixed(change)} {name}",
        sign=0 if change is None else (change > 0) - (change < 0),
    )


def answer(row: Object, when: str) -> SampleAnswer:
    """The completion before or after, with its gold and score."""
    marks = ((name, number(row, f"{name}_{when}")) for name in ("gold", "score"))
    return SampleAnswer(
        text=shortened(string(row, when)),
        marks=tuple(f"{name} {fixed(value)}" for name, value in marks if value is not None),
        cut=truth(row, f"ended_{when}") is False,
    )


def balance(rows: Sequence[Object]) -> str:
    """A sentence with the numbers of better, worse and unchanged completions."""
    name, changes = gains(rows)
    if not changes:
        return ""
    better, worse = fmean(c > 0 for c in changes.values()), fmean(c < 0 for c in changes.values())
    same = 1 - better - worse
    tail = f", {percent(same)} are neither" if round(same, 3) else ""
    return (
        f"By {name}, {percent(better)} of {counted(len(changes), 'completion')} became better"
        f" and {percent(worse)} worse{tail}."
    )


def changes(run: RunContent) -> tuple[Strand, ...]:
    """The first, a middle and the last completion to each prompt that was sampled at several steps. If no prompt was
    repeated, one completion each of the first, a middle and the last step."""
    prompts: dict[str, dict[float, Object]] = {}
    steps: dict[float, Object] = {}
    for row in run.samples:
        step = number(row, "step")
        if step is not None and "completion" in row:
            prompts.setdefault(string(row, "prompt"), {}).setdefault(step, row)
            steps.setdefault(step, row)
    often = sorted((rows for rows in prompts.values() if len(rows) > 1), key=len, reverse=True)
    parts = [[(step, rows[step]) for step in moments(rows)] for rows in often[:CHANGES]]
    parts = parts or [[(step, steps[step])] for step in moments(steps)]
    return tuple(strand([(f"step {step:,.0f}", row) for step, row in part]) for part in parts)


def moments(steps: Mapping[float, Object]) -> list[float]:
    """The first, a middle and the last of the steps."""
    ordered = sorted(steps)
    last = len(ordered) - 1
    return sorted({ordered[round(k * last / (MOMENTS - 1))] for k in range(MOMENTS)} if ordered else ())


def side_by_side(run: RunContent) -> tuple[Strand, ...]:
    """The first prompts with several samples each, as raters would see them."""
    prompts: dict[str, list[Object]] = {}
    for row in run.samples:
        prompts.setdefault(string(row, "prompt"), []).append(row)
    several = [rows[:PER_PROMPT] for rows in prompts.values() if len(rows) > 1]
    return tuple(strand([(f"sample {n}", row) for n, row in enumerate(rows, 1)]) for rows in several[:SAMPLED])


def strand(headed: Sequence[tuple[str, Object]]) -> Strand:
    """The strand of rows of one prompt with their headings."""
    prompt = string(headed[0][1], "prompt")
    return Strand(shortened(prompt), tuple((heading, sampled(row)) for heading, row in headed))


def sampled(row: Object) -> SampleAnswer:
    """The completion in a row of `samples.jsonl`."""
    score = number(row, "score")
    marks = () if score is None else (f"score {fixed(score)}",)
    return SampleAnswer(shortened(string(row, "completion")), marks, cut=truth(row, "ended") is False)
