"""The list of raters, with filters and bulk actions."""

from collections.abc import Callable, Mapping, Sequence

from starlette.responses import Response

from tutelage.base.errors import TutelageError
from tutelage.data.vote_rows import fold_name
from tutelage.people import Rater, change_rater, exclude_all, include_all, list_raters
from tutelage.people.languages import Sentence
from tutelage.people.statistics.computation import RaterStatistics
from tutelage.people.validation import FieldError
from tutelage.people.web.call import Call, see
from tutelage.people.web.forms import form_page, reason_of
from tutelage.people.web.pages.owner.rater import STANDINGS, quota_of
from tutelage.people.web.paging import page_number, page_of, with_query

PAGE = 50
SHOWN = {
    "": Sentence("all raters"),
    "flagged": Sentence("stands out"),
    "active": Sentence("is asked"),
    "paused": Sentence("paused"),
    "training": Sentence("practises"),
    "excluded": Sentence("excluded"),
    "human": Sentence("people"),
    "llm": Sentence("model judges"),
    "simulated": Sentence("simulated raters"),
}
ORDERS = {
    "": Sentence("raters who stand out first"),
    "answers": Sentence("most answers first"),
    "reliability": Sentence("least reliable first"),
    "seen": Sentence("last active first"),
    "time": Sentence("quickest first"),
    "name": Sentence("by name"),
}


def table(call: Call, error: TutelageError | None = None) -> Response:
    """A page of the filtered and sorted raters."""
    cached = call.site.keeper.whole(call.here)
    statistics = {} if cached.value is None else cached.value.statistics.raters
    query = {name: call.text(name)[:100] for name in ("text", "shown", "by")}
    every = [rater for rater in list_raters(call.store, call.here.id) if rater.role == "rater" or rater.asked]
    rows = _ordered(_chosen(every, query, statistics), query["by"], statistics)
    page = page_of(page_number(call), PAGE, len(rows), with_query("/owner/raters", query))
    return form_page(
        call,
        "owner/raters.html",
        error,
        ticked=call.fields.get("rater", ()) if error else (),
        every=len(every),
        raters=rows[page.first - 1 :][:PAGE],
        page=page,
        asked=query,
        shown=SHOWN,
        orders=ORDERS,
        statistics=statistics,
        standings=STANDINGS,
        kept=cached,
        place="raters",
    )


def _chosen(
    raters: Sequence[Rater], query: Mapping[str, str], statistics: Mapping[int, RaterStatistics]
) -> list[Rater]:
    """The raters that match the form's filters."""
    text, selection = fold_name(query["text"]), query["shown"]
    fits: Mapping[str, Callable[[Rater], bool]] = {
        "flagged": lambda rater: _stands_out(rater, statistics),
        "excluded": lambda rater: rater.excluded is not None,
        **dict.fromkeys(
            ("active", "paused", "training"), lambda rater: rater.state == selection and rater.excluded is None
        ),
        **dict.fromkeys(("human", "llm", "simulated"), lambda rater: rater.kind == selection),
    }
    fit = fits.get(selection, lambda rater: True)
    return [rater for rater in raters if text in fold_name(rater.name) and fit(rater)]


def _stands_out(rater: Rater, statistics: Mapping[int, RaterStatistics]) -> bool:
    return rater.id in statistics and bool(statistics[rater.id].flags)


def _ordered(raters: list[Rater], by: str, statistics: Mapping[int, RaterStatistics]) -> list[Rater]:
    def reliability(rater: Rater) -> float:
        value = statistics[rater.id].reliability if rater.id in statistics else None
        return 2.0 if value is None else value

    def time(rater: Rater) -> float:
        value = statistics[rater.id].median_ms if rater.id in statistics else None
        return float("inf") if value is None else value

    keys: Mapping[str, Callable[[Rater], float | str]] = {
        "": lambda rater: not _stands_out(rater, statistics),
        "answers": lambda rater: 0,
        "reliability": reliability,
        "seen": lambda rater: -(rater.seen or 0),
        "time": time,
        "name": lambda rater: fold_name(rater.name),
    }
    key = keys.get(by, keys[""])
    return sorted(raters, key=lambda rater: (key(rater), -rater.tallies.answered, rater.name))


def change_many(call: Call) -> Response:
    """Apply the action to the ticked raters."""
    numbers = set(call.fields.get("rater", ()))
    raters = [rater for rater in list_raters(call.store, call.here.id) if str(rater.id) in numbers]
    if not raters:
        raise FieldError("raters", "Tick the raters first.")
    _act(call, raters)
    return see(with_query("/owner/raters", {name: call.text(name) for name in ("text", "shown", "by")}))


def _act(call: Call, raters: Sequence[Rater]) -> None:
    names = [rater.name for rater in raters]
    match call.text("action"):
        case "exclude":
            exclude_all(call.store, call.here.id, "rater", names, reason_of(call), actor=call.me.name)
        case "include":
            include_all(call.store, call.here.id, "rater", names, actor=call.me.name)
        case "pause" | "active" as wanted:
            why = reason_of(call) if wanted == "pause" else call.text("reason")
            for rater in raters:
                change_rater(
                    call.store, rater.id, state="paused" if wanted == "pause" else "active", quota=rater.quota,
                    why=why, actor=call.me.name,
                )  # fmt: skip
        case "quota":
            quota = quota_of(call)
            for rater in raters:
                change_rater(
                    call.store, rater.id, state=rater.state, quota=quota, why=call.text("reason"),
                    actor=call.me.name,
                )  # fmt: skip
        case _:
            raise FieldError("action", "Choose what to do with these raters.")
