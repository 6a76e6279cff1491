"""Kernels of the output head on a CPU: softmax in one pass over memory, gradients accumulated in place, and bfloat16
logits bit-identical to a decoding step."""

from collections.abc import Callable
from functools import cache

import torch
from jaxtyping import Float, Float64, Int
from torch import Tensor

from tutelage.engines.cpu import products
from tutelage.engines.cpu.native import elementwise, matrix_products
from tutelage.engines.cpu.weight_gradients import add_product
from tutelage.engines.logprobs import HeadKernels
from tutelage.engines.logprobs import input_gradient as plain_input_gradient
from tutelage.engines.logprobs import linear as plain_linear
from tutelage.engines.logprobs import logit_gradients as plain_logit_gradients
from tutelage.engines.logprobs import softmax_parts as plain_softmax_parts
from tutelage.engines.token_sampling import sample as plain_sample


def softmax_parts(
    logits: Float[Tensor, "n V"], temperature: float = 1.0, *, keeps: bool = True
) -> tuple[Float[Tensor, "n V"], Float[Tensor, " n"], Float[Tensor, " n"]]:
    """See `tutelage.engines.logprobs.softmax_parts`."""
    if elementwise.supports(logits, whole=False, small=True):
        return logits, *elementwise.softmax_in_place(logits, temperature, keeps=keeps)
    return plain_softmax_parts(logits, temperature)


def logit_gradients(
    probabilities: Float[Tensor, "n V"], tokens: Int[Tensor, " n"], grad: Float[Tensor, " n"], factor: float
) -> Float[Tensor, "n V"]:
    """See `tutelage.engines.logprobs.logit_gradients`."""
    supported = elementwise.supports(probabilities, whole=False, small=True)
    found = elementwise.logit_gradients if supported else plain_logit_gradients
    return found(probabilities, tokens, grad, factor)


def linear(
    weight: Float[Tensor, "V d"], bias: Float[Tensor, " V"] | None
) -> Callable[[Float[Tensor, "N d"]], Float[Tensor, "N V"]]:
    """See `tutelage.engines.logprobs.linear`. Under autocast to bfloat16 the sums are not rounded."""
    half = _multiplies_half()
    if not half and weight.device.type == "cpu" and weight.dtype == torch.float32:
        return lambda x: _output(x, weight, bias)
    fits = weight.device.type == "cpu" and weight.dtype in (torch.float32, torch.bfloat16)
    if not (half and fits and matrix_products.supports(weight.shape[1])):
        return plain_linear(weight, bias)

    @cache
    def panels() -> matrix_products.PanelLinear:
        return matrix_products.PanelLinear([weight], bias)

    return lambda x: panels().unrounded(x.to(torch.bfloat16))


def differentiable_linear(
    weight: Float[Tensor, "V d"], bias: Float[Tensor, " V"] | None
) -> Callable[[Float[Tensor, "N d"]], Float[Tensor, "N V"]]:
    """`linear` with derivatives of all orders: rounded operands are multiplied in float32; only the order of summation
    differs."""
    if not _multiplies_half():
        return plain_linear(weight, bias)

    def product(x: Tensor) -> Tensor:
        with torch.autocast("cpu", enabled=False):
            return torch.nn.functional.linear(x.bfloat16().float(), weight.bfloat16().float(), bias)

    return product


def _multiplies_half() -> bool:
    """Whether products are currently computed in bfloat16."""
    return torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") == torch.bfloat16


def input_gradient(grad: Float[Tensor, "n V"], weight: Float[Tensor, "V d"], into: Float[Tensor, "n d"]) -> None:
    """See `tutelage.engines.logprobs.input_gradient`."""
    if grad.dtype == torch.float32:
        products.input_gradient(grad, weight, into, accumulate=False)
    else:
        plain_input_gradient(grad, weight, into)


def _output(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    if x.dtype != torch.float32:
        return plain_linear(weight, bias)(x)
    return products.output(x.flatten(0, -2), weight, bias).unflatten(0, x.shape[:-1])


def sample(
    logits: Float[Tensor, "n V"], uniform: Float64[Tensor, " n"], temperature: float = 1.0
) -> tuple[Int[Tensor, " n"], Float[Tensor, " n"]]:
    """See `token_sampling.sample`."""
    if elementwise.supports(logits, whole=False, small=True):
        return elementwise.sample(logits, uniform, temperature)
    return plain_sample(logits, uniform, temperature)


KERNELS = HeadKernels(softmax_parts, add_product, linear, input_gradient, logit_gradients, sample)
