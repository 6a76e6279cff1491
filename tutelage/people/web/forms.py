"""Forms: their fields as values of the right types, errors beside the field, and operations that a form carries out."""

from collections.abc import Callable
from math import isfinite
from typing import Any, get_origin

from starlette.responses import Response

from tutelage.base.errors import TutelageError
from tutelage.people import Unavailable
from tutelage.people.languages import Sentence
from tutelage.people.operations import Amendment, Grant, Operation, Parameter
from tutelage.people.validation import NO_NUMBER, NO_WHOLE_NUMBER, FieldError
from tutelage.people.web.call import Call, Refusal, Route, see, sentence
from tutelage.people.web.problems import Problem


def form_page(call: Call, template: str, error: TutelageError | None = None, /, **values: object) -> Response:
    """A page with forms. The template gets the `problem` that the error tells of, and `given`, what the fields hold:
    what was sent where there is a problem, else what they held before. The address of a page fills no form: it may have
    been written by somebody else. The status is 400 where something was to be done and was not, 200 for a look that
    shows a problem.

    Raises:
        Unavailable: that is what the error says. No other value of a field would help.
    """
    if error is None:
        return call.page(template, **values, given=_before)
    if isinstance(error, Unavailable):
        raise error
    page = call.page(template, **values, problem=Problem(sentence(error), _field(error)), given=call.text)
    if call.fields:
        page.status_code = 400
    return page


def _field(error: TutelageError) -> str:
    return error.field if isinstance(error, FieldError) else ""


def _before(name: str, default: str = "") -> str:
    """What a field held before."""
    return default


def amendment_route(
    operation: Amendment[Any],
    path: str,
    page: Callable[[Call, TutelageError | None], Response],
    back: str = "",
) -> Route:
    """The address that the form of an amendment is sent to. Afterwards the browser is led to `back`, the page of the
    form (the same path, where it is left out); `page` shows it again with an error."""

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
    """The address that the form for a new grant is sent to. `page` shows the secret this once, or the form again with
    an error."""

    def create(call: Call) -> Response:
        try:
            settings = read_settings(call, operation)
            credential = operation.run(call.store, call.here.id, settings, call.me.name)
        except TutelageError as error:
            return page(call, error, "")
        return page(call, None, credential.secret)

    return Route("POST", path, "owner", "form", create)


def revocation_route(operation: Grant[Any], path: str, field: str, back: str) -> Route:
    """The address that ends a grant, whose number the form has in `field`; afterwards the browser is led `back`."""

    def revoke(call: Call) -> Response:
        try:
            operation.end(call.store, call.here.id, number_in(call, field), call.me.name)
        except TutelageError as error:
            raise Refusal(404, sentence(error)) from error
        return see(back)

    return Route("POST", path, "owner", "form", revoke)


def number_in(call: Call, field: str) -> int:
    """The number of a record in a field; 0, which none has, where it is none."""
    text = call.text(field)
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 16 else 0


def read_settings(call: Call, operation: Operation[Any]) -> Any:
    """The settings of an operation from a form whose inputs have the names of the fields. An empty input is None where
    the field may be.

    Raises:
        FieldError: a value is none of its type, outside of its range, or refused by the settings.
    """
    return operation.settings(**{each.name: read_value(call, each) for each in operation.parameters})


def read_value(call: Call, asked: Parameter) -> object:
    """The value of one field of the settings. Raises FieldError for one of another type, or outside of its range."""
    text = call.text(asked.name)
    if asked.optional and not text:
        return None
    if asked.type is bool:
        return text == "yes"
    if get_origin(asked.type) is tuple:
        return call.values(asked.name)
    if asked.limits is None:
        return text.replace("\r\n", "\n")
    words, least, most, in_per_cent = asked.limits
    if asked.type is int:
        return whole_number(call, asked.name, words, int(least), int(most))
    if in_per_cent:
        return share(call, asked.name, words, most)
    return number(call, asked.name, words, least, most)


def lines_of(call: Call, name: str) -> tuple[str, ...]:
    """The lines of a field without outer spaces, each once; empty ones are left out."""
    return tuple(dict.fromkeys(line.strip() for line in call.text(name).splitlines() if line.strip()))


def whole_number(call: Call, name: str, what: Sentence, least: int, most: int) -> int:
    """A whole number in a field; `what` begins the sentence about any other value.

    Raises:
        FieldError: it is no whole number, or not between `least` and `most`.
    """
    given = call.text(name)
    known = given.isascii() and given.isdecimal() and len(given) < 10
    if not known or not least <= int(given) <= most:
        raise FieldError(
            name,
            NO_WHOLE_NUMBER.about(what=what, given=given[:50], least=least, most=most),
        )
    return int(given)


def number(call: Call, name: str, what: Sentence, least: float, most: float) -> float:
    """A number in a field, with a decimal point or comma.

    Raises:
        FieldError: it is no number, or not between `least` and `most`.
    """
    given = call.text(name)
    try:
        value = float(given.replace(",", "."))
    except ValueError:
        value = float("nan")
    if not isfinite(value) or not least <= value <= most:
        raise FieldError(
            name,
            NO_NUMBER.about(what=what, given=given[:50], least=float(least), most=float(most)),
        )
    return value


def share(call: Call, name: str, what: Sentence, most: float) -> float:
    """A share in a field, as 0.05 or as 5 %.

    Raises:
        FieldError: it is no number, or not between 0 and `most`.
    """
    given = call.text(name)
    try:
        value = float(given.removesuffix("%").replace(",", ".")) / (100 if given.endswith("%") else 1)
    except ValueError:
        value = float("nan")
    if not isfinite(value) or not 0 <= value <= most:
        raise FieldError(
            name,
            Sentence(
                "%(what)s is “%(given)s”; give a share from 0 to %(most)s.",
                what=what,
                given=given[:50],
                most=float(most),
            ),
        )
    return value


def reason_of(call: Call, field: str = "reason") -> str:
    """The reason for an exclusion, from the field `reason`; on a page with several such forms `field` names the input.

    Raises:
        FieldError: there is none.
    """
    reason = call.text("reason")[:500]
    if not reason:
        raise FieldError(field, Sentence("Say why: it is what others will know about the exclusion later."))
    return reason
