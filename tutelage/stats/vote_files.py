"""Reading of votes from table files, with notes on skipped rows, and writing of tables for spreadsheets.

Each row of a study's export, `votes.csv`, is a current judgement: `item`, `rater`, and as `verdict` the better of the
two responses in the order of the files, a tie or both bad. Skipped and excluded judgements are included.
"""

import csv
import io
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from tutelage.base.config.files import write_atomically
from tutelage.base.errors import TutelageError
from tutelage.base.nouns import counted
from tutelage.data.row_values import Unusable
from tutelage.data.tables import Table, read_table
from tutelage.data.vote_rows import (
    cell_text,
    choice_names,
    fold_choice,
    item_names,
    rater_names,
    rejected_rows,
    status_columns,
    unused_columns,
)
from tutelage.stats.rater_checks import Repeats, self_consistency
from tutelage.stats.vote_codes import Ints, Votes, ordered_names

CHOICE = "verdict"
_COLUMNS = {"item", "rater", "rater_kind", "pool", CHOICE, "excluded"}
_CLASSES = {"a", "b", "tie", "both_bad"}
"""Columns of `votes.csv`, and the verdicts of two responses in it."""
TIES = ("tie", "equal", "same", "draw", "neutral")
"""Names of a class between two others, case-insensitive."""


_MOST_CHOICES = 50
_PLACES_NAMED = 3


@dataclass(frozen=True)
class VoteFileColumns:
    """Names of the columns with the item, the rater, the choice and optionally the known answer. By default the choice
    is in `choice`, or in `verdict` for the export of a study. With a column `strength` the classes are the sides with
    each strength that occurs, "a 3" … "tie" … "b 3". `order` names the classes in their order, if they have one."""

    item: str
    rater: str
    choice: str = ""
    gold: str = ""
    strength: str = ""
    order: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class VoteFile:
    """The votes of a file. `gold` [I]: the known class of each item (-1 unknown; None without such a column);
    `ordered`: whether the choices are in a known order; `rows`: the number of rows in the file, of which
    `rows - len(votes)` were skipped; `notes`: skipped or irregular rows and their location; `repeats`: by rater, the
    consistency of repeated answers."""

    votes: Votes
    gold: Ints | None
    ordered: bool
    rows: int
    notes: tuple[str, ...]
    repeats: Mapping[str, Repeats]


@dataclass(frozen=True)
class _Row:
    """One usable row as text; `gold` is empty where unknown."""

    where: str
    item: str
    rater: str
    choice: str
    gold: str


def read_votes(path: str, columns: VoteFileColumns, *, keep_rejected: bool = False) -> VoteFile:
    """Read votes from .csv, .tsv, .json, .jsonl or .parquet, one per row, with cells as stripped text.

    Items, raters and choices are the same by the rules of `data.vote_rows`. Skips unreadable rows, rows without item,
    rater or choice, work that a platform rejected (unless `keep_rejected`), and all but the last vote of a rater on an
    item; in the export of a study also skipped and excluded judgements. An item with conflicting known answers counts
    as unknown. The choices are in the order of `columns.order`, which may have classes without votes; of three with a
    tie (`TIES`) the tie is in the middle, and otherwise they are sorted. Raises TutelageError for a missing column, no
    usable row, a choice column with more than 50 different values, a gold column without any of its values, or an order
    that lacks a choice.
    """
    table = read_table(path)
    number = len(table.rows) + len(table.broken)
    left_out: dict[str, list[str]] = {}
    notes: list[str] = []
    if not columns.choice:
        table, columns = _with_choice(table, columns, left_out)
    _require(table, columns)
    for broken in table.broken:
        left_out.setdefault(f"unreadable, {broken.reason}", []).append(broken.where)
    if not set(table.columns) >= _COLUMNS:
        table = _of_other_tools(table, columns, left_out, notes, keep_rejected)
    complete = _joined(list(_complete_rows(table, columns, left_out)), notes)
    rows = _last_votes(complete, left_out)
    _refuse_unusable(rows, table, columns, left_out)
    notes = [*(f"{_places(where)} left out: {reason}" for reason, where in left_out.items()), *notes]
    answers = _known_answers(rows, notes)
    choices, ordered = _in_order(ordered_names({row.choice for row in rows} | set(answers.values())), columns, notes)
    votes = Votes.of([row.item for row in rows], [row.rater for row in rows], [row.choice for row in rows], choices)
    codes = {choice: code for code, choice in enumerate(choices)}
    gold = np.array([codes[answers[item]] if item in answers else -1 for item in votes.items], dtype=np.int64)
    answers_in_order = [(row.item, row.rater, row.choice) for row in complete]
    repeats = self_consistency(*zip(*answers_in_order, strict=True)) if len(answers_in_order) > len(rows) else {}
    return VoteFile(votes, gold if columns.gold else None, ordered, number, tuple(notes), repeats)


