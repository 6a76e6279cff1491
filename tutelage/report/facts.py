"""The facts of a stage: the few numbers at the head of its section."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from tutelage.base.nouns import counted
from tutelage.report.diagnoses import accuracy_of, closing, finite
from tutelage.report.figures.number_text import number as written
from tutelage.report.figures.number_text import percent
from tutelage.report.folders import RunContent
from tutelage.report.json_values import Object, interval, number, section, string
from tutelage.stats.text import text_metrics


@dataclass(frozen=True)
class Fact:
    """A number as text, with its name; `note` puts it into perspective, and `drawing` shows its interval."""

    name: str
    value: str
    note: str = ""
    drawing: str = ""


def between(low: float, high: float) -> str:
    """An interval of shares: 70–75%."""
    return f"{low * 100:.0f}–{high * 100:.0f}%"


def share(values: Object, key: str, name: str, note: str = "") -> list[Fact]:
    """The fact of a share with its interval (`<key>_interval`); empty when the share is not known."""
    value, ends = number(values, key), interval(values, f"{key}_interval")
    if value is None:
        return []
    spread = f"95% interval {between(*ends)}" if ends else ""
    return [Fact(name, percent(value, 1), "; ".join(filter(None, (spread, note))))]


def plain(values: Object, key: str, name: str, note: str = "") -> list[Fact]:
    """The fact of a plain number; empty when it is not known."""
    value = number(values, key)
    return [] if value is None else [Fact(name, written(value), note)]


def latest(run: RunContent, metric: str, name: str, note: str = "", *, as_share: bool = False) -> list[Fact]:
    """The fact of a metric's latest value: the mean of the last window of its curve."""
    _, values = finite(run, metric)
    if not values:
        return []
    last = closing(values)
    return [Fact(name, percent(last) if as_share else written(last), note)]


def steps(run: RunContent) -> list[Fact]:
    """The fact of how many steps a run took."""
    return [] if run.last_step is None else [Fact("steps", f"{run.last_step:,}")]


def language_facts(run: RunContent) -> list[Fact]:
    """The facts of pretraining and of supervised fine-tuning."""
    _, loss = finite(run, "held_out/loss")
    _, perplexity = finite(run, "held_out/perplexity")
    found = steps(run)
    if loss:
        found.append(
            Fact("held-out loss", written(loss[-1]), f"from {written(loss[0])}" if len(loss) > 1 else "")
        )
    if perplexity:
        found.append(Fact("perplexity", written(perplexity[-1]), "equally likely tokens to choose from"))
    found += share(run.summary, "held_out/rougeL", "ROUGE-L", "overlap with the reference answers")
    return found + latest(run, "tokens_per_second", "tokens per second")


def sample_facts(run: RunContent) -> list[Fact]:
    """The facts of the answers that raters will compare."""
    completions = [string(row, "completion") for row in run.samples]
    if not completions:
        return []
    prompts = {string(row, "prompt") for row in run.samples}
    measured = text_metrics(completions)
    return [
        Fact("answers", f"{len(completions):,}", f"to {counted(len(prompts), 'prompt')}"),
        *plain(measured, "words/mean", "words per answer"),
        *share(measured, "distinct/2", "different word pairs", "variety; small sets look more varied"),
        *share(measured, "repetition", "repeated trigrams", "said before in the same answer"),
    ]


def judge_facts(run: RunContent) -> list[Fact]:
    """The facts of the judgements as a whole."""
    judgements = run.judgements
    ties, votes = number(judgements, "ties"), number(judgements, "votes")
    of_votes = f"{percent(ties / votes)} of the votes" if ties is not None and votes else ""
    return [
        *plain(judgements, "items", "comparisons"),
        *plain(judgements, "votes", "votes"),
        *share(judgements, "agreement", "agreement", "two raters on one pair; 50% is chance"),
        *plain(judgements, "alpha", "Krippendorff's α", "0 is chance, 1 is unanimity"),
        *plain(judgements, "ties", "ties", of_votes),
    ]


def reward_facts(run: RunContent) -> list[Fact]:
    """The facts of a reward model on comparisons it has not seen."""
    length = section(run.summary, "length")
    return [
        *(share(run.summary, "accuracy", "held-out accuracy") if accuracy_of(run) else []),
        *share(length, "accuracy", "length alone", f"preferring the {string(length, 'prefers')} answer"),
        *share(run.summary, "ceiling", "ceiling", "what the noise of single votes allows"),
        *share(run.summary, "ece", "calibration error", "mean distance of predicted from observed shares"),
        *steps(run),
    ]


def improve_facts(run: RunContent) -> list[Fact]:
    """The facts of a policy in the last steps of its training."""
    return [
        *latest(run, "score/mean", "score"),
        *latest(run, "gold/mean", "gold"),
        *latest(run, "kl/reference", "KL", "nats per answer"),
        *latest(run, "length/mean", "length", "tokens per answer"),
        *latest(run, "ended", "answers that end", as_share=True),
        *steps(run),
    ]


def distill_facts(run: RunContent) -> list[Fact]:
    """The facts of a student in the last steps of its training."""
    return [
        *latest(run, "divergence", "divergence", "nats per token, from the teacher"),
        *latest(run, "kl/reference", "KL", "nats per answer, from the teacher"),
        *latest(run, "length/mean", "length", "tokens per answer"),
        *latest(run, "ended", "answers that end", as_share=True),
        *steps(run),
    ]


FACTS: Mapping[str, Callable[[RunContent], list[Fact]]] = MappingProxyType(
    {
        "pretrain": language_facts,
        "sft": language_facts,
        "sample": sample_facts,
        "judge": judge_facts,
        "reward": reward_facts,
        "improve": improve_facts,
        "distill": distill_facts,
    }
)
