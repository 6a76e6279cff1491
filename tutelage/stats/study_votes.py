"""The votes of a study's export, `votes.csv`, as a table of choices.

Each row is a judgement in force: `item`, `rater`, and as `verdict` the better of the two responses in the order of the
files, a tie or both bad; what was skipped or excluded is in the file too.
"""

from collections.abc import Mapping

from tutelage.base.errors import TutelageError
from tutelage.data.tables import Row, Table

CHOICE = "verdict"
_COLUMNS = {"item", "rater", "rater_kind", "pool", CHOICE, "excluded"}
_CLASSES = {"a", "b", "tie", "both_bad"}


def is_study_export(table: Table) -> bool:
    """Whether the columns are those of `votes.csv`."""
    return set(table.columns) >= _COLUMNS


def reason_to_leave_out(values: Mapping[str, object]) -> str:
    """Why a judgement does not count, or nothing."""
    if str(values.get("excluded") or "").strip():
        return "excluded from the study"
    return "skipped" if values.get(CHOICE) == "skip" else ""


def require_verdicts(table: Table, rows: list[Row]) -> None:
    """Raises TutelageError for a study of another kind of question, whose verdicts say nothing."""
    other = sorted({str(row.values.get(CHOICE)) for row in rows} - _CLASSES)
    if other:
        raise TutelageError(
            f"{table.source} holds judgements of the kind '{other[0]}', which are no choices between two responses. "
            "Take the column with one of its scores by --choice, or the pairs in preferences.jsonl beside it."
        )
