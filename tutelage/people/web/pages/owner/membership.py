"""Access to a study: invitation links for several uses, personal links for a list of names, and their withdrawal;
owners and reviewers, with withdrawal and restoration of their access; the user's own sessions.
"""

import csv
import io

from starlette.responses import Response

from tutelage.base.errors import TutelageError
from tutelage.people import Rater, list_invites, personal_links, revoke_invite
from tutelage.people.export import safe_cell
from tutelage.people.languages import Sentence
from tutelage.people.operations import INVITE
from tutelage.people.store.access import end_sessions, list_sessions
from tutelage.people.store.members import list_team, remove_member, restore_member
from tutelage.people.validation import FieldError
from tutelage.people.web.call import Call, Refusal, see, sentence
from tutelage.people.web.forms import form_page, whole_number

MOST_DAYS = 365
MOST_NAMES = 1_000


def invitations(call: Call, error: TutelageError | None = None, secret: str = "") -> Response:
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
    days = whole_number(call, "name_days", Sentence("The number of days"), 1, MOST_DAYS)
    if not 1 <= len(names) <= MOST_NAMES:
        raise FieldError(
            "names", "Enter 1 to %(most)s names, one per line; these are %(count)s.", most=MOST_NAMES, count=len(names)
        )
    links = personal_links(call.store, call.here.id, names, days=days, note="from a list of names", actor=call.me.name)
    rows = [(safe_cell(name), f"{call.origin}/return/{token}") for name, token in links]
    headers = {"content-disposition": 'attachment; filename="links.csv"'}
    text = io.StringIO()
    csv.writer(text).writerows([("name", "link"), *rows])
    return Response(text.getvalue(), media_type="text/csv; charset=utf-8", headers=headers)


def change_member(call: Call) -> Response:
    """Withdraw or restore a member's access, or end all of their sessions."""
    member = _member(call)
    match call.text("action"):
        case "remove":
            remove_member(call.store, member.id, actor=call.me.name)
        case "restore":
            restore_member(call.store, member.id, actor=call.me.name)
        case "sessions":
            end_sessions(call.store, member.id, actor=call.me.name)
        case _:
            raise Refusal(400, Sentence("Choose what to do: remove, restore or sessions."))
    return see("/" if member.id == call.me.id else "/owner/team")


def _member(call: Call) -> Rater:
    for member in list_team(call.store, call.here.id):
        if member.id == call.number("member"):
            return member
    raise Refusal(404, Sentence("There is no such owner or reviewer in this study."))


def team(call: Call, error: TutelageError | None = None) -> Response:
    """The members with their sessions."""
    members = [
        (member, list_sessions(call.store, member.id))
        for member in list_team(call.store, call.here.id)
        if member.forgotten is None
    ]
    return form_page(call, "owner/team.html", error, team=members, place="team")


def own_sessions(call: Call) -> Response:
    """The user's own sessions; the current one is marked."""
    mine = list_sessions(call.store, call.me.id)
    return call.page("owner/sessions.html", sessions=mine, present=call.session_id, place="sessions")


def end_own_sessions(call: Call) -> Response:
    """End one of the user's own sessions, or all but the current one."""
    if call.text("others"):
        end_sessions(call.store, call.me.id, keep=call.session_id, actor=call.me.name)
        return see("/owner/sessions")
    number = call.text("session")
    mine = [each.id for each in list_sessions(call.store, call.me.id) if str(each.id) == number]
    if not mine:
        raise Refusal(404, Sentence("You have no such session; it may be over already."))
    end_sessions(call.store, call.me.id, only=mine[0], actor=call.me.name)
    return see("/" if mine[0] == call.session_id else "/owner/sessions")
