"""Tables of the database. Judgements are append-only; every other change writes an `event` in the same transaction.

Times are milliseconds since the epoch, JSON is stored as text (and never queried), and states are text with a check
constraint. Integer ids are internal; `key` and `name` columns hold the identifiers used in files and by people.
Denormalised columns are listed in the module of their table and updated in the same transaction as their source.
"""

from tutelage.people.store.schema.item_tables import (
    FRESH,
    KEPT,
    LEASED,
    NOTICES,
    OPEN,
    STARTED,
    VERDICTS,
    WAITING,
    assignment,
    completion,
    conversation,
    image,
    item,
    item_response,
    judgement,
    live,
    notice,
    prompt,
    response,
    started,
    turn,
)
from tutelage.people.store.schema.study_tables import (
    TALLIES,
    alarm,
    api_request,
    consent,
    consent_text,
    delivery,
    erasure,
    event,
    export,
    invite,
    metadata,
    rater,
    recruitment,
    revision,
    session,
    study,
    study_version,
    token,
    visit,
    webhook,
)

__all__ = [
    "FRESH", "KEPT", "LEASED", "NOTICES", "OPEN", "STARTED", "TALLIES", "VERDICTS", "WAITING", "alarm", "api_request",
    "assignment", "completion", "consent", "consent_text", "conversation", "delivery", "erasure", "event", "export",
    "image", "invite", "item", "item_response", "judgement", "live", "metadata", "notice", "prompt", "rater",
    "recruitment", "response", "revision", "session", "started", "study", "study_version", "token", "turn", "visit",
    "webhook",
]  # fmt: skip
