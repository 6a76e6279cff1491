"""Integrations: API tokens, webhooks, and the minimum agreement."""

from starlette.responses import Response

from tutelage.base.errors import TutelageError
from tutelage.people.languages import Sentence
from tutelage.people.notification import send_test
from tutelage.people.settings import RIGHTS, TOPICS
from tutelage.people.store.api_tokens import list_tokens
from tutelage.people.store.inbox import alarm_of, set_alarm
from tutelage.people.store.webhooks import OVERLAP_HOURS, list_webhooks, rotate_secret
from tutelage.people.validation import NumberRange
from tutelage.people.web.call import Call, Refusal, see, sentence
from tutelage.people.web.forms import form_page, number

MEANINGS = {
    "read": Sentence("progress of the study, its items and raters in numbers"),
    "add": Sentence("new items"),
    "export": Sentence("every preference and every vote"),
    "manage": Sentence("recruiting, consent, distribution of the work, webhooks and invitations of raters"),
    "round": Sentence("a round is full"),
    "agreement": Sentence("agreement fell below the bound"),
    "inbox": Sentence("any other notice in the inbox"),
}
"""Explanations of the rights of tokens and the events of webhooks."""
PLACE = "/owner/programs"
BOUND = NumberRange(Sentence("The least agreement"), 0, 1, share=True)


def form(
    call: Call,
    error: TutelageError | None = None,
    *,
    secret: tuple[str, str] = ("", ""),
    tested: tuple[int, str] = (0, ""),
) -> Response:
    """Tokens and webhooks with the forms for new ones; also a new `secret` with its owner, shown only once, or the
    number and error of the webhook that was `tested`."""
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


def token_page(call: Call, error: TutelageError | None, secret: str) -> Response:
    """The page with a new token, or with an error in its form."""
    return form(call, error, secret=(Sentence("Your token"), secret))


def webhook_page(call: Call, error: TutelageError | None, secret: str) -> Response:
    """The page with the secret of a new webhook, or with an error in its form."""
    return form(call, error, secret=(Sentence("The secret of the webhook"), secret))


def rotate(call: Call) -> Response:
    """Create a new secret for a webhook, shown only once. The old one stays valid for a while or expires
    immediately."""
    hours = OVERLAP_HOURS if call.text("former") == "keep" else 0
    try:
        secret = rotate_secret(call.store, call.here.id, call.number("webhook"), hours=hours, actor=call.me.name)
    except TutelageError as error:
        raise Refusal(404, sentence(error)) from error
    return form(call, secret=(Sentence("The new secret of the webhook"), secret))


def test_webhook(call: Call) -> Response:
    """Send a message of type `test` to a webhook, and report whether it arrived."""
    number = call.number("webhook")
    try:
        problem = send_test(call.store, call.here.id, number)
    except TutelageError as error:
        raise Refusal(404, sentence(error)) from error
    return form(call, tested=(number, problem))


def set_bound(call: Call) -> Response:
    """Set or remove the minimum agreement."""
    bound = number(call, "bound", BOUND) if call.text("bound") else None
    set_alarm(call.store, call.here.id, bound or None, actor=call.me.name)
    return see(PLACE)
