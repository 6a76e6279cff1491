"""Linear layers as tensors: which layers are served, and what they compute."""

import pytest
import torch
from peft import LoraConfig, inject_adapter_in_model
from torch import nn

from tutelage.engines.cpu.fused.linear import Linear, by_layer, linears

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
    found = Linear.of(layer)
    torch.testing.assert_close(found(x), layer(x))
    assert (found.rank(), found.scale) == (RANK, SCALE)
    assert linears([SCALE], found.tensors())[0] == found


def test_a_layer_without_an_adapter_is_its_tensors():
    layer = Network(bias=False).layer
    found = Linear.of(layer)
    assert found.weight is layer.weight
    assert (found.bias, found.rank()) == (None, 0)


def test_an_adapter_that_is_switched_off_is_left_out():
    layer, x = adapted()
    layer.enable_adapters(False)
    found = Linear.of(layer)
    assert found.rank() == 0
    torch.testing.assert_close(found(x), layer.get_base_layer()(x))


@pytest.mark.parametrize("more", [{"use_dora": True}, {"lora_bias": True}, {"lora_dropout": 0.5}])
def test_adapters_that_compute_anything_else_are_refused(more):
    layer, _ = adapted(**more)
    layer.train()
    assert Linear.of(layer) is None


def test_dropout_out_of_training_changes_nothing():
    layer, x = adapted(lora_dropout=0.5)
    torch.testing.assert_close(Linear.of(layer.eval())(x), layer(x))


def test_merged_adapters_two_adapters_and_hooks_are_refused():
    merged, _ = adapted()
    merged.merge()
    assert Linear.of(merged) is None
    two, _ = adapted()
    two.update_layer("other", RANK, lora_alpha=1, config=LoraConfig(r=RANK))
    two.set_adapter(["default", "other"])
    assert Linear.of(two) is None
    for part in ("", "base_layer", "lora_A.default"):
        layer, _ = adapted()
        layer.get_submodule(part).register_forward_hook(lambda *a: None)
        assert Linear.of(layer) is None


def test_gradients_equal_those_of_autograd():
    layer, x = adapted()
    layer.get_base_layer().requires_grad_(True)
    found, x = Linear.of(layer), x.requires_grad_()
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
