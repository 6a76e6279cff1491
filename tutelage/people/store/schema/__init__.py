"""Tables of the database. Judgements are append-only; every other change writes an `event` in the same transaction.

Times are milliseconds since the epoch, JSON is stored as text (and never queried), and states are text with a check
constraint. Integer ids are internal; `key` and `name` columns hold the identifiers used in files and by people.
Denormalised columns are listed in the module of their table and updated in the same transaction as their source.
"""

from tutelage.people.store.schema.item_tables import (
    FRESH,
    KEPT,
    OPEN,
    STARTED,
    VERDICTS,
    completion,
    conversation,
    image,
    item,
    item_response,
    live,
    prompt,
    response,
    started,
    turn,
)
from tutelage.people.store.schema.judgement_tables import LEASED, NOTICES, WAITING, assignment, judgement, notice
from tutelage.people.store.schema.rater_tables import TALLIES, invite, rater, recruitment, session, visit
from tutelage.people.store.schema.shared_columns import metadata
from tutelage.people.store.schema.study_tables import (
    alarm,
    api_request,
    consent,
    consent_text,
    delivery,
    erasure,
    event,
    export,
    revision,
    study,
    study_version,
    token,
    webhook,
)

__all__ = [
    "FRESH", "KEPT", "LEASED", "NOTICES", "OPEN", "STARTED", "TALLIES", "VERDICTS", "WAITING", "alarm", "api_request",
    "assignment", "completion", "consent", "consent_text", "conversation", "delivery", "erasure", "event", "export",
    "image", "invite", "item", "item_response", "judgement", "live", "metadata", "notice", "prompt", "rater",
    "recruitment", "response", "revision", "session", "started", "study", "study_version", "token", "turn", "visit",
    "webhook",
]  # fmt: skip
