"""The page of one rater: reliability, votes with their questions, and actions."""

from collections.abc import Callable, Mapping, Sequence

from starlette.responses import Response

from tutelage.base.errors import TutelageError
from tutelage.people import (
    Rater,
    Vote,
    change_rater,
    exclude_all,
    include_all,
    list_invites,
    list_notices,
    list_questions,
    list_raters,
    list_votes,
    personal_link,
)
from tutelage.people.languages import Sentence, say
from tutelage.people.mail import MAILED, check_address, send_link
from tutelage.people.statistics.computation import preview
from tutelage.people.store.access import PERSONAL_DAYS, end_sessions, list_sessions
from tutelage.people.store.consents import consent_of
from tutelage.people.store.exclusions import Scope
from tutelage.people.store.rater_erasure import forget
from tutelage.people.store.raters import crowd_kinds
from tutelage.people.validation import FieldError, StudyError
from tutelage.people.web.call import Call, Refusal, see
from tutelage.people.web.forms import form_page, reason_of, whole_number
from tutelage.people.web.names import SINGULAR
from tutelage.people.web.pages.owner.items import item_address, item_of_address, item_page
from tutelage.people.web.paging import page_number, page_of, with_query

FEW_ENOUGH = 20_000
"""Maximum number of votes in a study for an automatic preview, which fits the rater model twice."""
VOTES = 25
MOST_QUOTA = 1_000_000
STANDINGS = {
    "flagged": Sentence("fails the test"),
    "cleared": Sentence("passes the test"),
    "learning": Sentence("too few to tell"),
}
"""Results of the test on known answers so far."""
SCOPES: tuple[Scope, ...] = ("rater", "item", "judgement")
SAID: Mapping[str, tuple[Sentence, Callable[[Vote], bool]]] = {
    "": (Sentence("everything"), lambda vote: True),
    "skipped": (Sentence("skipped"), lambda vote: vote.verdict == "skip"),
    "flagged": (Sentence("flagged"), lambda vote: bool(vote.flags)),
    "reason": (Sentence("with a reason"), lambda vote: bool(vote.reason)),
    "corrected": (Sentence("with a better response or marks"), lambda vote: bool(vote.correction or vote.spans)),
    "known": (Sentence("known answers"), lambda vote: vote.pool == "gold"),
    "repeat": (Sentence("asked again"), lambda vote: vote.repeat),
    "excluded": (Sentence("excluded"), lambda vote: vote.excluded is not None),
}
"""Filters of a rater's votes, with their names."""


def quota_of(call: Call) -> int | None:
    """The rater's maximum number of answers, from the field `quota`; None for no limit."""
    if not call.text("quota"):
        return None
    return whole_number(call, "quota", Sentence("The greatest number of answers"), 0, MOST_QUOTA)


def detail(call: Call, error: TutelageError | None = None, *, rater: Rater | None = None, **more: object) -> Response:
    """The page of one rater, by default the one in its address."""
    rater = rater or _rater(call)
    cached = call.site.keeper.whole(call.here)
    row = cached.value.statistics.raters.get(rater.id) if cached.value is not None else None
    everybody = list_raters(call.store, call.here.id)
    votes = sum(each.tallies.answered + each.tallies.skipped for each in everybody)
    previewing = "preview" in call.query or votes < FEW_ENOUGH
    return form_page(
        call,
        "owner/rater.html",
        error,
        who=rater,
        found=row,
        standings=STANDINGS,
        singular=SINGULAR,
        kept=cached,
        preview=_preview(call, rater, everybody) if previewing and rater.kind in crowd_kinds(everybody) else None,
        address=item_address,
        notices=list_notices(call.store, call.here.id, rater=rater.id, limit=10),
        links=list_invites(call.store, call.here.id, rater=rater.id),
        link_days=round(PERSONAL_DAYS),
        mails=call.site.mail is not None,
        sessions=list_sessions(call.store, rater.id),
        place="raters",
        **_votes(call, rater),
        consent=consent_of(call.store, call.here.id, rater.agreed),
        **({"link": "", "mailed": "", "forgotten": None} | more),
    )


def _votes(call: Call, rater: Rater) -> dict[str, object]:
    """A page of the rater's votes, newest first, with their questions."""
    choice = call.text("said") if call.text("said") in SAID else ""
    fits = SAID[choice][1]
    votes = [vote for vote in list_votes(call.store, call.here.id, rater=rater.id) if fits(vote)][::-1]
    page = page_of(page_number(call), VOTES, len(votes), with_query(f"/owner/raters/{rater.id}", {"said": choice}))
    some = votes[page.first - 1 :][:VOTES]
    keys = tuple({vote.item for vote in some})
    contexts = {
        question.key: question.messages[-1].content for question in list_questions(call.store, call.here.id, keys=keys)
    }
    return {
        "votes": some,
        "asked": contexts,
        "page": page,
        "said": choice,
        "kinds_of_votes": {key: words for key, (words, _) in SAID.items()},
    }


