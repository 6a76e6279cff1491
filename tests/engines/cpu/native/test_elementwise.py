"""Element-wise kernels in C++ against torch in double precision.

bfloat16 has 8 significant bits: a number that is rounded to it is off by at most ε/2 = 2⁻⁸ of itself.
"""

import pytest
import torch
from compilers import compiled_with, forget_library, narrower_registers, needs_compiler, other_processors
from torch.nn.functional import silu

from tutelage.engines import logprobs
from tutelage.engines.cpu.fused import attention as fused_attention
from tutelage.engines.cpu.fused import gate as fused_gate
from tutelage.engines.cpu.fused import norm as fused_norm
from tutelage.engines.cpu.head import logit_gradients, sample, softmax_parts
from tutelage.engines.cpu.native import elementwise
from tutelage.engines.cpu.weight_gradients import total_norm

pytestmark = needs_compiler
SHAPES = [(700, 48), (4, 33, 16, 16), (1, 40_000)]


@pytest.fixture(params=[1, 2, 3])
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield
    torch.set_num_threads(before)


def random(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def in_double(function, *tensors):
    """The results of a function and its gradients, all in double precision."""
    exact = [x.double().requires_grad_() for x in tensors]
    out = function(*exact)
    return out, lambda grad: torch.autograd.grad(out, exact, grad.double())


def assert_close(found, expected):
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5 * float(expected.abs().max()))


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("along", [False, True])
def test_the_norm_and_its_gradients(shape, along):
    x, weight, grad, more = (random(*s, seed=n) for n, s in enumerate([shape, shape[-1:], shape, shape]))
    assert elementwise.supports(x)

    def norm(x, weight):
        return x * (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * weight

    expected, slopes = in_double(norm, x, weight)
    y, r = fused_norm.rms_norm(x, weight, 1e-6)
    assert_close(y, expected.detach())
    to_x, to_weight = fused_norm.rms_norm_gradients(grad, x, weight, r, more if along else None)
    expected_x, expected_weight = slopes(grad)
    assert_close(to_x, expected_x + more.double() if along else expected_x)
    assert_close(to_weight, expected_weight)


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("shape", SHAPES)
def test_the_gate_and_its_gradients(shape):
    gate, up, grad = (5 * random(*shape, seed=n) for n in range(3))
    gate.view(-1)[:2] = torch.tensor([-200.0, 200.0])
    expected, slopes = in_double(lambda g, u: silu(g) * u, gate, up)
    product, to_gate, to_up = fused_gate.gate_gradients(gate, up, grad.clone())
    assert_close(product, expected.detach())
    for found, wanted in zip((to_gate, to_up), slopes(grad), strict=True):
        assert_close(found, wanted)


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("shape", [(300, 9, 64), (2, 70, 5, 96), (700, 2, 32)])
def test_rotary_embedding_and_its_gradient(shape):
    x, angle = random(*shape), random(*shape[:-2], 1, shape[-1] // 2, seed=1)
    cos, sin = (turn(angle).repeat(*[1] * (x.dim() - 1), 2) for turn in (torch.cos, torch.sin))
    assert elementwise.supports_rotation(x, cos)
    first, second = x.double().chunk(2, -1)
    pairs = torch.complex(first, second) * torch.polar(torch.ones_like(angle), angle).to(torch.complex128)
    there = fused_attention.rotate(x, cos, sin, 1.0)
    assert_close(there, torch.cat((pairs.real, pairs.imag), -1))
    torch.testing.assert_close(fused_attention.rotate(there, cos, sin, -1.0), x, rtol=1e-5, atol=1e-5)


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("x", [random(700, 48), random(3, 100, 32)[:, :, :16].repeat(1, 30, 1)])
def test_shared_angles_and_heads_of_odd_halves_stay_with_torch(x):
    assert not elementwise.supports_rotation(x.unsqueeze(-2), x.unsqueeze(-2)), "halves of no whole vectors"
    wide = torch.cat((x, x), -1)
    assert elementwise.supports_rotation(wide.unsqueeze(-2), wide.unsqueeze(-2))
    assert not elementwise.supports_rotation(wide.unsqueeze(-2), wide[:1].unsqueeze(-2))


@pytest.mark.usefixtures("threads")
def test_the_norm_of_all_gradients_is_exact_where_float32_sums_are_not():
    large, small, one = 3 * random(4096, 1024), random(7, seed=1), torch.tensor(500.0)
    expected = torch.cat([x.double().flatten() for x in (large, small, one)]).norm()
    torch.testing.assert_close(total_norm([small, large, one]).double(), expected, rtol=2e-7, atol=0.0)
    for bad in (torch.inf, torch.nan):
        large[1000, 1000] = bad
        assert not total_norm([large, small]).isfinite()


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("shape", [(900, 48), (70, 1003), (3, 40_001)])
def test_log_probabilities_of_samples_have_the_bits_of_the_softmax(shape):
    """And they do not depend on the other rows."""
    logits, uniform = 5 * random(*shape), torch.rand(shape[0], generator=torch.Generator().manual_seed(1)).double()
    token, logp = sample(logits, uniform)
    _, maximum, log_sum = softmax_parts(logits.clone())
    assert torch.equal(logp, logits.gather(-1, token[:, None]).squeeze(-1) - maximum - log_sum)
    alone = [torch.cat(parts) for parts in zip(*map(sample, logits.split(1), uniform.split(1)), strict=True)]
    assert torch.equal(torch.stack([token, logp]), torch.stack(alone))


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("shape", [(900, 48), (70, 1003), (3, 40_001)])
def test_softmax_and_log_sum_exp(shape):
    logits = 20 * random(*shape)
    logits[:, 5] = -torch.inf
    logits[0], logits[1, -1] = 300.0, 1e4
    exact = logits.double()
    assert elementwise.supports(logits, whole=False)
    shares, most, above = softmax_parts(logits.clone())
    assert_close(shares, exact.softmax(-1))
    assert torch.equal(most, logits.amax(-1))
    assert_close(above, exact.logsumexp(-1) - exact.amax(-1))
    torch.testing.assert_close(shares.double().sum(-1), torch.ones(shape[0]).double(), rtol=1e-6, atol=1e-6)


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("shape", [(900, 48), (70, 1003), (3, 40_001)])
def test_a_temperature_gives_the_bits_of_divided_logits(shape):
    """And sums have the same bits where the softmax is not computed."""
    logits, temperature = 5 * random(*shape), 0.7
    logits[:, 3] = -torch.inf
    shares, maximum, log_sum = softmax_parts(logits / temperature)
    assert all(map(torch.equal, softmax_parts(logits.clone(), temperature), (shares, maximum, log_sum)))
    assert all(map(torch.equal, softmax_parts(logits, temperature, keeps=False)[1:], (maximum, log_sum)))
    uniform = torch.rand(shape[0], generator=torch.Generator().manual_seed(1)).double()
    assert all(map(torch.equal, sample(logits, uniform, temperature), sample(logits / temperature, uniform)))


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("shape", [(900, 48), (70, 1003), (3, 40_001)])
@pytest.mark.parametrize("factor", [1.0, 0.3])
def test_gradients_of_logits_have_the_bits_of_torch(shape, factor):
    shares, grad = random(*shape).softmax(-1), random(shape[0], seed=1)
    token = torch.arange(shape[0]) * 7 % shape[1]
    expected = logprobs.logit_gradients(shares.clone(), token, grad, factor)
    _, slopes = in_double(lambda x: x.log_softmax(-1).gather(-1, token[:, None]).squeeze(-1), shares.log())
    assert_close(expected, slopes(grad)[0] * factor)
    assert torch.equal(logit_gradients(shares, token, grad, factor), expected)


@pytest.mark.usefixtures("threads")
def test_a_nan_logit_gives_nan():
    logits = random(900, 50)
    logits[3, 7] = logits[5, 49] = torch.nan
    shares, _, above = softmax_parts(logits)
    assert shares.isnan().all(-1).nonzero().flatten().tolist() == [3, 5]
    assert above.isnan().nonzero().flatten().tolist() == [3, 5]


@pytest.mark.usefixtures("threads")
def test_sums_are_bit_identical_for_any_number_of_threads():
    x, weight, grad = random(3000, 96), random(96, seed=1), random(3000, 96, seed=2)
    found = []
    for threads in (1, 2, 3, 3, 3, 5):
        torch.set_num_threads(threads)
        _, r = fused_norm.rms_norm(x, weight, 1e-6)
        found.append([*fused_norm.rms_norm_gradients(grad, x, weight, r), elementwise.sum_of_squares(x)])
    assert all(torch.equal(a, b) for each in found[1:] for a, b in zip(each, found[0], strict=True))


@pytest.mark.usefixtures("threads")
def test_strided_tensors_are_read_in_place():
    x, weight = random(900, 64)[:, :48], random(96, seed=1)[::2]
    y, r = fused_norm.rms_norm(x, weight, 1e-6)
    torch.testing.assert_close(y, x * r * weight)
    to_x, _ = fused_norm.rms_norm_gradients(x.T.contiguous().T, x, weight, r)
    expected, _ = fused_norm.rms_norm_gradients(x.contiguous(), x.contiguous(), weight.contiguous(), r)
    assert torch.equal(to_x, expected)


@pytest.mark.usefixtures("threads")
@narrower_registers
def test_on_processors_with_narrower_registers(flag):
    with compiled_with(flag):
        assert elementwise.supports(torch.ones(4000, 16)), "they are tried before they serve"
        test_softmax_and_log_sum_exp((70, 1003))
        test_the_norm_and_its_gradients((700, 48), True)


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("x", [torch.ones(2, 16), torch.ones(4000, 17), torch.ones(4000, 16).double()])
def test_small_odd_and_other_typed_tensors_stay_with_torch(x):
    assert not elementwise.supports(x)


@pytest.mark.usefixtures("threads")
def test_kernels_that_compute_something_else_are_not_used(monkeypatch, caplog):
    own = elementwise.gate_gradients
    monkeypatch.setattr(elementwise, "gate_gradients", lambda *given: [1.01 * x for x in own(*given)])
    forget_library()
    try:
        assert not elementwise.supports(torch.ones(4000, 16))
    finally:
        forget_library()
    assert "element-wise kernels are not used" in caplog.text


# Kernels with operands in bfloat16 ------------------------------------------------------------------------------------


HALF_ULP = 2**-8


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
    h, y, r = elementwise.mixed_added_norm(x, half, weight, 1e-6)
    assert_exact(h, exact[0].detach())
    assert_rounded(y, normed.detach())
    assert torch.equal(y, elementwise.mixed_norm(h, weight, 1e-6)[0])
    to_h, rounded, to_weight = elementwise.mixed_norm_gradients(grad, h, weight, r, own)
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
    p, to_pairs = elementwise.mixed_swiglu_gradients(pairs, grad)
    assert_rounded(p, product.detach())
    assert_rounded(to_pairs, expected)
    assert torch.equal(p, elementwise.mixed_swiglu(pairs))


def check_rotation(rows, heads, width):
    x, angle = random(rows, heads + 2, width).bfloat16(), random(rows, 1, width // 2, seed=1).repeat(1, 1, 2)
    first, second = x.double().chunk(2, -1)
    cos, sin = (angle[..., : width // 2].double().cos(), angle[..., : width // 2].double().sin())
    expected = torch.cat((first * cos - second * sin, second * cos + first * sin), -1)
    found = x.clone()
    elementwise.rotate_in_place(found, heads, angle.cos(), angle.sin(), 1.0)
    assert_rounded(found[:, :heads], expected[:, :heads])
    assert torch.equal(found[:, heads:], x[:, heads:])


def check_everything():
    assert elementwise.mixed_supports(48)
    check_norms(700, 48), check_norms(3, 4096)
    check_gates(700, 48), check_gates(2, 1536)
    check_rotation(300, 3, 64), check_rotation(70, 1, 32)


def test_mixed_kernels():
    check_everything()


@other_processors
def test_mixed_kernels_on_other_processors(flag):
    with compiled_with(flag):
        check_everything()


def test_numbers_are_rounded_as_torch_rounds_them():
    """To the nearest, of two to the even one; infinities, NaN and subnormal numbers included."""
    bits = torch.randint(-(2**31), 2**31 - 1, (1 << 16,), generator=torch.Generator().manual_seed(0), dtype=torch.int64)
    special = torch.tensor([0x3F808000, 0x3F818000, 0x7F800000, 0x7F7FFFFF, 0x7F800001, 1, 0x00008000, 0])
    x = torch.cat((bits, special, special.neg(), special)).to(torch.int32).view(torch.float32)
    x = torch.cat((x, x.new_zeros(-len(x) % 16))).view(-1, 16)
    with torch.no_grad():
        rounded = elementwise.mixed_norm_gradients(
            torch.zeros_like(x).bfloat16(), torch.zeros_like(x), torch.zeros(16), x.new_zeros(len(x)), x
        )[1]
    assert torch.equal(rounded.isnan(), x.isnan())
    assert torch.equal(rounded[~x.isnan()], x.bfloat16()[~x.isnan()])


def test_sums_of_mixed_kernels_are_bit_identical_for_any_number_of_threads():
    x, weight, grad = random(3000, 96), random(96, seed=1), random(3000, 96, seed=2).bfloat16()
    before, found = torch.get_num_threads(), []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        y, r = elementwise.mixed_norm(x, weight, 1e-6)
        found.append([y, *elementwise.mixed_norm_gradients(grad, x, weight, r)])
    torch.set_num_threads(before)
    assert all(torch.equal(a, b) for each in found[1:] for a, b in zip(each, found[0], strict=True))
