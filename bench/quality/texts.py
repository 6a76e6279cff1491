"""Numbers as the page writes them."""

from collections.abc import Sequence

from tutelage.stats.intervals import Interval

NAMES = {"simpo": "SimPO", "trl": "TRL 1.16", "ours": "Tutelage", "reward": "reward model"}


def listed(names: Sequence[str]) -> str:
    """Names of algorithms as they are written, joined by commas and "and"."""
    upper = [NAMES.get(name, name.upper()) for name in names]
    return f"{', '.join(upper[:-1])} and {upper[-1]}" if len(upper) > 1 else upper[0]


def signed(interval: Interval, digits: int = 2) -> str:
    """A difference with its interval."""
    return _with(interval, f"+.{digits}f")


def plain(interval: Interval, digits: int = 2) -> str:
    """A value with its interval."""
    return _with(interval, f".{digits}f")


def share(interval: Interval) -> str:
    """A share with its interval."""
    return _with(interval, ".0%")


def _with(interval: Interval, form: str) -> str:
    if interval.low is None or interval.high is None:
        return f"{interval.value:{form}}"
    return f"{interval.value:{form}} ({interval.low:{form}} to {interval.high:{form}})"
