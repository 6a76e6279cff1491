"""Products of matrices in float32: one kernel for outputs, gradients of inputs and gradients of weights.

A sum begins with its first term and ends with its last, whatever the number of rows, so the bits of a row do not depend
on other rows: they are those of a decoding step (`NativeStep`) on the same weights.
"""

from ctypes import byref
from functools import cache

import torch
from jaxtyping import Float32
from torch import Tensor

from tutelage.engines.cpu.native.bindings import is_available, library, thread_pool, warn_disabled
from tutelage.engines.cpu.native.structs import FloatProduct


def is_supported() -> bool:
    """Whether the kernel is available and agrees with torch here."""
    return is_available() and _agrees_with_torch()


def multiply(
    a: Float32[Tensor, "M K"],
    b: Float32[Tensor, "K N"],
    into: Float32[Tensor, "M N"] | None = None,
    *,
    bias: Float32[Tensor, " N"] | None = None,
    accumulate: bool = False,
) -> Float32[Tensor, "M N"]:
    """A B + bias, written to `into` where it is given, and added to it with `accumulate`.

    Transposed views are read in place.
    """
    (rows, depth), columns = a.shape, b.shape[1]
    if into is None:
        into = a.new_empty(rows, columns)
    if not depth or not rows * columns:
        return torch.addmm(into, a, b, beta=int(accumulate), out=into).add_(0.0 if bias is None else bias)
    a, b = _contiguous_one_way(a), _contiguous_one_way(b)
    bias = None if bias is None else bias.contiguous()
    product = FloatProduct(
        *(rows, columns, depth),
        *(a.data_ptr(), *a.stride()),
        *(b.data_ptr(), *b.stride()),
        *(None if bias is None else bias.data_ptr(), into.data_ptr(), into.stride(0), accumulate),
    )
    functions = library()
    workspace = torch.empty(functions.tutelage_float_product_workspace(byref(product)))
    functions.tutelage_float_product(byref(thread_pool()), byref(product), workspace.data_ptr())
    return into


def _contiguous_one_way(x: Tensor) -> Tensor:
    """The matrix itself where its rows or its columns are contiguous, else a copy."""
    return x if 1 in x.stride() else x.contiguous()


@cache
def _agrees_with_torch() -> bool:
    """Whether products of rows, and of columns, agree with torch in double precision on this machine, and a row by
    itself has the bits that it has among others."""
    wave = torch.arange(37.0 * 70).mul(0.7).sin()
    x, weight, bias = wave.view(37, 70), wave[: 70 * 37].view(70, 37), wave[:37]
    expected = x.double() @ weight.double() + bias.double()
    found = [
        multiply(a, b, bias=bias) for a, b in ((x, weight), (x.T.contiguous().T, weight.T.contiguous().T))
    ]
    found.append(torch.cat([multiply(row, weight, bias=bias) for row in x.split(1)]))
    same = all(torch.allclose(y.double(), expected, atol=1e-4) and torch.equal(y, found[0]) for y in found)
    if not same:
        warn_disabled("The compiled products in float32 are not used: their results differ from torch's.")
    return same
