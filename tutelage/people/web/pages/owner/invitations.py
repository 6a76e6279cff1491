"""Invitation links for several uses, personal links for a list of names, and their withdrawal."""

import csv
import io

from starlette.responses import Response

from tutelage.base.errors import TutelageError
from tutelage.people import list_invites, personal_links, revoke_invite
from tutelage.people.export import safe_cell
from tutelage.people.languages import Sentence
from tutelage.people.operations import INVITE
from tutelage.people.validation import FieldError
from tutelage.people.web.call import Call, Refusal, see, sentence
from tutelage.people.web.forms import form_page, whole_number

MOST_DAYS = 365
MOST_NAMES = 1_000


def table(call: Call, error: TutelageError | None = None, secret: str = "") -> Response:
    """The invitations with the forms for new ones, and the `secret` of a new one, whose link is shown only once."""
    return form_page(
        call,
        "owner/invitations.html",
        error,
        invites=list_invites(call.store, call.here.id),
        link=f"{call.origin}{INVITE.path}{secret}" if secret else "",
        place="invitations",
    )


def withdraw(call: Call) -> Response:
    """Withdraw an invitation, or the personal link of the rater named in the form."""
    rater = call.number("rater") if call.text("rater") else None
    try:
        revoke_invite(call.store, call.here.id, call.number("invite"), rater=rater, actor=call.me.name)
    except TutelageError as error:
        raise Refusal(404, sentence(error)) from error
    return see("/owner/invitations" if rater is None else f"/owner/raters/{rater}")


def by_name(call: Call) -> Response:
    """Create a personal link for each name in a list, as a CSV table for mail merge. Existing raters get a link back,
    others are created."""
    names = [line.strip() for line in call.text("names").splitlines() if line.strip()]
    try:
        days = whole_number(call, "name_days", Sentence("The number of days"), 1, MOST_DAYS)
        if not 1 <= len(names) <= MOST_NAMES:
            raise FieldError(
                "names",
                Sentence(
                    "Enter 1 to %(most)s names, one per line; these are %(count)s.", most=MOST_NAMES, count=len(names)
                ),
            )
        links = personal_links(
            call.store, call.here.id, names, days=days, note="from a list of names", actor=call.me.name
        )
    except TutelageError as error:
        return table(call, error)
    rows = [(safe_cell(name), f"{call.origin}/return/{token}") for name, token in links]
    headers = {"content-disposition": 'attachment; filename="links.csv"'}
    text = io.StringIO()
    csv.writer(text).writerows([("name", "link"), *rows])
    return Response(text.getvalue(), media_type="text/csv; charset=utf-8", headers=headers)
