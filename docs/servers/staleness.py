"""Draws staleness.svg: learning from rollouts that were written K steps ahead, on a language small enough to be exact.

    python docs/servers/staleness.py

The language is that of tests/learn: two prompts, seven sentences, and the expected score of a policy as a sum over all
of them. Every rollout is as old as it may be, which is the worst case: a real run is between this and K = 0.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))

import torch  # noqa: E402
from learn.tabular_policy import TabularPolicy, improved  # noqa: E402
from learn.test_every_recipe_learns import SCORE, START, expected  # noqa: E402

from tutelage.algorithms.override import override  # noqa: E402
from tutelage.algorithms.registry import recipe_named  # noqa: E402
from tutelage.report.figures import Axis, Chart, Series, draw, standalone  # noqa: E402
from tutelage.train.rl.setup import Mismatch  # noqa: E402

STEPS, SEEDS, RATE = 40, 8, 2.0
AGES = (0, 1, 2, 4)


def curve(staleness: int, mismatch: Mismatch | None) -> tuple[float, ...]:
    """The expected score after each step, the mean over seeds."""
    recipe = override(recipe_named("grpo"), ("shaping.missing_end=none",))
    total = torch.zeros(STEPS + 1)
    for seed in range(SEEDS):
        seen = [expected(START, SCORE)]

        def watch(policy: TabularPolicy, seen: list[float] = seen) -> None:
            seen.append(expected(policy.table.detach(), SCORE))

        improved(
            recipe, START, SCORE, prompts=8, rate=RATE, steps=STEPS, seed=seed,
            staleness=staleness, mismatch=mismatch, watch=watch,
        )  # fmt: skip
        total += torch.tensor(seen)
    return tuple((total / SEEDS).tolist())


def first_above(values: Sequence[float], level: float) -> int | None:
    """The first step whose score is at least `level`."""
    return next((step for step, value in enumerate(values) if value >= level), None)


def main() -> None:
    torch.set_default_dtype(torch.float64)
    best = float(SCORE.amax(1).mean())
    found = {f"K = {k}": curve(k, "truncated" if k else None) for k in AGES}
    found["K = 4, no weights"] = curve(4, "recompute")
    for name, values in found.items():
        reached = first_above(values, 0.9 * best + 0.1 * values[0])
        print(f"{name:18s} last {values[-1]:.3f} of {best:.3f}, 90 % of the way at step {reached}")
    x = tuple(float(step) for step in range(STEPS + 1))
    series = tuple(Series(x, values, name, colour=i) for i, (name, values) in enumerate(found.items()))
    chart = Chart("Expected score by step", series, x=Axis("step"), y=Axis("expected score"), names="ends")
    (Path(__file__).parent / "staleness.svg").write_text(standalone(draw(chart)), encoding="utf-8")


if __name__ == "__main__":
    main()
