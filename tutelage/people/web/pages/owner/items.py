"""The list of items with filters and bulk actions, and the page of one item with every vote as it was displayed and
every correction as a difference word by word."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import partial
from itertools import pairwise
from typing import Literal, NamedTuple, TypeAlias
from urllib.parse import quote, unquote

from starlette.responses import Response

from tutelage.base.errors import TutelageError
from tutelage.people import (
    Question,
    Vote,
    exclude_all,
    include_all,
    list_notices,
    list_questions,
    list_raters,
    list_votes,
    set_overlap,
)
from tutelage.people.answers import FLAGS, LETTERS, Span
from tutelage.people.languages import Sentence, say
from tutelage.people.store.item_catalogue import STATES, Found, ItemFilter, find_items, find_keys
from tutelage.people.validation import FieldError
from tutelage.people.web.call import Call, Refusal, see
from tutelage.people.web.forms import form_page, reason_of, whole_number
from tutelage.people.web.names import SINGULAR
from tutelage.people.web.paging import page_number, page_of, with_query
from tutelage.people.web.traces import messages_data, steps_data
from tutelage.report.figures import Svg, parts_strip

PAGE = 25
_PAGES = "/owner/items/"
MOST_AT_ONCE = 5_000
ORDERS = {
    "disagreement": Sentence("most disagreement first"),
    "doubt": Sentence("least sure labels first"),
    "added": Sentence("as they were added"),
    "newest": Sentence("last answered first"),
    "answered": Sentence("most answers first"),
    "skipped": Sentence("most skipped first"),
}
"""Orders of the list. The first is omitted for kinds whose votes have no two sides to count."""
POOLS = {"production": Sentence("ordinary"), "gold": Sentence("known answer"), "training": Sentence("practice")}
STATE_WORDS = {
    "open": Sentence("incomplete"),
    "done": Sentence("complete"),
    "disagreed": Sentence("votes for both sides"),
    "excluded": Sentence("excluded"),
}
STEP_STATES = {"disagreed": Sentence("different first wrong steps")}
"""Other words where steps are judged."""
NAMES = ("text", "rater", "flag", "skipped", "corrected", "model", "pool", "round", "state", "by")
"""The fields of the form, all of which are part of the address."""


@dataclass(frozen=True)
class ItemSearch:
    """A query of items: the raw fields of the form, and the filter and order they specify."""

    fields: Mapping[str, str]
    filter: ItemFilter
    order: str
    orders: Mapping[str, str]

    @property
    def address(self) -> str:
        """The address of the list with this query."""
        return with_query("/owner/items", self.fields)


def table(call: Call, error: TutelageError | None = None) -> Response:
    """A page of the items that match the form, in its order."""
    query = _search_of(call)
    number = page_number(call)
    result = _find(call, query, (number - 1) * PAGE)
    page = page_of(number, PAGE, result.total, query.address)
    if page.number != number:
        result = _find(call, query, (page.number - 1) * PAGE)
    cached = call.site.keeper.whole(call.here)
    rounds = cached.value.survey.rounds if cached.value is not None else ()
    return form_page(
        call,
        "owner/items.html",
        error,
        ticked=call.fields.get("item", ()) if error else (),
        found=result,
        page=page,
        asked=query,
        flags=FLAGS,
        pools=POOLS,
        states=STATE_WORDS | (STEP_STATES if call.here.kind.traits.steps else {}),
        rounds=[each.number for each in rounds],
        models=sorted({name for each in rounds for name in each.samplers}),
        raters=[rater for rater in list_raters(call.store, call.here.id) if rater.asked],
        bar=partial(counts_bar, language=call.reading),
        address=item_address,
        place="items",
    )


def _find(call: Call, query: ItemSearch, offset: int) -> Found:
    among: Sequence[int] | None = None
    if query.order == "doubt":
        cached = call.site.keeper.whole(call.here)
        among = cached.value.statistics.doubtful if cached.value is not None else ()
    return find_items(call.store, call.here.id, query.filter, order=query.order, among=among, limit=PAGE, offset=offset)


def _search_of(call: Call) -> ItemSearch:
    counted = call.here.kind.traits.sides or call.here.kind.traits.steps
    orders = {key: words for key, words in ORDERS.items() if counted or key != "disagreement"}
    fields = {name: call.text(name)[:200] for name in NAMES}
    selection = ItemFilter(
        text=fields["text"],
        rater=_number(fields["rater"]),
        flag=fields["flag"] if fields["flag"] in FLAGS else "any" if fields["flag"] else "",
        skipped=fields["skipped"] == "yes",
        corrected=fields["corrected"] == "yes",
        model=fields["model"] or None,
        pool=fields["pool"] if fields["pool"] in POOLS else "",
        round=_number(fields["round"]),
        state=fields["state"] if fields["state"] in STATES else "",
    )
    order = fields["by"] if fields["by"] in orders else next(iter(orders))
    return ItemSearch(fields, selection, order, orders)


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 16 else None


def change(call: Call) -> Response:
    """Apply the action to the ticked items, or to all that match the form."""
    query = _search_of(call)
    keys = call.fields.get("item", ())
    if call.text("all"):
        keys = find_keys(call.store, call.here.id, query.filter)
    if not 1 <= len(keys) <= MOST_AT_ONCE:
        raise FieldError("items", "Tick 1 to %(most)s items; these are %(count)s.", most=MOST_AT_ONCE, count=len(keys))
    _act(call, tuple(dict.fromkeys(keys)))
    return see(query.address)


def _act(call: Call, keys: Sequence[str]) -> None:
    store, study, actor = call.store, call.here.id, call.me.name
    match call.text("action"):
        case "exclude":
            exclude_all(store, study, "item", keys, reason_of(call), actor=actor)
        case "include":
            include_all(store, study, "item", keys, actor=actor)
        case "overlap":
            overlap = whole_number(call, "overlap", Sentence("The number of raters"), 1, 100)
            set_overlap(store, study, overlap, keys, actor=actor)
        case _:
            raise FieldError("action", "Choose what to do with these items.")


def item_page(call: Call, key: str = "", error: TutelageError | None = None) -> Response:
    """The page of an item, by default the one in its address, with the error of its form if any."""
    key = key or call.path["key"]
    questions = list_questions(call.store, call.here.id, keys=(key,))
    if not questions:
        raise Refusal(404, Sentence("There is no item “%(key)s” in this study.", key=key[:100]))
    numbers = {rater.name: rater.id for rater in list_raters(call.store, call.here.id)}
    votes = list_votes(call.store, call.here.id, item=key, every_revision=True)
    return form_page(
        call,
        "owner/item.html",
        error,
        question=questions[0],
        html=call.owners_html,
        letters=LETTERS.upper(),
        conversation=messages_data(questions[0].messages, call.owners_html, call.reading),
        traces=[
            steps_data(completion.steps, call.owners_html, call.reading) for completion in questions[0].completions
        ],
        step_counts=step_counts(votes),
        votes=votes,
        marks=marked_responses(questions[0], votes),
        changed=corrected_pieces,
        notices=list_notices(call.store, call.here.id, item=key),
        numbers=numbers,
        singular=SINGULAR,
        bar=partial(counts_bar, language=call.reading),
        address=item_address,
        place="items",
    )


def step_counts(votes: Sequence[Vote]) -> Mapping[int, Mapping[str, int]]:
    """The votes on each step by verdict, a for right, b for wrong, without superseded and excluded ones."""
    counts: dict[int, Counter[str]] = {}
    for vote in votes:
        if vote.latest and vote.excluded is None:
            for pair in vote.pairs:
                if pair.first == pair.second:
                    counts.setdefault(pair.first, Counter())[pair.verdict] += 1
    return counts


def item_address(key: str) -> str:
    """The address of an item's page. Keys are chosen by users and may contain any character."""
    return f"{_PAGES}{quote(key, safe='')}"


