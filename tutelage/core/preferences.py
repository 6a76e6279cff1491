"""Losses over pairs of completions, from scores (a reward model) or from log-probabilities of whole completions (a
policy).

A label may be soft: with probability p the first completion is the better one, and the loss is p L(first, second) + (1
− p) L(second, first). All losses are therefore invariant to swapping a pair together with its label.
"""

from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

import torch
from torch.nn.functional import logsigmoid

from tutelage.core.pieces import check_range
from tutelage.core.shapes import Lengths, PerRow, Scalar


def bradley_terry(
    chosen: PerRow, rejected: PerRow, p_chosen: PerRow | float = 1.0, margin: PerRow | float = 0.0
) -> PerRow:
    """− p log σ(c − r − margin) − (1 − p) log σ(r − c − margin) of two scores in nats. [B], [B] -> [B]

    Bradley & Terry 1952 with soft labels; the margin is that of Llama 2 (Touvron et al. 2023).
    """
    ahead = chosen - rejected
    return -p_chosen * logsigmoid(ahead - margin) - (1 - p_chosen) * logsigmoid(-ahead - margin)


def dpo(
    policy_margin: PerRow, ref_margin: PerRow, beta: float, p_chosen: PerRow | float = 1.0, margin: PerRow | float = 0.0
) -> PerRow:
    """Bradley–Terry on the implied rewards β log(π / π_ref): Rafailov et al. 2023. [B], [B] -> [B]

    `policy_margin` is log π(chosen) − log π(rejected) of whole completions, `ref_margin` the same under the
    reference.
    """
    ahead = beta * (policy_margin - ref_margin)
    return bradley_terry(ahead, torch.zeros_like(ahead), p_chosen, margin)


@dataclass(frozen=True, kw_only=True)
class Answers:
    """One side of a batch of pairs: log-probabilities of completions under the policy and the reference."""

    logp: PerRow  # log π(completion | prompt), the sum over its tokens
    length: Lengths  # tokens of the completion
    ref_logp: PerRow | None = None  # the same under the reference

    def log_ratio(self) -> PerRow:
        """log π − log π_ref: the implied reward in units of 1/β. Float[B]"""
        if self.ref_logp is None:
            raise ValueError("This loss requires the log-probabilities of the reference.")
        return self.logp - self.ref_logp

    def per_token(self) -> PerRow:
        """log π per token: the logarithm of the geometric mean of the tokens' probabilities. Float[B]"""
        return self.logp / self.length.clamp(min=1)


@dataclass(frozen=True, kw_only=True)
class AnswerPairs:
    """Two completions to each of B prompts, and the preference between them."""

    chosen: Answers
    rejected: Answers
    p_chosen: PerRow | float = 1.0
    margin: PerRow | float = 0.0  # required difference of implied rewards, nats
    drift: PerRow | Scalar | float | None = None
    """Mean of log π − log π_ref over completions to *other* prompts (KTO), per pair or common to all."""


@runtime_checkable
class PreferenceLoss(Protocol):
    """(pairs) -> the loss of each pair, Float[B], to minimise.

    `needs` contains "reference" if the reference's log-probabilities are used and "drift" if `AnswerPairs.drift` is.
    """

    def __call__(self, pairs: AnswerPairs) -> PerRow: ...


NEEDS_REFERENCE = frozenset({"reference"})


@dataclass(frozen=True)
class Dpo:
    """Direct preference optimisation (Rafailov et al. 2023): − log σ(β h − margin), h = log-ratio of chosen − rejected.

    `smoothing` = ε > 0 treats a share ε of labels as flipped (cDPO, Mitchell 2023), so that the minimum is at a finite
    margin.
    """

    beta: float = 0.1
    smoothing: float = 0.0
    needs: ClassVar[frozenset[str]] = NEEDS_REFERENCE

    def __post_init__(self) -> None:
        check_range(self, "(0, ∞]", beta=self.beta)
        check_range(self, "[0, 0.5)", smoothing=self.smoothing)

    def __call__(self, pairs: AnswerPairs) -> PerRow:
        p = pairs.p_chosen * (1 - self.smoothing) + (1 - pairs.p_chosen) * self.smoothing
        chosen, rejected = pairs.chosen.log_ratio(), pairs.rejected.log_ratio()
        return bradley_terry(self.beta * chosen, self.beta * rejected, p, pairs.margin)


