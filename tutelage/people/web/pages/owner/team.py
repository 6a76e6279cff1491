"""The list of owners and reviewers, with withdrawal and restoration of access, and the user's own sessions."""

from starlette.responses import Response

from tutelage.base.errors import TutelageError
from tutelage.people import Rater
from tutelage.people.languages import Sentence
from tutelage.people.store.members import list_team, remove_member, restore_member
from tutelage.people.store.sessions import end_sessions, list_sessions
from tutelage.people.web.call import Call, Refusal, see
from tutelage.people.web.forms import form_page


def change(call: Call) -> Response:
    """Withdraw or restore a member's access, or end all of their sessions."""
    member = _member(call)
    try:
        match call.text("action"):
            case "remove":
                remove_member(call.store, member.id, actor=call.me.name)
            case "restore":
                restore_member(call.store, member.id, actor=call.me.name)
            case "sessions":
                end_sessions(call.store, member.id, actor=call.me.name)
            case _:
                raise Refusal(400, Sentence("Choose what to do: remove, restore or sessions."))
    except TutelageError as error:
        return table(call, error)
    return see("/" if member.id == call.me.id else "/owner/team")


def _member(call: Call) -> Rater:
    for member in list_team(call.store, call.here.id):
        if member.id == call.number("member"):
            return member
    raise Refusal(404, Sentence("There is no such owner or reviewer in this study."))


def table(call: Call, error: TutelageError | None = None) -> Response:
    """The members with their sessions."""
    team = [
        (member, list_sessions(call.store, member.id))
        for member in list_team(call.store, call.here.id)
        if member.forgotten is None
    ]
    return form_page(call, "owner/team.html", error, team=team, place="team")


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