def write_table(path: str, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Write a CSV file (RFC 4180) atomically, with formulas neutralised.

    Spreadsheets evaluate cells that begin with =, +, -, @, a tab or a carriage return; such text is prefixed with an
    apostrophe, numbers are unchanged. Raises TutelageError if the file cannot be written.
    """
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    for row in (header, *rows):
        writer.writerow([harmless(cell) if isinstance(cell, str) else cell for cell in row])
    write_atomically(Path(path), text.getvalue())


def harmless(cell: str) -> str:
    """The text of a cell, prefixed with an apostrophe if a spreadsheet would evaluate it as a formula."""
    return f"'{cell}" if cell.startswith(("=", "+", "-", "@", "\t", "\r")) and _number(cell) is None else cell


def _with_choice(
    table: Table, columns: VoteFileColumns, left_out: dict[str, list[str]]
) -> tuple[Table, VoteFileColumns]:
    """The table and its columns with the name of the choice column, without skipped and excluded judgements of an
    export, and with strengths without those that both are bad.

    Raises TutelageError for the export of a study whose kind of question has no choices as verdicts.
    """
    if "choice" in table.columns or not set(table.columns) >= _COLUMNS:
        return table, replace(columns, choice="choice")
    rows = []
    for row in table.rows:
        if str(row.values.get("excluded") or "").strip():
            left_out.setdefault("excluded from the study", []).append(row.where)
        elif row.values.get(CHOICE) == "skip":
            left_out.setdefault("skipped", []).append(row.where)
        elif columns.strength and row.values.get(CHOICE) == "both_bad":
            left_out.setdefault("both bad, which is on neither side", []).append(row.where)
        else:
            rows.append(row)
    other = sorted({str(row.values.get(CHOICE)) for row in rows} - _CLASSES)
    if other:
        raise TutelageError(
            f"{table.source} holds judgements of the kind '{other[0]}', which are not choices between two responses. "
            "Select a column with scores by --choice, or use the pairs in preferences.jsonl next to it."
        )
    return replace(table, rows=tuple(rows), header=None), replace(columns, choice=CHOICE)


def _of_other_tools(
    table: Table, columns: VoteFileColumns, left_out: dict[str, list[str]], notes: list[str], keep_rejected: bool
) -> Table:
    """The table of another tool than ours without rejected work, unless it is kept; adds columns without use to
    `notes`."""
    used = {columns.item, columns.rater, columns.choice, columns.gold, columns.strength}
    rejected = rejected_rows(table, used)
    unused = unused_columns(table, used | status_columns(table, used))
    if unused:
        notes.append(unused)
    if keep_rejected and rejected:
        notes.append(f"{counted(len(rejected), 'row')} of rejected work counted: --keep-rejected is set")
    if keep_rejected:
        return table
    for position, reason in rejected.items():
        where = table.rows[position].where
        left_out.setdefault(f"{reason} (--keep-rejected counts such rows)", []).append(where)
    return replace(table, rows=tuple(row for n, row in enumerate(table.rows) if n not in rejected))


def _require(table: Table, columns: VoteFileColumns) -> None:
    for role in ("item", "rater", "choice", "gold", "strength"):
        name = getattr(columns, role)
        if name and name not in table.columns:
            raise TutelageError(
                f"{table.source} has no column '{name}' for the {role}; its columns are "
                f"{', '.join(table.columns)}. Name the right one with --{role}."
            )


def _complete_rows(table: Table, columns: VoteFileColumns, left_out: dict[str, list[str]]) -> Iterator[_Row]:
    """The rows with item, rater and choice; records the others in `left_out`."""
    needed = (columns.item, columns.rater, columns.choice)
    for row in table.rows:
        try:
            item, rater, choice = cells = [cell_text(row.values, name) for name in needed]
            gold = cell_text(row.values, columns.gold)
            if columns.strength and choice and choice.lower() not in TIES:
                choice = f"{choice} {_strength(cell_text(row.values, columns.strength))}".strip()
        except Unusable as error:
            left_out.setdefault(str(error), []).append(row.where)
            continue
        if all(cells):
            yield _Row(row.where, item, rater, choice, gold)
        else:
            missing = " and ".join(name for name, cell in zip(needed, cells, strict=True) if not cell)
            left_out.setdefault(f"without {missing}", []).append(row.where)


def _last_votes(rows: list[_Row], left_out: dict[str, list[str]]) -> list[_Row]:
    """The last row for each item and rater; records the earlier ones in `left_out`."""
    last = {(row.item, row.rater): row for row in rows}
    if len(last) < len(rows):
        earlier = [row.where for row in rows if last[row.item, row.rater] is not row]
        left_out["the same rater judged the item again further down"] = earlier
    return list(last.values())


def _joined(rows: list[_Row], notes: list[str]) -> list[_Row]:
    """The rows with one name for each item, rater and choice, however they are written; those that are written in
    several ways are added to `notes`."""
    items = item_names(row.item for row in rows)
    raters = rater_names(row.rater for row in rows)
    choices = choice_names(word for row in rows for word in (row.choice, row.gold))
    ways = "written in several ways: %(names)s"
    for names, kind in ((items, "item"), (raters, "rater"), (choices, "choice")):
        notes += filter(None, [names.remark(f"one {kind} is {ways}", f"%(count)s {kind}s are {ways}")])
    return [
        _Row(row.where, items.of[row.item], raters.of[row.rater], choices.of[row.choice], choices.of[row.gold])
        for row in rows
    ]


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _refuse_unusable(
    rows: list[_Row], table: Table, columns: VoteFileColumns, left_out: Mapping[str, list[str]]
) -> None:
    if not rows:
        reasons = "".join(f" {_places(where)} left out: {reason}." for reason, where in left_out.items())
        raise TutelageError(
            f"No row of {table.source} is a vote, with text or a number in each of {columns.item}, {columns.rater} and "
            f"{columns.choice}.{reasons}"
        )
    choices = {row.choice for row in rows}
    if len(choices) > _MOST_CHOICES:
        raise TutelageError(
            f"The column '{columns.choice}' of {table.source} holds {counted(len(choices), 'different value')}, for "
            f"example '{rows[0].choice[:40]}': at most {_MOST_CHOICES} can be classes. Its columns are "
            f"{', '.join(table.columns)}; name the right one with --choice."
        )
    golds = {row.gold for row in rows if row.gold}
    if columns.gold and not golds & choices:
        raise TutelageError(
            f"The column '{columns.gold}' of {table.source} has no value in common with '{columns.choice}' "
            f"({_some(golds) or 'it is empty'} against {_some(choices)}), so nothing can be compared."
        )


def _known_answers(rows: list[_Row], notes: list[str]) -> dict[str, str]:
    """Known answer by item; conflicts are added to `notes`."""
    answers: dict[str, str] = {}
    contradictions: dict[str, str] = {}
    for row in rows:
        if row.gold and answers.setdefault(row.item, row.gold) != row.gold:
            contradictions.setdefault(row.item, row.where)
    if contradictions:
        examples = _some(contradictions)
        notes.append(f"items with contradicting gold, taken as unknown: {len(contradictions)} ({examples})")
    strange = set(answers.values()) - {row.choice for row in rows}
    if strange:
        notes.append(f"gold answers that no rater chose: {_some(strange)}")
    return {item: answer for item, answer in answers.items() if item not in contradictions}


def _in_order(choices: tuple[str, ...], columns: VoteFileColumns, notes: list[str]) -> tuple[tuple[str, ...], bool]:
    """The choices in their order, and whether it is known; classes of `columns.order` without votes are added to
    `notes`."""
    if columns.order:
        return _in_given_order(choices, columns, notes), True
    tie = [choice for choice in choices if choice.lower() in TIES]
    if columns.strength:
        return _by_strength([choice for choice in choices if choice not in tie], tie, columns), True
    if len(choices) == 3 and len(tie) == 1:
        first, second = (choice for choice in choices if choice not in tie)
        return (first, tie[0], second), True
    return choices, False


def _in_given_order(choices: tuple[str, ...], columns: VoteFileColumns, notes: list[str]) -> tuple[str, ...]:
    """The classes of `columns.order`, those with votes as they are written there."""
    written = {fold_choice(choice): choice for choice in choices}
    order = tuple(written.get(fold_choice(name), name) for name in columns.order)
    missing, unused = set(choices) - set(order), set(order) - set(choices)
    if missing or len(set(order)) < len(order):
        differ = f"lacks {_some(missing)}" if missing else "names a class twice"
        raise TutelageError(
            f"--order {','.join(columns.order)} {differ}. Name every choice of the column '{columns.choice}' once; "
            f"they are {_some(choices)}."
        )
    if unused:
        notes.append(f"classes of --order that no rater chose: {_some(unused)}")
    return order


def _strength(cell: str) -> str:
    """The strength in its shortest notation, if it is a number."""
    number = _number(cell)
    return cell if number is None else f"{number:.15g}"


def _by_strength(strong: list[str], tie: list[str], columns: VoteFileColumns) -> tuple[str, ...]:
    """The choices from the strongest for one side over the tie to the strongest for the other. Both sides have every
    strength, also one that nobody chose for one of them: the tie is in the middle of the scale."""
    parts = [choice.rpartition(" ") for choice in strong]
    sides = sorted({side for side, _, _ in parts})
    unnumbered = [choice for choice, (_, _, strength) in zip(strong, parts, strict=True) if _number(strength) is None]
    if len(sides) != 2 or len(tie) > 1 or unnumbered:
        raise TutelageError(
            f"--strength {columns.strength} needs two sides with a number each, and at most one tie, in the columns "
            f"'{columns.choice}' and '{columns.strength}'; they hold {_some(unnumbered or strong + tie)}."
        )
    strengths = sorted({strength for _, _, strength in parts}, key=float)
    one, other = ([f"{side} {strength}" for strength in strengths] for side in sides)
    return (*reversed(one), *tie, *other)


def _places(where: list[str]) -> str:
    more = f" and {len(where) - _PLACES_NAMED:,} more" if len(where) > _PLACES_NAMED else ""
    rows = counted(len(where), "row")
    return f"{rows} ({', '.join(where[:_PLACES_NAMED])}{more})"


def _some(names: Iterable[str]) -> str:
    listed = ordered_names(set(names))
    return ", ".join(listed[:5]) + (", …" if len(listed) > 5 else "")
