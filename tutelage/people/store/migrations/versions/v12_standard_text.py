"""Version 12: raters who agreed to the former standard text about consent are asked again.

The standard text says since then that better responses which raters write are learnt from. It gets a new number, with
the same rules about votes and retention, in each study that shows it and in which somebody agreed to its number.
"""

import json
import time

import sqlalchemy as sa
from alembic import op

revision = "v12"
down_revision = "v11"

_AGREED = sa.text(
    "SELECT s.id, COALESCE(c.votes, 'keep') AS votes, c.retention_days, "
    "(SELECT COALESCE(MAX(o.number), 0) FROM consent o WHERE o.study_id = s.id) AS last "
    "FROM study s LEFT JOIN consent c ON c.study_id = s.id AND c.number = s.consent "
    "WHERE COALESCE(c.text, '') = '' AND EXISTS (SELECT 1 FROM rater r WHERE r.study_id = s.id "
    "AND r.kind = 'human' AND r.agreed = s.consent AND r.consented IS NOT NULL)"
)


def upgrade() -> None:
    connection = op.get_bind()
    study = sa.table("study", sa.column("id"), sa.column("consent"))
    for row in connection.execute(_AGREED).all():
        now, number = int(time.time() * 1000), row.last + 1
        told = {"votes": row.votes, "retention_days": row.retention_days}
        consent = {"study_id": row.id, "number": number, "text": "", "created": now} | told
        event = {"study_id": row.id, "at": now, "actor": "tutelage", "action": "consent_version"}
        event |= {"subject": str(number), "detail": json.dumps(told, sort_keys=True)}
        for name, values in (("consent", consent), ("event", event)):
            connection.execute(sa.insert(sa.table(name, *map(sa.column, values))).values(values))
        connection.execute(study.update().where(study.c.id == row.id).values(consent=number))
