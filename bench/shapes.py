"""The models that are measured: Llama shapes with random weights."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Shape:
    """A Llama with tied embeddings. `device` says where its jobs run.

    `learnt` are the tokens of its tokenizer where the embedding has more: the others occur in no text.
    """

    name: str
    vocabulary: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    feed_forward: int
    context: int = 1024
    device: str = "cpu"
    learnt: int = 0

    @property
    def weights(self) -> int:
        """Weights of all matrices: those of the trunk, and the embedding, which is the head too."""
        return self.trunk + self.head

    @property
    def trunk(self) -> int:
        """Weights of the matrices that every token passes through, without the head."""
        width = self.hidden // self.heads
        attention = 2 * self.hidden * self.hidden + 2 * self.hidden * self.kv_heads * width
        return self.layers * (attention + 3 * self.hidden * self.feed_forward)

    @property
    def head(self) -> int:
        """Weights of the head."""
        return self.vocabulary * self.hidden

    @property
    def kv_width(self) -> int:
        """Numbers that a token leaves in the caches of all layers."""
        return 2 * self.layers * self.kv_heads * (self.hidden // self.heads)


GROWING = (
    Shape("1M", 8_192, 96, 2, 3, 3, 256),
    Shape("6.8M", 8_192, 256, 6, 4, 4, 688),
    Shape("29.5M", 8_192, 512, 8, 8, 8, 1_376),
    Shape("127M", 8_192, 768, 17, 12, 12, 2_048),
    Shape("500M", 8_192, 1_280, 24, 20, 20, 3_584),
)
"""Models of one vocabulary, each about four times as large as the one before."""
WIDENING = tuple(
    Shape(f"6.8M-{vocabulary}", vocabulary, 256, 6, 4, 4, 688, learnt=2_048)
    for vocabulary in (2_048, 8_192, 32_768, 65_536, 131_072)
)
"""The trunk of 6.8M under embeddings that grow. All have the same tokenizer, so that they read the same tokens."""
SHAPES = {
    shape.name: shape
    for shape in (
        *GROWING,
        *WIDENING,
        Shape("6.8M-tools", 8_192, 256, 6, 4, 4, 688),
        Shape("17.6M", 50_258, 256, 6, 4, 4, 688),
        Shape("134M", 49_152, 576, 30, 9, 3, 1_536),
        Shape("1.2B", 128_256, 2_048, 16, 32, 8, 8_192, context=4_096, device="cuda"),
    )
}
