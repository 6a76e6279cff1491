"""`tutelage collect token` and `webhook`: API tokens of a study, and webhooks that receive its events."""

import time
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tutelage.base.errors import TutelageError
from tutelage.commands.collect.subcommands import given_values, settings_of
from tutelage.commands.study import CollectSettings, open_existing, operator
from tutelage.people.operations import TOKEN, WEBHOOK

if TYPE_CHECKING:
    from tutelage.people import Store, Study


@dataclass(frozen=True, kw_only=True)
class TokenActions(CollectSettings):
    """Actions on an existing token."""

    revoke: str = ""
    """Name of a token to revoke."""

    def __post_init__(self) -> None:
        values = given_values(self)
        if values and "name" not in values:
            raise TutelageError("--rights and --days belong to a new token; name it with --new.")
        if values and self.revoke:
            raise TutelageError("Create a token or revoke one: give --new or --revoke.")


@dataclass(frozen=True, kw_only=True)
class WebhookActions(CollectSettings):
    """Actions on an existing webhook, and the agreement threshold."""

    least_agreement: float | None = None
    """Agreement below which webhooks are notified, for the whole study; 0 for never."""
    remove: int | None = None
    """Number of the webhook to remove."""
    rotate: int | None = None
    """Number of the webhook to give a new secret, which is printed."""
    overlap_hours: int = 24
    """Hours during which messages are also signed with the former secret, with --rotate; 0 if it has leaked."""
    test: int | None = None
    """Number of the webhook to send a test message to; exits with status 1 if delivery fails."""

    def __post_init__(self) -> None:
        values = given_values(self)
        if values and "url" not in values:
            raise TutelageError("--topics belong to a new webhook; give its address with --add.")
        if bool(values) + sum(each is not None for each in (self.remove, self.rotate, self.test)) > 1:
            raise TutelageError("Do one thing at a time: give --add, --remove, --rotate or --test.")
        if self.rotate is None and self.overlap_hours != 24:
            raise TutelageError(
                "--overlap-hours applies to the former secret of a webhook; name the webhook with --rotate."
            )


Token = settings_of(TOKEN, TokenActions, "Without --new and --revoke the tokens are listed.")
Webhook = settings_of(
    WEBHOOK,
    WebhookActions,
    "Without --add, --remove, --rotate and --test the webhooks are listed. `collect serve` sends the messages.",
)


def manage_tokens(settings: TokenActions) -> int:
    """Create, revoke or list tokens."""

    store, study = open_existing(settings)
    with closing(store):
        if values := given_values(settings):
            print(TOKEN.run(store, study.id, TOKEN.settings(**values), operator()).secret)
        elif settings.revoke:
            usable = [token for token in TOKEN.list(store, study.id) if token.revoked is None]
            numbers = [token.id for token in usable if token.name == settings.revoke]
            if not numbers:
                raise TutelageError(f"'{study.name}' has no token '{settings.revoke}' to revoke.")
            for number in numbers:
                TOKEN.end(store, study.id, number, operator())
            print(f"{settings.revoke}: revoked")
        else:
            _list_tokens(store, study)
    return 0


def _list_tokens(store: "Store", study: "Study") -> None:
    tokens = TOKEN.list(store, study.id)
    for token in tokens:
        end = _day(token.expires) if token.expires else "no expiry"
        used = f"last used {_day(token.used)}" if token.used else "never used"
        parts = (", ".join(token.rights), end, used, token.problem)
        print(f"{token.name}: {'; '.join(filter(None, parts))}")
    if not tokens:
        print("There are no tokens; create one with --new NAME.")


def manage_webhooks(settings: WebhookActions) -> int:
    """Add, remove, test, rotate or list webhooks, and set the agreement threshold."""
    from tutelage.people.notification import send_test
    from tutelage.people.store.inbox import set_alarm
    from tutelage.people.store.webhooks import rotate_secret

    store, study = open_existing(settings)
    with closing(store):
        if settings.least_agreement is not None:
            set_alarm(store, study.id, settings.least_agreement or None)
        if values := given_values(settings):
            new = WEBHOOK.settings(**values)
            number, secret = WEBHOOK.run(store, study.id, new, operator())
            print(f"webhook {number}: {new.url}\nsecret {secret}")
        elif settings.remove is not None:
            WEBHOOK.end(store, study.id, settings.remove, operator())
            print(f"webhook {settings.remove}: removed")
        elif settings.rotate is not None:
            secret = rotate_secret(store, study.id, settings.rotate, hours=settings.overlap_hours)
            print(f"webhook {settings.rotate}: secret {secret}")
        elif settings.test is not None:
            problem = send_test(store, study.id, settings.test)
            print(f"webhook {settings.test} {problem or 'accepted the message'}")
            return int(bool(problem))
        else:
            _list_webhooks(store, study)
    return 0


def _list_webhooks(store: "Store", study: "Study") -> None:
    from tutelage.people.store.inbox import alarm_of

    hooks, alarm = WEBHOOK.list(store, study.id), alarm_of(store, study.id)
    for hook in hooks:
        last = f"last message {_day(hook.delivered)}" if hook.delivered else "no message yet"
        both = f"signed with the former secret too until {_day(hook.former_until)}" if hook.former_until else ""
        parts = (", ".join(hook.topics), last, f"{hook.waiting} pending", both, hook.error)
        print(f"webhook {hook.id}: {hook.url}: {'; '.join(filter(None, parts))}")
    if not hooks:
        print("There are no webhooks; add one with --add ADDRESS.")
    print(f"least agreement: {f'{alarm.agreement:.0%}' if alarm else 'none'}")


def _day(milliseconds: int) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(milliseconds / 1000))
