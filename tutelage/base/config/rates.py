"""Learning rates that verbs take where none is given: adapters want a higher one than all weights."""

from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

from tutelage.base.config.pieces import Lora, Optimiser


@dataclass(frozen=True)
class Rates:
    """Peak learning rates of a verb: of all weights, and of LoRA."""

    all: float
    lora: float

    def of(self, lora: Lora) -> float:
        """The learning rate of the weights that are trained."""
        return self.lora if lora.rank else self.all


class TrainsWeights(Protocol):
    """Settings of a verb that trains all weights of a model or adapters."""

    RATES: ClassVar[Rates]

    @property
    def lora(self) -> Lora:
        """The adapters."""

    @property
    def optimiser(self) -> Optimiser:
        """The optimiser, whose learning rate may be left out."""


def settle_rate(settings: TrainsWeights) -> None:
    """Give an optimiser without a learning rate that of the verb. For `__post_init__`, since settings are frozen: what
    a run writes down then names the learning rate that it has."""
    if settings.optimiser.lr is None:
        settled = replace(settings.optimiser, lr=settings.RATES.of(settings.lora))
        object.__setattr__(settings, "optimiser", settled)
