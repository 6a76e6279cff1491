"""The figures that `tutelage reward` says at its end."""

from tutelage.base.nouns import counted
from tutelage.commands.results import RewardResult


def figures(result: RewardResult) -> list[str]:
    """The accuracy, that of the lengths alone, by strength and on single votes where it was measured so; a line
    each."""
    metrics = result.metrics
    if result.accuracy is None:
        return []
    lines = [
        _accuracy("accuracy", result.accuracy, metrics["accuracy_interval"], counted(metrics["n"], "pair"))
    ]
    if length := metrics.get("length"):
        name = f"length alone ({length['prefers']} answers)"
        lines.append(_accuracy(name, length["accuracy"], length["accuracy_interval"], "the same pairs"))
    for part in metrics.get("by_strength", ()):
        lines.append(
            _accuracy(
                f"  {part['strength']:<12}", part["accuracy"], part["interval"], counted(part["n"], "pair")
            )
        )
    votes, ceiling = metrics.get("votes"), metrics.get("ceiling")
    if votes and votes["accuracy"] is not None:
        lines.append(
            _accuracy("single votes", votes["accuracy"], votes["interval"], counted(votes["n"], "vote"))
        )
    if ceiling:
        lines.append(
            f"their noise allows {ceiling['value']:.3f}{_interval(*ceiling['interval'])}: two raters agree in "
            f"{ceiling['agreement']:.1%}"
        )
    return lines


def _accuracy(name: str, value: float, interval: tuple[float | None, float | None], base: str) -> str:
    return f"{name} {value:.3f}{_interval(*interval)} on {base}"


def _interval(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f" ({low:.3f} to {high:.3f})"
