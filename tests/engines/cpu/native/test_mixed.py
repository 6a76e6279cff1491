"""Element-wise kernels of layers in bfloat16 against torch in double precision.

bfloat16 has 8 significant bits: a number that is rounded to it is off by at most ε/2 = 2⁻⁸ of itself.
"""

import torch
from compilers import compiled_with, needs_compiler, other_processors
from torch.nn.functional import silu

from tutelage.engines.cpu.native import mixed

pytestmark = needs_compiler
HALF_ULP = 2**-8


def random(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def assert_rounded(found, expected):
    """A result in bfloat16 is the exact one, rounded once."""
    assert found.dtype == torch.bfloat16
    size = float(expected.abs().max())
    torch.testing.assert_close(found.double(), expected, rtol=1.01 * HALF_ULP, atol=1e-6 * size)


def assert_exact(found, expected):
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5 * float(expected.abs().max()))


def check_norms(rows, size):
    x, more, weight, own = (
        random(*s, seed=n) for n, s in enumerate([(rows, size), (rows, size), (size,), (rows, size)])
    )
    half, grad = more.bfloat16(), random(rows, size, seed=5).bfloat16()
    exact = [(x.double() + half.double()).requires_grad_(), weight.double().requires_grad_()]
    normed = exact[0] * (exact[0].square().mean(-1, keepdim=True) + 1e-6).rsqrt() * exact[1]
    h, y, r = mixed.added_norm(x, half, weight, 1e-6)
    assert_exact(h, exact[0].detach())
    assert_rounded(y, normed.detach())
    assert torch.equal(y, mixed.norm(h, weight, 1e-6)[0])
    to_h, rounded, to_weight = mixed.norm_gradients(grad, h, weight, r, own)
    expected = torch.autograd.grad(normed, exact, grad.double())
    assert_exact(to_h, expected[0] + own.double())
    assert torch.equal(rounded, to_h.bfloat16())
    assert_exact(to_weight, expected[1])


def check_gates(rows, size):
    pairs, grad = (5 * random(rows, 2 * size)).bfloat16(), random(rows, size, seed=1).bfloat16()
    pairs[0, 0], pairs[0, 1] = -200.0, 200.0
    exact = pairs.double().requires_grad_()
    gate, up = exact.chunk(2, -1)
    product = silu(gate) * up
    (expected,) = torch.autograd.grad(product, exact, grad.double())
    p, to_pairs = mixed.swiglu_gradients(pairs, grad)
    assert_rounded(p, product.detach())
    assert_rounded(to_pairs, expected)
    assert torch.equal(p, mixed.swiglu(pairs))


def check_rotation(rows, heads, width):
    x, angle = random(rows, heads + 2, width).bfloat16(), random(rows, 1, width // 2, seed=1).repeat(1, 1, 2)
    first, second = x.double().chunk(2, -1)
    cos, sin = (angle[..., : width // 2].double().cos(), angle[..., : width // 2].double().sin())
    expected = torch.cat((first * cos - second * sin, second * cos + first * sin), -1)
    found = x.clone()
    mixed.rotate_in_place(found, heads, angle.cos(), angle.sin(), 1.0)
    assert_rounded(found[:, :heads], expected[:, :heads])
    assert torch.equal(found[:, heads:], x[:, heads:])


def check_everything():
    assert mixed.supports(48)
    check_norms(700, 48), check_norms(3, 4096)
    check_gates(700, 48), check_gates(2, 1536)
    check_rotation(300, 3, 64), check_rotation(70, 1, 32)


def test_kernels():
    check_everything()


@other_processors
def test_kernels_on_other_processors(flag):
    with compiled_with(flag):
        check_everything()


def test_numbers_are_rounded_as_torch_rounds_them():
    """To the nearest, of two to the even one; infinities, NaN and subnormal numbers included."""
    bits = torch.randint(
        -(2**31), 2**31 - 1, (1 << 16,), generator=torch.Generator().manual_seed(0), dtype=torch.int64
    )
    special = torch.tensor([0x3F808000, 0x3F818000, 0x7F800000, 0x7F7FFFFF, 0x7F800001, 1, 0x00008000, 0])
    x = torch.cat((bits, special, special.neg(), special)).to(torch.int32).view(torch.float32)
    x = torch.cat((x, x.new_zeros(-len(x) % 16))).view(-1, 16)
    with torch.no_grad():
        rounded = mixed.norm_gradients(
            torch.zeros_like(x).bfloat16(), torch.zeros_like(x), torch.zeros(16), x.new_zeros(len(x)), x
        )[1]
    assert torch.equal(rounded.isnan(), x.isnan())
    assert torch.equal(rounded[~x.isnan()], x.bfloat16()[~x.isnan()])


def test_sums_are_bit_identical_for_any_number_of_threads():
    x, weight, grad = random(3000, 96), random(96, seed=1), random(3000, 96, seed=2).bfloat16()
    before, found = torch.get_num_threads(), []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        y, r = mixed.norm(x, weight, 1e-6)
        found.append([y, *mixed.norm_gradients(grad, x, weight, r)])
    torch.set_num_threads(before)
    assert all(torch.equal(a, b) for each in found[1:] for a, b in zip(each, found[0], strict=True))
