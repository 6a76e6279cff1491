"""The user's own sessions: devices, last use, and sign-out."""

from starlette.responses import Response

from tutelage.people.languages import Sentence
from tutelage.people.store.sessions import end_sessions, list_sessions
from tutelage.people.web.call import Call, Refusal, see


def table(call: Call) -> Response:
    """The user's own sessions; the current one is marked."""
    mine = list_sessions(call.store, call.me.id)
    return call.page("owner/sessions.html", sessions=mine, present=call.session_id, place="sessions")


def end(call: Call) -> Response:
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
