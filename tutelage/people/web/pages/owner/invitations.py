"""Letting people in: links that can be used a number of times, and taken back."""

from starlette.responses import Response

from tutelage.errors import TutelageError
from tutelage.people import create_invite, list_invites, revoke_invite
from tutelage.people.web.call import Call, Refusal, see

MOST_USES = 1_000
MOST_DAYS = 365


def table(call: Call) -> Response:
    """The invitations, and the form for a new one."""
    return _page(call, "")


def create(call: Call) -> Response:
    """A new invitation. Its link is shown this once: only its hash is kept."""
    uses, days = call.text("uses", "1"), call.text("days", "14")
    if not uses.isdecimal() or not 1 <= int(uses) <= MOST_USES:
        raise TutelageError(f"The link is for '{uses}' people; give a number from 1 to {MOST_USES}.")
    if not days.isdecimal() or not 1 <= int(days) <= MOST_DAYS:
        raise TutelageError(f"The link is good for '{days}' days; give a number from 1 to {MOST_DAYS}.")
    role = "owner" if call.text("role") == "owner" else "rater"
    token = create_invite(
        call.store,
        call.here.id,
        role=role,  # type: ignore[arg-type]  # one of the two
        max_uses=int(uses),
        days=int(days),
        note=call.text("note")[:200],
        actor=call.me.name,
    )
    return _page(call, f"/join/{token}")


def withdraw(call: Call) -> Response:
    """Make an invitation useless."""
    number = call.text("invite")
    if not any(str(invite.id) == number for invite in list_invites(call.store, call.here.id)):
        raise Refusal(404, "There is no such invitation in this study.")
    revoke_invite(call.store, int(number), actor=call.me.name)
    return see("/owner/invitations")


def _page(call: Call, link: str) -> Response:
    invites = list_invites(call.store, call.here.id)
    return call.page("owner/invitations.html", invites=invites, link=link, place="invitations")
