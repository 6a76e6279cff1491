"""Panels of each kind of stage: the curves of a chart, and how to read it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from tutelage.report import diagnoses
from tutelage.report.figures import LINEAR, Axis, Rule
from tutelage.report.folders import RunContent
from tutelage.report.metrics import metric_of


@dataclass(frozen=True)
class Curve:
    """One metric over the steps. A *noisy* one is drawn faint with its running average on top; `spread` is the metric
    with its standard deviation."""

    metric: str
    label: str
    colour: int = 0
    noisy: bool = True
    style: Literal["plain", "dashed"] = "plain"
    spread: str = ""


@dataclass(frozen=True)
class Panel:
    """A chart of metrics, with a sentence each on healthy and alarming behaviour. `diagnose` returns a finding about a
    run, or an empty text."""

    title: str
    unit: str
    curves: tuple[Curve, ...]
    healthy: str
    alarming: str
    y: Axis = LINEAR
    rules: tuple[Rule, ...] = ()
    diagnose: Callable[[RunContent], str] = lambda run: ""


def held_out(metric: str) -> Curve:
    """The curve of a metric on held-out examples, which has few points and is not smoothed."""
    return Curve(f"held_out/{metric}", "held out", colour=1, noisy=False)


PERPLEXITY = Panel(
    "Perplexity, held out",
    "equivalent number of equally likely tokens",
    (Curve("held_out/perplexity", "held out", colour=1, noisy=False),),
    healthy="It falls quickly, then more and more slowly.",
    alarming="It stays near the vocabulary size (nothing is learned), or turns upwards (over-fitting).",
    y=Axis(log=True),
)

LANGUAGE = (
    Panel(
        "Loss",
        "nats per token",
        (Curve("loss", "training"), held_out("loss")),
        healthy="Both lines fall steeply, then level off close to each other.",
        alarming="The held-out line turns up while training keeps falling: examples are memorised (over-fitting).",
        diagnose=diagnoses.overfitting,
    ),
    PERPLEXITY,
)

REWARD = (
    Panel(
        "Loss",
        "nats per comparison",
        (Curve("loss", "training"), held_out("loss")),
        healthy="It falls below 0.69, the loss of pure guessing, and flattens.",
        alarming="The held-out line turns up while training keeps falling: over-fitting, early with few judgements.",
        rules=(Rule(0.6931, "guessing"),),
        diagnose=diagnoses.overfitting,
    ),
    Panel(
        "Accuracy",
        "share of comparisons ordered as by the raters",
        (Curve("accuracy", "training"), held_out("accuracy")),
        healthy="The held-out line rises from 0.5 towards the ceiling set by the raters' disagreement.",
        alarming="Training far above held out (over-fitting); held out above the ceiling (a leak).",
        y=Axis(percent=True),
        rules=(Rule(0.5, "guessing"),),
        diagnose=diagnoses.doubtful_accuracy,
    ),
    Panel(
        "Margin",
        "score of the preferred completion minus the other's",
        (Curve("margin", "margin"),),
        healthy="It grows and settles: the model becomes as sure as the judgements allow.",
        alarming="It keeps growing while held-out accuracy does not: the model becomes overconfident.",
    ),
)

IMPROVE = (
    Panel(
        "Score",
        "by the reward model, which the policy is trained on",
        (Curve("score/mean", "score", spread="score/std"), Curve("score/shaped", "as paid", 4, style="dashed")),
        healthy="A quick rise that flattens; the band is the spread over completions.",
        alarming="A sudden jump: the policy exploits the reward. “As paid” far below: truncation is penalised.",
        diagnose=diagnoses.constant_score,
    ),
    Panel(
        "Gold",
        "true quality of the completions, hidden from training",
        (Curve("gold/mean", "gold", colour=2),),
        healthy="It rises together with the score.",
        alarming="It falls while the score keeps rising: reward hacking.",
        diagnose=diagnoses.hacking,
    ),
    Panel(
        "Distance from the reference (KL)",
        "nats per completion",
        (Curve("kl/reference", "KL", colour=3),),
        healthy="It begins at 0, grows, and levels off where penalty and score are in balance.",
        alarming="A jump, or unlimited growth: the policy drifts away from fluent language. At 0 it does not move.",
        diagnose=diagnoses.distance,
    ),
    Panel(
        "Entropy",
        "nats per token",
        (Curve("entropy", "entropy", colour=3),),
        healthy="A gentle fall: the policy becomes more certain.",
        alarming="A fall towards 0: the same completion for every prompt (collapse).",
        y=Axis(low=0.0),
        diagnose=diagnoses.collapse,
    ),
    Panel(
        "Length",
        "tokens per completion",
        (Curve("length/mean", "length"),),
        healthy="It changes somewhat and settles.",
        alarming="It keeps growing: the reward model may simply prefer long completions.",
        diagnose=diagnoses.drifting_length,
    ),
    Panel(
        "Completions that end by themselves",
        "share of completions",
        (Curve("ended", "ended", colour=2),),
        healthy="It stays near 100%.",
        alarming="It falls: completions run into the length limit and are cut off.",
        y=Axis(percent=True, high=1.0),
        diagnose=diagnoses.unfinished,
    ),
    Panel(
        "Clip fraction",
        "share of tokens clipped by the objective",
        (Curve("clip_fraction", "clipped"),),
        healthy="A few per cent, up to about 25%: the steps have a sensible size.",
        alarming="Above 40% the updates are too large; if always exactly 0, clipping has no effect.",
        y=Axis(percent=True, low=0.0),
        diagnose=diagnoses.clipping,
    ),
    Panel(
        "Explained variance of the critic",
        "1 = predicts every return, 0 = no better than their mean",
        (Curve("value/explained_variance", "explained"),),
        healthy="It climbs from about 0 towards 1.",
        alarming="Below 0 for long: the critic makes learning noisier than no critic.",
        rules=(Rule(0.0),),
        diagnose=diagnoses.blind_critic,
    ),
    Panel(
        "Value loss",
        "squared error of the critic",
        (Curve("value/loss", "value loss", colour=4),),
        healthy="It falls, or follows the spread of the scores.",
        alarming="It keeps rising: the critic diverges, and the policy with it.",
        y=Axis(low=0.0),
        diagnose=diagnoses.diverging_values,
    ),
    Panel(
        "Dead groups",
        "share of prompts whose completions all scored the same",
        (Curve("groups/dead", "dead", colour=1),),
        healthy="It stays small: most prompts give a learning signal.",
        alarming="It approaches 100%: nothing is left to learn from these prompts, or the reward is too coarse.",
        y=Axis(percent=True, low=0.0, high=1.0),
        diagnose=diagnoses.dead_groups,
    ),
    Panel(
        "Calls of tools that fail",
        "calls in a step",
        (
            Curve("tools/failures", "errors", colour=1),
            Curve("tools/timeouts", "time-outs", colour=2),
            Curve("tools/faults", "faults", colour=3),
        ),
        healthy="It falls: the policy learns what its tools can do.",
        alarming="It stays, or it consists of time-outs and faults: a tool is broken or too slow.",
        y=Axis(low=0.0),
        diagnose=diagnoses.failing_tool,
    ),
)

DISTILL = (
    Panel(
        "Divergence from the teacher",
        "nats per token, over full distributions",
        (Curve("divergence", "divergence"),),
        healthy="It falls and levels off at the limit of the student's capacity.",
        alarming="It stays constant (raise the learning rate) or rises (lower it).",
        y=Axis(low=0.0),
    ),
    Panel(
        "KL to the teacher",
        "nats per completion, by the tokens of the completions",
        (Curve("kl/reference", "KL", colour=3),),
        healthy="It falls, noisily, while the completion length stays constant.",
        alarming="It rises while completions do not become longer: steps are too large.",
    ),
    Panel(
        "Entropy",
        "nats per token",
        (Curve("entropy", "entropy", colour=3),),
        healthy="It moves towards the teacher's.",
        alarming="A fall towards 0: the same completion for every prompt (collapse).",
        y=Axis(low=0.0),
        diagnose=diagnoses.collapse,
    ),
    *(panel for panel in IMPROVE if panel.title in ("Length", "Completions that end by themselves")),
)

NOT_CURVES = ("step", "seconds", "tokens_at_once")


def further(run: RunContent, panels: Sequence[Panel]) -> tuple[Panel, ...]:
    """A plain panel for every metric of a run that is in none of the panels."""
    panelled = {name for panel in panels for curve in panel.curves for name in (curve.metric, curve.spread)}
    names = dict.fromkeys(name for row in run.metrics for name in row if name not in NOT_CURVES)
    known = {name: metric_of(name) for name in names if name not in panelled}
    return tuple(
        Panel(
            name,
            "",
            (Curve(name, name, colour=5),),
            healthy=f"{metric.meaning} {metric.healthy}".strip() if metric else "",
            alarming="",
        )
        for name, metric in known.items()
    )
