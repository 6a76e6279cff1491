"""The items: where raters disagree, and every vote as it was displayed."""

from urllib.parse import quote

from starlette.responses import Response

from tutelage.figures import Svg, parts_strip
from tutelage.people import Question, list_questions, list_votes
from tutelage.people.answers import LETTERS
from tutelage.people.store.ballots import item_keys
from tutelage.people.web.call import Call, Refusal

PAGE = 25
ORDERS = {"disagreement": "Most disagreement", "doubt": "Least sure labels", "added": "As they were added"}
"""There is no first one where the votes of an item have no two sides to count."""


def table(call: Call) -> Response:
    """A page of items in one of three orders."""
    orders = {
        key: said for key, said in ORDERS.items() if call.here.kind.traits.sides or key != "disagreement"
    }
    order = call.text("by") if call.text("by") in orders else next(iter(orders))
    page = call.text("page", "1")
    number = min(int(page), 100_000) if page.isdecimal() and len(page) < 9 and int(page) > 0 else 1
    questions = _questions(call, order, (number - 1) * PAGE)
    return call.page(
        "owner/items.html",
        questions=questions[:PAGE],
        more=len(questions) > PAGE,
        number=number,
        order=order,
        orders=orders,
        bar=counts_bar,
        address=item_address,
        place="items",
    )


def _questions(call: Call, order: str, offset: int) -> tuple[Question, ...]:
    study = call.here.id
    if order == "doubt":
        kept = call.site.keeper.whole(call.here)
        ids = kept.value.figures.doubtful[offset : offset + PAGE + 1] if kept.value is not None else ()
        keys = item_keys(call.store, study, ids)
        found = {
            question.key: question
            for question in list_questions(call.store, study, keys=tuple(keys.values()))
        }
        return tuple(found[keys[number]] for number in ids if keys.get(number) in found)
    disagreed = order == "disagreement"
    return list_questions(call.store, study, disagreed=disagreed, limit=PAGE + 1, offset=offset)


def detail(call: Call) -> Response:
    """One item with everything that was said about it."""
    key = call.path["key"]
    found = list_questions(call.store, call.here.id, keys=(key,))
    if not found:
        raise Refusal(404, f"There is no item '{key[:100]}' in this study.")
    votes = list_votes(call.store, call.here.id, item=key, every_revision=True)
    return call.page(
        "owner/item.html",
        question=found[0],
        letters=LETTERS.upper(),
        votes=votes,
        bar=counts_bar,
        address=item_address,
        place="items",
    )


def item_address(key: str) -> str:
    """The page of an item. Keys are the caller's own and may hold anything."""
    return f"/owner/items/{quote(key, safe='')}"


def counts_bar(question: Question) -> Svg:
    """The votes of an item as one bar."""
    counts = question.counts
    label = f"A {counts['a']}, equal {counts['tie']}, B {counts['b']}, both bad {counts['both_bad']}"
    parts = [("a", counts["a"]), ("tie", counts["tie"]), ("b", counts["b"]), ("bad", counts["both_bad"])]
    return parts_strip(parts, label)
