"""The raters, one by one: how reliable they are and on what evidence, and what may be done about it."""

from starlette.responses import Response

from tutelage.errors import TutelageError
from tutelage.people import Rater, change_rater, exclude, include, list_raters, start_session
from tutelage.people.store.exclusions import Scope
from tutelage.people.web.call import Call, Refusal, see
from tutelage.people.web.drawings import share_interval
from tutelage.people.web.figures.previews import preview
from tutelage.stats.intervals import Interval

FEW_ENOUGH = 20_000
"""Votes of the study up to which a preview is made without being asked for: it takes two fits of all of them."""
RETURN_DAYS = 7
STANDINGS = {"flagged": "fails the test", "cleared": "passes the test", "learning": "too few to tell"}
"""What the test on known answers says so far."""
SCOPES: tuple[Scope, ...] = ("rater", "item", "judgement")


def table(call: Call) -> Response:
    """All of them, those to look at first."""
    kept = call.site.keeper.whole(call.here)
    figures = {} if kept.value is None else kept.value.figures.raters
    raters = [
        rater for rater in list_raters(call.store, call.here.id) if rater.role == "rater" or rater.asked
    ]
    raters.sort(key=lambda r: (not (r.id in figures and figures[r.id].flags), -r.tallies.answered, r.name))
    return call.page(
        "owner/raters.html",
        raters=raters,
        figures=figures,
        standings=STANDINGS,
        kept=kept,
        share_interval=share_interval,
        Interval=Interval,
        place="raters",
    )


def detail(call: Call) -> Response:
    """One of them."""
    return _detail(call, _rater(call))


def _detail(call: Call, rater: Rater, **more: object) -> Response:
    kept = call.site.keeper.whole(call.here)
    found = kept.value.figures.raters.get(rater.id) if kept.value is not None else None
    votes = sum(
        each.tallies.answered + each.tallies.skipped for each in list_raters(call.store, call.here.id)
    )
    wanted = "preview" in call.query or votes < FEW_ENOUGH
    return call.page(
        "owner/rater.html",
        who=rater,
        found=found,
        standings=STANDINGS,
        kept=kept,
        preview=_preview(call, rater) if wanted and rater.kind != "llm" else None,
        share_interval=share_interval,
        Interval=Interval,
        place="raters",
        **({"link": ""} | more),
    )


def change(call: Call) -> Response:
    """Pause a rater or let one go on, and limit what is asked of one."""
    rater = _rater(call)
    quota = call.text("quota")
    if quota and not quota.isdecimal():
        raise TutelageError(
            f"The greatest number of answers is '{quota}'; give a whole number, or nothing for no limit."
        )
    state = "paused" if call.text("state") == "paused" else "active"
    change_rater(
        call.store,
        rater.id,
        state=state,  # type: ignore[arg-type]  # one of the two
        quota=int(quota) if quota else None,
        why=call.text("why"),
        actor=call.me.name,
    )
    return see(f"/owner/raters/{rater.id}")


def bring_back(call: Call) -> Response:
    """A link that signs the rater in again, on another machine or after the session is over. It is shown once."""
    rater = _rater(call)
    if rater.role == "owner":
        raise TutelageError(
            "A link for an owner is made on the command line: tutelage collect invite STUDY --rater NAME."
        )
    return _detail(call, rater, link=f"/return/{start_session(call.store, rater.id, days=RETURN_DAYS)}")


def leave_out(call: Call) -> Response:
    """Exclude a rater, an item or a judgement, or take it back: a reason on top of what was said, never a deletion."""
    scope, name = call.text("scope"), call.text("name")
    if scope not in SCOPES:
        raise TutelageError(f"'{scope}' cannot be excluded; a rater, an item or a judgement can.")
    known: Scope = scope
    if call.text("back"):
        include(call.store, call.here.id, known, name, actor=call.me.name)
    else:
        exclude(call.store, call.here.id, known, name, call.text("reason"), actor=call.me.name)
    page = call.text("page")
    local = page.startswith("/owner/") and "\\" not in page
    return see(page if local else "/owner")


def _rater(call: Call) -> Rater:
    number = call.path["number"]
    for rater in list_raters(call.store, call.here.id):
        if str(rater.id) == number:
            return rater
    raise Refusal(404, "There is no such rater in this study.")


def _preview(call: Call, rater: Rater) -> object:
    llm = frozenset(each.id for each in list_raters(call.store, call.here.id) if each.kind == "llm")
    return preview(call.site.keeper.ballots(call.here), rater.id, llm)
