"""The output head's kernels on a processor: softmax in one pass over memory, gradients added up in place."""

from torch import Tensor

from tutelage.engines.cpu.gradients import add_product
from tutelage.engines.cpu.native import passes
from tutelage.engines.logprobs import HeadKernels
from tutelage.engines.logprobs import softmax_parts as plain_softmax_parts


def softmax_parts(logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """See `tutelage.engines.logprobs.softmax_parts`."""
    if passes.serve(logits, whole=False):
        return logits, *passes.shares(logits)
    return plain_softmax_parts(logits)


KERNELS = HeadKernels(softmax_parts, add_product)
