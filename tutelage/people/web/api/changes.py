"""API routes that change a study: new rows, which become questions, all or none, and its operations, `POST
/operations/NAME` with the values of their settings.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

import msgspec
from msgspec import Meta, UnsetType

from tutelage.base.errors import TutelageError
from tutelage.data.formats import load_preferences
from tutelage.data.readers import RowPlace, TableRow
from tutelage.data.record_files import from_row
from tutelage.data.records import CompletionRecord, Prompt, step_from
from tutelage.data.tables import Table
from tutelage.people.operations import Amendment, Grant, MissingSettings, Operation, Parameter, TableImport
from tutelage.people.programs.api_values import Added, NewRows, Rows
from tutelage.people.store.api_tokens import Token, earlier_reply, keep_reply
from tutelage.people.store.engine import Store
from tutelage.people.store.items import Item, insert_items
from tutelage.people.validation import FieldError
from tutelage.people.vote_import import ReadyQuestions, pairs_to_judge
from tutelage.people.web.api.dispatch import ApiCall, ApiRefusal, ApiRoute

SOURCE = "the request"
LINES = "lines of items.jsonl"
_PARTS = {"item", "prompt", "completions"}


@dataclass(frozen=True)
class _Line:
    item: Item
    prompt: Mapping[str, Any]
    completions: tuple[Mapping[str, Any], ...]


def request_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """The rows of a request as a table."""
    return Table(SOURCE, tuple(TableRow(RowPlace("row", number), row) for number, row in enumerate(rows, 1)), ())


def questions_of(sent: NewRows) -> tuple[ReadyQuestions, str, Sequence[str]]:
    """Convert rows to questions. Also returns the detected format of the rows, and notes. Raises TutelageError if the
    format of the rows is unknown, or a row is invalid; the message contains its number."""
    if any(row.keys() >= _PARTS for row in sent.rows):
        return _lines(sent.rows), LINES, ()
    loaded = load_preferences(request_table(sent.rows))
    if loaded.skipped:
        reasons = "; ".join(map(str, loaded.skipped))
        raise TutelageError(
            f"Nothing was added: some rows are invalid (read as {loaded.format}): {reasons}. Correct or omit them, and "
            "send all rows again."
        )
    pairs = pairs_to_judge(loaded.records, origin="added by a program")
    items = tuple(replace(item, round=sent.round) for item in pairs.items)
    return replace(pairs, items=items), loaded.format, loaded.notes


def add_rows(store: Store, token: Token, sent: NewRows, body: bytes, key: str = "") -> tuple[Added, bool]:
    """Add the questions of rows, atomically. Returns the result, and whether it is that of an earlier request with the
    same idempotency `key`. `body` is the raw body of the request.

    Raises:
        TutelageError: as for `questions_of` and `add_items`.
        KeyReused: the key was used with another body.
    """
    (questions, read_as, notes), now = questions_of(sent), store.now()
    with store.write() as connection:
        earlier = earlier_reply(connection, token, key, body, now) if key else None
        if earlier is not None:
            return msgspec.json.decode(earlier, type=Added), True
        new = insert_items(
            connection, token.study_id, questions.prompts, questions.completions, questions.items, now, token.actor
        )
        added = Added(new.items, new.known, new.prompts, new.responses, read_as, tuple(notes))
        if key:
            keep_reply(connection, token, key, body, msgspec.json.encode(added).decode(), now)
    return added, False


def _completion(row: Mapping[str, Any]) -> CompletionRecord:
    """The completion of a line. Raises TutelageError for steps that are neither texts nor lists of messages."""
    record = msgspec.convert({name: value for name, value in row.items() if name != "steps"}, CompletionRecord)
    try:
        return replace(record, steps=tuple(map(step_from, row.get("steps", ()))))
    except (KeyError, TypeError, ValueError) as error:
        raise TutelageError("steps is not a list of texts or lists of messages") from error


def _lines(rows: Sequence[Mapping[str, Any]]) -> ReadyQuestions:
    """The questions of lines of items.jsonl."""
    prompts: dict[str, Prompt] = {}
    completions: dict[str, CompletionRecord] = {}
    items: list[Item] = []
    for number, row in enumerate(rows, 1):
        try:
            line = msgspec.convert(row, _Line)
            prompt, stated = from_row(Prompt, line.prompt), tuple(map(_completion, line.completions))
        except (msgspec.ValidationError, TutelageError) as error:
            raise TutelageError(
                f"Nothing was added: row {number} is not a valid line of items.jsonl: {error}"
            ) from error
        prompts[prompt.id] = prompt
        completions |= {each.id: each for each in stated}
        items.append(line.item)
    return ReadyQuestions(tuple(prompts.values()), tuple(completions.values()), tuple(items))


@dataclass(frozen=True)
class CredentialValue:
    """A new grant: its number, and its secret, shown only once. `path` is the page that the secret opens, relative to
    the site; empty if it opens none."""

    number: int
    secret: str
    path: str


@dataclass(frozen=True)
class Revocation:
    """The number of the grant to revoke."""

    number: Annotated[int, Meta(ge=1, le=2**31 - 1)]


def operation_routes(operation: Operation[Any]) -> Iterator[ApiRoute]:
    """The routes of an operation. An amendment has one, which accepts any of its fields and returns the settings in
    force; a grant has three: create, list and revoke; an import has two: import and preview."""
    path, name, about, right = (f"/operations/{operation.name}", operation.name, operation.about, operation.right)
    if right is None:
        return
    if isinstance(operation, Amendment):
        body = values_type(operation, f"{operation.settings.__name__}Changes")
        yield ApiRoute("POST", path, right, name, about, _amends(operation), operation.settings, data=body)
    if isinstance(operation, Grant):
        body = values_type(operation, operation.settings.__name__, partial=False)
        yield ApiRoute("POST", path, right, name, about, _creates(operation), CredentialValue, data=body)
        yield ApiRoute(
            "GET", path, right, f"{name}-list", f"The list of what `POST {path}` created.",
            lambda call: operation.list(call.store, call.study.id), operation.record_type,
        )  # fmt: skip
        yield ApiRoute(
            "POST", f"{path}/revoke", right, f"{name}-revoke", f"End one of the list of `GET {path}`.",
            _revokes(operation), Revocation, data=Revocation,
        )  # fmt: skip
    if isinstance(operation, TableImport):
        body = values_type(operation, f"{operation.settings.__name__}Rows", (("rows", Rows),))
        yield ApiRoute(
            "POST", path, right, name, about, _reads_table(operation, stores=True), operation.report_type, data=body
        )
        yield ApiRoute(
            "POST", f"{path}/preview", right, f"{name}-preview", f"What `POST {path}` would do; stores nothing.",
            _reads_table(operation, stores=False), operation.preview_type, data=body,
        )  # fmt: skip


def _amends(operation: Amendment[Any]) -> Callable[[ApiCall], object]:
    def change(call: ApiCall) -> object:
        try:
            return operation.amend(call.store, call.study.id, sent_values(operation, call.data), call.token.actor)
        except MissingSettings as error:
            raise ApiRefusal(400, f"There are no settings yet: give {error}.", "the body") from error
        except FieldError as error:
            raise _refusal(error) from error

    return change


def _creates(operation: Grant[Any]) -> Callable[[ApiCall], object]:
    def create(call: ApiCall) -> object:
        try:
            settings = operation.settings(**sent_values(operation, call.data))
            number, secret = operation.run(call.store, call.study.id, settings, call.token.actor)
        except FieldError as error:
            raise _refusal(error) from error
        return CredentialValue(number, secret, operation.path and operation.path + secret)

    return create


def _revokes(operation: Grant[Any]) -> Callable[[ApiCall], object]:
    def revoke(call: ApiCall) -> object:
        operation.end(call.store, call.study.id, call.data.number, call.token.actor)
        return call.data

    return revoke


def _reads_table(operation: TableImport[Any], *, stores: bool) -> Callable[[ApiCall], object]:
    def read(call: ApiCall) -> object:
        store, study_id, table = call.store, call.study.id, request_table(call.data.rows)
        try:
            settings = operation.settings_for(table, sent_values(operation, call.data))
            if stores:
                return operation.run(store, study_id, table, settings, call.token.actor)
            return operation.look(store, study_id, table, settings)
        except FieldError as error:
            raise _refusal(error) from error

    return read


def sent_values(operation: Operation[Any], data: msgspec.Struct) -> dict[str, Any]:
    """The values of an operation's settings that a body or query contains, without defaults."""
    names = {each.name for each in operation.parameters}
    values = msgspec.structs.asdict(data)
    return {name: value for name, value in values.items() if value is not msgspec.UNSET and name in names}


def _refusal(error: FieldError) -> ApiRefusal:
    return ApiRefusal(400, str(error), f"'{error.field}' in the body")


def values_type(
    operation: Operation[Any],
    name: str,
    more: Sequence[tuple[str, Any] | tuple[str, Any, Any]] = (),
    *,
    partial: bool = True,
) -> type[msgspec.Struct]:
    """The type of a body or query: the fields open to programs, all optional if `partial`, and `more` fields with name,
    type and default."""
    return msgspec.defstruct(
        name,
        [
            *more,
            *(
                (each.name, _type(each))
                if each.required and not partial
                else (each.name, _type(each) | UnsetType, msgspec.UNSET)
                for each in operation.parameters
                if not each.people
            ),
        ],
        forbid_unknown_fields=True,
        kw_only=True,
    )


def _type(parameter: Parameter) -> Any:
    """The type of a field in the body, with its range and its description."""
    limits = parameter.limits
    kind = parameter.type
    ranged = kind if limits is None else Annotated[kind, Meta(ge=limits.least, le=limits.most)]
    return Annotated[ranged | None if parameter.optional else ranged, Meta(description=parameter.text)]
