"""What a job needs if no token is computed twice: floating-point operations, and bytes that must be read.

A multiplication with an addition counts as two operations; a backward pass costs twice its forward pass.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from bench.shapes import Shape


@dataclass(frozen=True)
class Tree:
    """A prompt with the responses to it, in tokens."""

    prompt: int
    responses: tuple[int, ...]

    @property
    def tokens(self) -> int:
        """Tokens that are distinct: the prompt once."""
        return self.prompt + sum(self.responses)


def forward(shape: Shape, trees: Sequence[Tree], *, head: bool = True) -> float:
    """Operations of a forward pass: the trunk on every distinct token, attention, the head on response tokens."""
    tokens = sum(tree.tokens for tree in trees)
    scored = sum(sum(tree.responses) for tree in trees)
    return 2 * shape.trunk * tokens + _attention(shape, trees) + 2 * shape.head * scored * head


def _attention(shape: Shape, trees: Sequence[Tree]) -> float:
    seen = sum(tree.prompt**2 / 2 + sum(r * (tree.prompt + r / 2) for r in tree.responses) for tree in trees)
    return 4 * shape.hidden * shape.layers * seen


def training(shape: Shape, trees: Sequence[Tree], *, head: bool = True, frozen: bool = False) -> float:
    """Operations of a forward and a backward pass; under an adapter the weights are `frozen`, and have no gradients.

    The products of the adapter itself, some percent, are left out.
    """
    of_weights = forward(shape, trees, head=head) - _attention(shape, trees)
    return 3 * forward(shape, trees, head=head) - frozen * of_weights


@dataclass(frozen=True)
class Decoding:
    """Decoding `response` tokens for `samples` rows of each of `prompts` prompts, which are read first: the `common`
    tokens that all begin with, once."""

    shape: Shape
    prompts: int
    samples: int
    prompt: int
    response: int
    bytes_each: int = 4
    common: int = 0

    @property
    def reading(self) -> float:
        """Operations of reading the prompts."""
        own = (self.prompt - self.common,) * self.prompts
        return forward(self.shape, [Tree(self.common, own)], head=False)

    @property
    def operations(self) -> float:
        """Of one step, on average over the response."""
        rows = self.prompts * self.samples
        attention = 4 * self.shape.hidden * self.shape.layers * rows * (self.prompt + self.response / 2)
        return 2 * (self.shape.trunk + self.shape.head) * rows + attention

    @property
    def bytes_read(self) -> float:
        """In one step: all weights, and keys and values, those of a prompt once for its samples."""
        held = self.prompts * (self.prompt + self.samples * self.response / 2)
        return self.bytes_each * (self.shape.trunk + self.shape.head + held * self.shape.kv_width)

    @property
    def whole(self) -> float:
        """Operations of reading the prompts and of all steps."""
        return self.reading + self.response * self.operations

    def floor(self, peak: float, bandwidth: float) -> float:
        """Seconds below which no implementation comes, with `peak` operations and `bandwidth` bytes a second."""
        return self.reading / peak + self.response * max(self.operations / peak, self.bytes_read / bandwidth)
