"""Rows of tables of votes: cells as text, names that are the same, rejected work, and columns without use.

Statistics (`stats.vote_files`) and imports (`people.vote_tables`) read votes by these rules:

- A rater and a choice are the same in every Unicode form (NFKC), with and without invisible characters, blanks around
  them and capitals; a choice that is a number also in every notation of the number.
- An item, a prompt and a response are the same in every Unicode form (NFC), with and without invisible characters and
  blanks around them. Capitals differ: ids are often case-sensitive.
- As a rater, a choice or an item, 1, 1.0 and "1.0" are the same, and so are true, "true" and "True" as a choice.
"""

import math
import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal

from tutelage.base.sentences import Sentence, counted, join_sentences
from tutelage.data.readers import RowPlace, Values, a_type
from tutelage.data.row_values import Account, Cells, Unusable
from tutelage.data.tables import Table

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_WHOLE = re.compile(r"(-?(?:0|[1-9]\d*))\.0+")
_SHOWN = 5
"""Maximum number of names or columns in a sentence."""
_LONGEST_SHOWN = 40


def cell_text(values: Values, column: str) -> str:
    """Text of a cell without surrounding blanks: "" for null and NaN, true or false for a boolean, a whole number
    without decimals.

    Raises:
        Unusable: the cell holds a list, an object or bytes.
    """
    value = values.get(column)
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if not isinstance(value, str | int | float | Decimal | date):
        raise Unusable(Sentence("%(column)s holds %(type)s, not text", column=column, type=a_type(value)))
    return str(value).strip()


_UNITS = ((1e11, 1_000.0), (1e14, 1.0), (1e17, 1e-3), (1e20, 1e-6))
"""Bounds of a number of seconds, milliseconds, microseconds and nanoseconds since 1970, and milliseconds in the unit.
Each covers the years 1973 to 5138, so that the unit follows from the number."""
_EARLIEST = 1e8


def cell_time(values: Values, column: str) -> int:
    """Milliseconds since 1970 of the time in a cell: ISO 8601 (UTC unless it has a zone), or a number of seconds,
    milliseconds, microseconds or nanoseconds since 1970, at least 10^8 seconds; 0 if the cell is empty.

    Raises:
        Unusable: the cell holds no time; a small number may be a duration, or the date of a spreadsheet.
    """
    text = cell_text(values, column)
    if not text:
        return 0
    try:
        number = float(text)
    except ValueError:
        return _iso_milliseconds(text)
    for bound, unit in _UNITS:
        if _EARLIEST <= number < bound:
            return round(number * unit)
    raise _no_time(text)


def _iso_milliseconds(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text.removesuffix(" UTC").removesuffix(" GMT"))
        aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        seconds = aware.timestamp()
    except (ValueError, OverflowError) as error:
        raise _no_time(text) from error
    if seconds < _EARLIEST:
        raise _no_time(text)
    return round(seconds * 1000)


def _no_time(text: str) -> Unusable:
    return Unusable(
        Sentence("“%(given)s” is no time: give ISO 8601, or seconds or milliseconds since 1970", given=text[:50])
    )


def fold_name(name: str) -> str:
    """Normal form of the name of a person or a choice for comparisons: NFKC without invisible characters, extra blanks
    and capitals."""
    folded = unicodedata.normalize("NFKC", _visible(name)).casefold()
    return unicodedata.normalize("NFKC", " ".join(folded.split()))


def _visible(text: str) -> str:
    """NFC of a text, without format characters (zero-width, direction marks, soft hyphens) and surrounding blanks."""
    if not text.isascii():
        text = "".join(each for each in text if unicodedata.category(each) != "Cf")
    return unicodedata.normalize("NFC", text).strip()


def _whole(text: str) -> str:
    """A whole number without its decimals; other texts are unchanged."""
    match = _WHOLE.fullmatch(text)
    return match[1] if match else text


def _rater(spelling: str) -> str:
    return _whole(_visible(spelling))


