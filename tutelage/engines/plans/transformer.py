"""The numbers of a transformer that its cost depends on, and the closed forms that follow from them."""

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
        """Operations of a forward pass that tokens spare whose last states nobody reads: of the last layer they need
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
