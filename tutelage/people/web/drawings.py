"""Charts of the owner's pages: shares, strengths and agreement with their intervals."""

import math
from functools import partial

from tutelage.people.languages import Sentence, say
from tutelage.people.web.words import share
from tutelage.report.figures import Rule, Svg, ValueBar, interval_scale, interval_strip
from tutelage.stats.intervals import Interval

REFERENCES = ((0.63, "hh-rlhf"), (0.726, "InstructGPT"), (0.81, "MT-bench"))
"""Published agreement between raters of preference data, for comparison."""


def agreement_scale(interval: Interval, language: str, *, narrow: bool = False) -> Svg:
    """Rater agreement from 0.5 to 1 with its interval, next to published values."""
    percent = partial(share, language=language)
    published = ", ".join(f"{name} {percent(value, 1)}" for value, name in REFERENCES)
    title = Sentence(
        "Agreement %(share)s; published: %(published)s", share=percent(interval.value, 1), published=published
    )
    title = Sentence("Agreement is not known yet") if interval.value is None else title
    bar = _bar(interval, say(title, language))
    rules = [Rule(value, f"{name} {percent(value, 1)}", "x") for value, name in REFERENCES]
    return interval_scale(bar, 0.5, 1.0, rules, percent, width=290 if narrow else 640, narrow=narrow)


def share_interval(interval: Interval, name: str, *, middle: float | None = 0.5) -> Svg:
    """A share from 0 to 1 with its interval, and a line at the neutral value `middle`."""
    return interval_strip(_bar(interval, name), 0.0, 1.0, rule=middle, width=112)


def strength_interval(interval: Interval, reach: float) -> Svg:
    """A strength with its interval on a scale from -`reach` to `reach`."""
    name = "Strength is not known yet" if interval.value is None else f"{interval.value:+.2f}"
    return interval_strip(_bar(interval, name), -reach, reach, rule=0.0, width=172)


def _bar(interval: Interval, name: str) -> ValueBar:
    return ValueBar(name, math.nan if interval.value is None else interval.value, low=interval.low, high=interval.high)
