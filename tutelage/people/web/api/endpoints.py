"""The API: its endpoints, the table of their routes with the required rights, and the OpenAPI 3.1 description of them.

The authorisation tests are generated from the table too.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, Literal, get_type_hints

import msgspec

from tutelage.base import nouns
from tutelage.base.version import __version__
from tutelage.data.records import message_row, step_value, tools_of
from tutelage.people import Rater, Selection, label_study, list_questions, list_raters, list_votes
from tutelage.people.export import correction_rows, marked_rows, preference_row, step_rows
from tutelage.people.manifest import describe, marking
from tutelage.people.operations import AMENDMENTS, EXPORT, GRANTS, IMPORTS
from tutelage.people.programs.api_values import (
    Added,
    AgreementFigures,
    CorrectionLine,
    ItemPage,
    ItemQuery,
    ItemValue,
    MessageValue,
    NewRows,
    NoQuery,
    Overview,
    PageQuery,
    PreferenceLine,
    RaterCounts,
    RaterPage,
    Redact,
    Refused,
    ResponseValue,
    Since,
    SpanLine,
    VoteLine,
    VoteQuery,
)
from tutelage.people.programs.study_progress import agreement_figures, study_overview
from tutelage.people.redaction import redact_study, redact_votes, search_of
from tutelage.people.settings import Right
from tutelage.people.store.engine import several
from tutelage.people.store.events import record_export, record_reading
from tutelage.people.store.item_catalogue import ItemFilter, Question, items_after
from tutelage.people.store.votes import freeze, vote_row
from tutelage.people.training_data import LabelledStudy
from tutelage.people.web.api.changes import add_rows, operation_routes, sent_values, values_type
from tutelage.people.web.api.dispatch import JSON_LINES, ROOT, ApiCall, ApiRefusal, ApiRoute, ReplyWithHeaders
from tutelage.people.web.pages.owner.exports import TOO_MANY


def overview(call: ApiCall) -> Overview:
    """The progress of the study."""
    return study_overview(call.store, call.study)


def agreement(call: ApiCall) -> AgreementFigures:
    """How often two raters choose the same side, from the cached statistics, with their age."""
    cached = call.site.keeper.whole(call.study)
    if cached.value is None:
        raise ApiRefusal(
            503,
            cached.error or "The figures are being computed.",
            "the agreement",
            "Ask again in a moment.",
            retry_after=5,
        )
    return agreement_figures(cached.value, cached.at)


def items(call: ApiCall) -> ItemPage:
    """A page of items, in insertion order."""
    query: ItemQuery = call.query
    selection = ItemFilter(state=query.state, pool=query.pool, round=query.round)
    after = _after(query)
    rows = items_after(call.store, call.study.id, selection, after=after, limit=query.limit + 1)
    page = rows[: query.limit]
    return ItemPage(tuple(_item(question) for _, question in page), _cursor([n for n, _ in page], rows))


def add(call: ApiCall) -> ReplyWithHeaders:
    """Add rows as items, all or none. Rows that are in the study already are counted and change nothing."""
    new: NewRows = call.data
    added, again = add_rows(call.store, call.token, new, call.body, call.key)
    return ReplyWithHeaders(added, {"idempotent-replayed": "true"} if again else {})


def raters(call: ApiCall) -> RaterPage:
    """A page of raters with their figures, in the order they joined."""
    query: PageQuery = call.query
    after = _after(query)
    everybody = [each for each in list_raters(call.store, call.study.id) if each.role == "rater"]
    rows = sorted((each for each in everybody if each.id > after), key=lambda rater: rater.id)
    page = rows[: query.limit]
    return RaterPage(tuple(map(_rater, page)), _cursor([each.id for each in page], rows))


def preferences(call: ApiCall) -> Iterable[Mapping[str, object]]:
    """The preferences derived from the current votes, one per line; where steps are judged, responses with the labels
    of their steps. The export is recorded in the study."""
    selection, labelled, _ = _labelled(call)
    manifest = describe(call.store, call.study, selection, labelled)
    record_export(call.store, call.study.id, labelled.snapshot, asdict(selection), manifest, actor=call.token.actor)
    if call.study.kind.traits.steps:
        return step_rows(labelled, call.study.name)
    return (preference_row(row, call.study.name) for row in labelled.rows)


def corrections(call: ApiCall) -> Iterable[Mapping[str, object]]:
    """The better responses that raters wrote, over the responses that they correct, one per line. The access is
    recorded in the audit trail."""
    _, labelled, _ = _labelled(call)
    later = [each for each in labelled.corrections if each.vote.id > call.query.since]
    record_reading(call.store, call.study.id, several(len(later), "judgements"), actor=call.token.actor)
    return correction_rows(replace(labelled, corrections=tuple(later)), call.study.name)


def spans(call: ApiCall) -> Iterable[Mapping[str, object]]:
    """The words that raters marked in responses, one span per line. The access is recorded in the audit trail."""
    selection, labelled, questions = _labelled(call)
    later = [vote for vote in marking(labelled, selection) if vote.id > call.query.since]
    record_reading(call.store, call.study.id, several(len(later), "judgements"), actor=call.token.actor)
    return marked_rows(later, questions)


def votes(call: ApiCall) -> Iterable[Mapping[str, object]]:
    """All revisions of all judgements by raters of the given kinds, one per line. The access is recorded in the
    audit trail."""
    query: VoteQuery = call.query
    now = freeze(call.store, call.study.id)  # no judgement with a smaller number is written later
    every = list_votes(call.store, call.study.id, at=now, every_revision=True)
    rows = [vote for vote in every if vote.rater_kind in query.kinds and vote.id > query.since]
    if query.redact:
        questions = list_questions(call.store, call.study.id)
        rows = list(redact_votes(rows, questions, search_of(call.store, call.study.id)))
    record_reading(call.store, call.study.id, several(len(rows), "judgements"), actor=call.token.actor)
    return map(vote_row, rows)


def _labelled(call: ApiCall) -> tuple[Selection, LabelledStudy, Sequence[Question]]:
    """The selection of a query, and the study that it labels, without personal data if the query says so."""
    if study_overview(call.store, call.study).judgements >= TOO_MANY:
        raise ApiRefusal(
            409,
            f"The study has {nouns.counted(TOO_MANY, 'judgement')} or more, too many for one answer.",
            "the study",
            "Export it with `tutelage collect export`.",
        )
    selection = Selection(**sent_values(EXPORT, call.query))
    labelled, questions = label_study(call.store, call.study.id, selection), list_questions(call.store, call.study.id)
    if call.query.redact:
        labelled, questions = redact_study(labelled, questions, search_of(call.store, call.study.id))
    return selection, labelled, questions


def _after(query: PageQuery) -> int:
    """The cursor: the number of the last row of the previous page."""
    if query.cursor and not (query.cursor.isascii() and query.cursor.isdecimal() and len(query.cursor) < 19):
        raise ApiRefusal(
            400,
            "The cursor is invalid.",
            "'cursor' in the query",
            "Send the one from the previous page, or none for the first page.",
        )
    return int(query.cursor or 0)


def _cursor(numbers: Sequence[int], rows: Sequence[object]) -> str | None:
    return str(numbers[-1]) if len(rows) > len(numbers) else None


def _item(question: Question) -> ItemValue:
    item = question.item
    return ItemValue(
        key=item.key,
        round=item.round,
        pool=item.pool,
        gold=item.gold,
        messages=tuple(MessageValue(**message_row(message)) for message in question.messages),  # type: ignore[arg-type]
        responses=tuple(
            ResponseValue(each.id, each.text, each.sampler, tuple(map(step_value, each.steps)))
            for each in question.completions
        ),
        target=question.target,
        answered=question.answered,
        skipped=question.skipped,
        votes=question.counts,
        excluded=question.excluded,
        tools=tuple(map(json.loads, tools_of(question.messages))),
    )


def _rater(rater: Rater) -> RaterCounts:
    tallies = rater.tallies
    return RaterCounts(
        rater=rater.pseudonym,
        name=rater.name,
        kind=rater.kind,
        state=rater.state,
        excluded=rater.excluded,
        seen=rater.seen,
        answered=tallies.answered,
        skipped=tallies.skipped,
        flagged=tallies.flagged,
        gold_seen=tallies.gold_seen,
        gold_right=tallies.gold_right,
        repeat_seen=tallies.repeat_seen,
        repeat_same=tallies.repeat_same,
    )


ABOUT = (
    "The API of a study of people who compare answers, for programs. A token is of one study, and an owner makes it on "
    "the page Programs. Times are milliseconds since the epoch, shares lie between 0 and 1."
)
REFUSALS = {
    "400": "The request is wrong.",
    "401": "There is no token, or it cannot be used.",
    "403": "The token lacks the right.",
    "409": "The idempotency key came with another body, or there is too much to export at once.",
    "413": "The body is too long.",
    "415": "The body is no application/json.",
    "503": "The server cannot answer just now: send the same request again.",
}
_ONLY_WITH_BODY = ("413", "415")
_REFERENCE = "#/components/schemas/{name}"


def openapi(routes: Sequence[ApiRoute]) -> dict[str, Any]:
    """The OpenAPI document for these routes."""
    types: list[Any] = [Refused]
    for route in routes:
        types += [kind for kind in (route.result, route.data, route.query) if kind not in (None, NoQuery)]
    definitions, components = msgspec.json.schema_components(types, ref_template=_REFERENCE)
    schemas = dict(zip(types, definitions, strict=True))
    queries = {route.query.__name__ for route in routes}
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        query = components.get(route.query.__name__, {})
        paths.setdefault(ROOT + route.path, {})[route.method.lower()] = _operation(route, schemas, query)
    document = {
        "openapi": "3.1.0",
        "info": {"title": "Tutelage", "version": __version__, "description": ABOUT},
        "paths": paths,
        "components": {
            "schemas": {name: schema for name, schema in components.items() if name not in queries},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(document))  # lists in place of tuples
    return plain


def _operation(route: ApiRoute, schemas: Mapping[Any, Mapping[str, Any]], query: Mapping[str, Any]) -> dict[str, Any]:
    kind, answered = (JSON_LINES, "A line of JSON for each.") if route.lines else ("application/json", "The answer.")
    refusal = {"application/json": {"schema": schemas[Refused]}}
    operation: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.about,
        "security": [] if route.right is None else [{"token": []}],
        "responses": {"200": {"description": answered, "content": {kind: {"schema": schemas[route.result]}}}}
        | {
            status: {"description": about, "content": refusal}
            for status, about in REFUSALS.items()
            if _may_be(status, route)
        },
    }
    if route.right is not None:
        operation["description"] = f"Needs a token with the right `{route.right}`."
    parameters = [_parameter(name, schema) for name, schema in query.get("properties", {}).items()]
    if route.data is not None:
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": schemas[route.data]}}}
        parameters += [_KEY] if route.keyed else []
    return operation | ({"parameters": parameters} if parameters else {})


_KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "The same key with the same body adds once, however often it is sent, and gives the same answer.",
    "schema": {"type": "string", "maxLength": 200},
}


def _parameter(name: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    plain = {key: value for key, value in schema.items() if key != "description"}
    description = {"description": schema["description"]} if "description" in schema else {}
    return {"name": name, "in": "query", "required": False, "schema": plain} | description


def _may_be(status: str, route: ApiRoute) -> bool:
    if route.right is None:
        return status == "400"
    return route.data is not None or status not in _ONLY_WITH_BODY


def description(call: ApiCall) -> dict[str, Any]:
    """The OpenAPI description of this API."""
    return openapi(API_ROUTES)


def _route(
    method: Literal["GET", "POST"],
    path: str,
    right: Right | None,
    answer: Callable[[ApiCall], object],
    result: type | None = None,
    **more: Any,
) -> ApiRoute:
    """The route of a function, with its name, its docstring as description, and its return type unless `result` is
    given."""
    about = " ".join((answer.__doc__ or "").split())
    kind = result or get_type_hints(answer)["return"]
    return ApiRoute(method, path, right, answer.__name__, about, answer, kind, **more)


_PREFERENCES = values_type(EXPORT, "PreferenceQuery", (("redact", Redact, False),))
_WRITTEN = values_type(EXPORT, "WrittenQuery", (("redact", Redact, False), ("since", Since, 0)))

API_ROUTES = (
    _route("GET", "/openapi.json", None, description, dict),
    _route("GET", "/overview", "read", overview),
    _route("GET", "/agreement", "read", agreement),
    _route("GET", "/items", "read", items, query=ItemQuery),
    _route("POST", "/items", "add", add, Added, data=NewRows, keyed=True),
    _route("GET", "/raters", "read", raters, query=PageQuery),
    _route("GET", "/preferences", "export", preferences, PreferenceLine, query=_PREFERENCES, lines=True),
    _route("GET", "/corrections", "export", corrections, CorrectionLine, query=_WRITTEN, lines=True),
    _route("GET", "/spans", "export", spans, SpanLine, query=_WRITTEN, lines=True),
    _route("GET", "/votes", "export", votes, VoteLine, query=VoteQuery, lines=True),
    *(route for operation in (*AMENDMENTS, *GRANTS, *IMPORTS) for route in operation_routes(operation)),
)
