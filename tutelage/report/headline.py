"""The top of a round's page: the few decisive numbers, and what they say, in a sentence.

Read from the round's `summary.json` (flat or nested keys; each is used if it is there):

    sft.gold_mean  sft.gold_std  policy.gold_mean      or, where gold is unknown, sft.score_mean  policy.score_mean
    policy.win_rate  policy.win_rate_ci                share of held-out prompts, and its interval as [low, high]
    policy.kl_per_sequence                             nats
    reward_model.accuracy  reward_model.accuracy_interval  reward_model.ceiling
    peak_rss_mb
"""

from tutelage.report.bars import Bar, Bars, draw_bars, strip
from tutelage.report.charts import Axis
from tutelage.report.facts import Fact, between
from tutelage.report.folders import Round
from tutelage.report.json_values import interval, number
from tutelage.report.scales import number as written
from tutelage.report.words import counted, duration, percent, signed

SHARES = Axis(percent=True, low=0.0, high=1.0)


def headline(told: Round) -> tuple[Fact, ...]:
    """The decisive numbers that are known; those of a single run stand at the head of its section."""
    if told.alone:
        return ()
    return (*win_rate(told), *worth(told), *distance(told), *judge_model(told), *effort(told))


def win_rate(told: Round) -> list[Fact]:
    """How often the policy's answer beats the reference's."""
    value, ends = number(told.summary, "policy.win_rate"), interval(told.summary, "policy.win_rate_ci")
    if value is None:
        return []
    low, high = ends or (value, value)
    colour = 2 if low > 0.5 else 1 if high < 0.5 else 0
    drawing = strip(Bar("win rate", value, percent(value), low, high, colour), SHARES, rule=0.5)
    note = f"against {told.reference}" + (f"; 95% interval {between(*ends)}" if ends else "")
    return [Fact("win rate", percent(value), note, drawing)]


def worth(told: Round) -> list[Fact]:
    """How gold, or else the score, has changed."""
    for name in ("gold", "score"):
        before, after = (number(told.summary, f"{model}.{name}_mean") for model in ("sft", "policy"))
        if before is None or after is None:
            continue
        spread = number(told.summary, f"sft.{name}_std")
        gain = after - before
        change = f"{signed(gain / spread, 2)} standard deviations" if spread else signed(gain)
        return [Fact(name, f"{written(before)} → {written(after)}", f"{change}, on held-out prompts")]
    return []


def distance(told: Round) -> list[Fact]:
    """How far the policy has moved."""
    value = number(told.summary, "policy.kl_per_sequence")
    return (
        [] if value is None else [Fact("KL", f"{written(value)} nats", f"per answer, from {told.reference}")]
    )


def judge_model(told: Round) -> list[Fact]:
    """How well the reward model foresees votes, and how well it could."""
    value, ceiling = (number(told.summary, f"reward_model.{key}") for key in ("accuracy", "ceiling"))
    if value is None:
        return []
    low, high = interval(told.summary, "reward_model.accuracy_interval") or (None, None)
    estimate = Bar("accuracy", value, percent(value), low, high)
    drawing = strip(estimate, Axis(percent=True, low=0.5, high=1.0), rule=ceiling)
    note = "of held-out votes foreseen" + (f"; {percent(ceiling)} is possible" if ceiling is not None else "")
    return [Fact("reward model", percent(value), note, drawing)]


def effort(told: Round) -> list[Fact]:
    """How long it took."""
    seconds = [stage.seconds for stage in told.stages if stage.seconds is not None]
    memory = number(told.summary, "peak_rss_mb")
    if not seconds:
        return []
    note = counted(len(seconds), "stage") + (f", at most {memory / 1000:.1f} GB of memory" if memory else "")
    return [Fact("time", duration(sum(seconds)), note)]


def verdict(told: Round) -> str:
    """What the round has come to; a single run has nothing to compare."""
    if told.alone:
        return ""
    done = sum(stage.status == "done" for stage in told.stages)
    if done < len(told.stages):
        places = {"running": "now at", "failed": "stopped by an error in"}
        now = next((f"; {places[s.status]} {s.name}" for s in told.stages if s.status in places), "")
        return f"{done} of {counted(len(told.stages), 'stage')} finished{now}."
    value, ends = number(told.summary, "policy.win_rate"), interval(told.summary, "policy.win_rate_ci")
    if value is None or ends is None:
        return ""
    if ends[0] <= 0.5 <= ends[1]:
        how = "neither clearly better nor clearly worse"
    else:
        how = "better" if ends[0] > 0.5 else "worse"
    return (
        f"On prompts it has never seen, the {told.policy} answers {how} than {told.reference}: it wins"
        f" {percent(value)} of the comparisons (95% interval {between(*ends)})."
    )


def timings(told: Round) -> str:
    """A bar per stage, as SVG; nothing when fewer than two stages have a time."""
    bars = tuple(
        Bar(stage.name, stage.seconds, duration(stage.seconds), colour=0)
        for stage in told.stages
        if stage.seconds is not None
    )
    return draw_bars(Bars("Time per stage", bars, Axis(low=0.0))) if len(bars) > 1 else ""
