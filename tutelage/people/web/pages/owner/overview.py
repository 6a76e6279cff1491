"""Progress, rater agreement and bias on the overview page; the comparison of the models; the history."""

from dataclasses import dataclass
from functools import partial

from starlette.responses import Response

from tutelage.people import Rater, list_events, list_raters
from tutelage.people.languages import Sentence, say
from tutelage.people.rater_progress import find_shortage
from tutelage.people.statistics.computation import Statistics
from tutelage.people.statistics.leaderboard import FEW, leaderboard
from tutelage.people.store.engine import DAY_MS
from tutelage.people.store.item_catalogue import ItemFilter, find_items
from tutelage.people.store.survey import Counts
from tutelage.people.web.call import Call
from tutelage.people.web.names import KINDS
from tutelage.people.web.pages.owner.items import counts_bar, item_address
from tutelage.people.web.templating import agreement_scale
from tutelage.report.figures import column_strip
from tutelage.stats.intervals import Interval, wilson

LISTED = 3
"""Maximum number of items listed on the overview page."""


@dataclass(frozen=True)
class BiasRow:
    """A row of the bias panel: name, share with interval, neutral value and interpretation."""

    name: str
    value: Interval
    neutral: float | None
    note: str


def overview(call: Call) -> Response:
    """The overview page. Slow statistics are cached and shown with their age."""
    cached = call.site.keeper.whole(call.here)
    raters = [rater for rater in list_raters(call.store, call.here.id) if rater.role == "rater"]
    values: dict[str, object] = {"kept": cached, "raters": raters, "place": "overview"}
    if cached.value is not None:
        survey, statistics = cached.value.survey, cached.value.statistics
        agreement = Interval(statistics.agreement.value, statistics.agreement.low, statistics.agreement.high)
        values |= {
            "counts": survey.counts,
            "statistics": statistics,
            "agreements": cached.value.agreements,
            "rounds": survey.rounds,
            "finish": projected_finish(survey.counts, statistics.per_day, call.store.now()),
            "active": sum(rater.seen is not None and rater.seen > call.store.now() - 900_000 for rater in raters),
            "scales": [agreement_scale(agreement, call.reading, narrow=narrow) for narrow in (False, True)],
            "days": column_strip(
                statistics.by_day, say(Sentence("Answers a day over the last two weeks"), call.reading)
            ),
            "shares": shares(raters, statistics, survey.counts, steps=call.here.kind.traits.steps),
            "disagreed": find_items(
                call.store, call.here.id, ItemFilter(state="disagreed"), order="disagreement", limit=LISTED
            ).questions,
            "bar": partial(counts_bar, language=call.reading),
            "address": item_address,
            "shortage": find_shortage(call.store, call.here),
            "notice_kinds": KINDS,
            "remarkable": [rater for rater in raters if flags_of(statistics, rater) and rater.excluded is None],
        }
    return call.page("owner/overview.html", **values)


def flags_of(statistics: Statistics, rater: Rater) -> tuple[str, ...]:
    """The flags of a rater; empty for one who joined after the statistics were computed."""
    row = statistics.raters.get(rater.id)
    return row.flags if row is not None else ()


def projected_finish(counts: Counts, per_day: float, now: int) -> int | None:
    """The estimated completion time of the study (ms) at the last day's pace; None without votes in that day."""
    missing = counts.wanted - counts.answered
    if missing <= 0 or per_day <= 0:
        return None
    return round(now + missing / per_day * DAY_MS)


def shares(raters: list[Rater], statistics: Statistics, counts: Counts, *, steps: bool) -> list[BiasRow]:
    """The rows of the bias panel; where steps are judged, those that are not about two responses."""

    def total(name: str) -> int:
        return sum(getattr(rater.tallies, name) for rater in raters if rater.excluded is None)

    longer, shorter = total("longer_chosen"), total("shorter_chosen")
    repeats = wilson(total("repeat_same"), total("repeat_seen"))
    fair = Sentence("sides are drawn at random: one half is fair")
    usual = Sentence("people in general: about %(share)s", share="64 %")
    whole = Sentence("of all answers")
    again = BiasRow(
        Sentence("Same answer when asked again"), repeats, None, "" if steps else Sentence("with the sides swapped")
    )
    if steps:
        return [BiasRow(Sentence("Neutral"), statistics.ties, None, Sentence("of all labels of steps")), again]
    return [
        BiasRow(Sentence("Left side chosen"), statistics.left, 0.5, fair),
        BiasRow(Sentence("Longer response chosen"), wilson(longer, longer + shorter), 0.5, usual),
        BiasRow(Sentence("About equal"), statistics.ties, None, Sentence("of all answers, both bad included")),
        BiasRow(Sentence("Both bad"), wilson(counts.both_bad, counts.answered), None, whole),
        again,
    ]


def history(call: Call) -> Response:
    """The history of all actions on the study."""
    events = list_events(call.store, call.here.id, limit=300)
    private = () if call.me.role == "owner" else ("recruiting_changed",)  # with links and codes
    rows = [(event, {} if event.action in private else event.detail) for event in events]
    return call.page("owner/history.html", events=rows, place="history")


def standings(call: Call) -> Response:
    """The leaderboard with its intervals and caveats."""
    cached = call.site.keeper.whole(call.here)
    matches = () if cached.value is None else cached.value.survey.matches
    board = leaderboard(matches)
    ends = [abs(end) for group in board.groups for s in group for end in (s.strength, s.low, s.high) if end is not None]
    reach = min(max(ends, default=1.0), 6.0) or 1.0
    return call.page(
        "owner/models.html",
        board=board,
        matches=[match for match in matches if match.sampler_a != match.sampler_b],
        few=FEW,
        reach=4 / 3 * reach,  # margin beside the longest interval
        kept=cached,
        place="models",
    )
