"""Losses of a reward model on pairs of scores. All of them are Bradley–Terry for hard labels without a margin.

Signature: (chosen [B], rejected [B], p_chosen [B], margin [B]) -> loss [B]. `margin` is the strength of the
preference in the data (0 for none); each loss documents how it uses the margin.
"""

import math
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import nn

from tutelage.core.preferences import bradley_terry
from tutelage.core.shapes import PerRow, Scalar


@runtime_checkable
class ScoringLoss(Protocol):
    """(chosen [B], rejected [B], p_chosen [B], margin [B]) -> loss [B], to minimise"""

    def __call__(self, chosen: PerRow, rejected: PerRow, p_chosen: PerRow, margin: PerRow) -> PerRow: ...


@dataclass(frozen=True)
class Soft:
    """Bradley–Terry with soft labels, without the margin. `centre` adds centre · (c + r)², which keeps the mean score
    near 0 (Eisenstein et al. 2023)."""

    centre: float = 0.0

    def __call__(self, chosen: PerRow, rejected: PerRow, p_chosen: PerRow, margin: PerRow) -> PerRow:
        return bradley_terry(chosen, rejected, p_chosen) + self.centre * (chosen + rejected) ** 2


@dataclass(frozen=True)
class Hard:
    """Bradley–Terry with labels rounded to 0 or 1; a label of one half is unchanged."""

    def __call__(self, chosen: PerRow, rejected: PerRow, p_chosen: PerRow, margin: PerRow) -> PerRow:
        return bradley_terry(chosen, rejected, (torch.sign(p_chosen - 0.5) + 1) / 2)


@dataclass(frozen=True)
class Margin:
    """Bradley–Terry that requires a difference of at least `unit` · margin nats (Llama 2, Touvron et al. 2023)."""

    unit: float = 1.0

    def __call__(self, chosen: PerRow, rejected: PerRow, p_chosen: PerRow, margin: PerRow) -> PerRow:
        return bradley_terry(chosen, rejected, p_chosen, self.unit * margin)


@dataclass(frozen=True)
class Scaled:
    """Bradley–Terry weighted by the margin: strong preferences count more (HelpSteer2-Preference, Wang 2024)."""

    def __call__(self, chosen: PerRow, rejected: PerRow, p_chosen: PerRow, margin: PerRow) -> PerRow:
        return margin * bradley_terry(chosen, rejected, p_chosen)


@dataclass(frozen=True)
class Davidson:
    """Bradley–Terry with ties (Davidson 1970): P(win) ∝ e^{d/2}, P(loss) ∝ e^{−d/2}, P(tie) ∝ ν, with d = c
    − r.

    A pair whose `p_chosen` is exactly one half is a tie; the others are soft labels. Counting ties as half a win
    instead shrinks the scores by about 30 % at 25–30 % ties. ν is 2 P(tie) / (1 − P(tie)) at d = 0.
    """

    ties: float = 1.0

    def __post_init__(self) -> None:
        if not self.ties > 0:
            raise ValueError(f"Davidson: ties must be above 0, not {self.ties}; use Soft() where there are none.")

    def __call__(self, chosen: PerRow, rejected: PerRow, p_chosen: PerRow, margin: PerRow) -> PerRow:
        return _davidson(chosen - rejected, p_chosen, chosen.new_tensor(math.log(self.ties)))


class LearnedDavidson(nn.Module):
    """`Davidson` with ν trained together with the scores. `log_ties` is log ν, a scalar."""

    def __init__(self, ties: float = 1.0) -> None:
        super().__init__()
        self.log_ties = nn.Parameter(torch.tensor(math.log(ties)))

    def forward(self, chosen: PerRow, rejected: PerRow, p_chosen: PerRow, margin: PerRow) -> PerRow:
        """The loss of every pair. Float[B]"""
        return _davidson(chosen - rejected, p_chosen, self.log_ties.to(chosen))


def _davidson(difference: PerRow, p_chosen: PerRow, log_ties: Scalar) -> PerRow:
    half = difference / 2
    tie = log_ties.expand_as(half)
    log_z = torch.logsumexp(torch.stack((half, -half, tie)), 0)
    decided = p_chosen * half - (1 - p_chosen) * half
    return log_z - torch.where(p_chosen == 0.5, tie, decided)


SCORING_LOSSES: dict[str, ScoringLoss] = {
    "soft": Soft(),
    "bt": Hard(),
    "margin": Margin(),
    "scaled": Scaled(),
    "davidson": Davidson(),
}
"""Losses by their names in `tutelage reward --loss`."""
