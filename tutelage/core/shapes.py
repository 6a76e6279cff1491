"""Names for the tensor shapes common in `core` and `algorithms`; see `tutelage.core.batch` for their meaning.

The annotations are those of jaxtyping: `Float` is any floating type, and a letter stands for the same size everywhere
in one signature. Only the tests check them at run time (`tests/typechecks.py`).
"""

from typing import TypeAlias

from jaxtyping import Bool, Float, Int
from torch import Tensor

PerToken: TypeAlias = Float[Tensor, "B R"]
"""One number per completion token; undefined outside the mask."""

TokenMask: TypeAlias = Bool[Tensor, "B R"]
"""A selection of completion tokens; as `mask`, all tokens including the end token, without padding."""

PerRow: TypeAlias = Float[Tensor, " B"]
"""One number per completion."""

RowMask: TypeAlias = Bool[Tensor, " B"]
"""A selection of completions."""

Lengths: TypeAlias = Int[Tensor, " B"]
"""The number of tokens of each completion."""

Index: TypeAlias = Int[Tensor, " b"] | Bool[Tensor, " B"]
"""Some of B rows, by index or by mask."""

Scalar: TypeAlias = Float[Tensor, ""]
"""A zero-dimensional tensor."""
