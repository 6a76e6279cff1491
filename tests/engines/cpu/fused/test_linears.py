"""Linear layers as tensors: which layers are served, and what they compute; joint products in bfloat16.

An operand that is rounded to bfloat16 is off by up to 2⁻⁸ of itself, 2⁻⁹ in the root mean square; a result has the
independent errors of two operands and its own, and one of an adapter those of two more roundings.
"""

import pytest
import torch
from compilers import needs_compiler
from peft import LoraConfig, inject_adapter_in_model
from torch import nn

from tutelage.engines.cpu.fused.linears import (
    AdaptedLinear,
    ExactLinears,
    MixedLinears,
    adapted_linears,
    by_layer,
    linears,
)

RANK, SCALE = 2, 2.5


class Network(nn.Module):
    def __init__(self, bias=True):
        super().__init__()
        self.layer = nn.Linear(5, 7, bias=bias)

    def forward(self, x):
        return self.layer(x)


def adapted(**more):
    """A layer with an adapter whose weights are not zero, and a few inputs."""
    torch.manual_seed(0)
    settings = LoraConfig(
        r=RANK, lora_alpha=SCALE * RANK, target_modules=["layer"], **{"init_lora_weights": False, **more}
    )
    return inject_adapter_in_model(settings, Network()).layer, torch.randn(3, 5)


def test_a_layer_with_an_adapter_is_its_tensors():
    layer, x = adapted()
    found = AdaptedLinear.of(layer)
    torch.testing.assert_close(found(x), layer(x))
    assert (found.rank(), found.scale) == (RANK, SCALE)
    assert linears([SCALE], found.tensors())[0] == found


def test_a_layer_without_an_adapter_is_its_tensors():
    layer = Network(bias=False).layer
    found = AdaptedLinear.of(layer)
    assert found.weight is layer.weight
    assert (found.bias, found.rank()) == (None, 0)


def test_an_adapter_that_is_switched_off_is_left_out():
    layer, x = adapted()
    layer.enable_adapters(False)
    found = AdaptedLinear.of(layer)
    assert found.rank() == 0
    torch.testing.assert_close(found(x), layer.get_base_layer()(x))


@pytest.mark.parametrize("more", [{"use_dora": True}, {"lora_bias": True}, {"lora_dropout": 0.5}])
def test_adapters_that_compute_anything_else_are_refused(more):
    layer, _ = adapted(**more)
    layer.train()
    assert adapted_linears([layer]) is None


def test_dropout_out_of_training_changes_nothing():
    layer, x = adapted(lora_dropout=0.5)
    torch.testing.assert_close(AdaptedLinear.of(layer.eval())(x), layer(x))


def test_merged_adapters_two_adapters_and_hooks_are_refused():
    merged, _ = adapted()
    merged.merge()
    assert adapted_linears([merged]) is None
    two, _ = adapted()
    two.update_layer("other", RANK, lora_alpha=1, config=LoraConfig(r=RANK))
    two.set_adapter(["default", "other"])
    assert adapted_linears([two]) is None
    for part in ("", "base_layer", "lora_A.default"):
        layer, _ = adapted()
        layer.get_submodule(part).register_forward_hook(lambda *a: None)
        assert adapted_linears([layer]) is None


def test_gradients_equal_those_of_autograd():
    layer, x = adapted()
    layer.get_base_layer().requires_grad_(True)
    found, x = AdaptedLinear.of(layer), x.requires_grad_()
    grad, present = torch.randn(3, 7), torch.randn(3, 5)
    tensors = found.tensors()
    expected = torch.autograd.grad(layer(x), (x, *tensors), grad)
    with torch.no_grad():
        torch.testing.assert_close(found.add_to_input(grad), expected[0])
        torch.testing.assert_close(found.add_to_input(grad, present.clone()), expected[0] + present)
        for wanted, exact in zip(found.gradients(grad, x, [True] * 4), expected[1:], strict=True):
            torch.testing.assert_close(wanted, exact)
        assert found.gradients(grad, x, [False] * 4) == [None] * 4


def test_tensors_are_divided_by_layers():
    assert by_layer("abcdefgh") == ["abcd", "efgh"]


