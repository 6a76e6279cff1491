"""Names for the shapes that nearly every signature of `core` and `algorithms` has; `tutelage.core.batch` explains them.

The annotations are those of jaxtyping: `Float` is any floating type, and a letter stands for the same size everywhere
in one signature. Only the tests check them at run time (`tests/typechecks.py`).
"""

from typing import TypeAlias

from jaxtyping import Bool, Float, Int
from torch import Tensor

PerToken: TypeAlias = Float[Tensor, "B R"]
"""One number for each completion token; what stands beyond the mask has no meaning."""

TokenMask: TypeAlias = Bool[Tensor, "B R"]
"""A choice of completion tokens; as `mask`, those that exist, the end token included."""

PerRow: TypeAlias = Float[Tensor, " B"]
"""One number for each completion."""

RowMask: TypeAlias = Bool[Tensor, " B"]
"""A choice of completions."""

Lengths: TypeAlias = Int[Tensor, " B"]
"""The number of tokens of each completion."""

Index: TypeAlias = Int[Tensor, " b"] | Bool[Tensor, " B"]
"""Some of B rows, by number or by a choice."""

Scalar: TypeAlias = Float[Tensor, ""]
"""A tensor without dimensions."""
