"""The sessions of whoever is signed in: on which devices, when they were used last, and how to end them."""

from starlette.responses import Response

from tutelage.people.languages import Sentence
from tutelage.people.store.sessions import end_sessions, list_sessions
from tutelage.people.web.call import Call, Refusal, see


def table(call: Call) -> Response:
    """One's own sessions; the present one is marked."""
    mine = list_sessions(call.store, call.me.id)
    return call.page("owner/sessions.html", sessions=mine, present=call.session_id, place="sessions")


def end(call: Call) -> Response:
    """End one of one's own sessions, or all but the present one."""
    if call.text("others"):
        end_sessions(call.store, call.me.id, keep=call.session_id, actor=call.me.name)
        return see("/owner/sessions")
    number = call.text("session")
    mine = [each.id for each in list_sessions(call.store, call.me.id) if str(each.id) == number]
    if not mine:
        raise Refusal(404, Sentence("You have no such session; it may be over already."))
    end_sessions(call.store, call.me.id, only=mine[0], actor=call.me.name)
    return see("/" if mine[0] == call.session_id else "/owner/sessions")
