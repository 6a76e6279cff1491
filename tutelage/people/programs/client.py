"""Python client of the API of a study.

    with StudyClient("https://rate.example.org", token) as study:
        study.overview().items_done
        study.add([{"prompt": "Why is the sky blue?", "chosen": "…", "rejected": "…"}])
        study.export("preferences.jsonl")

Owners create tokens on the page Programs or with `tutelage collect token`.
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
    CorrectionLine,
    ItemPage,
    ItemQuery,
    ItemValue,
    Overview,
    PreferenceLine,
    RaterCounts,
    RaterKind,
    RaterPage,
    SpanLine,
    VoteLine,
    VoteQuery,
)
from tutelage.people.selection import Selection
from tutelage.people.vote_mapping import ImportPreview, ImportReport

T = TypeVar("T")
ROOT = "/api/v1"
TOKEN_VARIABLE = "TUTELAGE_TOKEN"
PAGE = 500


class StudyClient:
    """Client of a study served by `tutelage collect serve`.

    Requests are retried if the server cannot be reached, is busy or fails; additions have an idempotency key, so that
    retries do not add rows twice. Methods raise `tutelage.data.transport.Refusal` if the server refuses a request
    (`status` is the HTTP status), `Unanswered` if it does not respond, and `TutelageError`, their base class, if the
    response does not conform to this API.
    """

    def __init__(
        self, url: str, token: str = "", *, timeout: float = 60.0, retries: int = 4, wait: float = 0.5
    ) -> None:
        """`url` is the URL of the site, without a path; `token` defaults to the environment variable TUTELAGE_TOKEN.
        `wait` is the delay before the first retry in seconds, which doubles with each further retry. Raises
        TutelageError if the URL is invalid, or there is no token."""
        try:
            parts = urlsplit(url)
        except ValueError:
            parts = urlsplit("")
        if parts.scheme not in ("http", "https") or not parts.netloc or parts.path.strip("/"):
            raise TutelageError(f"'{url}' is not the URL of a site; write it as https://rate.example.org.")
        token = (token or os.environ.get(TOKEN_VARIABLE, "")).strip()
        if not token:
            raise TutelageError(
                f"The study at {url} needs a token: set {TOKEN_VARIABLE}. Owners create tokens on the page Programs or "
                "with `tutelage collect token`."
            )
        self.url = f"{parts.scheme}://{parts.netloc}"
        check_key(token, self.url)
        self._transport = Transport(self.url, token, timeout, retries, wait, busy=BUSY - {409})

    def overview(self) -> Overview:
        """The progress of the study."""
        return self._value("/overview", Overview)

    def agreement(self) -> AgreementFigures:
        """The agreement of raters."""
        return self._value("/agreement", AgreementFigures)

    def items(
        self,
        *,
        state: Literal["", "open", "done", "disagreed", "excluded"] = "",
        pool: Literal["", "production", "gold", "training"] = "",
        round: int | None = None,
    ) -> Iterator[ItemValue]:
        """Iterate over the items of the study in the order of addition, fetching page by page."""
        query = ItemQuery(PAGE, "", state, pool, round)
        while True:
            page = self._value("/items", ItemPage, asdict(query))
            yield from page.items
            if page.cursor is None:
                return
            query = ItemQuery(PAGE, page.cursor, state, pool, round)

    def raters(self) -> Iterator[RaterCounts]:
        """Iterate over the statistics of the raters, fetching page by page."""
        cursor: str | None = ""
        while cursor is not None:
            page = self._value("/raters", RaterPage, {"limit": PAGE, "cursor": cursor})
            yield from page.raters
            cursor = page.cursor

    def add(self, rows: Sequence[Mapping[str, Any]], *, round: int = 1, key: str = "") -> Added:
        """Add rows as items, atomically: preferences in any format that `collect init --from-pairs` reads, or lines of
        the items.jsonl of an export. Calls with the same idempotency `key` add rows once; by default, each call has its
        own. Raises TutelageError if a row is invalid; nothing was added."""
        headers = {"idempotency-key": key or new_key()}
        return self._converted(self._posted("/items", rows, {"round": round}, headers), Added)

    def import_votes(self, rows: Sequence[Mapping[str, Any]], **mapping: Any) -> ImportReport:
        """Import votes, one per row, atomically. `mapping` are fields of `VoteMapping`, the roles of the columns; an
        omitted column is one with a usual name. Importing rows again adds nothing. Raises TutelageError if a row or a
        field is invalid; nothing was imported."""
        return self._converted(self._posted("/operations/import", rows, mapping), ImportReport)

    def preview_votes(self, rows: Sequence[Mapping[str, Any]], **mapping: Any) -> ImportPreview:
        """The result that `import_votes` would have, without importing anything."""
        return self._converted(self._posted("/operations/import/preview", rows, mapping), ImportPreview)

    def preferences(self, **selection: Any) -> tuple[PreferenceLine, ...]:
        """The preferences derived from the votes. `selection` are fields of `Selection`: kinds, versions, ties,
        min_votes, use_strength, weights, margins. With `redact=True`, apparent personal data is replaced."""
        return tuple(self._converted(row, PreferenceLine) for row in self._selected("/preferences", selection))

    def corrections(self, *, since: int = 0, **selection: Any) -> tuple[CorrectionLine, ...]:
        """The better responses that raters wrote with judgements after number `since`; see `preferences`."""
        rows = self._selected("/corrections", selection, {"since": since})
        return tuple(self._converted(row, CorrectionLine) for row in rows)

    def spans(self, *, since: int = 0, **selection: Any) -> tuple[SpanLine, ...]:
        """The words that raters marked with judgements after number `since`; see `preferences`."""
        rows = self._selected("/spans", selection, {"since": since})
        return tuple(self._converted(row, SpanLine) for row in rows)

    def votes(
        self, *, kinds: Sequence[RaterKind] = VoteQuery().kinds, since: int = 0, redact: bool = False
    ) -> tuple[VoteLine, ...]:
        """All revisions of the judgements after number `since` by raters of these kinds; by default without simulated
        raters. With `redact`, apparent personal data is replaced."""
        query = {"kinds": kinds, "since": since, "redact": redact}
        return tuple(self._converted(row, VoteLine) for row in self._lines("/votes", query))

    def export(self, out: str | Path, what: Literal["preferences", "votes"] = "preferences", **selection: Any) -> int:
        """Write preferences or votes to a file of JSON lines in the format of `collect export`; returns the number of
        lines. `tutelage reward --data FILE` reads preferences. Raises TutelageError if the file cannot be written; an
        existing file is unchanged."""
        rows = self._selected("/preferences", selection) if what == "preferences" else self._lines("/votes", selection)
        return write_jsonl(Path(out), rows)

    def close(self) -> None:
        self._transport.close()

    def __enter__(self) -> "StudyClient":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _selected(
        self, path: str, selection: Mapping[str, Any], more: Mapping[str, Any] | None = None
    ) -> list[dict[str, Any]]:
        """The lines of an address that takes a selection."""
        fields = {**Selection.__dataclass_fields__, "redact": None}
        unknown = [name for name in selection if name not in fields]
        if unknown:
            raise TutelageError(f"'{unknown[0]}' is not a field of the selection: {', '.join(fields)}.")
        return self._lines(path, {**selection, **(more or {})})

    def _posted(
        self,
        path: str,
        rows: Sequence[Mapping[str, Any]],
        values: Mapping[str, Any],
        headers: Mapping[str, str] | None = None,
    ) -> object:
        """The response to rows and further values of the body."""
        if not rows or len(rows) > MOST_ROWS:
            raise TutelageError(f"Send 1 to {nouns.counted(MOST_ROWS, 'row')} at a time, not {len(rows):,}.")
        body = {"rows": [dict(row) for row in rows], **values}
        try:
            return self._transport.post(f"{self.url}{ROOT}{path}", body, headers)
        except (TypeError, ValueError) as error:
            raise TutelageError(f"The rows cannot be encoded as JSON: {error}.") from error

    def _lines(self, path: str, query: Mapping[str, Any]) -> list[dict[str, Any]]:
        text = self._transport.text(self._address(path, query))
        try:
            return [json.loads(line) for line in text.split("\n") if line]
        except ValueError as error:
            raise TutelageError(f"The response of {self.url} is not JSON lines. Is the URL right?") from error

    def _value(self, path: str, kind: type[T], query: Mapping[str, Any] | None = None) -> T:
        return self._converted(self._transport.get(self._address(path, query or {})), kind)

    def _address(self, path: str, query: Mapping[str, Any]) -> str:
        parameters: list[tuple[str, str]] = []
        for name, value in query.items():
            values = value if isinstance(value, list | tuple) else [value]
            texts = (str(each).lower() if isinstance(each, bool) else str(each) for each in values if each is not None)
            parameters += [(name, text) for text in texts]
        return f"{self.url}{ROOT}{path}{'?' if parameters else ''}{urlencode(parameters, quote_via=quote)}"

    def _converted(self, value: object, kind: type[T]) -> T:
        try:
            return msgspec.convert(value, kind)
        except msgspec.ValidationError as error:
            raise TutelageError(
                f"The response of {self.url} is not a valid {kind.__name__} ({error}). Is it a site of this version of "
                "Tutelage?"
            ) from error