@dataclass(frozen=True)
class RobustDpo:
    """((1 − ε) L(pair) − ε L(flipped pair)) / (1 − 2ε): unbiased for the clean loss at flip rate ε
    (Chowdhury 2024)."""

    beta: float = 0.1
    flips: float = 0.1
    needs: ClassVar[frozenset[str]] = NEEDS_REFERENCE

    def __post_init__(self) -> None:
        check_range(self, "(0, ∞]", beta=self.beta)
        check_range(self, "(0, 0.5)", flips=self.flips)

    def __call__(self, pairs: AnswerPairs) -> PerRow:
        p = (pairs.p_chosen - self.flips) / (1 - 2 * self.flips)
        chosen, rejected = pairs.chosen.log_ratio(), pairs.rejected.log_ratio()
        return bradley_terry(self.beta * chosen, self.beta * rejected, p, pairs.margin)


@dataclass(frozen=True)
class Ipo:
    """(h − 1/(2β))² (Azar et al. 2023): regresses the log-ratio margin to a finite target, even for certain labels.

    `per_token` divides each log-ratio by the completion's length, as the authors advise for text; False is the
    published form.
    """

    beta: float = 0.1
    per_token: bool = True
    needs: ClassVar[frozenset[str]] = NEEDS_REFERENCE

    def __post_init__(self) -> None:
        check_range(self, "(0, ∞]", beta=self.beta)

    def __call__(self, pairs: AnswerPairs) -> PerRow:
        h = self._ratio(pairs.chosen) - self._ratio(pairs.rejected)
        target = 1 / (2 * self.beta) + pairs.margin
        return pairs.p_chosen * (h - target) ** 2 + (1 - pairs.p_chosen) * (-h - target) ** 2

    def _ratio(self, answers: Answers) -> PerRow:
        ratio = answers.log_ratio()
        return ratio / answers.length.clamp(min=1) if self.per_token else ratio


@dataclass(frozen=True)
class Hinge:
    """max(0, 1 + margin − β h): DPO with SLiC's hinge in place of the logistic (Liu et al. 2023, RSO)."""

    beta: float = 0.1
    needs: ClassVar[frozenset[str]] = NEEDS_REFERENCE

    def __post_init__(self) -> None:
        check_range(self, "(0, ∞]", beta=self.beta)

    def __call__(self, pairs: AnswerPairs) -> PerRow:
        ahead = self.beta * (pairs.chosen.log_ratio() - pairs.rejected.log_ratio())
        return _hinge(ahead, 1 + pairs.margin, pairs.p_chosen)


@dataclass(frozen=True)
class Slic:
    """max(0, δ + margin − (log π(chosen) − log π(rejected))) − λ log π(chosen) / length (Zhao et al. 2023,
    SLiC-HF).

    No reference; the second term regularises towards the chosen completions.
    """

    delta: float = 1.0
    imitation: float = 0.1
    needs: ClassVar[frozenset[str]] = frozenset()

    def __post_init__(self) -> None:
        check_range(self, "(0, ∞]", delta=self.delta)
        check_range(self, "[0, ∞]", imitation=self.imitation)

    def __call__(self, pairs: AnswerPairs) -> PerRow:
        rank = _hinge(pairs.chosen.logp - pairs.rejected.logp, self.delta + pairs.margin, pairs.p_chosen)
        return rank - self.imitation * _better(pairs, pairs.chosen.per_token(), pairs.rejected.per_token())


