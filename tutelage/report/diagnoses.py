"""Diagnoses of known training problems. Each function reads the curves of one run and returns a one-sentence finding,
or an empty text. The thresholds are rules of thumb: treat a finding as a hint, not proof."""

from collections.abc import Sequence
from math import isfinite, isnan, nan, sqrt
from statistics import fmean

from tutelage.base.nouns import counted
from tutelage.base.number_text import number, percent
from tutelage.report.figures.plots import smoothed
from tutelage.report.folders import RunContent, settings_of
from tutelage.report.json_files import interval
from tutelage.report.json_files import number as number_in

Column = tuple[tuple[float, ...], tuple[float, ...]]

SHORTEST = 8  # minimum number of points for a trend
SHORTEST_WHOLE = 3  # minimum number of points if all of them show the problem fully
SURE = 3.0  # minimum size of a fall, in standard errors of the running average
OVERFITTED = 0.02  # relative rise of the held-out loss above its minimum
SMALL = 0.1  # minimum size of a fall, as a share of the rise before it
COLLAPSED = 0.3  # remaining share of the initial entropy
LONGER, SHORTER = 1.75, 0.5  # final over initial length
ENDING = 0.8  # minimum share of completions that end by themselves
CLIPPED = 0.4  # share of clipped tokens
JUMP_FACTOR, JUMP_NATS = 2.0, 5.0  # growth of the KL between two steps
MOVED = 0.05  # nats per completion; √(KL / 2) bounds the share of completions that another policy draws differently
DEAD = 0.5  # share of prompts whose completions all have the same score
FAILING = 0.1  # share of a tool's calls that fail
CONSTANT = 1e-6  # relative standard deviation of the scores of a step
DIVERGED = 3.0  # final value loss over the minimum of its running average


def column(run: RunContent, metric: str) -> Column:
    """The steps at which a metric was logged, and its values, with NaN for non-finite ones."""
    rows = [row for row in run.metrics if metric in row]
    steps = tuple(number_in(row, "step") or 0.0 for row in rows)
    values = (number_in(row, metric) for row in rows)
    return steps, tuple(nan if value is None else value for value in values)