def change(call: Call) -> Response:
    """Pause or resume a rater, or limit the number of answers."""
    rater = _rater(call)
    state = "paused" if call.text("state") == "paused" else "active"
    quota = quota_of(call)
    change_rater(
        call.store,
        rater.id,
        state=state,  # type: ignore[arg-type]  # one of the two
        quota=quota,
        why=call.text("why"),
        actor=call.me.name,
    )
    return see(f"/owner/raters/{rater.id}")


def bring_back(call: Call) -> Response:
    """Create a personal link with which the rater can return, shown only once."""
    rater = _rater(call)
    _check_link(rater)
    token = personal_link(call.store, rater.id, actor=call.me.name)
    return detail(call, link=f"{call.origin}/return/{token}")


def mail_back(call: Call) -> Response:
    """Mail the rater a personal link. The address is not stored."""
    rater, server, address = _rater(call), call.site.mail, call.text("email")
    _check_link(rater)
    if server is None:
        raise Refusal(404, Sentence("This server sends no mail: it was started without a mail server."))
    try:
        check_address(address)
        token = personal_link(call.store, rater.id, note=say(MAILED, call.reading), actor=call.me.name)
        send_link(call.store, server, token, address, call.origin, actor=call.me.name)
    except TutelageError as error:
        return detail(call, error)
    return detail(call, mailed=address)


def _check_link(rater: Rater) -> None:
    """Raise TutelageError unless the rater can be given a personal link."""
    if rater.role != "rater":
        raise StudyError(
            "A link for an owner or reviewer is made on the command line: %(command)s",
            command="tutelage collect invite STUDY --rater NAME",
        )


def end_all_sessions(call: Call) -> Response:
    """End every session of this person. Personal links remain valid until they are withdrawn."""
    rater = _rater(call)
    end_sessions(call.store, rater.id, actor=call.me.name)
    return see(f"/owner/raters/{rater.id}")


def forget_rater(call: Call) -> Response:
    """Erase the rater's personal data after confirmation, and report what cannot be erased."""
    rater = _rater(call)
    if call.text("sure") != "yes":
        raise FieldError("sure", "Tick this first: erased data cannot be restored.")
    erasure = forget(call.store, rater.id, backups_too=call.text("backups") == "yes", actor=call.me.name)
    return detail(call, forgotten=erasure)


def leave_out(call: Call) -> Response:
    """Exclude a rater, an item or a judgement, or undo it. Nothing is deleted; the exclusion is recorded with its
    reason."""
    scope, name = call.text("scope"), call.text("name")
    if scope not in SCOPES:
        raise StudyError("“%(scope)s” cannot be excluded; a rater, an item or a judgement can.", scope=scope[:50])
    target: Scope = scope
    try:
        if call.text("back"):
            include_all(call.store, call.here.id, target, [name], actor=call.me.name)
        else:
            reason = reason_of(call, f"reason-{name}" if scope == "judgement" else "reason")
            exclude_all(call.store, call.here.id, target, [name], reason, actor=call.me.name)
    except TutelageError as error:
        return _not_left_out(call, target, name, error)
    page = call.text("page")
    local = page.startswith("/owner/") and "\\" not in page
    return see(page if local else "/owner")


def _not_left_out(call: Call, scope: Scope, name: str, error: TutelageError) -> Response:
    """The page on which the exclusion failed, with the error."""
    rater = next((each for each in list_raters(call.store, call.here.id) if each.name == name), None)
    if scope == "rater" and rater is not None:
        return detail(call, error, rater=rater)
    item = item_of_address(call.text("page")) if scope == "judgement" else name
    if scope != "rater" and list_questions(call.store, call.here.id, keys=(item,)):
        return item_page(call, item, error)
    raise error


def _rater(call: Call) -> Rater:
    for rater in list_raters(call.store, call.here.id):
        if rater.id == call.number("number"):
            return rater
    raise Refusal(404, Sentence("There is no such rater in this study."))


def _preview(call: Call, rater: Rater, everybody: Sequence[Rater]) -> object:
    crowd = crowd_kinds(everybody)
    beside = frozenset(each.id for each in everybody if each.kind not in crowd)
    return preview(call.site.keeper.ballots(call.here), rater.id, beside)