def test_layers_over_the_same_features_add_up_their_gradients():
    (one, x), (two, _) = adapted(), adapted()
    layers = [AdaptedLinear.of(layer) for layer in (one, two)]
    joint, x, grads = ExactLinears(layers), x.requires_grad_(), [torch.randn(3, 7) for _ in layers]
    outputs = [one(x), two(x)]
    wanted = [[False, False, True, True]] * 2
    tensors = [tensor for layer in layers for tensor in layer.tensors()[2:]]
    expected = torch.autograd.grad(outputs, (x, *tensors), grads)
    with torch.no_grad():
        for found, exact in zip(joint(x)[0], outputs, strict=True):
            torch.testing.assert_close(found, exact)
        torch.testing.assert_close(joint.to_input(grads)[0], expected[0])
        found = [part for part in joint.to_tensors(grads, x, None, None, wanted) if part is not None]
    for own, exact in zip(found, expected[1:], strict=True):
        torch.testing.assert_close(own, exact)


# As one product in bfloat16 ----------------------------------------------------------------------------------------

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
        found.append(AdaptedLinear(random(out, SIZE, seed=n), shift, a, b, 0.7 if rank else 0.0))
    return found


def error(found, exact):
    return float((found.double() - exact).norm() / exact.norm())


@needs_compiler
@pytest.mark.parametrize("ranks", [(0, 0, 0), (3, 3, 3), (0, 4, 1)])
@pytest.mark.parametrize("bias", [(), (1,)])
def test_joint_outputs_and_gradients_equal_their_equations_in_double_precision(ranks, bias):
    layers, x, grad = layers_of(ranks, bias), random(ROWS, SIZE, seed=40), random(ROWS, sum(OUTS), seed=41)
    exact = [
        AdaptedLinear(*(None if part is None else part.double() for part in layer.tensors()), layer.scale)
        for layer in layers
    ]
    held, doubled = grad.double().split(OUTS, 1), x.double()
    joint = MixedLinears(layers)
    (y,), t = joint(x.bfloat16())
    assert y.dtype == torch.bfloat16
    assert error(y, torch.cat([layer(doubled) for layer in exact], 1)) < BOUND
    to_x, to_t = joint.to_input((grad.bfloat16(),))
    assert error(to_x, sum(layer.add_to_input(own) for layer, own in zip(exact, held, strict=True))) < BOUND
    found = joint.to_tensors((grad.bfloat16(),), x.bfloat16(), t, to_t, [[True] * 4] * len(layers))
    expected = []
    for layer, own in zip(exact, held, strict=True):
        here = [part is not None for part in layer.tensors()]
        expected += layer.gradients(own, doubled, [here[0], True, here[2], here[3]])
    for own, wanted in zip(found, expected, strict=True):
        assert (own is None) == (wanted is None)
        if own is not None:
            assert own.dtype == torch.float32
            assert error(own, wanted) < BOUND


@needs_compiler
def test_an_adapter_costs_the_other_layers_nothing():
    """Its columns are zeros in the rows of other layers."""
    with_adapter, without = (MixedLinears(layers_of(ranks)) for ranks in ((0, 4, 0), (0, 0, 0)))
    x = random(ROWS, SIZE, seed=40).bfloat16()
    ((found,), _), ((expected,), _) = with_adapter(x), without(x)
    others = torch.cat((torch.arange(OUTS[0]), torch.arange(OUTS[0] + OUTS[1], sum(OUTS))))
    torch.testing.assert_close(found[:, others], expected[:, others], rtol=2**-7, atol=1e-6)
    assert error(found[:, OUTS[0] : OUTS[0] + OUTS[1]], expected[:, OUTS[0] : OUTS[0] + OUTS[1]].double()) > 0.1


@needs_compiler
def test_what_is_not_wanted_is_not_computed():
    layers = layers_of((2, 2, 2))
    joint, x = MixedLinears(layers), random(ROWS, SIZE, seed=40).bfloat16()
    grad = random(ROWS, sum(OUTS), seed=41).bfloat16()
    _, t = joint(x)
    _, to_t = joint.to_input((grad,))
    wanted = [[False, False, True, False], [False] * 4, [False, False, False, True]]
    found = joint.to_tensors((grad,), x, t, to_t, wanted)
    assert [part is not None for part in found] == [flag for flags in wanted for flag in flags]
