"""The tables. Everything a person said is append-only; whatever else changes, changes together with an `event`.

Times are milliseconds since the epoch, JSON is text (it is never searched), states are checked text. Integer keys are
internal; `key` and `name` columns hold the identifiers that files and people use. What is kept beside what it could be
computed from is named in the file of its table, and changes in the same transaction.
"""

from tutelage.people.store.schema.columns import metadata
from tutelage.people.store.schema.conversations import conversation, live, turn
from tutelage.people.store.schema.history import erasure, event, export, revision
from tutelage.people.store.schema.items import (
    FRESH,
    OPEN,
    STARTED,
    VERDICTS,
    item,
    item_response,
    prompt,
    response,
    started,
)
from tutelage.people.store.schema.judgements import LEASED, NOTICES, WAITING, assignment, judgement, notice
from tutelage.people.store.schema.programs import alarm, api_request, delivery, token, webhook
from tutelage.people.store.schema.raters import TALLIES, invite, rater, session
from tutelage.people.store.schema.recruitment import recruitment, visit
from tutelage.people.store.schema.studies import consent, consent_text, study, study_version

__all__ = [
    "FRESH",
    "LEASED",
    "NOTICES",
    "OPEN",
    "STARTED",
    "TALLIES",
    "VERDICTS",
    "WAITING",
    "alarm",
    "api_request",
    "assignment",
    "consent",
    "consent_text",
    "conversation",
    "delivery",
    "erasure",
    "event",
    "export",
    "invite",
    "item",
    "item_response",
    "judgement",
    "live",
    "metadata",
    "notice",
    "prompt",
    "rater",
    "recruitment",
    "response",
    "revision",
    "session",
    "started",
    "study",
    "study_version",
    "token",
    "turn",
    "visit",
    "webhook",
]
