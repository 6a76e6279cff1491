"""The items: where raters disagree, and every vote as it was displayed."""

from urllib.parse import quote

from starlette.responses import Response

from tutelage.figures import Svg, parts_strip
from tutelage.people import Question, Vote, list_questions, list_votes
from tutelage.people.answers import LETTERS
from tutelage.people.store.ballots import item_keys
from tutelage.people.web.call import Call, Refusal

PAGE = 25
ORDERS = {"disagreement": "Most disagreement", "doubt": "Least sure labels", "added": "As they were added"}
"""For rankings there is no first one: the votes of an item have no two sides to count."""


def table(call: Call) -> Response:
    """A page of items in one of three orders."""
    orders = {key: said for key, said in ORDERS.items() if call.here.kind == "pair" or key != "disagreement"}
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
        shown=shown,
        meant=meant,
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


STRENGTH = ("", "slightly ", "", "much ")


def shown(vote: Vote) -> str:
    """What was pressed, by where the responses stood."""
    choice = str(vote.displayed.get("choice", ""))
    if choice in ("left", "right"):
        return f"{choice}, {STRENGTH[vote.strength]}better"
    if choice == "ranked":
        ranking = vote.displayed.get("ranking", ())
        return "ranks from top: " + " ".join(
            str(rank) for rank in (ranking if isinstance(ranking, list | tuple) else ())
        )
    return {"tie": "equal", "both_bad": "both bad", "skip": "can’t judge"}.get(choice, choice)


def meant(vote: Vote) -> str:
    """What that says about the responses, whatever side they stood on."""
    if vote.verdict in ("a", "b"):
        return f"{vote.verdict.upper()} {STRENGTH[vote.strength]}better"
    if vote.ranking:
        return ", ".join(
            f"{letter} {rank}" for letter, rank in zip(LETTERS.upper(), vote.ranking, strict=False)
        )
    return shown(vote)
