"""The tables. Everything a person said is append-only; whatever else changes, changes together with an `event`.

Times are milliseconds since the epoch, JSON is text (it is never searched), states are checked text. Integer keys are
internal; `key` and `name` columns hold the identifiers that files and people use. What is kept beside what it could be
computed from is named in the file of its table, and changes in the same transaction.
"""

from tutelage.people.store.schema.item_tables import (
    FRESH,
    OPEN,
    STARTED,
    VERDICTS,
    conversation,
    item,
    item_response,
    live,
    prompt,
    response,
    started,
    turn,
)
from tutelage.people.store.schema.judgement_tables import (
    LEASED,
    NOTICES,
    WAITING,
    assignment,
    judgement,
    notice,
)
from tutelage.people.store.schema.program_tables import alarm, api_request, delivery, token, webhook
from tutelage.people.store.schema.rater_tables import TALLIES, invite, rater, recruitment, session, visit
from tutelage.people.store.schema.shared_columns import metadata
from tutelage.people.store.schema.study_tables import (
    consent,
    consent_text,
    erasure,
    event,
    export,
    revision,
    study,
    study_version,
)

__all__ = [
    "FRESH", "LEASED", "NOTICES", "OPEN", "STARTED", "TALLIES", "VERDICTS", "WAITING", "alarm", "api_request",
    "assignment", "consent", "consent_text", "conversation", "delivery", "erasure", "event", "export", "invite",
    "item", "item_response", "judgement", "live", "metadata", "notice", "prompt", "rater", "recruitment",
    "response", "revision", "session", "started", "study", "study_version", "token", "turn", "visit", "webhook",
]  # fmt: skip
