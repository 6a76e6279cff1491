"""`tutelage collect token` and `webhook`: programs that use a study, and addresses that are told about it."""

import time
from contextlib import closing
from typing import TYPE_CHECKING

from tutelage.base.errors import TutelageError
from tutelage.commands.collecting.place import open_existing
from tutelage.commands.collecting.settings_programs import Token, Webhook

if TYPE_CHECKING:
    from tutelage.people import Store, Study


def manage_tokens(settings: Token) -> int:
    """Make a token, revoke one, or list them."""
    from tutelage.people.store.tokens import create_token, list_tokens, revoke_token

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
    from tutelage.people.delivering import send_test
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
