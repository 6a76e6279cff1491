"""Comparison of the models."""

from starlette.responses import Response

from tutelage.people.statistics.leaderboard import FEW, leaderboard
from tutelage.people.web.call import Call
from tutelage.people.web.drawings import strength_interval
from tutelage.stats.intervals import Interval


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
        strength_interval=strength_interval,
        Interval=Interval,
        kept=cached,
        place="models",
    )
