"""Forms: typed values of their fields, validation errors, and routes for operations."""

import math
from collections.abc import Callable
from typing import Any, get_origin

from starlette.responses import Response

from tutelage.base.errors import TutelageError
from tutelage.people import Unavailable
from tutelage.people.languages import Sentence
from tutelage.people.operations import Amendment, Grant, Operation, Parameter
from tutelage.people.validation import NO_NUMBER, NO_SHARE, NO_WHOLE_NUMBER, FieldError, FormError, NumberRange
from tutelage.people.web.call import Call, Refusal, Route, see, sentence


def form_page(call: Call, template: str, error: TutelageError | None = None, /, **values: object) -> Response:
    """Render a page with forms. The template gets the `problem` of the error and `given`, the values of the fields: the
    submitted ones after an error, otherwise the stored ones. The query string never fills a form, because the link may
    come from another person. The status is 400 if a submitted form failed, 200 otherwise. Raises Unavailable if that is
    the error, which no other value of a field would fix."""
    if error is None:
        return call.page(template, **values, given=lambda name, default="": default)
    if isinstance(error, Unavailable):
        raise error
    problem = FormError(sentence(error), error.field if isinstance(error, FieldError) else "")
    page = call.page(template, **values, problem=problem, given=call.text)
    if call.fields:
        page.status_code = 400
    return page


def amendment_route(
    operation: Amendment[Any], path: str, page: Callable[[Call, TutelageError | None], Response], back: str = ""
) -> Route:
    """The POST route of an amendment's form. On success redirects to `back` (by default the same path); on an error
    `page` renders the form again."""

    def change(call: Call) -> Response:
        operation.run(call.store, call.here.id, read_settings(call, operation), call.me.name)
        return see(back or path)

    return Route("POST", path, "owner", "form", change, page)


def creation_route(
    operation: Grant[Any], path: str, page: Callable[[Call, TutelageError | None, str], Response]
) -> Route:
    """The POST route of the form for a new grant. `page` shows the secret once, or the form again with an error."""

    def create(call: Call) -> Response:
        try:
            settings = read_settings(call, operation)
            credential = operation.run(call.store, call.here.id, settings, call.me.name)
        except TutelageError as error:
            return page(call, error, "")
        return page(call, None, credential.secret)

    return Route("POST", path, "owner", "form", create)


def revocation_route(operation: Grant[Any], path: str, field: str, back: str) -> Route:
    """The POST route that revokes the grant whose number is in `field`, and redirects to `back`."""

    def revoke(call: Call) -> Response:
        try:
            operation.end(call.store, call.here.id, call.number(field), call.me.name)
        except TutelageError as error:
            raise Refusal(404, sentence(error)) from error
        return see(back)

    return Route("POST", path, "owner", "form", revoke)


def read_settings(call: Call, operation: Operation[Any]) -> Any:
    """The settings of an operation, from a form whose inputs are named like the fields. An empty input is None if the
    field is optional. Raises FieldError if a value has the wrong type, is out of range, or is refused by the
    settings."""
    return operation.settings(**{each.name: read_value(call, each) for each in operation.parameters})


def read_value(call: Call, parameter: Parameter) -> object:
    """The value of one field of the settings. Raises FieldError if it has the wrong type or is out of range."""
    text = call.text(parameter.name)
    if parameter.optional and not text:
        return None
    if parameter.type is bool:
        return text == "yes"
    if get_origin(parameter.type) is tuple:
        return tuple(filter(None, call.values(parameter.name)))
    if parameter.limits is None:
        return text.replace("\r\n", "\n")
    if parameter.type is int:
        words, least, most, _ = parameter.limits
        return whole_number(call, parameter.name, words, int(least), int(most))
    return number(call, parameter.name, parameter.limits)


def lines_of(call: Call, name: str) -> tuple[str, ...]:
    """The non-empty lines of a field, stripped and without duplicates."""
    return tuple(dict.fromkeys(line.strip() for line in call.text(name).splitlines() if line.strip()))


def whole_number(call: Call, name: str, what: Sentence, least: int, most: int) -> int:
    """A whole number in a field; `what` begins the error message. Raises FieldError if it is not a whole number between
    `least` and `most`."""
    text = call.text(name)
    valid = text.isascii() and text.isdecimal() and len(text) < 10
    if not valid or not least <= int(text) <= most:
        raise FieldError(name, NO_WHOLE_NUMBER.about(what=what, given=text[:50], least=least, most=most))
    return int(text)


def number(call: Call, name: str, limits: NumberRange) -> float:
    """A number in a field, with a decimal point or comma; a share also as 5 %. Raises FieldError if it is not within
    the limits."""
    text = call.text(name)
    plain = text.removesuffix("%") if limits.share else text
    try:
        value = float(plain.replace(",", ".")) / (1 if plain == text else 100)
    except ValueError:
        value = math.nan
    if not limits.least <= value <= limits.most:
        what, least, most = limits.words, float(limits.least), float(limits.most)
        refusal = NO_SHARE if limits.share else NO_NUMBER
        raise FieldError(name, refusal.about(what=what, given=text[:50], least=least, most=most))
    return value


def reason_of(call: Call, field: str = "reason") -> str:
    """The reason for an exclusion. `field` names the input on pages with several such forms. Raises FieldError if the
    reason is empty."""
    reason = call.text("reason")[:500]
    if not reason:
        raise FieldError(field, "Give a reason: it is shown with the exclusion later.")
    return reason
