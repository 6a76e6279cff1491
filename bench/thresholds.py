"""`python -m bench.thresholds BASELINE RESULTS`: whether any job became slower beside its peer, or took more memory.

Both are folders as `bench/results`, with one folder for each machine. The ratio is the peer's time over ours, which
cancels how busy the machine was; it may fall by 15 %, our memory may rise by 2 %. Only what both folders have is
compared.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

SLOWER, LARGER = 0.15, 0.02


class Comparison(NamedTuple):
    """One figure of a job: what it was, what it is, and by which share it became worse (negative: better)."""

    job: str
    figure: str
    before: float
    now: float
    worse: float
    allowed: float

    @property
    def is_too_much(self) -> bool:
        """Whether the figure is beyond its threshold."""
        return self.worse > self.allowed

    def __str__(self) -> str:
        verdict = "TOO MUCH" if self.is_too_much else "ok"
        return (
            f"{verdict:8} {self.job}: {self.figure} {self.before:.2f} -> {self.now:.2f}, "
            f"{self.worse:+.1%} worse, {self.allowed:.0%} allowed"
        )


def compare(baseline: Path, results: Path) -> Iterator[Comparison]:
    """The figures of every job that was measured on both sides in both folders, on the same machine."""
    for file in sorted(baseline.glob("*/*.json")):
        other = results / file.relative_to(baseline)
        if not other.is_file():
            continue
        before, now = json.loads(file.read_text()), json.loads(other.read_text())
        job = file.relative_to(baseline).with_suffix("").as_posix()
        if {"ours", "theirs"} <= before.keys() & now.keys():
            old, new = _ratio(before), _ratio(now)
            yield Comparison(job, "times as fast as the peer", old, new, 1 - new / old, SLOWER)
        if "ours" in before.keys() & now.keys():
            old, new = before["ours"]["peak_mb"], now["ours"]["peak_mb"]
            yield Comparison(job, "MiB at most", old, new, new / old - 1, LARGER)


def _ratio(result: dict[str, Any]) -> float:
    return median(result["theirs"]["seconds"]) / median(result["ours"]["seconds"])


def main() -> int:
    """Print every figure; the status is 1 where one is beyond its threshold, 2 where there is nothing to compare."""
    parser = argparse.ArgumentParser(prog="python -m bench.thresholds", description=__doc__)
    parser.add_argument("baseline", type=Path)
    parser.add_argument("results", type=Path)
    asked = parser.parse_args()
    compared = list(compare(asked.baseline, asked.results))
    if not compared:
        print(f"{asked.baseline} and {asked.results} have no job in common.", file=sys.stderr)
        return 2
    print(*compared, sep="\n")
    return int(any(one.is_too_much for one in compared))


if __name__ == "__main__":
    sys.exit(main())
