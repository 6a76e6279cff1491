"""Joint products in bfloat16 against their equations in double precision.

An operand that is rounded to bfloat16 is off by up to 2⁻⁸ of itself, 2⁻⁹ in the root mean square; a result has the
independent errors of two operands and its own, and one of an adapter those of two more roundings.
"""

import pytest
import torch
from compilers import needs_compiler

from tutelage.engines.cpu.fused.linear import Linear
from tutelage.engines.cpu.fused.mixed_linear import MixedLinears

pytestmark = needs_compiler

ROWS, SIZE, OUTS = 200, 48, (32, 16, 16)
BOUND = 5**0.5 * 2**-9 * 1.5


def random(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def layers_of(ranks, bias=(1,)):
    """Linear layers over the same features, whose adapters weigh as much as their matrices."""
    found = []
    for n, (out, rank) in enumerate(zip(OUTS, ranks, strict=True)):
        a, b = (random(rank, SIZE, seed=n + 10), random(out, rank, seed=n + 20)) if rank else (None, None)
        shift = random(out, seed=n + 30) if n in bias else None
        found.append(Linear(random(out, SIZE, seed=n), shift, a, b, 0.7 if rank else 0.0))
    return found


def error(found, exact):
    return float((found.double() - exact).norm() / exact.norm())


@pytest.mark.parametrize("ranks", [(0, 0, 0), (3, 3, 3), (0, 4, 1)])
@pytest.mark.parametrize("bias", [(), (1,)])
def test_outputs_and_gradients(ranks, bias):
    layers, x, grad = layers_of(ranks, bias), random(ROWS, SIZE, seed=40), random(ROWS, sum(OUTS), seed=41)
    exact = [
        Linear(*(None if part is None else part.double() for part in layer.tensors()), layer.scale)
        for layer in layers
    ]
    held, doubled = grad.double().split(OUTS, 1), x.double()
    joint = MixedLinears(layers)
    y, t = joint(x.bfloat16())
    assert y.dtype == torch.bfloat16
    assert error(y, torch.cat([layer(doubled) for layer in exact], 1)) < BOUND
    to_x, to_t = joint.to_input(grad.bfloat16())
    assert error(to_x, sum(layer.add_to_input(own) for layer, own in zip(exact, held, strict=True))) < BOUND
    found = joint.to_tensors(grad.bfloat16(), x.bfloat16(), t, to_t, [[True] * 4] * len(layers))
    expected = []
    for layer, own in zip(exact, held, strict=True):
        here = [part is not None for part in layer.tensors()]
        expected += layer.gradients(own, doubled, [here[0], True, here[2], here[3]])
    for own, wanted in zip(found, expected, strict=True):
        assert (own is None) == (wanted is None)
        if own is not None:
            assert own.dtype == torch.float32
            assert error(own, wanted) < BOUND


def test_an_adapter_costs_the_other_layers_nothing():
    """Its columns are zeros in the rows of other layers."""
    with_adapter, without = (MixedLinears(layers_of(ranks)) for ranks in ((0, 4, 0), (0, 0, 0)))
    x = random(ROWS, SIZE, seed=40).bfloat16()
    (found, _), (expected, _) = with_adapter(x), without(x)
    others = torch.cat((torch.arange(OUTS[0]), torch.arange(OUTS[0] + OUTS[1], sum(OUTS))))
    torch.testing.assert_close(found[:, others], expected[:, others], rtol=2**-7, atol=1e-6)
    assert (
        error(found[:, OUTS[0] : OUTS[0] + OUTS[1]], expected[:, OUTS[0] : OUTS[0] + OUTS[1]].double()) > 0.1
    )


def test_what_is_not_wanted_is_not_computed():
    layers = layers_of((2, 2, 2))
    joint, x = MixedLinears(layers), random(ROWS, SIZE, seed=40).bfloat16()
    grad = random(ROWS, sum(OUTS), seed=41).bfloat16()
    _, t = joint(x)
    _, to_t = joint.to_input(grad)
    wanted = [[False, False, True, False], [False] * 4, [False, False, False, True]]
    found = joint.to_tensors(grad, x, t, to_t, wanted)
    assert [part is not None for part in found] == [flag for flags in wanted for flag in flags]
