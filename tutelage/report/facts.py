"""The few numbers that stand at the head of a stage."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from tutelage.evaluation.text import text_metrics
from tutelage.report.folders import Run
from tutelage.report.json_values import Object, interval, number, string
from tutelage.report.scales import number as written
from tutelage.report.watch import accuracy_of, closing, finite
from tutelage.report.words import percent


@dataclass(frozen=True)
class Fact:
    """A number with its name; `note` puts it into perspective, `drawing` is SVG."""

    name: str
    value: str
    note: str = ""
    drawing: str = ""


def between(low: float, high: float) -> str:
    """An interval of shares: 70–75%."""
    return f"{low * 100:.0f}–{high * 100:.0f}%"


def share(values: Object, key: str, name: str, note: str = "") -> list[Fact]:
    """A share with its interval, if it is known."""
    value, ends = number(values, key), interval(values, f"{key}_interval")
    if value is None:
        return []
    told = f"95% interval {between(*ends)}" if ends else ""
    return [Fact(name, percent(value, 1), "; ".join(filter(None, (told, note))))]


def plain(values: Object, key: str, name: str, note: str = "") -> list[Fact]:
    """A number as it is."""
    value = number(values, key)
    return [] if value is None else [Fact(name, written(value), note)]


def latest(run: Run, metric: str, name: str, note: str = "", *, as_share: bool = False) -> list[Fact]:
    """Where a curve closed: the mean of its last window."""
    _, values = finite(run, metric)
    if not values:
        return []
    last = closing(values)
    return [Fact(name, percent(last) if as_share else written(last), note)]


def steps(run: Run) -> list[Fact]:
    """How many steps were taken."""
    return [] if run.last_step is None else [Fact("steps", f"{run.last_step:,}")]


def language_facts(run: Run) -> list[Fact]:
    """Of pretraining and supervised fine-tuning."""
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


def sample_facts(run: Run) -> list[Fact]:
    """Of the answers that raters will compare."""
    completions = [string(row, "completion") for row in run.samples]
    if not completions:
        return []
    prompts = {string(row, "prompt") for row in run.samples}
    measured = text_metrics(completions)
    return [
        Fact("answers", f"{len(completions):,}", f"to {len(prompts):,} prompts"),
        *plain(measured, "words/mean", "words per answer"),
        *share(measured, "distinct/2", "different word pairs", "variety; small sets look more varied"),
        *share(measured, "repetition", "repeated trigrams", "said before in the same answer"),
    ]


def judge_facts(run: Run) -> list[Fact]:
    """Of the judgements as a whole."""
    told = run.judgements
    ties, votes = number(told, "ties"), number(told, "votes")
    of_votes = f"{percent(ties / votes)} of the votes" if ties is not None and votes else ""
    return [
        *plain(told, "items", "comparisons"),
        *plain(told, "votes", "votes"),
        *share(told, "agreement", "agreement", "two raters on one pair; 50% is chance"),
        *plain(told, "alpha", "Krippendorff's α", "0 is chance, 1 is unanimity"),
        *plain(told, "ties", "ties", of_votes),
    ]


def reward_facts(run: Run) -> list[Fact]:
    """Of the reward model on comparisons it has not seen."""
    return [
        *(share(run.summary, "accuracy", "held-out accuracy") if accuracy_of(run) else []),
        *share(run.summary, "ceiling", "ceiling", "what the noise of single votes allows"),
        *share(run.summary, "ece", "calibration error", "mean distance of predicted from observed shares"),
        *steps(run),
    ]


def improve_facts(run: Run) -> list[Fact]:
    """Of the policy in the last steps of its training."""
    return [
        *latest(run, "score/mean", "score"),
        *latest(run, "gold/mean", "gold"),
        *latest(run, "kl/reference", "KL", "nats per answer"),
        *latest(run, "length/mean", "length", "tokens per answer"),
        *latest(run, "ended", "answers that end", as_share=True),
        *steps(run),
    ]


FACTS: Mapping[str, Callable[[Run], list[Fact]]] = MappingProxyType(
    {
        "pretrain": language_facts,
        "sft": language_facts,
        "sample": sample_facts,
        "judge": judge_facts,
        "reward": reward_facts,
        "improve": improve_facts,
    }
)
