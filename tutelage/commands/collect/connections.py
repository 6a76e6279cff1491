"""`tutelage collect token` and `webhook`: programs that use a study, and addresses that are told about it."""

import time
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tutelage.base.errors import TutelageError
from tutelage.commands.study import CollectSettings, open_existing
from tutelage.people.operations import Right

if TYPE_CHECKING:
    from tutelage.people import Store, Study


@dataclass(frozen=True, kw_only=True)
class Token(CollectSettings):
    """Make a token for a program that uses the API, and print it: only its hash is kept. Without --new and --revoke the
    tokens are listed."""

    new: str = ""
    """Name of a new token, which says what it is for."""
    rights: tuple[Right, ...] = ("read",)
    """What it may: read how far the study is, with items and raters; add items; export preferences and votes;
    manage recruiting, consent and the plan."""
    days: float | None = None
    """How long it works; until it is revoked unless given."""
    revoke: str = ""
    """Name of a token to revoke."""

    def __post_init__(self) -> None:
        if self.new and self.revoke:
            raise TutelageError("Make a token or revoke one: give --new or --revoke.")
        if not self.new and (self.days is not None or self.rights != ("read",)):
            raise TutelageError("--rights and --days are those of a new token; name it with --new.")


@dataclass(frozen=True, kw_only=True)
class Webhook(CollectSettings):
    """Tell an address what happens in the study, and print the secret that messages are signed with. Without --add,
    --remove, --rotate and --test the webhooks are listed. `collect serve` sends the messages."""

    add: str = ""
    """Address to tell: https://hooks.example.org/…"""
    topics: tuple[Literal["round", "agreement", "inbox"], ...] = ("round", "agreement")
    """What it is told: round, a round is full; agreement, it fell below --least-agreement; inbox, everything else that
    comes into the inbox."""
    least_agreement: float | None = None
    """Share below which agreement is told of, for the whole study; 0 for never."""
    remove: int | None = None
    """Number of a webhook to remove."""
    rotate: int | None = None
    """Number of a webhook to give a new secret, which is printed."""
    overlap_hours: int = 24
    """Hours for which messages are signed with the former secret as well, with --rotate; 0 where somebody else has
    learnt it."""
    test: int | None = None
    """Number of a webhook to send a test to; the status is 1 where it does not arrive."""

    def __post_init__(self) -> None:
        done = (bool(self.add), *(each is not None for each in (self.remove, self.rotate, self.test)))
        if sum(done) > 1:
            raise TutelageError("Do one thing at a time: give --add, --remove, --rotate or --test.")
        if self.rotate is None and self.overlap_hours != 24:
            raise TutelageError(
                "--overlap-hours is for the former secret of a webhook; name it with --rotate."
            )
        if not self.add and self.topics != ("round", "agreement"):
            raise TutelageError("--topics are those of a new webhook; name its address with --add.")


def manage_tokens(settings: Token) -> int:
    """Make a token, revoke one, or list them."""
    from tutelage.people.store.api_tokens import create_token, list_tokens, revoke_token

    store, study = open_existing(settings)
    with closing(store):
        if settings.new:
            print(create_token(store, study.id, settings.new, settings.rights, days=settings.days))
            return 0
        known = list_tokens(store, study.id)
        if settings.revoke:
            named = [token for token in known if token.name == settings.revoke and token.revoked is None]
            if not named:
                raise TutelageError(f"'{study.name}' has no token '{settings.revoke}' to revoke.")
            for token in named:
                revoke_token(store, study.id, token.id)
            print(f"{settings.revoke}: revoked")
            return 0
        for token in known:
            end = _day(token.expires) if token.expires else "no end"
            used = f"last used {_day(token.used)}" if token.used else "never used"
            said = (", ".join(token.rights), end, used, token.problem)
            print(f"{token.name}: {'; '.join(filter(None, said))}")
        if not known:
            print("There are no tokens; make one with --new NAME.")
    return 0


def manage_webhooks(settings: Webhook) -> int:
    """Add a webhook; remove, test or give a new secret to one; or list them. And set the least agreement."""
    from tutelage.people.delivery import send_test
    from tutelage.people.store.occasions import set_alarm
    from tutelage.people.store.webhooks import add_webhook, remove_webhook, rotate_secret

    store, study = open_existing(settings)
    with closing(store):
        if settings.least_agreement is not None:
            set_alarm(store, study.id, settings.least_agreement or None)
        if settings.add:
            number, secret = add_webhook(store, study.id, settings.add, settings.topics)
            print(f"webhook {number}: {settings.add}\nsecret {secret}")
        elif settings.remove is not None:
            remove_webhook(store, study.id, settings.remove)
            print(f"webhook {settings.remove}: removed")
        elif settings.rotate is not None:
            secret = rotate_secret(store, study.id, settings.rotate, hours=settings.overlap_hours)
            print(f"webhook {settings.rotate}: secret {secret}")
        elif settings.test is not None:
            problem = send_test(store, study.id, settings.test)
            print(f"webhook {settings.test} {problem or 'took the message'}")
            return int(bool(problem))
        else:
            _list_webhooks(store, study)
    return 0


def _list_webhooks(store: "Store", study: "Study") -> None:
    from tutelage.people.store.occasions import alarm_of
    from tutelage.people.store.webhooks import list_webhooks

    known, alarm = list_webhooks(store, study.id), alarm_of(store, study.id)
    for hook in known:
        last = f"last message {_day(hook.delivered)}" if hook.delivered else "no message yet"
        both = (
            f"signed with the former secret too until {_day(hook.former_until)}" if hook.former_until else ""
        )
        said = filter(None, (", ".join(hook.topics), last, f"{hook.waiting} on the way", both, hook.error))
        print(f"webhook {hook.id}: {hook.url}: {'; '.join(filter(None, said))}")
    if not known:
        print("There are no webhooks; add one with --add ADDRESS.")
    print(f"least agreement: {f'{alarm.agreement:.0%}' if alarm else 'none'}")


def _day(milliseconds: int) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(milliseconds / 1000))
