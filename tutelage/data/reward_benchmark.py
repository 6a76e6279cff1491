"""Rows of a benchmark of rewards in the format of RewardBench 2: correct and incorrect completions of a prompt.

    id, subset, prompt, chosen: [text, ...], rejected: [text, ...]          optional: num_correct, total_completions

In the subset Ties, `id` is ref:N or tied:N: a prompt with one correct completion, and its variant with several equally
correct ones (Malik et al. 2025, arXiv 2506.01937).
"""

import re
from dataclasses import dataclass
from pathlib import Path

from tutelage.base.errors import TutelageError
from tutelage.base.nouns import counted
from tutelage.data.formats import LoadedRecords, load
from tutelage.data.readers import Values, a_type
from tutelage.data.records import Messages, user
from tutelage.data.row_values import Unusable, number, text
from tutelage.data.table_format import RowFormat

TIES = "ties"
"""Subset of prompts with several correct completions, in lower case."""
_TIED = re.compile(r"(ref|tied):(\d+)")


@dataclass(frozen=True)
class BenchmarkRow:
    """Prompt with its completions, of which the first `correct` are correct."""

    id: str
    subset: str
    prompt: Messages
    completions: tuple[str, ...]
    correct: int

    @property
    def has_ties(self) -> bool:
        """Whether the row is one of the subset Ties."""
        return self.subset.lower() == TIES

    @property
    def tie(self) -> tuple[str, int]:
        """ref or tied, and the number of the prompt, of a row of the subset Ties."""
        match = _TIED.fullmatch(self.id)
        assert match is not None
        return match[1], int(match[2])


def load_benchmark(source: str | Path) -> LoadedRecords[BenchmarkRow]:
    """Load the rows of a file. Raises TutelageError for a row that is not as described above, or an id that repeats."""
    seen: set[tuple[str, str]] = set()

    def accept(row: BenchmarkRow) -> None:
        if (row.subset, row.id) in seen:
            raise Unusable(f"the id {row.id!r} repeats")
        seen.add((row.subset, row.id))

    loaded = load(source, "a benchmark of rewards", (_FORMAT,), accept=accept)
    if loaded.skipped:
        reasons = "; ".join(map(str, loaded.skipped))
        raise TutelageError(f"{loaded.source} is no whole benchmark: {reasons}. Correct these rows, or remove them.")
    return loaded


def _parse(values: Values) -> BenchmarkRow:
    right, wrong = _texts(values, "chosen"), _texts(values, "rejected")
    if not right or not wrong:
        raise Unusable("chosen and rejected need one completion each at least")
    for column, count in (("num_correct", len(right)), ("total_completions", len(right) + len(wrong))):
        if values.get(column) is not None and number(values, column, 0.0) != count:
            raise Unusable(f"{column} is {values[column]}, but there are {count}")
    row = BenchmarkRow(
        str(values["id"]), text(values, "subset"), user(text(values, "prompt")), (*right, *wrong), len(right)
    )
    match = _TIED.fullmatch(row.id)
    if row.has_ties and match is None:
        raise Unusable(f"the id {row.id!r} of the subset {row.subset} is neither ref:N nor tied:N")
    if row.has_ties and match is not None and (match[1] == "tied") != (len(right) > 1):
        raise Unusable(f"the row {row.id} has {counted(len(right), 'correct completion')}")
    return row


def _texts(values: Values, column: str) -> tuple[str, ...]:
    items = values[column]
    if not isinstance(items, list | tuple) or not all(isinstance(item, str) for item in items):
        raise Unusable(f"{column} is {a_type(items)} instead of a list of texts")
    return tuple(items)


_FORMAT = RowFormat(
    "RewardBench 2",
    ("id", "subset", "prompt", "chosen", "rejected"),
    _parse,
    also=("num_correct", "total_completions"),
    metadata=frozenset({"models", "additional_metadata"}),
)
