"""Sizes of one step of a run: transformers with their cost in closed form, the batch, and the passes."""

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Transformer:
    """Sizes of a decoder-only transformer; `models.outline` reads them from a config.json.

    Tied weights are counted once. `matrices` counts only the experts active for a token, `parameters` all of them.
    """

    parameters: int
    """All weights."""
    matrices: int
    """Weights of the linear layers active for a token, without the output head."""
    head: int
    """Weights of the output head, vocabulary · hidden."""
    largest_layer: int
    """Weights of the largest decoder layer: the unit of gathering a sharded model."""
    layers: int
    hidden: int
    feed_forward: int
    """Intermediate size of the feed-forward block, summed over active experts."""
    attention: int
    """Heads · width of a head."""
    key_values: int
    """Key/value cache elements per token: 2 · layers · key-value heads · width of a head."""
    vocabulary: int
    adapter: int
    """Weights of a rank-1 LoRA adapter on every linear layer except the head: Σ (inputs + outputs)."""
    family: str = ""
    """The `model_type` of its configuration."""

    def forward(self, tokens: float, pairs: float, scored: float) -> float:
        """Operations of a forward pass; a multiply-add counts as two.

            2 · matrices · tokens + 4 · layers · attention · pairs + 2 · head · scored

        `pairs` is the number of (token, visible token) pairs, `scored` the number of tokens with logits.
        """
        return 2 * self.matrices * tokens + 4 * self.layers * self.attention * pairs + 2 * self.head * scored

    def unread(self, tokens: float) -> float:
        """Operations saved by tokens whose last states are not needed: the last layer computes only their keys and
        values.

            2 · (matrices / layers − hidden · key_values / layers) · tokens
        """
        return 2 * (self.matrices - self.hidden * self.key_values) / self.layers * tokens

    def kept(self, *, half: bool, checkpointing: bool = False) -> float:
        """Bytes per token saved for the backward pass:

            layers · (10 · hidden + 4 · feed-forward) · bytes of an activation

        Per token and layer, Llama, Qwen3 and GPT-2 save the states around two norms, queries, keys and values before
        and after rotation, the attention output; the gate, its activation, the other branch and their product. In bf16,
        norms stay in float32, so an activation has 2.5 bytes on average instead of 4. With activation checkpointing,
        only layer inputs are saved, plus the activations of the layer being recomputed.
        """
        each = 2.5 if half else 4.0
        layer = (10 * self.hidden + 4 * self.feed_forward) * each
        return self.layers * self.hidden * each + layer if checkpointing else self.layers * layer

    def recorded(self, *, half: bool) -> int:
        """Bytes per token that the CPU engine caches from sampling for the update; see
        `engines.cpu.activation_cache`."""
        of_products = self.key_values + self.layers * (2 * self.attention + 2 * self.feed_forward)
        return (2 if half else 4) * of_products + 8 * self.layers * self.hidden


@dataclass(frozen=True)
class BatchShape:
    """`prompts` prompts with `samples` completions each, described by mean lengths in tokens."""

    prompts: float
    samples: float
    prompt: float
    response: float
    shared: bool = True
    """Whether a prompt is computed once for its completions, in one packed sequence."""
    read: float = 0.0
    """Tokens of a row that stand between its sampled ones, such as results of tools."""

    @property
    def rows(self) -> float:
        """Number of completions."""
        return self.prompts * self.samples

    @property
    def length(self) -> float:
        """Tokens of a row after its prompt."""
        return self.response + self.read

    @property
    def scored(self) -> float:
        """Sampled tokens of all rows."""
        return self.rows * self.response

    @property
    def tokens(self) -> float:
        """Tokens computed by a forward pass."""
        return self.rows * self.length + self.prompt * (self.prompts if self.shared else self.rows)

    @property
    def pairs(self) -> float:
        """Pairs of a token and an earlier visible one: Q²/2 for a prompt, L (Q + L/2) for the L tokens after it."""
        prompts = self.prompts if self.shared else self.rows
        return prompts * self.prompt**2 / 2 + self.rows * self.length * (self.prompt + self.length / 2)

    @property
    def packs(self) -> bool:
        """Whether the plain engine packs the completions of a prompt on a GPU: if that saves 30 % of the tokens."""
        return replace(self, shared=True).tokens <= 0.7 * replace(self, shared=False).tokens

    def share(self, ranks: int) -> "BatchShape":
        """The share of one of `ranks` ranks, in whole prompts if there are enough of them."""
        if self.prompts >= ranks:
            return replace(self, prompts=self.prompts / ranks)
        return replace(self, prompts=1.0, samples=max(1.0, self.rows / ranks))


