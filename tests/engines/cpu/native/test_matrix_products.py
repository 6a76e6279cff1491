"""Products in float32: right for every size and layout, with bits that do not depend on other rows and columns. Panels
of several layers and adapters: the bits are those of the products that they stand for."""

from itertools import product

import pytest
import torch
from compilers import compiled_with, narrower_registers, needs_compiler, other_processors

from tutelage.engines.cpu.native.matrix_products import PanelLinear, floats_of, multiplies_floats, multiply

pytestmark = needs_compiler
SIZES = [(1, 1, 1), (5, 7, 3), (7, 5, 16), (13, 100, 33), (100, 2500, 70), (300, 17, 700), (2100, 550, 20)]
"""M, K and N: parts of a tile, several blocks, and several chunks of each operand."""
LINES = (1, 16, 33, 300)


def random(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def by_columns(x):
    """The same matrix, whose columns are contiguous."""
    return x.T.contiguous().T


def check(rows, depth, columns):
    a, b, bias, total = (random(rows, depth), random(depth, columns, seed=1), random(columns), random(rows, columns))
    exact, scale = a.double() @ b.double(), 1e-6 * depth**0.5
    bits = None
    for left, right in product((a, by_columns(a)), (b, by_columns(b))):
        found = multiply(left, right)
        assert (found - exact).abs().max() <= 10 * scale
        added = multiply(left, right, total.clone(), bias=bias, accumulate=True)
        assert (added - (exact + total + bias)).abs().max() <= 10 * scale
        assert bits is None or torch.equal(found, bits), "the layout changes no bit"
        bits = found
    for some in {1, rows // 2 + 1}:
        assert torch.equal(multiply(a[:some], b), bits[:some])
        assert torch.equal(multiply(by_columns(a)[-some:], b), bits[-some:])
    assert torch.equal(multiply(a, b[:, columns // 2 :]), bits[:, columns // 2 :])


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_products_are_right_and_their_bits_depend_on_one_row_and_one_column(size):
    check(*size)


@narrower_registers
def test_on_processors_with_narrower_registers(flag):
    with compiled_with(flag):
        assert multiplies_floats()
        for size in SIZES[:4]:
            check(*size)


def test_bits_do_not_depend_on_the_number_of_threads():
    a, b = random(200, 300), random(300, 500, seed=1)
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found += [multiply(a, b), multiply(by_columns(a), b)]
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(found[0], other) for other in found[1:])


def test_a_sum_goes_on_where_it_was_left():
    """So an adapter that is added to a product has the bits of more columns of the weight."""
    a, b = random(33, 90), random(90, 40, seed=1)
    left = multiply(a[:, :64].contiguous(), b[:64])
    assert torch.equal(multiply(a[:, 64:], b[64:], left, accumulate=True), multiply(a, b))


def test_without_terms_a_product_is_its_bias():
    bias = random(4)
    assert torch.equal(multiply(random(3, 0), random(0, 4), bias=bias), bias.expand(3, 4))
    assert multiply(random(0, 5), random(5, 4)).shape == (0, 4)


def test_infinities_and_nan_reach_the_sums_of_their_row_alone():
    a, b = random(20, 30), random(30, 17, seed=1).abs()
    a[3, 4], a[5, 6] = torch.inf, torch.nan
    found = multiply(a, b)
    assert found[3].isposinf().all()
    assert found[5].isnan().all()
    assert found[[row for row in range(20) if row not in (3, 5)]].isfinite().all()


# Panels ---------------------------------------------------------------------------------------------------------------


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
