"""Panels of several layers and adapters: the bits are those of the products that they stand for."""

import pytest
import torch
from compilers import compiled_with, needs_compiler, other_processors

from tutelage.engines.cpu.native.half_products import PanelLinear, floats_of

pytestmark = needs_compiler
LINES = (1, 16, 33, 300)


def random(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def check_adapters(features, outs, rank):
    weights = [random(out, features, seed=n) for n, out in enumerate(outs)]
    a, b = random(rank, features, seed=8), random(sum(outs), rank, seed=9)
    bias = random(sum(outs), seed=10)
    joint = PanelLinear(weights, bias, (a, b))
    even = (0, rank % 2)
    beside = torch.nn.functional.pad(torch.cat((torch.cat(weights), b), 1), even)
    for lines in LINES:
        x = random(lines, features, seed=lines).bfloat16()
        y, t = joint(x)
        assert t.shape == (lines, rank)
        assert torch.equal(t, PanelLinear([a])(x)[0])
        both = torch.nn.functional.pad(torch.cat((x, t), 1), even)
        assert torch.equal(y, PanelLinear([beside], bias)(both)[0])
        exact = both.double() @ beside.bfloat16().double().T + bias.double()
        assert float((y.double() - exact).norm() / exact.norm()) < 2**-8


ADAPTERS = [(64, (32, 16, 16), 6), (64, (40, 24), 3), (48, (32,), 5), (80, (16, 16), 36), (32, (7,), 1)]


@pytest.mark.parametrize(("features", "outs", "rank"), ADAPTERS)
def test_an_adapter_is_multiplied_beside_the_weights(features, outs, rank):
    check_adapters(features, outs, rank)


@other_processors
def test_an_adapter_on_other_processors(flag):
    with compiled_with(flag):
        for given in ADAPTERS:
            check_adapters(*given)


@pytest.mark.parametrize("rank", [0, 3])
@pytest.mark.parametrize("out", [16, 40, 96])
def test_alternating_panels_give_the_same_bits(out, rank):
    weights, bias = [random(out, 64, seed=n) for n in (1, 2)], random(2 * out, seed=3)
    adapter = (random(rank, 64, seed=4), random(2 * out, rank, seed=5)) if rank else None
    stacked, alternating = (PanelLinear(weights, bias, adapter, alternating=turn) for turn in (False, True))
    for lines in LINES:
        x = random(lines, 64, seed=lines).bfloat16()
        for found, expected in zip(alternating(x), stacked(x), strict=True):
            assert (found is None and expected is None) or torch.equal(found, expected)
        assert torch.equal(alternating.unrounded(x), stacked.unrounded(x))


@pytest.mark.parametrize(("features", "outs", "rank"), [*ADAPTERS, (20, (40,), 0)])
def test_memory_is_known_beforehand(features, outs, rank):
    taken = []

    def allocate(floats):
        taken.append(floats)
        return torch.empty(floats)

    adapter = (random(rank, features), random(sum(outs), rank)) if rank else None
    PanelLinear([random(out, features) for out in outs], None, adapter, allocate=allocate)
    known = floats_of(outs, features, rank)
    assert taken == known or (sum(out % 16 for out in outs) and sum(taken) <= sum(known))
