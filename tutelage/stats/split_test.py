"""Split tests of two served models: responses of users who were assigned to one of them, and what they show.

A is the present model, B the candidate. Users are independent, their responses are not: each user is one outcome, the
mean over the responses of the first hours and what was said of them within these, and counts once these have passed:
from then on the outcome is the same at every look. All statements hold at every look at the
growing data (`stats.sequential`).
"""

import hashlib
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from tutelage.base.errors import TutelageError
from tutelage.base.nouns import counted
from tutelage.data.row_values import Account, Cells, Unusable, name, number, text, truth
from tutelage.data.tables import Table, read_table
from tutelage.data.vote_rows import cell_time
from tutelage.stats.intervals import Interval
from tutelage.stats.sequential import Arm, difference, log_evidence, log_evidence_of_split, users_needed

ARMS = ("a", "b")
_AGAINST, _AT = " against ", " at "


@dataclass(frozen=True, kw_only=True)
class Requirements:
    """What a candidate must show: `level`, the probability with which each statement holds at all looks together;
    `margin`, by which its mean outcome has to be higher; `split`, the share of users assigned to it; `tolerance`, by
    which its shares of failed and of slow responses may be higher; `slow`, seconds from which a response is slow (None:
    not checked); `hours` after the first response of a user that count."""

    level: float = 0.95
    margin: float = 0.0
    split: float = 0.5
    tolerance: float = 0.05
    slow: float | None = None
    hours: float = 24.0


@dataclass(frozen=True)
class Response:
    """A response to a user. `outcome` in [0, 1], None if the user said nothing; `failed` and `seconds` None if not
    measured; `time` in milliseconds since 1970, 0 if unknown; `said`, the time of the outcome, that of the response if
    0."""

    arm: str
    user: str
    outcome: float | None
    failed: bool | None
    seconds: float | None
    time: int
    said: int = 0


@dataclass(frozen=True)
class PromotionCondition:
    """One condition of a promotion. `met` is None if it could not be checked, which does not prevent a promotion."""

    name: str
    met: bool | None
    finding: str