def window(values: Sequence[float]) -> int:
    """Width of a curve's running average: a tenth of its points, odd, at least 3."""
    return max(3, len(values) // 10 | 1)


def smooth(values: Sequence[float]) -> tuple[float, ...]:
    """The running average of a curve, as plotted."""
    return smoothed(values, window(values))


def opening(values: Sequence[float]) -> float:
    """The mean of a curve's first window."""
    return fmean(values[: window(values)])


def closing(values: Sequence[float]) -> float:
    """The mean of a curve's last window."""
    return fmean(values[-window(values) :])


def finite(run: RunContent, metric: str) -> Column:
    """The finite values of a metric with their steps."""
    points = [(step, value) for step, value in zip(*column(run, metric), strict=True) if isfinite(value)]
    return tuple(step for step, _ in points), tuple(value for _, value in points)


def lately(run: RunContent, metric: str) -> float | None:
    """The mean of a metric's last window; None with too few points."""
    _, values = finite(run, metric)
    return closing(values) if len(values) >= SHORTEST else None


def broken(run: RunContent, metric: str) -> str:
    """Non-finite values of a metric, after which no result can be trusted."""
    steps, values = column(run, metric)
    bad = [step for step, value in zip(steps, values, strict=True) if isnan(value)]
    return f"{metric} was not a finite number at step {bad[0]:.0f}." if bad else ""


def fall(values: Sequence[float]) -> tuple[int, float]:
    """The index of the maximum of a curve's running average, and the drop from there to its end; 0 within the noise."""
    average, half = smooth(values), window(values) // 2
    top = max(range(half, len(values) - half), key=lambda i: average[i])
    spread = sqrt(fmean((v - a) ** 2 for v, a in zip(values, average, strict=True)))
    drop = average[top] - closing(values)
    noise = SURE * spread * sqrt(2 / window(values))
    return top, drop if drop > max(noise, SMALL * (average[top] - opening(values))) else 0.0


def hacking(run: RunContent) -> str:
    """Reward hacking: gold has fallen from its peak while the score kept rising."""
    steps, gold = finite(run, "gold/mean")
    score_steps, score = finite(run, "score/mean")
    if len(gold) < SHORTEST or len(score) < SHORTEST:
        return ""
    top, drop = fall(gold)
    at_top = min(range(len(score)), key=lambda i: abs(score_steps[i] - steps[top]))
    rise = closing(score) - smooth(score)[at_top]
    if drop == 0 or rise <= 0:
        return ""
    return (
        f"Gold was highest near step {steps[top]:.0f} and has fallen by {number(drop)} since, while the score rose"
        f" by {number(rise)}: the policy exploits errors of the reward model."
    )


def overfitting(run: RunContent) -> str:
    """Over-fitting: the held-out loss ends above its minimum."""
    steps, loss = finite(run, "held_out/loss")
    if len(loss) < 3:
        return ""
    best = min(range(len(loss)), key=lambda i: loss[i])
    rise = loss[-1] - loss[best]
    if rise <= OVERFITTED * abs(loss[best]):
        return ""
    return (
        f"Held-out loss was lowest at step {steps[best]:.0f} ({number(loss[best])}) and is {number(rise)} above that"
        " at the end: from there on examples were memorised."
    )


def collapse(run: RunContent) -> str:
    """Collapse: only a small share of the entropy is left."""
    _, entropy = finite(run, "entropy")
    if len(entropy) < SHORTEST or closing(entropy) >= COLLAPSED * opening(entropy):
        return ""
    first, last = opening(entropy), closing(entropy)
    return f"Entropy fell from {number(first)} to {number(last)} nats: the policy's completions hardly vary any more."


def drifting_length(run: RunContent) -> str:
    """Length drift: completions have become much longer or much shorter."""
    _, length = finite(run, "length/mean")
    if len(length) < SHORTEST:
        return ""
    first, last = opening(length), closing(length)
    if SHORTER * first <= last <= LONGER * first:
        return ""
    word = "longer" if last > first else "shorter"
    return (
        f"Completions became much {word} ({number(first)} to {number(last)} tokens):"
        " check that the reward measures content, not length."
    )


def unfinished(run: RunContent) -> str:
    """Truncation: many completions reach the length limit."""
    ended = lately(run, "ended")
    if ended is None or ended >= ENDING:
        return ""
    return f"In the last steps only {percent(ended)} of the completions ended by themselves."


def leaping(run: RunContent) -> str:
    """A jump of the KL to the reference."""
    steps, kl = finite(run, "kl/reference")
    for step, before, after in zip(steps[1:], kl, kl[1:], strict=False):
        if after - before > JUMP_NATS and after > JUMP_FACTOR * before:
            return f"The KL jumped from {number(before)} to {number(after)} nats at step {step:.0f}."
    return ""


def distance(run: RunContent) -> str:
    """The distance from the reference: a jump, or a policy that hardly moves."""
    return leaping(run) or still(run)


def still(run: RunContent) -> str:
    """A policy that hardly moves: see `hardly_moved`. Steps without an update of the policy do not count."""
    moves = [row for row in run.metrics if "policy/objective" in row]
    settings = settings_of(run)
    rate, planned = number_in(settings, "optimiser.lr"), number_in(settings, "steps")
    _, kl = finite(run, "kl/reference_k3")
    by_rate = not any("step/share" in row for row in moves)
    if len(moves) < SHORTEST or not (rate and planned and kl and by_rate) or constant_score(run) or dead_groups(run):
        return ""
    return hardly_moved(closing(kl), len(moves), planned - (len(run.metrics) - len(moves)), rate)


def hardly_moved(kl: float, steps: int, total: float, rate: float) -> str:
    """A policy that is, after `steps` of `total` steps, `kl` nats per completion from the reference, and at this pace
    will be nearer than `MOVED` at the end: at a constant gradient the KL grows with the square of the steps."""
    if kl * (total / steps) ** 2 >= MOVED:
        return ""
    return (
        f"After {counted(steps, 'step')} the policy is {max(kl, 0.0):.2g} nats per completion from the reference: it"
        f" hardly moves at this rate. Raise --optimiser.lr, for example to {10 * rate:g} (it is {rate:g})."
    )


def clipping(run: RunContent) -> str:
    """Clipping of a large share of the tokens."""
    clipped = lately(run, "clip_fraction")
    if clipped is None or clipped <= CLIPPED:
        return ""
    return f"In the last steps {percent(clipped)} of the tokens were clipped: the updates are too large for their data."


def blind_critic(run: RunContent) -> str:
    """A critic that predicts worse than a constant."""
    explained = lately(run, "value/explained_variance")
    if explained is None or explained >= 0:
        return ""
    return f"Explained variance is {number(explained)} in the last steps: the critic is worse than no critic."


def diverging_values(run: RunContent) -> str:
    """Divergence of the critic: its loss has risen far above its minimum, beyond the noise."""
    steps, loss = finite(run, "value/loss")
    if len(loss) < SHORTEST:
        return ""
    top, rise = fall([-value for value in loss])
    lowest = smooth(loss)[top]
    if rise == 0 or closing(loss) <= DIVERGED * lowest:
        return ""
    return (
        f"The value loss rose from {number(lowest)} near step {steps[top]:.0f} to {number(closing(loss))}: the critic"
        " diverges. A lower learning rate, value clipping or a bounded score holds it."
    )


def dead_groups(run: RunContent) -> str:
    """Prompts without a learning signal, because all their completions have the same score."""
    _, dead = finite(run, "groups/dead")
    always = min(dead, default=0.0) == 1.0
    if len(dead) < (SHORTEST_WHOLE if always else SHORTEST) or closing(dead) <= DEAD:
        return ""
    return (
        f"In the last steps all completions of {percent(closing(dead))} of the prompts had the same score, so these"
        " prompts gave no learning signal: the reward is too coarse, or they are too easy or too hard."
    )


def failing_tool(run: RunContent) -> str:
    """The tool that fails most, if many of its calls in the last steps do."""
    rows = [row for row in run.metrics if "tools/calls" in row]
    rows = rows[-window([0.0] * len(rows)) :]

    def total(name: str, kind: str) -> float:
        return sum(number_in(row, f"tools/{name}/{kind}") or 0.0 for row in rows)

    names = {name.split("/")[1] for row in rows for name in row if name.startswith("tools/") and name.count("/") == 2}
    worst = max(sorted(names), key=lambda name: total(name, "failed"), default="")
    failed, calls = total(worst, "failed"), total(worst, "calls")
    if calls < SHORTEST or failed <= FAILING * calls:
        return ""
    return (
        f"In the last steps {percent(failed / calls)} of the {counted(int(calls), 'call')} of the tool {worst} failed,"
        " more than of any other tool: the log has the first of its errors."
    )


def constant_score(run: RunContent) -> str:
    """A constant reward: every completion gets the same score."""
    _, spread = finite(run, "score/std")
    _, mean = finite(run, "score/mean")
    if not spread or not mean:
        return ""
    most = CONSTANT * max(1.0, abs(closing(mean)))
    always = max(spread) <= most
    if len(spread) < (SHORTEST_WHOLE if always else SHORTEST) or closing(spread) > most:
        return ""
    return f"Every completion of the last steps scored {number(closing(mean))}: a constant reward teaches nothing."


def accuracy_of(run: RunContent) -> tuple[float, float, float] | None:
    """A reward model's held-out accuracy with its interval. Summaries without an interval hold the training accuracy,
    which is ignored."""
    value, ends = number_in(run.summary, "accuracy"), interval(run.summary, "accuracy_interval")
    return (value, *ends) if value is not None and ends else None


def doubtful_accuracy(run: RunContent) -> str:
    """A reward model that predicts single votes no better than chance, or better than their noise permits."""
    accuracy, ceiling = accuracy_of(run), number_in(run.summary, "ceiling")
    if accuracy is None:
        return ""
    value, low, _ = accuracy
    if low <= 0.5:
        return f"Held-out accuracy ({percent(value, 1)}) is not significantly above chance: its interval reaches 50%."
    if ceiling is None or low <= ceiling:
        return ""
    return (
        f"Held-out accuracy ({percent(value, 1)}) lies above the ceiling ({percent(ceiling, 1)}):"
        " held-out comparisons have probably leaked into training."
    )
