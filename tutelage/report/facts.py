"""Headline numbers of a page and its sections, and the result of a round in a sentence.

Those of a round come from its `summary.json` (flat or nested keys, all optional):

    sft.gold_mean  sft.gold_std  policy.gold_mean      or, if gold is unknown, sft.score_mean  policy.score_mean
    policy.win_rate  policy.win_rate_ci                share of held-out prompts, and its interval as [low, high]
    policy.kl_per_sequence                             nats
    reward_model.accuracy  reward_model.accuracy_interval  reward_model.ceiling
    peak_rss_mb
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from tutelage.base.nouns import counted
from tutelage.base.number_text import duration, percent, signed
from tutelage.base.number_text import number as written
from tutelage.report.diagnoses import accuracy_of, closing, finite
from tutelage.report.figures import Axis, BarChart, ValueBar, draw, interval_strip
from tutelage.report.folders import RoundContent, RunContent
from tutelage.report.json_files import Object, interval, number, section, string
from tutelage.stats.text import text_metrics


@dataclass(frozen=True)
class Fact:
    """A headline number as text, with its name; `note` gives context, and `drawing` shows its interval."""

    name: str
    value: str
    note: str = ""
    drawing: str = ""


def between(low: float, high: float) -> str:
    """An interval of shares: 70–75%."""
    return f"{low * 100:.0f}–{high * 100:.0f}%"


def share(values: Object, key: str, name: str, note: str = "") -> list[Fact]:
    """The fact of a share with its interval (`<key>_interval`); empty if the share is unknown."""
    value, ends = number(values, key), interval(values, f"{key}_interval")
    if value is None:
        return []
    spread = f"95% interval {between(*ends)}" if ends else ""
    return [Fact(name, percent(value, 1), "; ".join(filter(None, (spread, note))))]


def plain(values: Object, key: str, name: str, note: str = "") -> list[Fact]:
    """The fact of a plain number; empty if it is unknown."""
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
    """The number of steps of a run."""
    return [] if run.last_step is None else [Fact("steps", f"{run.last_step:,}")]


def language_facts(run: RunContent) -> list[Fact]:
    """Facts of pretraining and supervised fine-tuning."""
    _, loss = finite(run, "held_out/loss")
    _, perplexity = finite(run, "held_out/perplexity")
    facts = steps(run)
    if loss:
        first = f"from {written(loss[0])}" if len(loss) > 1 else ""
        facts.append(Fact("held-out loss", written(loss[-1]), first))
    if perplexity:
        facts.append(Fact("perplexity", written(perplexity[-1]), "equivalent number of equally likely tokens"))
    facts += share(run.summary, "held_out/rougeL", "ROUGE-L", "overlap with the reference answers")
    return facts + latest(run, "tokens_per_second", "tokens per second")


def sample_facts(run: RunContent) -> list[Fact]:
    """Facts of the sampled completions for raters."""
    completions = [string(row, "completion") for row in run.samples]
    if not completions:
        return []
    prompts = {string(row, "prompt") for row in run.samples}
    measured = text_metrics(completions)
    return [
        Fact("completions", f"{len(completions):,}", f"to {counted(len(prompts), 'prompt')}"),
        *plain(measured, "words/mean", "words per completion"),
        *share(measured, "distinct/2", "different word pairs", "variety; small sets look more varied"),
        *share(measured, "repetition", "repeated trigrams", "of the same completion"),
    ]


def judge_facts(run: RunContent) -> list[Fact]:
    """Facts of the judgements."""
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
    """Facts of a reward model on held-out comparisons."""
    length = section(run.summary, "length")
    return [
        *(share(run.summary, "accuracy", "held-out accuracy") if accuracy_of(run) else []),
        *share(length, "accuracy", "length alone", f"preferring the {string(length, 'prefers')} completion"),
        *share(run.summary, "ceiling", "ceiling", "what the noise of single votes allows"),
        *share(run.summary, "ece", "calibration error", "mean distance of predicted from observed shares"),
        *steps(run),
    ]


def improve_facts(run: RunContent) -> list[Fact]:
    """Facts of a policy in its last training steps."""
    return [
        *latest(run, "score/mean", "score"),
        *latest(run, "gold/mean", "gold"),
        *latest(run, "kl/reference", "KL", "nats per completion"),
        *latest(run, "length/mean", "length", "tokens per completion"),
        *latest(run, "ended", "answers that end", as_share=True),
        *steps(run),
    ]


def distill_facts(run: RunContent) -> list[Fact]:
    """Facts of a student in its last training steps."""
    return [
        *latest(run, "divergence", "divergence", "nats per token, from the teacher"),
        *latest(run, "kl/reference", "KL", "nats per completion, from the teacher"),
        *latest(run, "length/mean", "length", "tokens per completion"),
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


def headline(round_: RoundContent) -> tuple[Fact, ...]:
    """The known headline numbers of a round; those of a single run are in its section."""
    if round_.alone:
        return ()
    return (*win_rate(round_), *worth(round_), *distance(round_), *judge_model(round_), *effort(round_))


def win_rate(round_: RoundContent) -> list[Fact]:
    """The share of held-out prompts on which the policy's completion beats the reference's."""
    value, ends = number(round_.summary, "policy.win_rate"), interval(round_.summary, "policy.win_rate_ci")
    if value is None:
        return []
    low, high = ends or (value, value)
    bar = ValueBar("win rate", value, percent(value), low, high, 2 if low > 0.5 else 1 if high < 0.5 else 0)
    drawing = interval_strip(bar, 0.0, 1.0, rule=0.5)
    note = f"against {round_.reference}" + (f"; 95% interval {between(*ends)}" if ends else "")
    return [Fact("win rate", percent(value), note, drawing)]


def worth(round_: RoundContent) -> list[Fact]:
    """The change in gold, or otherwise in score, from the reference to the policy."""
    for name in ("gold", "score"):
        before, after = (number(round_.summary, f"{model}.{name}_mean") for model in ("sft", "policy"))
        if before is None or after is None:
            continue
        spread = number(round_.summary, f"sft.{name}_std")
        gain = after - before
        change = f"{signed(gain / spread, 2)} standard deviations" if spread else signed(gain)
        return [Fact(name, f"{written(before)} → {written(after)}", f"{change}, on held-out prompts")]
    return []


def distance(round_: RoundContent) -> list[Fact]:
    """The KL of the policy to the reference, in nats per completion."""
    value = number(round_.summary, "policy.kl_per_sequence")
    if value is None:
        return []
    return [Fact("KL", f"{written(value)} nats", f"per completion, from {round_.reference}")]


def judge_model(round_: RoundContent) -> list[Fact]:
    """The held-out accuracy of the reward model, and its ceiling."""
    value, ceiling = (number(round_.summary, f"reward_model.{key}") for key in ("accuracy", "ceiling"))
    if value is None:
        return []
    low, high = interval(round_.summary, "reward_model.accuracy_interval") or (None, None)
    estimate = ValueBar("accuracy", value, percent(value), low, high)
    drawing = interval_strip(estimate, 0.5, 1.0, rule=ceiling)
    possible = "" if ceiling is None else f"; {percent(ceiling)} is possible"
    return [Fact("reward model", percent(value), f"of held-out votes predicted{possible}", drawing)]


def effort(round_: RoundContent) -> list[Fact]:
    """The total time of all stages, and the peak memory."""
    seconds = [stage.seconds for stage in round_.stages if stage.seconds is not None]
    memory = number(round_.summary, "peak_rss_mb")
    if not seconds:
        return []
    note = counted(len(seconds), "stage") + (f", at most {memory / 1000:.1f} GB of memory" if memory else "")
    return [Fact("time", duration(sum(seconds)), note)]


def verdict(round_: RoundContent) -> str:
    """The result of a round in a sentence; empty for a single run."""
    if round_.alone:
        return ""
    finished = sum(stage.status == "done" for stage in round_.stages)
    if finished < len(round_.stages):
        places = {"running": "now at", "failed": "stopped by an error in"}
        now = next((f"; {places[s.status]} {s.name}" for s in round_.stages if s.status in places), "")
        return f"{finished} of {counted(len(round_.stages), 'stage')} finished{now}."
    value, ends = number(round_.summary, "policy.win_rate"), interval(round_.summary, "policy.win_rate_ci")
    if value is None or ends is None:
        return ""
    if ends[0] <= 0.5 <= ends[1]:
        how = "neither clearly better nor clearly worse"
    else:
        how = "better" if ends[0] > 0.5 else "worse"
    return (
        f"On held-out prompts, the {round_.policy} answers {how} than {round_.reference}: it wins"
        f" {percent(value)} of the comparisons (95% interval {between(*ends)})."
    )


def timings(round_: RoundContent) -> str:
    """A chart of the durations of the stages; empty with fewer than two."""
    bars = tuple(
        ValueBar(stage.name, stage.seconds, duration(stage.seconds), colour=0)
        for stage in round_.stages
        if stage.seconds is not None
    )
    return draw(BarChart("Time per stage", bars, Axis(low=0.0))) if len(bars) > 1 else ""
