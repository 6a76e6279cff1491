"""The kernels of the output head on a processor: softmax in one pass over memory, gradients accumulated in place."""

from jaxtyping import Float
from torch import Tensor

from tutelage.engines.cpu.gradients import add_product
from tutelage.engines.cpu.native import elementwise
from tutelage.engines.logprobs import HeadKernels
from tutelage.engines.logprobs import softmax_parts as plain_softmax_parts


def softmax_parts(
    logits: Float[Tensor, "n V"],
) -> tuple[Float[Tensor, "n V"], Float[Tensor, " n"], Float[Tensor, " n"]]:
    """See `tutelage.engines.logprobs.softmax_parts`."""
    if elementwise.supports(logits, whole=False):
        return logits, *elementwise.softmax_in_place(logits)
    return plain_softmax_parts(logits)


KERNELS = HeadKernels(softmax_parts, add_product)