@dataclass(frozen=True)
class SplitTest:
    """Result of a split test: numbers of assigned users, users with an outcome that counts and mean outcomes of A and
    B, B's outcome minus A's with an interval that holds at every look, log evidence that B is better by more than the
    margin, users still within their first hours, and the conditions of a promotion."""

    assigned: tuple[int, int]
    users: tuple[int, int]
    means: tuple[float | None, float | None]
    difference: Interval
    log_evidence: float
    pending: int
    conditions: tuple[PromotionCondition, ...]
    notes: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether no condition is unmet."""
        return all(each.met is not False for each in self.conditions)


@dataclass(frozen=True)
class Trial:
    """A split test: the `candidate` and the `present` model by name, with the fingerprints of their weights, and the
    share of users who get the candidate. With another of these it is another test, whose outcomes are counted apart."""

    candidate: str
    present: str
    split: float

    @property
    def name(self) -> str:
        """The name of the test in a study."""
        return f"{self.candidate}{_AGAINST}{self.present}{_AT}{self.split:g}"

    def arm(self, user: str) -> str:
        """The arm of a user: b, the candidate, for the share `split`, by SHA-256 of the candidate and the user. It is
        the same at every visit, independent between candidates, and a larger split only adds users to B."""
        digest = hashlib.sha256(f"{self.candidate}|{user}".encode()).digest()
        return "b" if int.from_bytes(digest[:7], "big") < self.split * (1 << 56) else "a"


def trials_of(candidate: str, split: float, names: Iterable[str]) -> list[str]:
    """Those of the names that are of tests of this candidate at this split, in their order."""
    begin, end = candidate + _AGAINST, f"{_AT}{split:g}"
    return [name for name in names if name.startswith(begin) and name.endswith(end)]


def read_responses(source: str) -> tuple[list[Response], tuple[str, ...]]:
    """Responses of a table with the columns `arm` (a, b) and `user`, and optionally `outcome` (a number in [0, 1], or
    true and false), `error`, `seconds` and `time`; and notes on its unread columns.

    Raises TutelageError for a missing column and for a row that cannot be read: leaving it out could favour a model.
    """
    table = read_table(source)
    for column in ("arm", "user"):
        if column not in table.columns:
            raise TutelageError(
                f"{source} has no column {column!r}. A row per response has arm (a or b), user, and optionally "
                f"outcome, error, seconds and time; its columns are {', '.join(table.columns)}."
            )
    account = Account()
    responses = list(_responses(table, account))
    return responses, tuple(account.notes())


def _responses(table: Table, account: Account) -> Iterator[Response]:
    for broken in table.broken:
        raise TutelageError(f"{table.source}, {broken.where}: {broken.reason}.")
    for row in table.rows:
        cells = Cells(row.values)
        try:
            yield _response(cells)
        except Unusable as reason:
            raise TutelageError(f"{table.source}, {row.where}: {reason}.") from reason
        account.add(cells, row.where)


def _response(cells: Cells) -> Response:
    arm = text(cells, "arm").strip().lower()
    if arm not in ARMS:
        raise Unusable(f"arm is {arm!r}, neither a nor b")
    given = cells.get("outcome")
    if isinstance(given, bool) or (isinstance(given, str) and given.strip().lower() in ("true", "false")):
        outcome: float | None = float(truth(cells, "outcome"))
    else:
        outcome = None if given in (None, "") else number(cells, "outcome", 0.0, 0.0, 1.0)
    failed = None if cells.get("error") in (None, "") else truth(cells, "error")
    seconds = None if cells.get("seconds") in (None, "") else number(cells, "seconds", 0.0, 0.0)
    return Response(arm, name(cells, "user"), outcome, failed, seconds, cell_time(cells, "time"))


@dataclass
class _User:
    """Responses of one user within the first hours."""

    arm: str
    begin: int
    outcomes: list[float] = field(default_factory=list)
    failed: list[float] = field(default_factory=list)
    slow: list[float] = field(default_factory=list)


def split_test(responses: Iterable[Response], required: Requirements, notes: tuple[str, ...] = ()) -> SplitTest:
    """What the responses show. The order of the rows does not matter.

    Raises TutelageError for a user who was assigned to both models.
    """
    rows = sorted(responses, key=lambda row: row.time)
    users = _users(rows, required)
    end = rows[-1].time - required.hours * 3_600_000 if rows else 0
    settled = [user for user in users.values() if not user.begin or user.begin <= end]
    in_a, in_b = (sum(user.arm == arm for user in users.values()) for arm in ARMS)
    a, b = (_arm(settled, arm, "outcomes") for arm in ARMS)
    evidence = log_evidence(a, b, required.margin)
    between = difference(a, b, required.level)
    return SplitTest(
        (in_a, in_b),
        (a.n, b.n),
        (a.mean if a.n else None, b.mean if b.n else None),
        between,
        evidence,
        len(users) - len(settled),
        (
            _better(a, b, evidence, between, required),
            _assigned_as_stated((in_a, in_b), required),
            _no_worse("errors", "failed", settled, required),
            _no_worse("latency", "slow", settled, required),
        ),
        notes,
    )


def _users(rows: Iterable[Response], required: Requirements) -> dict[str, _User]:
    users: dict[str, _User] = {}
    for row in rows:
        user = users.setdefault(row.user, _User(row.arm, row.time))
        if (row.time > 0) != (user.begin > 0):
            raise TutelageError(
                f"Some responses to the user {row.user!r} have a time and others have none, so the first hours are "
                "unknown. Give each response its time."
            )
        if user.arm != row.arm:
            raise TutelageError(
                f"The user {row.user!r} was assigned to both models. Assign each user to one, and leave out users from "
                "before the split."
            )
        end = user.begin + required.hours * 3_600_000
        if row.time > end:
            continue
        if row.failed is not None:
            user.failed.append(float(row.failed))
        if row.outcome is not None and row.said <= end:
            user.outcomes.append(row.outcome)
        if row.seconds is not None and required.slow is not None:
            user.slow.append(float(row.seconds >= required.slow))
    return users


def _arm(users: Iterable[_User], arm: str, values: str) -> Arm:
    """Means of the users of an arm who have values."""
    lists = (getattr(user, values) for user in users if user.arm == arm)
    return Arm.of(math.fsum(each) / len(each) for each in lists if each)


def _better(a: Arm, b: Arm, evidence: float, between: Interval, required: Requirements) -> PromotionCondition:
    title = f"better by more than {required.margin:g}" if required.margin else "better"
    if between.value is None:
        which = " and ".join(model for model, arm in zip("AB", (a, b), strict=True) if not arm.n)
        return PromotionCondition(title, False, f"no user of {which} has an outcome that counts yet")
    finding = f"B − A is {between.value:+.3f} [{between.low:+.3f}, {between.high:+.3f}]"
    if evidence >= math.log(1 / (1 - required.level)):
        return PromotionCondition(title, True, finding)
    share = b.n / (a.n + b.n)
    needed = users_needed(a.mean, b.mean, share, required.level, required.margin)
    more = (
        f"at these means about {counted(needed, 'user')} in all would be needed, {a.n + b.n:,} count"
        if needed
        else "at these means no number of users would show it"
    )
    return PromotionCondition(title, False, f"{finding}; {more}")


def _assigned_as_stated(assigned: tuple[int, int], required: Requirements) -> PromotionCondition:
    """Check of the sample ratio, at the level .999."""
    met = log_evidence_of_split(*assigned, required.split) < math.log(1000)
    total = sum(assigned)
    return PromotionCondition(
        "assignment",
        met,
        f"{assigned[1]:,} of {counted(total, 'user')} have B, {required.split:.1%} are stated"
        + ("" if met else ": users of one model are lost or repeated on the way"),
    )


def _no_worse(title: str, values: str, users: list[_User], required: Requirements) -> PromotionCondition:
    """Check that B's share is shown to be at most A's plus the tolerance."""
    a, b = (_arm(users, arm, values) for arm in ARMS)
    if not a.n and not b.n:
        return PromotionCondition(title, None, "no values, or no limit of seconds")
    met = log_evidence(a.mirrored, b.mirrored, -required.tolerance) >= math.log(1 / (1 - required.level))
    shares = f"{b.mean:.2%} with B, {a.mean:.2%} with A" if a.n and b.n else "one model has no user yet"
    return PromotionCondition(
        title, met, shares + ("" if met else f"; not shown yet to be at most {required.tolerance:.0%} above A's")
    )