@dataclass(frozen=True)
class Kto:
    """Kahneman–Tversky optimisation (Ethayarajh et al. 2024) of single completions, here both of a pair.

    λ_d (1 − σ(β (log-ratio − z))) for a desirable completion, λ_u (1 − σ(β (z − log-ratio))) for an undesirable
    one, with z = max(0, mean log-ratio of completions to other prompts), held constant. Averaged over the two
    halves.
    """

    beta: float = 0.1
    desirable: float = 1.0
    undesirable: float = 1.0
    needs: ClassVar[frozenset[str]] = frozenset({"reference", "drift"})

    def __post_init__(self) -> None:
        check_range(self, "(0, ∞]", beta=self.beta, desirable=self.desirable, undesirable=self.undesirable)

    def __call__(self, pairs: AnswerPairs) -> PerRow:
        if pairs.drift is None:
            raise ValueError("KTO requires the drift of unrelated completions: AnswerPairs(drift=...).")
        chosen, rejected = pairs.chosen.log_ratio(), pairs.rejected.log_ratio()
        p = pairs.p_chosen
        first = p * self.one(chosen, True, pairs.drift) + (1 - p) * self.one(chosen, False, pairs.drift)
        second = p * self.one(rejected, False, pairs.drift) + (1 - p) * self.one(rejected, True, pairs.drift)
        return (first + second) / 2

    def one(self, log_ratio: PerRow, good: bool, drift: PerRow | Scalar | float) -> PerRow:
        """The loss of unpaired completions that are all desirable or all undesirable. Float[B] -> Float[B]"""
        z = torch.as_tensor(drift).detach().clamp(min=0)
        if good:
            return self.desirable * torch.sigmoid(self.beta * (z - log_ratio))
        return self.undesirable * torch.sigmoid(self.beta * (log_ratio - z))


@dataclass(frozen=True)
class Orpo:
    """− log π(chosen) / length − λ log σ(log odds(chosen) − log odds(rejected)) (Hong et al. 2024); no
    reference.

    odds = p / (1 − p) with p the geometric mean of the tokens' probabilities, clamped to 1 − 1e-7 to keep the odds
    finite in float32.
    """

    coef: float = 0.1
    needs: ClassVar[frozenset[str]] = frozenset()

    def __post_init__(self) -> None:
        check_range(self, "(0, ∞]", coef=self.coef)

    def __call__(self, pairs: AnswerPairs) -> PerRow:
        chosen, rejected = pairs.chosen.per_token(), pairs.rejected.per_token()
        odds = bradley_terry(_log_odds(chosen), _log_odds(rejected), pairs.p_chosen, pairs.margin)
        return self.coef * odds - _better(pairs, chosen, rejected)


@dataclass(frozen=True)
class SimPo:
    """− log σ(β (log π(chosen)/length − log π(rejected)/length) − γ) (Meng et al. 2024): no reference, no
    length bias.

    `gap` is the paper's γ/β, the required margin per unit of β.
    """

    beta: float = 2.0
    gap: float = 0.5
    needs: ClassVar[frozenset[str]] = frozenset()

    def __post_init__(self) -> None:
        check_range(self, "(0, ∞]", beta=self.beta)
        check_range(self, "[0, ∞]", gap=self.gap)

    def __call__(self, pairs: AnswerPairs) -> PerRow:
        chosen, rejected = self.beta * pairs.chosen.per_token(), self.beta * pairs.rejected.per_token()
        return bradley_terry(chosen, rejected, pairs.p_chosen, self.beta * self.gap + pairs.margin)


NEARLY_CERTAIN = -1e-7
"""Maximum log-probability per token, since a probability of 1 has infinite odds."""


def _hinge(ahead: PerRow, asked: PerRow | float, p_chosen: PerRow | float) -> PerRow:
    return p_chosen * torch.relu(asked - ahead) + (1 - p_chosen) * torch.relu(asked + ahead)


def _better(pairs: AnswerPairs, chosen: PerRow, rejected: PerRow) -> PerRow:
    return pairs.p_chosen * chosen + (1 - pairs.p_chosen) * rejected


def _log_odds(logp: PerRow) -> PerRow:
    return logp - torch.log(-torch.expm1(logp.clamp(max=NEARLY_CERTAIN)))


PREFERENCE_LOSSES: dict[str, PreferenceLoss] = {
    "dpo": Dpo(),
    "cdpo": Dpo(smoothing=0.1),
    "robust": RobustDpo(),
    "ipo": Ipo(),
    "hinge": Hinge(),
    "slic": Slic(),
    "kto": Kto(),
    "orpo": Orpo(),
    "simpo": SimPo(),
}
"""Losses by their names in `tutelage dpo --loss`."""
