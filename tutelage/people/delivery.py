"""Webhooks: messages about notices to URLs set by an owner.

    {"type": "round.full", "timestamp": "2026-05-01T09:30:00Z",
     "data": {"study": "tutoring", "inbox": "https://…/owner/inbox", "round": 2, "items": 40}}

Types are `round.full`, `agreement.low`, `inbox.KIND` (such as `inbox.flag`) and `test`. A delivered message is never
sent again; a failed one is retried with the same message id and increasing delays for three days.
"""

import json
import logging
import secrets
import time
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

from tutelage.base.errors import TutelageError
from tutelage.people.languages import Sentence
from tutelage.people.programs.signatures import signed_headers
from tutelage.people.store.engine import Store
from tutelage.people.store.inbox import Notice
from tutelage.people.store.studies import study_of
from tutelage.people.store.webhooks import Delivery, claim_delivery, queue_deliveries, secrets_of, settle_delivery

TIMEOUT_SECONDS = 20.0
MOST_AT_ONCE = 100
"""Maximum number of deliveries per call of `deliver`."""
TYPES = {"round": "round.full", "agreement": "agreement.low"}
"""Message types by kind of notice; the default is `inbox.KIND`."""
_log = logging.getLogger("tutelage")


def deliver(store: Store, study_id: int, inbox: str = "") -> int:
    """Send the due messages of a study's webhooks; returns the number delivered. After a failure, a URL is skipped
    until the next call. `inbox` is the URL of the inbox."""
    queue_deliveries(store, study_id)
    arrived, failing = 0, set[int]()
    for _ in range(MOST_AT_ONCE):
        delivery = claim_delivery(store, study_id, failing)
        if delivery is None:
            break
        problem = _send_delivery(store, study_id, delivery, inbox)
        again = settle_delivery(store, delivery, problem)
        if not problem:
            arrived += 1
            continue
        failing.add(delivery.webhook)
        _log.warning(
            "The webhook at %s %s; %s.",
            urlsplit(delivery.url).hostname,
            problem,
            "it will be retried" if again else "the message is discarded after three days",
        )
    return arrived


def send_test(store: Store, study_id: int, number: int) -> str:
    """Send a message of type `test` to a webhook; returns a description of the error, empty on success.

    Raises:
        TutelageError: the study has no such webhook.
    """
    url, signed_with = secrets_of(store, study_id, number)
    data = {"study": study_of(store, study_id).name}
    body = _body("test", store.now(), data)
    return _send(url, signed_with, f"msg_{secrets.token_urlsafe(24)}", body)


def _send_delivery(store: Store, study_id: int, delivery: Delivery, inbox: str) -> str:
    notice, study = delivery.notice, study_of(store, study_id)
    data = {"study": study.name, "inbox": inbox} | dict(notice.facts or notice_row(notice))
    kind = TYPES.get(notice.kind, f"inbox.{notice.kind}")
    return _send(delivery.url, delivery.secrets, delivery.message, _body(kind, notice.created, data))


def notice_row(notice: Notice) -> dict[str, object]:
    """A notice caused by a person, as JSON, with the pseudonym of the rater."""
    return {
        "id": notice.id,
        "kind": notice.kind,
        "item": notice.item,
        "asked": notice.asked,
        "rater": notice.pseudonym,
        "flags": list(notice.flags),
        "said": notice.text,
        "created": notice.created,
    }


def _body(kind: str, at: int, data: Mapping[str, object]) -> bytes:
    when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at / 1000))
    return json.dumps({"type": kind, "timestamp": when, "data": data}, ensure_ascii=False).encode()


def _send(url: str, signed_with: Sequence[str], message: str, body: bytes) -> str:
    """Send a message once; returns a description of the error, empty on success. Redirects are not followed: only the
    owner chooses the URL."""
    import httpx

    try:
        headers = {"content-type": "application/json"} | signed_headers(signed_with, message, int(time.time()), body)
        reply = httpx.post(url, content=body, headers=headers, timeout=TIMEOUT_SECONDS, follow_redirects=False)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        return Sentence("cannot be reached (%(error)s)", error=str(error) or type(error).__name__)
    except TutelageError as error:
        return str(error)
    return "" if reply.is_success else Sentence("answered with status %(status)s", status=str(reply.status_code))
