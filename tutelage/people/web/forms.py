"""Forms: typed values of their fields, validation errors, and routes for operations."""

import math
from collections.abc import Callable
from typing import Any, get_origin

from starlette.responses import Response

from tutelage.base.errors import TutelageError
from tutelage.people import Unavailable
from tutelage.people.languages import Sentence
from tutelage.people.operations import Amendment, Grant, Operation, Parameter
from tutelage.people.validation import NO_NUMBER, NO_WHOLE_NUMBER, FieldError, FormError
from tutelage.people.web.call import Call, Refusal, Route, see, sentence


def form_page(call: Call, template: str, error: TutelageError | None = None, /, **values: object) -> Response:
    """Render a page with forms. The template gets the `problem` of the error and `given`, the values of the fields: the
    submitted ones after an error, otherwise the stored ones. The query string never fills a form, because the link may
    come from another person. The status is 400 if a submitted form failed, 200 otherwise.

    Raises:
        Unavailable: if that is the error, which no other value of a field would fix.
    """
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
        try:
            settings = read_settings(call, operation)
            operation.run(call.store, call.here.id, settings, call.me.name)
        except TutelageError as error:
            return page(call, error)
        return see(back or path)

    return Route("POST", path, "owner", "form", change)


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
    field is optional.

    Raises:
        FieldError: a value has the wrong type, is out of range, or is refused by the settings.
    """
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
    words, least, most, in_per_cent = parameter.limits
    if parameter.type is int:
        return whole_number(call, parameter.name, words, int(least), int(most))
    if in_per_cent:
        return share(call, parameter.name, words, most)
    return number(call, parameter.name, words, least, most)


def lines_of(call: Call, name: str) -> tuple[str, ...]:
    """The non-empty lines of a field, stripped and without duplicates."""
    return tuple(dict.fromkeys(line.strip() for line in call.text(name).splitlines() if line.strip()))


def whole_number(call: Call, name: str, what: Sentence, least: int, most: int) -> int:
    """A whole number in a field; `what` begins the error message.

    Raises:
        FieldError: it is not a whole number between `least` and `most`.
    """
    text = call.text(name)
    valid = text.isascii() and text.isdecimal() and len(text) < 10
    if not valid or not least <= int(text) <= most:
        raise FieldError(name, NO_WHOLE_NUMBER.about(what=what, given=text[:50], least=least, most=most))
    return int(text)


def number(call: Call, name: str, what: Sentence, least: float, most: float) -> float:
    """A number in a field, with a decimal point or comma.

    Raises:
        FieldError: it is not a number between `least` and `most`.
    """
    text = call.text(name)
    value = _decimal(text)
    if not least <= value <= most:
        raise FieldError(name, NO_NUMBER.about(what=what, given=text[:50], least=float(least), most=float(most)))
    return value


def share(call: Call, name: str, what: Sentence, most: float) -> float:
    """A share in a field, written as 0.05 or 5 %.

    Raises:
        FieldError: it is not a number between 0 and `most`.
    """
    text = call.text(name)
    value = _decimal(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    if not 0 <= value <= most:
        raise FieldError(
            name,
            Sentence(
                "%(what)s is “%(given)s”; give a share from 0 to %(most)s.",
                what=what,
                given=text[:50],
                most=float(most),
            ),
        )
    return value


def _decimal(text: str) -> float:
    """The number in a text, with a decimal point or comma; NaN if there is none."""
    try:
        return float(text.replace(",", "."))
    except ValueError:
        return math.nan


def reason_of(call: Call, field: str = "reason") -> str:
    """The reason for an exclusion. `field` names the input on pages with several such forms.

    Raises:
        FieldError: the reason is empty.
    """
    reason = call.text("reason")[:500]
    if not reason:
        raise FieldError(field, Sentence("Give a reason: it is shown with the exclusion later."))
    return reason
