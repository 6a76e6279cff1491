"""The API of a study from Python.

    with StudyClient("https://rate.example.org", token) as study:
        study.overview().items_done
        study.add([{"prompt": "Why is the sky blue?", "chosen": "…", "rejected": "…"}])
        study.export("preferences.jsonl")

The token is made by an owner on the page Programs, or by `tutelage collect token`.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from tutelage.base import nouns
from tutelage.base.errors import TutelageError
from tutelage.data.record_files import write_jsonl
from tutelage.data.transport import BUSY, Transport, check_key
from tutelage.people.answers import new_key
from tutelage.people.programs.api_values import (
    MOST_ROWS,
    Added,
    AgreementFigures,
    ItemPage,
    ItemQuery,
    ItemValue,
    Overview,
    PreferenceLine,
    RaterCounts,
    RaterKind,
    RaterPage,
    VoteLine,
    VoteQuery,
)
from tutelage.people.selection import Selection

T = TypeVar("T")
ROOT = "/api/v1"
TOKEN_VARIABLE = "TUTELAGE_TOKEN"
PAGE = 500


class StudyClient:
    """A study behind the API of `tutelage collect serve`.

    Requests are sent again where the server cannot be reached, is busy or fails; additions carry a key under which the
    server makes them once, however often they arrive. Every method raises `tutelage.data.transport.Refusal` where the
    server refuses (its `status` is that of HTTP), `Unanswered` where it does not answer, and `TutelageError` where the
    answer is none of this API; all of them are a `TutelageError`.
    """

    def __init__(
        self, url: str, token: str = "", *, timeout: float = 60.0, retries: int = 4, wait: float = 0.5
    ) -> None:
        """`url` is the address of the site, without a path. Without a token that of the environment variable
        TUTELAGE_TOKEN is used. `wait` are the seconds before the first repetition, twice as long before each further
        one.

        Raises:
            TutelageError: the address is none, or there is no token.
        """
        try:
            parts = urlsplit(url)
        except ValueError:
            parts = urlsplit("")
        if parts.scheme not in ("http", "https") or not parts.netloc or parts.path.strip("/"):
            raise TutelageError(f"'{url}' is no address of a site; write it as https://rate.example.org.")
        token = (token or os.environ.get(TOKEN_VARIABLE, "")).strip()
        if not token:
            raise TutelageError(
                f"The study at {url} needs a token: set {TOKEN_VARIABLE}. An owner makes one on the page Programs, or "
                "`tutelage collect token` does."
            )
        self.url = f"{parts.scheme}://{parts.netloc}"
        check_key(token, self.url)
        self._transport = Transport(self.url, token, timeout, retries, wait, busy=BUSY - {409})

    def overview(self) -> Overview:
        """How far the study is."""
        return self._value("/overview", Overview)

    def agreement(self) -> AgreementFigures:
        """How often two raters choose the same side."""
        return self._value("/agreement", AgreementFigures)

    def items(
        self,
        *,
        state: Literal["", "open", "done", "disagreed", "excluded"] = "",
        pool: Literal["", "production", "gold", "training"] = "",
        round: int | None = None,
    ) -> Iterator[ItemValue]:
        """The items of the study, in the order they were added, page by page."""
        asked = ItemQuery(PAGE, "", state, pool, round)
        while True:
            page = self._value("/items", ItemPage, asdict(asked))
            yield from page.items
            if page.cursor is None:
                return
            asked = ItemQuery(PAGE, page.cursor, state, pool, round)

    def raters(self) -> Iterator[RaterCounts]:
        """The raters of the study in numbers, page by page."""
        cursor: str | None = ""
        while cursor is not None:
            page = self._value("/raters", RaterPage, {"limit": PAGE, "cursor": cursor})
            yield from page.raters
            cursor = page.cursor

    def add(self, rows: Sequence[Mapping[str, Any]], *, round: int = 1, key: str = "") -> Added:
        """Add rows as items, all or none: preferences in any format that `collect init --from-pairs` reads, or lines of
        the items.jsonl of an export. The same `key` adds once, from one call to the next too; without one each call has
        its own.

        Raises:
            TutelageError: a row cannot be used; nothing was added.
        """
        if not rows or len(rows) > MOST_ROWS:
            raise TutelageError(
                f"Add 1 to {nouns.counted(MOST_ROWS, 'row')} at a time; these are {len(rows):,}."
            )
        headers = {"idempotency-key": key or new_key()}
        body = {"rows": [dict(row) for row in rows], "round": round}
        try:
            answer = self._transport.post(f"{self.url}{ROOT}/items", body, headers)
        except (TypeError, ValueError) as error:
            raise TutelageError(f"The rows are no JSON: {error}.") from error
        return self._converted(answer, Added)

    def preferences(self, **selection: Any) -> tuple[PreferenceLine, ...]:
        """The preferences that follow from the votes. `selection` has the fields of `Selection`: kinds, versions, ties,
        min_votes, use_strength, weights, margins."""
        return tuple(self._converted(row, PreferenceLine) for row in self._preferences(selection))

    def votes(self, *, kinds: Sequence[RaterKind] = VoteQuery().kinds) -> tuple[VoteLine, ...]:
        """Every revision of every judgement by raters of the kinds; simulated raters where they are named."""
        return tuple(self._converted(row, VoteLine) for row in self._lines("/votes", {"kinds": kinds}))

    def export(
        self, out: str | Path, what: Literal["preferences", "votes"] = "preferences", **selection: Any
    ) -> int:
        """Write preferences or votes into a file as JSON lines, as `collect export` writes them; returns the number of
        lines. `tutelage reward --data FILE` reads the preferences.

        Raises:
            TutelageError: the file cannot be written; what was there stays.
        """
        rows = self._preferences(selection) if what == "preferences" else self._lines("/votes", selection)
        return write_jsonl(Path(out), rows)

    def close(self) -> None:
        """Close the connections."""
        self._transport.close()

    def __enter__(self) -> "StudyClient":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _preferences(self, selection: Mapping[str, Any]) -> list[dict[str, Any]]:
        known = Selection.__dataclass_fields__
        unknown = [name for name in selection if name not in known]
        if unknown:
            raise TutelageError(f"'{unknown[0]}' chooses nothing here; known are {', '.join(known)}.")
        return self._lines("/preferences", selection)

    def _lines(self, path: str, query: Mapping[str, Any]) -> list[dict[str, Any]]:
        text = self._transport.text(self._address(path, query))
        try:
            return [json.loads(line) for line in text.split("\n") if line]
        except ValueError as error:
            raise TutelageError(
                f"{self.url} did not answer with lines of JSON. Is the address right?"
            ) from error

    def _value(self, path: str, kind: type[T], query: Mapping[str, Any] | None = None) -> T:
        return self._converted(self._transport.get(self._address(path, query or {})), kind)

    def _address(self, path: str, query: Mapping[str, Any]) -> str:
        asked: list[tuple[str, str]] = []
        for name, value in query.items():
            values = value if isinstance(value, list | tuple) else [value]
            texts = (
                str(each).lower() if isinstance(each, bool) else str(each)
                for each in values
                if each is not None
            )
            asked += [(name, text) for text in texts]
        return f"{self.url}{ROOT}{path}{'?' if asked else ''}{urlencode(asked, quote_via=quote)}"

    def _converted(self, value: object, kind: type[T]) -> T:
        try:
            return msgspec.convert(value, kind)
        except msgspec.ValidationError as error:
            raise TutelageError(
                f"{self.url} answered with what is no {kind.__name__} ({error}). Is it a site of Tutelage, of this "
                "version?"
            ) from error
