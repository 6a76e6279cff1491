"""Operations that our side performs in an update, counted while it runs: `count` of a job, for the table.

A multiplication with an addition counts as two. Torch's matrix products are counted by the formulas of
`torch.utils.flop_counter`, from the shapes that they are called with, in forward and backward passes alike. The
compiled kernels, of which torch knows nothing, are counted by formulas of the layout or shapes that they get. Products
alone are counted: norms, gates, rotations and the optimiser grow with tokens or weights, not with their product.
Decoding steps are no part of an update and are not counted.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from math import ceil
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from bench.clock import replaced
from bench.job import Place
from bench.jobs import JOBS
from bench.ours import run_workflow, step_ends
from bench.planned import SETTINGS

aten: Any = torch.ops.aten
STRIP, BLOCK, LANES = 12, 48, 16
"""Queries that read their own sequence up to the last one of them in the compiled attention, in float32 and in bf16,
and columns that scores are rounded up to (packed_attention.hpp, packed_sequence.hpp)."""


def _attention(query: Any, key: Any, products: int) -> int:
    """Products of queries [B, H, T, w] with all keys [B, K, S, w]: torch's kernel leaves out few of the masked ones."""
    return 2 * products * query.numel() * key.shape[2]


FORMULAS: Mapping[Any, Callable[..., int]] = {
    aten.mm: flop_registry[aten.mm],
    aten.addmm: flop_registry[aten.addmm],
    aten.addmm_: flop_registry[aten.addmm],
    aten.bmm: flop_registry[aten.bmm],
    aten.baddbmm: flop_registry[aten.baddbmm],
    torch.ops.mkldnn._linear_pointwise: lambda x, *_, out_val, **__: 2 * x.numel() * out_val.shape[-1],
    aten._scaled_dot_product_flash_attention_for_cpu: lambda query, key, *_, **__: _attention(query, key, 2),
    aten._scaled_dot_product_flash_attention_for_cpu_backward: lambda _, query, key, *__, **___: _attention(
        query, key, 5
    ),
}
"""Operations of a call of an operator of torch, by its arguments."""


class Operations(TorchDispatchMode):
    """Inside, the operations of each kernel are added to `kernels`, by its name."""

    def __init__(self) -> None:
        super().__init__()
        self.kernels: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        packet, kwargs = func._overloadpacket, kwargs or {}
        if packet not in FORMULAS:
            with self:  # an operator that is made of others, as some arrive in inference
                made = func.decompose(*args, **kwargs)
            return func(*args, **kwargs) if made is NotImplemented else made
        out = func(*args, **kwargs)
        self.kernels[packet.__name__.rstrip("_")] += FORMULAS[packet](*args, **kwargs, out_val=out)
        return out


def attention_pairs(layout: Any, block: int = STRIP) -> tuple[int, int]:
    """Queries times the keys that they are multiplied with in the compiled attention of a layout, for one head.

    A `block` of queries reads its prefix and its own sequence up to the block's last token; the second number has the
    columns that scores are padded with. Tokens that are in several sequences are queries in the first of them.
    """
    lengths = layout.sequence.bincount()
    prefixes = layout.prefix[lengths.cumsum(0) - lengths].tolist()
    read = padded = 0
    sizes = zip(lengths.tolist(), layout.skipped().tolist(), prefixes, strict=True)
    for number, (length, known, prefix) in enumerate(sizes):
        before = 0 if prefix == number else int(lengths[prefix])
        for start in range(known, length, block):
            end = min(start + block, length)
            read += (end - start) * (before + end)
            padded += (end - start) * (_rounded(before) + _rounded(end))
    return read, padded


def _block(query: torch.Tensor) -> int:
    return BLOCK if query.dtype == torch.bfloat16 else STRIP


def _rounded(columns: int) -> int:
    return ceil(columns / LANES) * LANES


@contextmanager
def counting() -> Iterator[Counter[str]]:
    """Inside, the operations of all kernels of this thread are counted, by their names."""
    from tutelage.engines.cpu.native import matrix_products
    from tutelage.engines.cpu.native.attention_kernels import NativeKernels
    from tutelage.engines.cpu.native.matrix_products import PanelLinear

    operations = Operations()

    def attend(inner: Callable[..., Any], kernels: Any, query: Any, *rest: Any) -> Any:
        read, padded = attention_pairs(kernels.layout, _block(query))
        operations.kernels["attention"] += 2 * query[0].numel() * (padded + read)
        return inner(kernels, query, *rest)

    def differentiate(inner: Callable[..., Any], kernels: Any, tensors: Any, *rest: Any) -> Any:
        read, padded = attention_pairs(kernels.layout, _block(tensors[0]))
        operations.kernels["attention gradients"] += 2 * tensors[0][0].numel() * (2 * padded + 3 * read)
        return inner(kernels, tensors, *rest)

    def multiply(inner: Callable[..., Any], linear: Any, x: Any, *rest: Any) -> Any:
        by = linear.matrix
        operations.kernels["panels"] += 2 * len(x) * (by.in_ * by.out + x.shape[1] * by.rank)
        return inner(linear, x, *rest)

    def multiply_floats(inner: Callable[..., Any], a: Any, b: Any, *rest: Any, **more: Any) -> Any:
        operations.kernels["float products"] += 2 * a.numel() * b.shape[1]
        return inner(a, b, *rest, **more)

    with ExitStack() as inside:
        inside.enter_context(replaced(matrix_products, "multiply", multiply_floats))
        inside.enter_context(replaced(NativeKernels, "forward", attend))
        inside.enter_context(replaced(NativeKernels, "backward", differentiate))
        inside.enter_context(replaced(PanelLinear, "_compute", multiply))
        inside.enter_context(operations)
        yield operations.kernels


def count(name: str, place: Place) -> dict[str, Any]:
    """What the update of a job's step performs and what it needs at least, in operations, and the tokens of the step.

    Of a job whose updates are a part of its steps, the second update is counted: the first also verifies what was kept
    from sampling, once in a run. Of any other the steps share what is performed up to the end of the last.
    """
    needs = JOBS[name].needs(place)
    if needs.updating:
        kernels, kept = _in_updates(name, replace(place, steps=1))
    else:
        kernels, kept = _in_steps(name, place), 0.0
    return {
        "done": sum(kernels.values()),
        "needed": needs.update - needs.kept * kept,
        "tokens": needs.tokens,
        "kernels": kernels,
    }


def _in_updates(name: str, place: Place) -> tuple[dict[str, float], float]:
    """Operations of the last update by kernel, and the tokens that sampling kept for it."""
    from tutelage.train.rl import improve as loop

    counts: list[dict[str, float]] = []

    def counted(inner: Callable[..., Any], *given: Any) -> Any:
        with counting() as kernels:
            result = inner(*given)
        counts.append(dict(kernels))
        return result

    with replaced(loop, "gradient_update", counted):
        rows = _run(name, place)
    return counts[-1], rows[-1].get("tokens/kept", 0.0)


def _in_steps(name: str, place: Place) -> dict[str, float]:
    """Operations by kernel up to the end of the last step, over the number of steps."""
    with counting() as kernels, step_ends(lambda: dict(kernels)) as ends:
        _run(name, place)
    return {kernel: each / len(ends) for kernel, each in ends[-1].items()}


def _run(name: str, place: Place) -> list[dict[str, float]]:
    import tutelage

    command, settings = SETTINGS[name]
    return run_workflow(getattr(tutelage, command), settings(place))
