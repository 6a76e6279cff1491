"""The inbox: flags, skips and notes of raters, failed practice, disputed items, failing models, full rounds and low
agreement."""

from urllib.parse import urlencode

from starlette.responses import Response

from tutelage.people import close_notices, list_notices, list_questions, reopen_notice
from tutelage.people.languages import Sentence
from tutelage.people.validation import record_number
from tutelage.people.web.call import Call, Refusal, see
from tutelage.people.web.names import KINDS, SINGULAR
from tutelage.people.web.pages.owner.items import item_address
from tutelage.people.web.paging import Page, page_number

PAGE = 30


def table(call: Call) -> Response:
    """A page of the open notices, or of the closed ones."""
    kind = _kind(call)
    closed = call.text("closed") == "yes"
    number = page_number(call)
    notices = list_notices(
        call.store, call.here.id, kind=kind, closed=closed, limit=PAGE + 1, offset=(number - 1) * PAGE
    )
    keys = {notice.item for notice in notices[:PAGE] if notice.item is not None}
    questions = list_questions(call.store, call.here.id, keys=tuple(keys)) if keys else ()
    return call.page(
        "owner/inbox.html",
        notices=notices[:PAGE],
        questions={question.key: question for question in questions},
        kind=kind or "",
        kinds=KINDS,
        singular=SINGULAR,
        closed=closed,
        page=Page(number, PAGE, len(notices) > PAGE, _address(kind, closed)),
        address=item_address,
        place="inbox",
    )


def close(call: Call) -> Response:
    """Close the ticked notices, or all open ones in the tab."""
    kind = _kind(call)
    if call.text("all"):
        close_notices(call.store, call.here.id, kind=kind, actor=call.me.name)
    else:
        numbers = [record_number(each) for each in call.fields.get("notice", ())]
        close_notices(call.store, call.here.id, numbers, actor=call.me.name)
    page = call.text("page")
    return see(page if page.startswith("/owner/") and "\\" not in page else _address(kind, False))


def reopen(call: Call) -> Response:
    """Reopen a notice."""
    if not call.number("notice"):
        raise Refusal(404, Sentence("There is no such notice."))
    reopen_notice(call.store, call.here.id, call.number("notice"), actor=call.me.name)
    return see(_address(_kind(call), True))


def _kind(call: Call) -> str | None:
    return call.text("kind") if call.text("kind") in KINDS else None


def _address(kind: str | None, closed: bool) -> str:
    query = {"kind": kind} if kind else {}
    query |= {"closed": "yes"} if closed else {}
    return f"/owner/inbox{'?' if query else ''}{urlencode(query)}"
