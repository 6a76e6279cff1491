"""What one step of a run computes, in numbers: models, batch, passes."""

from dataclasses import dataclass

from tutelage.engines.plans.transformer import Transformer


@dataclass(frozen=True)
class Batch:
    """`prompts` prompts with `samples` responses each, in tokens of a mean length."""

    prompts: float
    samples: float
    prompt: float
    response: float
    shared: bool = True
    """Whether a prompt is computed once for its responses, in one packed sequence."""

    @property
    def rows(self) -> float:
        """Responses."""
        return self.prompts * self.samples

    @property
    def scored(self) -> float:
        """Tokens of all responses."""
        return self.rows * self.response

    @property
    def tokens(self) -> float:
        """Tokens that a forward pass computes."""
        return self.scored + self.prompt * (self.prompts if self.shared else self.rows)

    @property
    def pairs(self) -> float:
        """Pairs of a token and an earlier one that it sees: Q²/2 for a prompt, R (Q + R/2) for a response."""
        prompts = self.prompts if self.shared else self.rows
        return prompts * self.prompt**2 / 2 + self.scored * (self.prompt + self.response / 2)

    def share(self, ranks: int) -> "Batch":
        """The part of one of so many ranks, which get whole prompts where there are enough of them."""
        if self.prompts >= ranks:
            return Batch(self.prompts / ranks, self.samples, self.prompt, self.response, self.shared)
        return Batch(1.0, max(1.0, self.rows / ranks), self.prompt, self.response, self.shared)


@dataclass(frozen=True)
class Sampling:
    """The responses that a step generates: `rounds` times the batch, each of at most `limit` tokens."""

    limit: int
    rounds: float = 1.0
    weights: float = 4.0
    """Bytes per weight that are read for every token."""
    copies: float = 0.0
    """Bytes per weight of a copy that is laid out for decoding."""


@dataclass(frozen=True)
class Workload:
    """One step of a run over all ranks together: `model` learns from `batch`."""

    model: Transformer
    batch: Batch
    lora: int = 0
    """Rank of the adapters; 0 trains every weight."""
    half: bool = False
    """Whether products are in bf16, over float32 weights."""
    is_scalar: bool = False
    """Whether the model has one output instead of a vocabulary: a reward model."""
    trains: bool = True
    epochs: float = 1.0
    """Passes with gradients over the batch."""
    updates: int = 1
    """Optimiser steps."""
    sampling: Sampling | None = None
    scorings: float = 0.0
    """Forward passes over the batch for log-probabilities of the policy itself."""
    rescorings: float = 0.0
    """More such passes, where the engine samples in other roundings than it trains."""
    reference: float = 0.0
    """Forward passes over the batch by the reference."""
    has_reference: bool = False
    """Whether a frozen copy of the weights is held. Adapters are switched off instead."""
    teacher: Transformer | None = None
    """A model that stays as it is and gives its probabilities of every token, once for the batch."""
    critic: Transformer | None = None
    """A critic network, which learns in every epoch and scores the batch once."""
    rewards: tuple[Transformer, ...] = ()
    """Reward models that score the batch."""
    keeps: bool = False
    """Whether the engine may keep the activations of sampling for the first minibatch, which then skips its forward
    pass."""
    selects: bool = False
    """Whether the engine computes the last layer only for the states that are read: those before response tokens, or of
    a reward model the last one of every row."""
    casts_layers: bool = False
    """Whether the engine rounds weights to bf16 product by product, in both passes, and keeps no rounded copy of the
    model."""
    can_shard: bool = True
    """Whether the run can be sharded: not one that takes natural steps, which need whole models and vectors."""

    @property
    def minibatches(self) -> float:
        """Optimiser steps of one pass over the batch."""
        return max(1.0, self.updates / self.epochs)

    @property
    def trainable(self) -> int:
        """Weights that get a gradient and two moments."""
        if not self.trains:
            return 0
        return self.lora * self.model.adapter if self.lora else self.model.parameters