def _choice(spelling: str) -> str:
    """A choice; a number in its shortest notation."""
    text = _visible(spelling)
    number = float(text) if _NUMBER.fullmatch(text) else math.inf
    return f"{number:.15g}" if math.isfinite(number) else text


def fold_choice(spelling: str) -> str:
    """Normal form of a choice for comparisons."""
    return fold_name(_choice(spelling))


@dataclass(frozen=True)
class Names:
    """Names by their spelling in a table, and `joined`: by name, the other spellings that it stands for."""

    of: Mapping[str, str]
    joined: Mapping[str, tuple[str, ...]]

    def remark(self, one: str, many: str) -> Sentence | None:
        """A sentence about the joined names, with the placeholders `count` and `names`; None if there are none."""
        if not self.joined:
            return None
        pairs = [
            f"{_shown(name)} = {', '.join(map(_shown, others[:_SHOWN]))}{', …' if len(others) > _SHOWN else ''}"
            for name, others in list(self.joined.items())[:_SHOWN]
        ]
        names = "; ".join(pairs) + ("; …" if len(self.joined) > _SHOWN else "")
        return counted(one, many, count=len(self.joined), names=names)


def rater_names(spellings: Iterable[str]) -> Names:
    return _names(spellings, _rater, lambda spelling: fold_name(_rater(spelling)))


def choice_names(spellings: Iterable[str]) -> Names:
    return _names(spellings, _choice, fold_choice)


def item_names(spellings: Iterable[str]) -> Names:
    return _names(spellings, str, lambda spelling: _whole(_visible(spelling)))


def text_names(spellings: Iterable[str]) -> Names:
    """Texts of prompts and responses."""
    return _names(spellings, str, _visible)


def _names(spellings: Iterable[str], shown: Callable[[str], str], key: Callable[[str], str]) -> Names:
    """Names of the spellings with the same key: the first of them as shown, so that rows added to a table change no
    name."""
    alike: dict[str, list[str]] = defaultdict(list)
    for spelling in dict.fromkeys(spellings):
        alike[key(spelling)].append(spelling)
    names: dict[str, str] = {}
    joined: dict[str, tuple[str, ...]] = {}
    for group in alike.values():
        name = shown(group[0])
        names |= dict.fromkeys(group, name)
        others = tuple(spelling for spelling in group if spelling != name)
        if others and (len(group) > 1 or _visible(others[0]) != others[0]):
            joined[name] = others
    return Names(names, joined)


def _shown(text: str) -> str:
    """A spelling in a message, in quotation marks, with escapes for what cannot be seen."""
    short = text if len(text) <= _LONGEST_SHOWN else text[: _LONGEST_SHOWN - 1] + "…"
    return repr(short) if unicodedata.is_normalized("NFC", short) else ascii(short)


_REJECTED = frozenset(
    ("rejected", "returned", "discarded", "cancelled", "canceled", "timed out", "draft", "abandoned", "screened out")
)
"""Statuses of work that does not count: Prolific, Mechanical Turk, Toloka, Argilla."""
_COUNTED = frozenset(
    ("", "approved", "partially approved", "awaiting review", "accepted", "submitted", "completed", "validated")
)
_STATUSES = frozenset(
    ("status", "submissionstatus", "assignmentstatus", "responsestatus", "recordstatus", "participantstatus")
)
"""Columns with words for what became of the work; another one that ends in "status" counts if all its words are known:
an `order_status` is about something else."""
_FLAGS = frozenset(("wascancelled", "cancelled", "canceled", "discarded", "rejected", "returned", "tainted"))
"""Columns that are true for work that does not count: Label Studio, Appen."""
_TRUTHS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False, "": False}


def rejected_rows(table: Table, used: Collection[str]) -> Mapping[int, Sentence]:
    """Positions of the rows whose work the platform that they come from rejected, returned, discarded or cancelled,
    with the reason: a word in a column whose name ends in "status", or the truth of one such as `was_cancelled`.
    Columns in `used` have another role."""
    reasons: dict[int, Sentence] = {}
    for column, words in _statuses(table, used):
        for number, word in enumerate(words):
            if word in _REJECTED or _TRUTHS.get(word):
                reasons.setdefault(number, Sentence("%(column)s is “%(word)s”", column=column, word=word))
    return reasons