def item_of_address(address: str) -> str:
    """Inverse of `item_address`; empty for other pages."""
    return unquote(address.removeprefix(_PAGES)) if address.startswith(_PAGES) else ""


def counts_bar(question: Question, language: str) -> Svg:
    """A bar of an item's votes, with a text alternative in the language."""
    counts = question.counts
    verdicts = {name: counts[name] for name in ("a", "tie", "b", "both_bad")}
    label = say(Sentence("A %(a)s, equal %(tie)s, B %(b)s, both bad %(both_bad)s", **verdicts), language)
    parts = [("a", counts["a"]), ("tie", counts["tie"]), ("b", counts["b"]), ("bad", counts["both_bad"])]
    return parts_strip(parts, label)


@dataclass(frozen=True)
class MarkedPart:
    """A piece of text between span boundaries, with the number of covering spans by category."""

    text: str
    categories: Mapping[str, int]


def marked_parts(text: str, spans: Sequence[Span]) -> tuple[MarkedPart, ...]:
    """The text cut at all span boundaries; the parts concatenate to the text."""
    ends = {0, len(text), *(min(end, len(text)) for span in spans for end in (span.start, span.end))}
    cuts = sorted(ends)
    return tuple(
        MarkedPart(text[low:high], Counter(s.category for s in spans if s.start < high and low < s.end))
        for low, high in pairwise(cuts)
    )


def marked_responses(question: Question, votes: Sequence[Vote]) -> tuple[tuple[MarkedPart, ...], ...]:
    """The marked parts of each response, from the current votes; empty for a response without marks."""
    spans = [span for vote in votes if vote.latest and vote.excluded is None for span in vote.spans]
    return tuple(
        marked_parts(text, mine) if (mine := [span for span in spans if span.response == index]) else ()
        for index, text in enumerate(question.texts)
    )


MOST_COMPARED = 1_000_000
"""Maximum product of the numbers of words compared; the time can be proportional to it."""
_WORD = re.compile(r"\s*\S+|\s+\Z")

Change: TypeAlias = Literal["same", "added", "removed"]


class TextPiece(NamedTuple):
    """A part of a text that is unchanged, added or removed."""

    change: Change
    text: str


def word_differences(before: str, after: str) -> tuple[TextPiece, ...]:
    """The pieces of both texts: `same` and `removed` concatenate to `before`, `same` and `added` to `after`. Texts too
    long to compare by words are compared as a whole."""
    old, new = _WORD.findall(before), _WORD.findall(after)
    head = _common(old, new)
    tail = _common(old[head:][::-1], new[head:][::-1])
    pieces = [("same", old[:head]), *_middle(old[head : len(old) - tail], new[head : len(new) - tail])]
    pieces.append(("same", old[len(old) - tail :]))
    return tuple(TextPiece(change, "".join(words)) for change, words in pieces if words)


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    """The length of the common prefix, in words."""
    pairs = zip(one, other, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def _middle(old: list[str], new: list[str]) -> Iterator[tuple[Change, list[str]]]:
    if len(old) * len(new) > MOST_COMPARED:
        yield from (("removed", old), ("added", new))
        return
    for what, a, b, c, d in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if what == "equal":
            yield "same", old[a:b]
        else:
            yield from (("removed", old[a:b]), ("added", new[c:d]))


def corrected_pieces(question: Question, vote: Vote) -> tuple[TextPiece, ...]:
    """The rater's changes to the response as a diff; a text written from scratch is all insertion."""
    if vote.correction is None:
        return ()
    before = "" if vote.correction.response is None else question.texts[vote.correction.response]
    return word_differences(before, vote.correction.text)
