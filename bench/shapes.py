"""The models that are measured: Llama shapes with random weights."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Shape:
    """A Llama with tied embeddings. `device` says where its jobs run."""

    name: str
    vocabulary: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    feed_forward: int
    context: int = 1024
    device: str = "cpu"

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


SHAPES = {
    shape.name: shape
    for shape in (
        Shape("6.8M", 8_192, 256, 6, 4, 4, 688),
        Shape("17.6M", 50_258, 256, 6, 4, 4, 688),
        Shape("134M", 49_152, 576, 30, 9, 3, 1_536),
        Shape("1.2B", 128_256, 2_048, 16, 32, 8, 8_192, context=4_096, device="cuda"),
    )
}
