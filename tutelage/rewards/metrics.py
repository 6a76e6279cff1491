"""What rewards count beside their scores, as metrics of a run."""

from typing import TYPE_CHECKING, Protocol, runtime_checkable

from tutelage.rewards.limits import exceeded
from tutelage.rewards.reward import Reward, made_of

if TYPE_CHECKING:
    from tutelage.data.chat_endpoint import Usage


@runtime_checkable
class LimitedRule(Protocol):
    """A rule that may go beyond the limits of `rewards.limits`."""

    name: str
    limited: bool


@runtime_checkable
class PaidReward(Protocol):
    """A reward that asks an endpoint."""

    @property
    def usage(self) -> "Usage": ...


def reward_metrics(reward: Reward) -> dict[str, float]:
    """Counts since the process began: what the judges in a reward were asked, and which answers its rules could not
    read.

    judge/requests (sent), judge/kept (answered by replies that were kept), judge/tokens (read and written) and
    judge/cost; rules/over_limits (see `rewards.limits`). Nothing for what the reward does not hold.
    """
    parts = list(made_of(reward))
    found: dict[str, float] = {}
    if rules := {part.name for part in parts if isinstance(part, LimitedRule)}:
        found["rules/over_limits"] = float(sum(map(exceeded, rules)))
    if usages := [part.usage for part in parts if isinstance(part, PaidReward)]:
        found |= {
            "judge/requests": float(sum(usage.requests for usage in usages)),
            "judge/kept": float(sum(usage.kept for usage in usages)),
            "judge/tokens": float(sum(usage.read + usage.written for usage in usages)),
            "judge/cost": sum(usage.cost for usage in usages),
        }
    return found
