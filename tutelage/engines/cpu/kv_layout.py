"""Layouts of the keys and values of a `PromptCache`: what is stored of a head are rows of so many tokens each."""

from typing import Protocol

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pad

from tutelage.engines.cpu.native.bindings import LANES

BLOCK = LANES
"""Tokens of a row of `BlockLayout`."""


class KVLayout(Protocol):
    """How keys [..., T, w] and values [..., T, v] are stored, as rows [..., R, n]."""

    tokens: int
    """Tokens of a row."""

    def numbers(self, width: int) -> int:
        """The numbers of a row, for heads of this width."""

    def pack(
        self, key: Float[Tensor, "K N w"], value: Float[Tensor, "K N v"]
    ) -> tuple[Float[Tensor, "K R n"], Float[Tensor, "K R m"]]:
        """The rows of whole prompts."""

    def put(
        self,
        keys: Float[Tensor, "*outer R n"],
        values: Float[Tensor, "*outer R m"],
        token: int,
        key: Float[Tensor, "*outer w"],
        value: Float[Tensor, "*outer v"],
    ) -> None:
        """Store one more token of each answer."""

    def unpack(
        self, keys: Float[Tensor, "*outer R n"], values: Float[Tensor, "*outer R m"], tokens: int, width: int
    ) -> tuple[Float[Tensor, "*outer T w"], Float[Tensor, "*outer T v"]]:
        """The first keys and values, token by token, of heads of this width."""


class TokenLayout:
    """Token by token."""

    tokens = 1

    def numbers(self, width: int) -> int:
        """See `KVLayout.numbers`."""
        return width

    def pack(
        self, key: Float[Tensor, "K N w"], value: Float[Tensor, "K N v"]
    ) -> tuple[Float[Tensor, "K N w"], Float[Tensor, "K N v"]]:
        """See `KVLayout.pack`."""
        return key, value

    def put(
        self,
        keys: Float[Tensor, "*outer T w"],
        values: Float[Tensor, "*outer T v"],
        token: int,
        key: Float[Tensor, "*outer w"],
        value: Float[Tensor, "*outer v"],
    ) -> None:
        """See `KVLayout.put`."""
        keys.select(-2, token).copy_(key)
        values.select(-2, token).copy_(value)

    def unpack(
        self, keys: Float[Tensor, "*outer R w"], values: Float[Tensor, "*outer R v"], tokens: int, width: int
    ) -> tuple[Float[Tensor, "*outer T w"], Float[Tensor, "*outer T v"]]:
        """See `KVLayout.unpack`."""
        return keys.narrow(-2, 0, tokens), values.narrow(-2, 0, tokens)


class BlockLayout:
    """That of the compiled step: blocks of `BLOCK` tokens, with features padded to a multiple of as many.

    The step multiplies single numbers in float32 and pairs in bfloat16 (see `native/attention.hpp`), so `together` is 1
    or 2. A block has, of keys, so many features of each token [w / together, 16, together], and of values each feature
    of so many tokens [16 / together, w, together]. Keys and values are equally wide.
    """

    tokens = BLOCK

    def __init__(self, dtype: torch.dtype) -> None:
        self.together = 2 if dtype == torch.bfloat16 else 1

    def numbers(self, width: int) -> int:
        """See `KVLayout.numbers`."""
        return BLOCK * _padded(width)

    def pack(
        self, key: Float[Tensor, "K N w"], value: Float[Tensor, "K N w"]
    ) -> tuple[Float[Tensor, "K R n"], Float[Tensor, "K R n"]]:
        """See `KVLayout.pack`."""
        padding = (0, -key.shape[2] % BLOCK, 0, -key.shape[1] % BLOCK)
        key, value = (pad(x, padding).unflatten(1, (-1, BLOCK)) for x in (key, value))
        keys = key.unflatten(3, (-1, self.together)).transpose(2, 3)
        values = value.unflatten(2, (-1, self.together)).transpose(3, 4)
        return keys.flatten(2), values.flatten(2)

    def put(
        self,
        keys: Float[Tensor, "*outer R n"],
        values: Float[Tensor, "*outer R n"],
        token: int,
        key: Float[Tensor, "*outer w"],
        value: Float[Tensor, "*outer w"],
    ) -> None:
        """See `KVLayout.put`."""
        (row, place), padding = divmod(token, BLOCK), (0, -key.shape[-1] % BLOCK)
        of_keys, of_values = self._blocks(keys, values)
        of_keys[..., row, :, place, :] = pad(key, padding).unflatten(-1, (-1, self.together))
        group, member = divmod(place, self.together)
        of_values[..., row, group, :, member] = pad(value, padding)

    def unpack(
        self, keys: Float[Tensor, "*outer R n"], values: Float[Tensor, "*outer R n"], tokens: int, width: int
    ) -> tuple[Float[Tensor, "*outer T w"], Float[Tensor, "*outer T w"]]:
        """See `KVLayout.unpack`."""
        of_keys, of_values = self._blocks(keys, values)
        key = of_keys.transpose(-3, -2).flatten(-4, -3).flatten(-2)
        value = of_values.transpose(-2, -1).flatten(-4, -2)
        return key[..., :tokens, :width].contiguous(), value[..., :tokens, :width].contiguous()

    def _blocks(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Rows as blocks: keys [..., R, w / together, 16, together], values [..., R, 16 / together, w, together]."""
        return (
            keys.unflatten(-1, (-1, BLOCK, self.together)),
            values.unflatten(-1, (BLOCK // self.together, -1, self.together)),
        )


def _padded(width: int) -> int:
    return -(-width // BLOCK) * BLOCK
