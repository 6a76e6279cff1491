"""The columns that rewards read, looked for in every row before anything is sampled."""

from collections.abc import Sequence
from typing import Any

from tutelage.base.errors import TutelageError
from tutelage.base.nouns import counted
from tutelage.data.formats import LoadedRecords
from tutelage.data.records import Prompt
from tutelage.rewards.named import columns_by_name


def require_columns(names: Sequence[str], prompts: LoadedRecords[Any]) -> None:
    """Check that every prompt has the columns that these rewards read.

    Raises TutelageError with the reward, the column and the first row without it.
    """
    for name, columns in columns_by_name(names).items():
        for column in columns:
            _require(name, column, prompts)


def _require(name: str, column: str, prompts: LoadedRecords[Prompt]) -> None:
    rows = zip(prompts.places, prompts.records, strict=True)
    without = [(place, prompt) for place, prompt in rows if prompt.data.get(column) is None]
    if without:
        place, prompt = without[0]
        count = f"{len(without):,} of {counted(len(prompts.records), 'row', 'lacks')} it"
        raise TutelageError(
            f"The reward {name} reads the column {column!r}, which {place} of {prompts.source} does not have "
            f"({count}); the own columns of that row are: {', '.join(prompt.data) or 'none'}."
        )
