"""Webhooks: URLs of owners' programs, and pending deliveries to them.

Each notice that a webhook subscribes to is one delivery, with the same message id at all attempts. A delivery is
claimed before it is sent: the claim sets the time of the next attempt, so that a crashing server loses nothing, and two
servers do not send it twice.
"""

import base64
import json
import secrets
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

import sqlalchemy as sa

from tutelage.base.errors import TutelageError
from tutelage.people.settings import TOPICS, Credential, NewWebhook, Topic
from tutelage.people.store import schema
from tutelage.people.store.engine import Connection, Store, insert_row, lock, record_event, value_of
from tutelage.people.store.inbox import QUIET, Notice, load_notice
from tutelage.people.validation import StudyError

WAITS_MS = tuple(1_000 * seconds for seconds in (60, 300, 1_800, 7_200, 18_000, 36_000, 50_400, 72_000, 86_400))
"""Waits after the first, second, … attempt. After the last wait, three days after the first attempt, a failed delivery
is abandoned."""
OVERLAP_HOURS = 24
"""Default hours for which messages are also signed with the previous secret, so that receivers can switch."""
MOST_OVERLAP_HOURS = 720
_webhooks, _deliveries, _notices = schema.webhook, schema.delivery, schema.notice


@dataclass(frozen=True)
class WebhookAddress:
    """A webhook as shown to owners: its `topics`, pending messages, last delivery (milliseconds since the epoch), and
    last error. Until `former_until`, messages are also signed with the former secret."""

    id: int
    url: str
    topics: tuple[Topic, ...]
    waiting: int
    delivered: int | None
    error: str
    former_until: int | None = None


@dataclass(frozen=True)
class Delivery:
    """A message to send now, for the `attempts`-th time, signed with each of the `secrets`."""

    id: int
    webhook: int
    url: str
    secrets: tuple[str, ...]
    message: str
    attempts: int
    notice: Notice


def add_webhook(store: Store, study_id: int, new: NewWebhook, *, actor: str = "owner") -> Credential:
    """Subscribe a URL to notices from now on; the returned secret signs its messages."""
    secret, now, topics = _new_secret(), store.now(), [topic for topic in TOPICS if topic in new.topics]
    with store.write() as connection:
        newest = connection.scalar(sa.select(sa.func.max(_notices.c.id)).where(_notices.c.study_id == study_id))
        row = {"study_id": study_id, "url": new.url, "secret": secret, "topics": json.dumps(topics)}
        number = insert_row(connection, _webhooks, row | {"since": newest or 0, "created": now})
        detail = {"host": urlsplit(new.url).hostname, "topics": topics}
        record_event(connection, study_id, now, actor, "webhook_added", f"webhook {number}", **detail)
    return Credential(number, secret)


def list_webhooks(store: Store, study_id: int) -> tuple[WebhookAddress, ...]:
    """Webhooks of a study, oldest first, without removed ones."""
    query = sa.select(_webhooks).where(_webhooks.c.study_id == study_id, _webhooks.c.removed.is_(None))
    with store.read() as connection:
        rows = connection.execute(query.order_by(_webhooks.c.id)).mappings().all()
        return tuple(_address(connection, row, store.now()) for row in rows)


def rotate_secret(store: Store, study_id: int, number: int, *, hours: int = OVERLAP_HOURS, actor: str = "owner") -> str:
    """Replace the secret of a webhook and return the new one. For `hours`, messages are also signed with the former
    secret; 0 invalidates it at once, for example after a leak. Raises TutelageError if the study has no such webhook,
    or `hours` is not from 0 to `MOST_OVERLAP_HOURS`."""
    if not 0 <= hours <= MOST_OVERLAP_HOURS:
        raise TutelageError(f"hours is {hours}; it must be from 0 to {MOST_OVERLAP_HOURS}.")
    secret, now = _new_secret(), store.now()
    with store.write() as connection:
        lock(connection, schema.study, study_id)
        row = _row(connection, study_id, number)
        former = (row["secret"], now + hours * 3_600_000) if hours else ("", None)
        values = {"secret": secret, "former_secret": former[0], "former_until": former[1]}
        connection.execute(_webhooks.update().where(_webhooks.c.id == number).values(**values))
        record_event(connection, study_id, now, actor, "webhook_rotated", f"webhook {number}", hours=hours)
    return secret


def _new_secret() -> str:
    return "whsec_" + base64.b64encode(secrets.token_bytes(32)).decode()


def secrets_of(store: Store, study_id: int, number: int) -> tuple[str, tuple[str, ...]]:
    """URL and secrets of a webhook, the current one first. Raises TutelageError if there is no such webhook."""
    with store.read() as connection:
        row = _row(connection, study_id, number)
    return row["url"], _in_force(row, store.now())


def _in_force(row: sa.RowMapping, now: int) -> tuple[str, ...]:
    former = row["former_until"] is not None and now < row["former_until"]
    return (row["secret"], row["former_secret"]) if former else (row["secret"],)


def remove_webhook(store: Store, study_id: int, number: int, *, actor: str = "owner") -> None:
    """Remove a webhook; pending messages are not sent. Raises TutelageError if there is no such webhook."""
    now = store.now()
    with store.write() as connection:
        host = urlsplit(_row(connection, study_id, number)["url"]).hostname
        gone = {"removed": now, "secret": "", "former_secret": "", "former_until": None}
        connection.execute(_webhooks.update().where(_webhooks.c.id == number).values(**gone))
        record_event(connection, study_id, now, actor, "webhook_removed", f"webhook {number}", host=host)