@dataclass(frozen=True)
class SamplingLoad:
    """Completions generated by a step: `rounds` times the batch, each of at most `limit` tokens."""

    limit: int
    rounds: float = 1.0
    weights: float = 4.0
    """Bytes per weight read for every token."""
    copies: float = 0.0
    """Bytes per weight of a copy in the decoding layout."""
    read: float = 0.0
    """Tokens that a row reads between its turns."""
    reread: float = 0.0
    """Tokens of its past that a row reads again before its turns, unless the engine keeps their keys and values."""

    @property
    def longest(self) -> int:
        """Tokens of a row after its prompt, at most."""
        return self.limit + round(self.read)


@dataclass(frozen=True)
class Workload:
    """One step of a run over all ranks: `model` is trained on `batch`."""

    model: Transformer
    batch: BatchShape
    lora: int = 0
    """Rank of the adapters; 0 trains every weight."""
    half: bool = False
    """Whether products are in bf16, over float32 weights."""
    is_scalar: bool = False
    """Whether the model is a reward model, with one output instead of a vocabulary."""
    trains: bool = True
    epochs: float = 1.0
    """Passes with gradients over the batch."""
    updates: int = 1
    """Optimiser steps."""
    sampling: SamplingLoad | None = None
    scorings: float = 0.0
    """Forward passes over the batch for log-probabilities of the policy."""
    rescorings: float = 0.0
    """Additional such passes if sampling and training differ in rounding."""
    reference: float = 0.0
    """Forward passes over the batch by the reference."""
    has_reference: bool = False
    """Whether a frozen copy of the weights is kept; with adapters, the reference needs none."""
    teacher: Transformer | None = None
    """A frozen model that provides probabilities of every token, once per batch."""
    critic: Transformer | None = None
    """A critic network, trained in every epoch, that scores the batch once."""
    rewards: tuple[Transformer, ...] = ()
    """Reward models that score the batch."""
    keeps: bool = False
    """Whether the engine may cache activations from sampling, so that the first minibatch skips its forward pass."""
    selects: bool = False
    """Whether the engine computes the last layer only for states in use: those before completion tokens, or the last of
    each row in a reward model."""
    casts_layers: bool = False
    """Whether the engine rounds weights to bf16 per product, in both passes, instead of keeping a rounded copy of the
    model."""
    fused: bool = False
    """Whether the GPU engine computes the step: rows without padding, each distinct prompt once; frozen matrices in the
    dtype of the arithmetic; logits in chunks, recomputed in the backward pass; decoding by one captured graph."""
    can_shard: bool = True
    """Whether the run can be sharded; natural steps, which need whole models and vectors, cannot."""

    def on_shards(self) -> "Workload":
        """The step on a sharded model, which the plain engine computes."""
        if not self.fused:
            return self
        batch = replace(self.batch, shared=self.batch.packs)
        return replace(self, fused=False, casts_layers=False, batch=batch)

    @property
    def minibatches(self) -> float:
        """Optimiser steps per pass over the batch."""
        return max(1.0, self.updates / self.epochs)

    @property
    def trainable(self) -> int:
        """Weights with a gradient and two moments."""
        if not self.trains:
            return 0
        return self.lora * self.model.adapter if self.lora else self.model.parameters
