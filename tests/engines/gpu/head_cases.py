"""Cases of the head, for its tests; run as a program, its kernels against their eager twins, on a GPU or with
TRITON_INTERPRET=1 in the interpreter, where there is no pytest."""

import itertools
import os
from unittest.mock import patch

import torch
from torch.utils._pytree import tree_map_only

from tutelage.engines.gpu import chunked_head
from tutelage.engines.gpu.chunked_head import (
    _Chunk,
    _Rows,
    _Sums,
    gradient,
    head_scores,
    launch_gradient,
    launch_update,
    update,
)
from tutelage.engines.logprobs import Head

CURVES = ((1.0, None), (0.7, None), (1.3, 3.0))
"""Gain and cap."""
WIDTHS = ((384, 200), (131,), (1,), (128, 256, 77), (250, 19))
"""Of the chunks of a vocabulary: multiples of 16, of nothing, and longer than a program reads at once."""
ROWS = 5


class HeadCase:
    """Products of a policy and a reference in chunks, and tokens of all chunks."""

    def __init__(self, widths, dtype, bias, curve, ref_curve=None, size=1.0, device="cpu"):
        self.generator = torch.Generator().manual_seed(sum(widths))
        self.device, self.dtype, self.widths, self.size = device, dtype, widths, size
        vocabulary = sum(widths)
        self.tokens = torch.tensor([0, vocabulary - 1, vocabulary // 2, vocabulary // 3, widths[0] - 1]).to(device)
        self.policy = self.chunks(bias, *curve)
        self.ref = None if ref_curve is None else self.chunks(not bias, *ref_curve)

    def numbers(self, *shape):
        return (torch.randn(*shape, generator=self.generator) * self.size).to(self.device)

    def chunks(self, bias, gain, cap):
        return [
            _Chunk(self.numbers(ROWS, width), self.numbers(width).to(self.dtype) if bias else None, gain, cap)
            for width in self.widths
        ]

    def exclude(self):
        """Make logits −inf: the first chunk of the policy's, and part of that of the reference."""
        self.policy[0].products.fill_(-torch.inf)
        if self.ref is not None:
            self.ref[0].products[:, ::2] = -torch.inf
        self.tokens = self.tokens.clamp(min=self.widths[0])

    def each(self):
        """Positions, and the chunks of both, for each chunk."""
        start = 0
        for number, chunk in enumerate(self.policy):
            yield self.tokens - start, chunk, *([] if self.ref is None else [self.ref[number]])
            start += self.widths[number]

    def sums(self, step, entropy):
        """Sums over all chunks."""
        low, zero = (torch.full((ROWS,), x, device=self.device) for x in (torch.finfo(torch.float32).min, 0.0))
        ref = (low.clone(), zero.clone(), zero.clone()) if self.ref is not None else None
        sums = _Sums(low.clone(), zero.clone(), zero - torch.inf, zero.clone() if entropy else None, ref)
        for arguments in self.each():
            sums = step(sums, *arguments)
        return sums

    def gradients(self, step, sums, terms):
        """The gradient of each chunk, from memory that is NaN."""
        ref = None if sums.ref is None else (terms[3], sums.ref[0], sums.ref[1].log())
        entropy = None if sums.centred is None else terms[2]
        rows = _Rows(sums.maximum, sums.total.log(), terms[0], terms[1], entropy, ref)
        results = []
        for positions, chunk, *others in self.each():
            result = torch.full(chunk.products.shape, torch.nan, dtype=self.dtype, device=self.device)
            step(result, rows, positions, chunk, *others)
            results.append(result)
        return results


def assert_equal(case, entropy):
    """Sums and gradients of the kernels are those of the twins."""
    ours, twin = case.sums(launch_update, entropy), case.sums(eager(update), entropy)
    torch.testing.assert_close(ours[:4], twin[:4], rtol=2e-6, atol=2e-6 * max(case.size, 1.0))
    if twin.ref is not None:
        torch.testing.assert_close(ours.ref, twin.ref, rtol=4e-6, atol=4e-6 * max(case.size, 1.0))
    terms = [case.numbers(ROWS) / case.size for _ in range(4)]
    exact = case.dtype == torch.float32
    for one, other in zip(
        case.gradients(launch_gradient, twin, terms), case.gradients(eager(gradient), twin, terms), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-5 if exact else 2**-7, atol=1e-6 * max(case.size, 1.0))


def eager(function):
    """The twin, on the CPU whatever the device of its arguments."""

    def call(*arguments):
        moved = tree_map_only(torch.Tensor, torch.Tensor.cpu, arguments)
        result = function(*moved)
        if result is None:
            arguments[0].copy_(moved[0])  # the gradient
        return tree_map_only(torch.Tensor, lambda x: x.to(arguments[1].device), result)

    return call


def kernels_equal_their_twins(device) -> None:
    dtypes, references = (torch.float32, torch.bfloat16), (None, (0.8, None), (1.1, 2.0))
    parts = itertools.product(dtypes, (False, True), CURVES, references, (False, True))
    for widths, (dtype, bias, curve, ref_curve, entropy) in zip(itertools.cycle(WIDTHS), parts, strict=False):
        assert_equal(HeadCase(widths, dtype, bias, curve, ref_curve, device=device), entropy)
    print("all terms equal", flush=True)
    for bias, ref_curve, entropy in itertools.product((False, True), (None, (0.8, None)), (False, True)):
        assert_equal(HeadCase((384, 200), torch.float32, bias, (1.0, None), ref_curve, 3e3, device), entropy)
        case = HeadCase((384, 200), torch.float32, bias, (1.0, None), ref_curve, device=device)
        case.exclude()
        assert_equal(case, entropy)
    print("extreme and excluded logits equal", flush=True)


def scores_equal_eager_ones(device) -> None:
    """Scores and gradients of `head_scores`, by the kernels and by their twins, over several chunks."""
    generator = torch.Generator().manual_seed(0)
    shapes = (ROWS, 8), (701, 8), (701,), (ROWS, 6), (701, 6)
    *trained, states, weight = (torch.randn(*shape, generator=generator).to(device) for shape in shapes)
    tokens, reference = torch.tensor([0, 700, 350, 127, 128]).to(device), (states, Head(weight, None, 0.5))

    def results():
        leaves = [x.clone().requires_grad_() for x in trained]
        head = Head(leaves[1], leaves[2], 1.3, 3.0)
        scores = head_scores(leaves[0], head, tokens, temperature=0.7, entropy=True, reference=reference)
        return [*scores, *torch.autograd.grad(sum(x.sum() for x in scores), leaves)]

    found = []
    for steps in ((launch_update, launch_gradient), (eager(update), eager(gradient))):
        with patch.multiple(chunked_head, update=steps[0], gradient=steps[1], HEAD_ELEMENTS=1, NARROWEST=256):
            found.append(results())
    torch.testing.assert_close(*found, rtol=1e-5, atol=1e-5)
    print("scores equal", flush=True)


if __name__ == "__main__":
    if os.environ.get("TRITON_INTERPRET"):
        from interpreter import mend_the_interpreter

        mend_the_interpreter()
    chunked_head.UPDATE_BLOCK, chunked_head.GRADIENT_BLOCK = 128, 64  # several blocks in a chunk
    for check in (scores_equal_eager_ones, kernels_equal_their_twins):
        check("cpu" if os.environ.get("TRITON_INTERPRET") else "cuda")
