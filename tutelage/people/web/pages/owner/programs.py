"""Programs that work with the study: tokens for the API, webhooks, and the least agreement."""

from collections.abc import Callable

from starlette.responses import Response

from tutelage.base.errors import TutelageError
from tutelage.people.delivery import send_test
from tutelage.people.languages import Sentence
from tutelage.people.store.api_tokens import RIGHTS, create_token, list_tokens, revoke_token
from tutelage.people.store.occasions import alarm_of, set_alarm
from tutelage.people.store.webhooks import (
    OVERLAP_HOURS,
    TOPICS,
    add_webhook,
    list_webhooks,
    remove_webhook,
    rotate_secret,
)
from tutelage.people.web.call import Call, Refusal, see, sentence
from tutelage.people.web.forms import form_page, share, whole_number

MOST_DAYS = 3_650
MEANINGS = {
    "read": Sentence("how far the study is, its items and raters in numbers"),
    "add": Sentence("new items"),
    "export": Sentence("every preference and every vote"),
    "manage": Sentence("recruiting, consent and how the work is shared out"),
    "round": Sentence("a round is full"),
    "agreement": Sentence("agreement fell below the bound"),
    "inbox": Sentence("everything else that comes into the inbox"),
}
"""What rights let a program see or do, and what webhooks are told of."""
PLACE = "/owner/programs"


def form(call: Call) -> Response:
    """Tokens and webhooks, and the forms for new ones."""
    return _page(call)


def make_token(call: Call) -> Response:
    """A new token. It is shown this once: only its hash is kept."""
    try:
        days = (
            whole_number(call, "days", Sentence("The number of days"), 1, MOST_DAYS)
            if call.text("days")
            else None
        )
        token = create_token(
            call.store,
            call.here.id,
            call.text("name"),
            call.fields.get("rights", ()),
            days=days,
            actor=call.me.name,
        )
    except TutelageError as error:
        return _page(call, error)
    return _page(call, secret=(Sentence("Your token"), token))


def revoke(call: Call) -> Response:
    """Make a token useless."""
    _of_study(revoke_token, call, "token")
    return see(PLACE)


def make_webhook(call: Call) -> Response:
    """A new webhook. Its secret is shown this once."""
    try:
        _, secret = add_webhook(
            call.store, call.here.id, call.text("url"), call.fields.get("topics", ()), actor=call.me.name
        )
    except TutelageError as error:
        return _page(call, error)
    return _page(call, secret=(Sentence("The secret of the webhook"), secret))


def rotate(call: Call) -> Response:
    """A new secret for a webhook, shown this once. The former one signs as well for a time, or is worth nothing at
    once."""
    hours = OVERLAP_HOURS if call.text("former") == "keep" else 0
    try:
        secret = rotate_secret(
            call.store, call.here.id, _number(call, "webhook"), hours=hours, actor=call.me.name
        )
    except TutelageError as error:
        raise Refusal(404, sentence(error)) from error
    return _page(call, secret=(Sentence("The new secret of the webhook"), secret))


def drop_webhook(call: Call) -> Response:
    """Tell an address nothing more."""
    _of_study(remove_webhook, call, "webhook")
    return see(PLACE)


def test_webhook(call: Call) -> Response:
    """Send a message of the type `test` to an address, and say whether it arrived."""
    number = _number(call, "webhook")
    try:
        problem = send_test(call.store, call.here.id, number)
    except TutelageError as error:
        raise Refusal(404, sentence(error)) from error
    return _page(call, tested=(number, problem))


def set_bound(call: Call) -> Response:
    """Set the least agreement, or none."""
    try:
        bound = share(call, "bound", Sentence("The least agreement"), 1.0) if call.text("bound") else None
        set_alarm(call.store, call.here.id, bound or None, actor=call.me.name)
    except TutelageError as error:
        return _page(call, error)
    return see(PLACE)


def _of_study(change: Callable[..., None], call: Call, field: str) -> None:
    """Change what the field names by number."""
    try:
        change(call.store, call.here.id, _number(call, field), actor=call.me.name)
    except TutelageError as error:
        raise Refusal(404, sentence(error)) from error


def _number(call: Call, field: str) -> int:
    text = call.text(field)
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 16 else 0


def _page(
    call: Call,
    error: TutelageError | None = None,
    *,
    secret: tuple[str, str] = ("", ""),
    tested: tuple[int, str] = (0, ""),
) -> Response:
    return form_page(
        call,
        "owner/programs.html",
        error,
        tokens=list_tokens(call.store, call.here.id),
        webhooks=list_webhooks(call.store, call.here.id),
        alarm=alarm_of(call.store, call.here.id),
        rights=RIGHTS,
        topics=TOPICS,
        meanings=MEANINGS,
        secret=secret,
        overlap=OVERLAP_HOURS,
        tested=tested,
        ticked=call.fields if error else {},
        origin=call.origin,
        place="programs",
    )
