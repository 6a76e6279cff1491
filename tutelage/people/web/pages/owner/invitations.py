"""Letting people in: links that can be used a number of times, personal links by a list of names, and taking them
back."""

import csv
import io

from starlette.responses import Response

from tutelage.base.errors import TutelageError
from tutelage.people import create_invite, list_invites, personal_links, revoke_invite
from tutelage.people.export import safe_cell
from tutelage.people.languages import Sentence
from tutelage.people.store.raters import DECIDING
from tutelage.people.validation import FieldError
from tutelage.people.web.call import Call, Refusal, see
from tutelage.people.web.forms import form_page, whole_number

MOST_USES = 1_000
MOST_DAYS = 365
MOST_NAMES = 1_000


def table(call: Call) -> Response:
    """The invitations, and the forms for new ones."""
    return _page(call)


def create(call: Call) -> Response:
    """A new invitation. Its link is shown this once: only its hash is kept."""
    try:
        uses = whole_number(call, "uses", Sentence("The number of people"), 1, MOST_USES)
        days = whole_number(call, "days", Sentence("The number of days"), 1, MOST_DAYS)
    except TutelageError as error:
        return _page(call, error)
    role = call.text("role") if call.text("role") in DECIDING else "rater"
    token = create_invite(
        call.store,
        call.here.id,
        role=role,  # type: ignore[arg-type]  # one of the three
        max_uses=uses,
        days=days,
        note=call.text("note")[:200],
        actor=call.me.name,
    )
    return _page(call, link=f"{call.origin}/join/{token}")


def by_name(call: Call) -> Response:
    """A personal link for each name of a list, as a table to mail from: raters who are known come back by it, the
    others are made."""
    names = [line.strip() for line in call.text("names").splitlines() if line.strip()]
    try:
        days = whole_number(call, "name_days", Sentence("The number of days"), 1, MOST_DAYS)
        if not 1 <= len(names) <= MOST_NAMES:
            raise FieldError(
                "names",
                Sentence(
                    "Write 1 to %(most)s names, one a line; these are %(count)s.",
                    most=MOST_NAMES,
                    count=len(names),
                ),
            )
        links = personal_links(
            call.store, call.here.id, names, days=days, note="from a list of names", actor=call.me.name
        )
    except TutelageError as error:
        return _page(call, error)
    rows = [(safe_cell(name), f"{call.origin}/return/{token}") for name, token in links]
    headers = {"content-disposition": 'attachment; filename="links.csv"'}
    return Response(_as_csv([("name", "link"), *rows]), media_type="text/csv; charset=utf-8", headers=headers)


def withdraw(call: Call) -> Response:
    """Make an invitation or a personal link useless."""
    number, rater = call.text("invite"), call.text("rater")
    owner = int(rater) if rater.isascii() and rater.isdecimal() and len(rater) < 16 else None
    if not any(str(invite.id) == number for invite in list_invites(call.store, call.here.id, rater=owner)):
        raise Refusal(404, Sentence("There is no such invitation in this study."))
    revoke_invite(call.store, int(number), actor=call.me.name)
    return see("/owner/invitations" if owner is None else f"/owner/raters/{owner}")


def _as_csv(rows: list[tuple[str, str]]) -> str:
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue()


def _page(call: Call, error: TutelageError | None = None, *, link: str = "") -> Response:
    return form_page(
        call,
        "owner/invitations.html",
        error,
        invites=list_invites(call.store, call.here.id),
        link=link,
        place="invitations",
    )