def status_columns(table: Table, used: Collection[str]) -> set[str]:
    """Columns by which `rejected_rows` judges all rows, since it knows all their words."""
    return {column for column, words in _statuses(table, used) if set(words) <= _REJECTED | _COUNTED | _TRUTHS.keys()}


def _statuses(table: Table, used: Collection[str]) -> Iterator[tuple[str, list[str]]]:
    """Columns that may say what became of the work, with the words of all rows."""
    for column in table.columns:
        name = re.sub(r"[\W_]", "", column).casefold()
        if column in used or not (name.endswith("status") or name in _FLAGS):
            continue
        words = [_word(row.values, column) for row in table.rows]
        is_known = name in _STATUSES or name in _FLAGS or set(words) <= _REJECTED | _COUNTED
        if is_known and name.endswith("status") != (set(words) <= _TRUTHS.keys()):  # words or truth values
            yield column, words


def _word(values: Values, column: str) -> str:
    """A cell as a word for comparisons: "timed out" for "TIMED-OUT"."""
    try:
        return re.sub(r"[\s_-]+", " ", fold_name(_whole(cell_text(values, column))))
    except Unusable:
        return ""


def work_status(values: Values, column: str) -> tuple[str, bool]:
    """What became of a rater's work by a cell, as a word, and whether the work counts: never by an unknown word."""
    word = _word(values, column)
    return word, word in _COUNTED


def unused_columns(table: Table, used: Collection[str]) -> Sentence | None:
    """A sentence about the columns that hold values and are not in `used`: the number of their values and the place of
    the first; None if there are none."""
    account = Account()
    for row in table.rows:
        account.add(Cells(row.values, used), row.where)
    columns = [column for column in table.columns if column in account.cells]
    if not columns:
        return None
    parts = [_about_column(column, *account.cells[column]) for column in columns[:_SHOWN]]
    if len(columns) > _SHOWN:
        parts.append(counted("%(count)s other", "%(count)s others", count=len(columns) - _SHOWN))
    return counted(
        "One column is not used: %(columns)s",
        "%(count)s columns are not used: %(columns)s",
        count=len(columns),
        columns=join_sentences(parts),
    )


def _about_column(column: str, count: int, place: str) -> Sentence:
    return counted(
        "%(column)s (%(count)s value, %(place)s)",
        "%(column)s (%(count)s values, the first in %(place)s)",
        count=count,
        column=column[:_LONGEST_SHOWN],
        place=place.sentence() if isinstance(place, RowPlace) else place,
    )


# The meanings of choices ----------------------------------------------------------------------------------------------

CHOICES: Mapping[str, tuple[str, int]] = {
    "a": ("a", 2), "b": ("b", 2), "model_a": ("a", 2), "model_b": ("b", 2), "tie": ("tie", 0), "equal": ("tie", 0),
    "a-is-slightly-better": ("a", 1), "a-is-better": ("a", 2), "a-is-much-better": ("a", 3),
    "b-is-slightly-better": ("b", 1), "b-is-better": ("b", 2), "b-is-much-better": ("b", 3),
    "both_bad": ("both_bad", 0), "bothbad": ("both_bad", 0), "tie (bothbad)": ("both_bad", 0), "skip": ("skip", 0),
}  # fmt: skip
"""Verdict and strength by choice word, case-insensitive."""
MEANINGS = tuple(word for word in CHOICES if word not in ("model_a", "model_b", "equal", "bothbad", "tie (bothbad)"))
"""The meanings that can be assigned to the choice words of a table."""


def meaning_name(verdict: str, strength: int) -> str:
    """The first word in `MEANINGS` for a verdict and its strength."""
    return next(word for word in MEANINGS if CHOICES[word] == (verdict, strength))
