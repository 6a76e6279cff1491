"""One step of a run in numbers: the transformers with their cost in closed forms, the batch, the passes."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Transformer:
    """A decoder-only transformer in numbers; `models.outline` reads them from a config.json.

    Weights are counted once where they are shared, as by tied embeddings. Numbers of experts count as far as a token
    passes through them in `matrices`, and in full in `parameters`.
    """

    parameters: int
    """All weights."""
    matrices: int
    """Weights of the linear layers that every token passes through, without the output head."""
    head: int
    """Weights of the output head, vocabulary · hidden."""
    largest_layer: int
    """Weights of the largest decoder layer: the unit in which a sharded model is gathered."""
    layers: int
    hidden: int
    feed_forward: int
    """Width inside the feed-forward block of a token; of the active experts together."""
    attention: int
    """Heads · width of a head."""
    key_values: int
    """Numbers that a token leaves in the caches of all layers: 2 · layers · key-value heads · width of a head."""
    vocabulary: int
    adapter: int
    """Weights of a LoRA adapter of rank 1 on every linear layer but the head: Σ (inputs + outputs)."""
    family: str = ""
    """The `model_type` of its configuration."""

    def forward(self, tokens: float, pairs: float, scored: float) -> float:
        """Operations of a forward pass; a multiplication with an addition counts as two.

            2 · matrices · tokens + 4 · layers · attention · pairs + 2 · head · scored

        `pairs` is the number of (token, visible token) pairs, `scored` the number of tokens that get logits.
        """
        return 2 * self.matrices * tokens + 4 * self.layers * self.attention * pairs + 2 * self.head * scored

    def unread(self, tokens: float) -> float:
        """Operations of a forward pass saved by tokens whose last states are not read: of the last layer they need
        keys and values alone.

            2 · (matrices / layers − hidden · key_values / layers) · tokens
        """
        return 2 * (self.matrices - self.hidden * self.key_values) / self.layers * tokens

    def kept(self, *, half: bool, checkpointing: bool = False) -> float:
        """Bytes per token that a forward pass keeps for the backward pass:

            layers · (10 · hidden + 4 · feed-forward) · bytes of an activation

        Llama, Qwen3 and GPT-2 keep of a token per layer: the states around two norms, queries, keys and values before
        and after their rotation, the attention's result; the gate, its activation, the other branch and their product.
        In bf16 norms stay in float32, so that an activation has 2.5 bytes on average instead of 4. With activation
        checkpointing only the input of every layer is kept, and one layer's activations while it is recomputed.
        """
        each = 2.5 if half else 4.0
        layer = (10 * self.hidden + 4 * self.feed_forward) * each
        return self.layers * self.hidden * each + layer if checkpointing else self.layers * layer

    def recorded(self, *, half: bool) -> int:
        """Bytes per token that the CPU engine keeps of sampling for the update: see `engines.cpu.activation_cache`."""
        of_products = self.key_values + self.layers * (2 * self.attention + 2 * self.feed_forward)
        return (2 if half else 4) * of_products + 8 * self.layers * self.hidden


@dataclass(frozen=True)
class BatchShape:
    """`prompts` prompts with `samples` completions each, in tokens of a mean length."""

    prompts: float
    samples: float
    prompt: float
    response: float
    shared: bool = True
    """Whether a prompt is computed once for its completions, in one packed sequence."""

    @property
    def rows(self) -> float:
        """Completions."""
        return self.prompts * self.samples

    @property
    def scored(self) -> float:
        """Tokens of all completions."""
        return self.rows * self.response

    @property
    def tokens(self) -> float:
        """Tokens that a forward pass computes."""
        return self.scored + self.prompt * (self.prompts if self.shared else self.rows)

    @property
    def pairs(self) -> float:
        """Pairs of a token and an earlier one that it sees: Q²/2 for a prompt, R (Q + R/2) for a completion."""
        prompts = self.prompts if self.shared else self.rows
        return prompts * self.prompt**2 / 2 + self.scored * (self.prompt + self.response / 2)

    def share(self, ranks: int) -> "BatchShape":
        """The part of one of so many ranks, which get whole prompts where there are enough of them."""
        if self.prompts >= ranks:
            return BatchShape(self.prompts / ranks, self.samples, self.prompt, self.response, self.shared)
        return BatchShape(1.0, max(1.0, self.rows / ranks), self.prompt, self.response, self.shared)


@dataclass(frozen=True)
class SamplingLoad:
    """The completions that a step generates: `rounds` times the batch, each of at most `limit` tokens."""

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
    batch: BatchShape
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
    sampling: SamplingLoad | None = None
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
    """Whether the engine computes the last layer only for the states that are read: those before completion tokens, or
    of a reward model the last one of every row."""
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
