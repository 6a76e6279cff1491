"""What a lean layer does between its products, in C++: against the same in double precision by torch."""

import pytest
import torch
from compilers import needs_compiler
from torch.nn.functional import silu

from tutelage.models.lean import gate as lean_gate
from tutelage.models.lean import norm as lean_norm
from tutelage.models.native import passes

pytestmark = needs_compiler
SHAPES = [(700, 48), (4, 33, 16, 16), (1, 40_000)]


@pytest.fixture(autouse=True, params=[1, 2, 3])
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield
    torch.set_num_threads(before)


def random(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def in_double(function, *tensors):
    """Its results and gradients, all in double precision."""
    exact = [x.double().requires_grad_() for x in tensors]
    out = function(*exact)
    return out, lambda grad: torch.autograd.grad(out, exact, grad.double())


def assert_close(found, expected):
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5 * float(expected.abs().max()))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("along", [False, True])
def test_the_norm_and_its_gradients(shape, along):
    x, weight, grad, more = (random(*s, seed=n) for n, s in enumerate([shape, shape[-1:], shape, shape]))
    assert passes.serve(x)

    def norm(x, weight):
        return x * (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * weight

    expected, slopes = in_double(norm, x, weight)
    y, r = lean_norm.rms_norm(x, weight, 1e-6)
    assert_close(y, expected.detach())
    to_x, to_weight = lean_norm.rms_norm_gradients(grad, x, weight, r, more if along else None)
    expected_x, expected_weight = slopes(grad)
    assert_close(to_x, expected_x + more.double() if along else expected_x)
    assert_close(to_weight, expected_weight)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_gate_and_its_gradients(shape):
    gate, up, grad = (5 * random(*shape, seed=n) for n in range(3))
    gate.view(-1)[:2] = torch.tensor([-200.0, 200.0])
    expected, slopes = in_double(lambda g, u: silu(g) * u, gate, up)
    product, to_gate, to_up = lean_gate.gate_gradients(gate, up, grad.clone())
    assert_close(product, expected.detach())
    for found, wanted in zip((to_gate, to_up), slopes(grad), strict=True):
        assert_close(found, wanted)


def test_parts_that_do_not_lie_side_by_side_are_read_as_they_are():
    x, weight = random(900, 64)[:, :48], random(96, seed=1)[::2]
    y, r = lean_norm.rms_norm(x, weight, 1e-6)
    torch.testing.assert_close(y, x * r * weight)
    to_x, _ = lean_norm.rms_norm_gradients(x.T.contiguous().T, x, weight, r)
    expected, _ = lean_norm.rms_norm_gradients(x.contiguous(), x.contiguous(), weight.contiguous(), r)
    assert torch.equal(to_x, expected)


@pytest.mark.parametrize("x", [torch.ones(2, 16), torch.ones(4000, 17), torch.ones(4000, 16).double()])
def test_few_numbers_odd_rows_and_other_types_stay_with_torch(x):
    assert not passes.serve(x)


def test_passes_that_compute_something_else_are_not_used(monkeypatch, caplog):
    own = passes.gate_gradients
    monkeypatch.setattr(passes, "gate_gradients", lambda *given: [1.01 * x for x in own(*given)])
    passes._are_as_described.cache_clear()
    try:
        assert not passes.serve(torch.ones(4000, 16))
    finally:
        passes._are_as_described.cache_clear()
    assert "Compiled passes are not used" in caplog.text