def queue_deliveries(store: Store, study_id: int) -> None:
    """Create deliveries of new notices to the webhooks that subscribe to them."""
    hooks = sa.select(_webhooks).where(_webhooks.c.study_id == study_id, _webhooks.c.removed.is_(None))
    with store.read() as connection:
        if not any(list(_missing(connection, hook)) for hook in connection.execute(hooks).mappings().all()):
            return
    with store.write() as connection:
        lock(connection, schema.study, study_id)
        now = store.now()
        for hook in connection.execute(hooks).mappings().all():
            row = {"webhook_id": hook["id"], "attempts": 0, "due": now, "error": ""}
            for number in list(_missing(connection, hook)):
                message = f"msg_{secrets.token_urlsafe(24)}"
                insert_row(connection, _deliveries, row | {"notice_id": number, "message": message})


def claim_delivery(store: Store, study_id: int, besides: Collection[int] = ()) -> Delivery | None:
    """Claim the delivery that has been due longest, without webhooks in `besides`; None if none is due."""
    now = store.now()
    query = (
        sa.select(_deliveries.c.id, _deliveries.c.attempts, _deliveries.c.message, _deliveries.c.notice_id)
        .add_columns(_deliveries.c.webhook_id, _webhooks.c.url, _webhooks.c.secret)
        .add_columns(_webhooks.c.former_secret, _webhooks.c.former_until)
        .join(_webhooks, _webhooks.c.id == _deliveries.c.webhook_id)
        .where(_webhooks.c.study_id == study_id, _webhooks.c.removed.is_(None))
        .where(_deliveries.c.due <= now, _webhooks.c.id.not_in(besides))
        .order_by(_deliveries.c.due, _deliveries.c.id)
        .limit(1)
    )
    with store.read() as connection:
        if connection.execute(query).first() is None:
            return None
    with store.write() as connection:
        row = connection.execute(query.with_for_update(of=_deliveries, skip_locked=True)).one_or_none()
        if row is None:
            return None
        wait = WAITS_MS[min(row.attempts, len(WAITS_MS) - 1)]
        claim = {"attempts": row.attempts + 1, "due": now + wait}
        connection.execute(_deliveries.update().where(_deliveries.c.id == row.id).values(**claim))
        notice = load_notice(connection, row.notice_id)
    signed = _in_force(row._mapping, now)
    return Delivery(row.id, row.webhook_id, row.url, signed, row.message, row.attempts + 1, notice)


def settle_delivery(store: Store, delivery: Delivery, error: str = "") -> bool:
    """Record the success or error of a delivery; returns whether it will be retried."""
    mine = _deliveries.update().where(_deliveries.c.id == delivery.id)
    given_up = delivery.attempts > len(WAITS_MS)
    with store.write() as connection:
        if not error:
            connection.execute(mine.values(delivered=store.now(), due=None, error=""))
        else:
            connection.execute(mine.values(error=error[:500], **({"due": None} if given_up else {})))
    return bool(error) and not given_up


def _missing(connection: Connection, hook: sa.RowMapping) -> Sequence[int]:
    """Notices to send to a webhook that have no delivery yet."""
    topics = json.loads(hook["topics"])
    own = [topic for topic in topics if topic != "inbox"]
    subscribed: sa.ColumnElement[bool] = _notices.c.kind.in_(own)
    if "inbox" in topics:
        others = [topic for topic in TOPICS if topic != "inbox"]
        subscribed = sa.or_(subscribed, _notices.c.kind.not_in((*others, *QUIET)))
    queued = sa.exists().where(_deliveries.c.webhook_id == hook["id"], _deliveries.c.notice_id == _notices.c.id)
    query = sa.select(_notices.c.id).where(_notices.c.study_id == hook["study_id"], subscribed, ~queued)
    return connection.scalars(query.where(_notices.c.id > hook["since"]).order_by(_notices.c.id)).all()


def _address(connection: Connection, row: sa.RowMapping, now: int) -> WebhookAddress:
    mine = _deliveries.c.webhook_id == row["id"]
    waiting = sa.select(sa.func.count()).where(mine, _deliveries.c.due.is_not(None))
    last = sa.select(sa.func.max(_deliveries.c.delivered)).where(mine)
    failed = sa.select(_deliveries.c.error).where(mine, _deliveries.c.error != "")
    newest = failed.order_by(_deliveries.c.id.desc()).limit(1)
    return value_of(
        WebhookAddress, row, topics=tuple(json.loads(row["topics"])), waiting=connection.scalar(waiting) or 0,
        delivered=connection.scalar(last), error=connection.scalar(newest) or "",
        former_until=row["former_until"] if len(_in_force(row, now)) > 1 else None,
    )  # fmt: skip


def _row(connection: Connection, study_id: int, number: int) -> sa.RowMapping:
    mine = sa.and_(_webhooks.c.id == number, _webhooks.c.study_id == study_id, _webhooks.c.removed.is_(None))
    row = connection.execute(sa.select(_webhooks).where(mine)).mappings().one_or_none()
    if row is None:
        raise StudyError("There is no webhook %(number)s in this study.", number=number)
    return row
