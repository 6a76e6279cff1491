"""The top of a round's page: the few decisive numbers and a sentence that says what they mean.

The numbers come from the round's `summary.json` (flat or nested keys; each is used if it is there):

    sft.gold_mean  sft.gold_std  policy.gold_mean      or, where gold is unknown, sft.score_mean  policy.score_mean
    policy.win_rate  policy.win_rate_ci                share of held-out prompts, and its interval as [low, high]
    policy.kl_per_sequence                             nats
    reward_model.accuracy  reward_model.accuracy_interval  reward_model.ceiling
    peak_rss_mb
"""

from tutelage.base.nouns import counted
from tutelage.report.facts import Fact, between
from tutelage.report.figures import Axis, BarChart, ValueBar, draw, interval_strip
from tutelage.report.figures.number_text import number as written
from tutelage.report.figures.number_text import percent
from tutelage.report.folders import RoundContent
from tutelage.report.json_values import interval, number
from tutelage.report.wording import duration, signed


def headline(round_: RoundContent) -> tuple[Fact, ...]:
    """The decisive numbers of a round that are known; those of a single run stand at the head of its section."""
    if round_.alone:
        return ()
    return (*win_rate(round_), *worth(round_), *distance(round_), *judge_model(round_), *effort(round_))


def win_rate(round_: RoundContent) -> list[Fact]:
    """The share of held-out prompts on which the policy's answer beats the reference's."""
    value, ends = number(round_.summary, "policy.win_rate"), interval(round_.summary, "policy.win_rate_ci")
    if value is None:
        return []
    low, high = ends or (value, value)
    colour = 2 if low > 0.5 else 1 if high < 0.5 else 0
    drawing = interval_strip(
        ValueBar("win rate", value, percent(value), low, high, colour), 0.0, 1.0, rule=0.5
    )
    note = f"against {round_.reference}" + (f"; 95% interval {between(*ends)}" if ends else "")
    return [Fact("win rate", percent(value), note, drawing)]


def worth(round_: RoundContent) -> list[Fact]:
    """The change of gold, or else of the score, from the reference to the policy."""
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
    """The KL of the policy to the reference, in nats per answer."""
    value = number(round_.summary, "policy.kl_per_sequence")
    return (
        []
        if value is None
        else [Fact("KL", f"{written(value)} nats", f"per answer, from {round_.reference}")]
    )


def judge_model(round_: RoundContent) -> list[Fact]:
    """The held-out accuracy of the reward model, and the accuracy that is possible."""
    value, ceiling = (number(round_.summary, f"reward_model.{key}") for key in ("accuracy", "ceiling"))
    if value is None:
        return []
    low, high = interval(round_.summary, "reward_model.accuracy_interval") or (None, None)
    estimate = ValueBar("accuracy", value, percent(value), low, high)
    drawing = interval_strip(estimate, 0.5, 1.0, rule=ceiling)
    note = "of held-out votes predicted" + (
        f"; {percent(ceiling)} is possible" if ceiling is not None else ""
    )
    return [Fact("reward model", percent(value), note, drawing)]


def effort(round_: RoundContent) -> list[Fact]:
    """The time of all stages, and the most memory that one of them took."""
    seconds = [stage.seconds for stage in round_.stages if stage.seconds is not None]
    memory = number(round_.summary, "peak_rss_mb")
    if not seconds:
        return []
    note = counted(len(seconds), "stage") + (f", at most {memory / 1000:.1f} GB of memory" if memory else "")
    return [Fact("time", duration(sum(seconds)), note)]


def verdict(round_: RoundContent) -> str:
    """The result of a round in a sentence; a single run has nothing to compare."""
    if round_.alone:
        return ""
    done = sum(stage.status == "done" for stage in round_.stages)
    if done < len(round_.stages):
        places = {"running": "now at", "failed": "stopped by an error in"}
        now = next((f"; {places[s.status]} {s.name}" for s in round_.stages if s.status in places), "")
        return f"{done} of {counted(len(round_.stages), 'stage')} finished{now}."
    value, ends = number(round_.summary, "policy.win_rate"), interval(round_.summary, "policy.win_rate_ci")
    if value is None or ends is None:
        return ""
    if ends[0] <= 0.5 <= ends[1]:
        how = "neither clearly better nor clearly worse"
    else:
        how = "better" if ends[0] > 0.5 else "worse"
    return (
        f"On prompts it has never seen, the {round_.policy} answers {how} than {round_.reference}: it wins"
        f" {percent(value)} of the comparisons (95% interval {between(*ends)})."
    )


def timings(round_: RoundContent) -> str:
    """The times of the stages as a drawing; empty when fewer than two stages have a time."""
    bars = tuple(
        ValueBar(stage.name, stage.seconds, duration(stage.seconds), colour=0)
        for stage in round_.stages
        if stage.seconds is not None
    )
    return draw(BarChart("Time per stage", bars, Axis(low=0.0))) if len(bars) > 1 else ""
