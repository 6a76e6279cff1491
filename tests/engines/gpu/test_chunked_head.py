"""The chunked head of the GPU engine against closed forms in float64, on the CPU by the same code."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from tutelage.core.kl import exact_kl
from tutelage.engines.gpu import chunked_head as gpu_head
from tutelage.engines.gpu.chunked_head import chunks, head_scores
from tutelage.engines.logprobs import Head, token_scores

from . import head_cases
from .interpreter import HAS_TRITON, interpret


@pytest.fixture
def narrow(monkeypatch):
    """Chunks of 128 tokens, or up to 384 for few rows."""
    monkeypatch.setattr(gpu_head, "HEAD_ELEMENTS", 4096)
    monkeypatch.setattr(gpu_head, "NARROWEST", 128)


class Case:
    """Random operands of a policy and a reference, and a random weight of each score in the loss."""

    def __init__(self, rows, vocabulary, dtype=torch.float32, size=1.0, weight_dtype=None, seed=0):
        generator = torch.Generator().manual_seed(seed)

        def normal(*shape, dtype=dtype):
            return (torch.randn(*shape, generator=generator) * size).to(dtype)

        self.operands = [
            normal(rows, 8).requires_grad_(),
            normal(vocabulary, 8, dtype=weight_dtype or dtype).requires_grad_(),
            normal(vocabulary, dtype=weight_dtype or dtype).requires_grad_(),
        ]
        self.ref = [normal(rows, 6), normal(vocabulary, 6), normal(vocabulary)]
        self.tokens = torch.randint(vocabulary, (rows,), generator=generator)
        self.weights = torch.randn(3, rows, generator=generator)

    def ours(self, curve=(1.0, None), ref_curve=(1.0, None), temperature=1.0, parts=(True, True, True)):
        """Scores and gradients; `parts` are the scores in the loss."""
        states, weight, bias = self.operands
        reference = (self.ref[0], Head(*self.ref[1:], *ref_curve)) if parts[2] else None
        scores = head_scores(
            states,
            Head(weight, bias, *curve),
            self.tokens,
            temperature=temperature,
            entropy=parts[1],
            reference=reference,
        )
        return self.result(scores, self.operands, parts)

    def exact(self, curve=(1.0, None), ref_curve=(1.0, None), temperature=1.0, parts=(True, True, True)):
        """The same in float64, on whole logits, with weights rounded to the dtype of the states."""
        dtype = self.operands[0].dtype
        operands = [self.operands[0].detach().double(), self.operands[1].detach().to(dtype).double()]
        operands = [x.requires_grad_() for x in (*operands, self.operands[2].detach().double())]

        def logits(states, weight, bias, scale, softcap):
            x = (states @ weight.T + bias) * scale
            return (x if softcap is None else torch.tanh(x / softcap) * softcap) / temperature

        policy = logits(*operands, *curve)
        logp = policy.log_softmax(-1)
        entropy = torch.special.entr(logp.exp()).sum(-1)
        divergence = exact_kl(policy, logits(*(x.double() for x in self.ref), *ref_curve))
        scores = (logp.gather(1, self.tokens[:, None]).squeeze(1), entropy, divergence)
        return self.result(scores, operands, parts)

    def result(self, scores, operands, parts):
        loss = sum((x * w.to(x.dtype)).sum() for x, w, part in zip(scores, self.weights, parts, strict=True) if part)
        shown = [x.detach() for x, part in zip(scores, parts, strict=True) if part]
        return [*shown, *torch.autograd.grad(loss, operands)]


def errors(ours, exact):
    """The largest error of each tensor, relative to its largest value or 1."""
    return [((a - b).abs().max() / b.abs().max().clamp(min=1.0)).item() for a, b in zip(ours, exact, strict=True)]


CURVES = {
    "plain": {},
    "temperature": {"temperature": 0.7},
    "scale": {"curve": (1.7, None), "ref_curve": (0.4, None)},
    "softcap": {"curve": (1.3, 3.0), "ref_curve": (1.0, 2.0), "temperature": 1.4},
}


@pytest.mark.parametrize("curve", CURVES)
@pytest.mark.parametrize("parts", [(True, True, True), (True, False, False), (False, True, False), (True, False, True)])
def test_scores_and_gradients_equal_those_in_float64(curve, parts, narrow) -> None:
    case = Case(13, 701)
    assert max(errors(case.ours(**CURVES[curve], parts=parts), case.exact(**CURVES[curve], parts=parts))) < 3e-6


@pytest.mark.parametrize("bias", [False, True])
def test_it_equals_token_scores(bias, narrow) -> None:
    case = Case(9, 333)
    states, weight, offset = case.operands
    head = Head(weight, offset if bias else None, 1.5, 4.0)
    ours = head_scores(states, head, case.tokens, temperature=0.8, entropy=True)[:2]
    plain = token_scores(states, head, case.tokens, temperature=0.8, entropy=True)
    operands = case.operands if bias else case.operands[:2]
    assert (
        max(errors(case.result((*ours, 0), operands, (1, 1, 0)), case.result((*plain, 0), operands, (1, 1, 0)))) < 3e-6
    )


@pytest.mark.parametrize("weight_dtype", [torch.bfloat16, torch.float32])
def test_bf16_operands_have_float32_sums(weight_dtype, narrow) -> None:
    """Scores are as exact as in float32; gradients have the rounding of the logits' gradients to 8 bits, and that of
    their own dtype."""
    case = Case(33, 701, torch.bfloat16, weight_dtype=weight_dtype)
    ours, exact = case.ours(**CURVES["softcap"]), case.exact(**CURVES["softcap"])
    assert [x.dtype for x in ours] == [torch.float32] * 3 + [torch.bfloat16] + [weight_dtype] * 2
    assert max(errors(ours[:3], exact[:3])) < 3e-6
    assert max(errors(ours[3:], exact[3:])) < 6e-3


def test_a_weight_may_have_a_gradient_of_more_bits(narrow) -> None:
    case = Case(9, 333, torch.bfloat16)
    states, weight, _ = case.operands
    if not hasattr(weight, "grad_dtype"):
        pytest.skip("this torch has no grad_dtype")
    weight.grad_dtype = torch.float32
    head_scores(states, Head(weight), case.tokens)[0].sum().backward()
    assert weight.grad.dtype == torch.float32
    assert not torch.equal(weight.grad, weight.grad.bfloat16().float())


def test_autocast_has_bf16_operands_forwards_and_backwards(narrow) -> None:
    case = Case(9, 333)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        under = case.ours()
    case.ref[:2] = [x.bfloat16() for x in case.ref[:2]]
    states, weight, bias = case.operands
    case.operands = [states.detach().bfloat16().requires_grad_(), weight, bias]
    assert max(errors(under[:3], case.exact()[:3])) < 1e-5
    assert max(errors(under[3:], case.ours()[3:])) < 1e-5


class Guard(TorchDispatchMode):
    """The largest floating tensor that operations return; fails on those for which the host waits."""

    WAITS = ("_local_scalar_dense", "nonzero", "is_nonzero", "equal", "masked_select", "_unique2")

    def __init__(self):
        super().__init__()
        self.largest = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        assert function.overloadpacket.__name__ not in self.WAITS, function
        result = function(*args, **(kwargs or {}))
        for x in result if isinstance(result, tuple | list) else [result]:
            if isinstance(x, torch.Tensor):
                self.largest = max(self.largest, x.numel())
        return result


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_host_never_waits_and_logits_are_never_whole(dtype, narrow) -> None:
    case = Case(64, 1000, dtype)
    with Guard() as guard:
        case.ours(**CURVES["softcap"])
    assert guard.largest == 64 * 128


def test_a_divergence_outside_the_loss_costs_no_product_backwards(narrow) -> None:
    case = Case(5, 701)
    products = []
    with pytest.MonkeyPatch.context() as patch:
        product = gpu_head.product
        patch.setattr(gpu_head, "product", lambda a, b, into=None: products.append(a) or product(a, b, into=into))
        states, weight, bias = case.operands
        scores = head_scores(states, Head(weight, bias), case.tokens, reference=(case.ref[0], Head(case.ref[1])))
        forwards = len(products)
        scores[0].sum().backward()
    assert forwards == 2 * len(list(chunks(10, 701)))
    assert len(products) - forwards == 2 * len(list(chunks(5, 701)))


def test_gradients_only_of_what_is_trained(narrow) -> None:
    case = Case(5, 333)
    states, weight, bias = case.operands
    whole = case.ours(parts=(True, False, False))[1:]
    for place, wanted in enumerate(case.operands):
        operands = [x if x is wanted else x.detach() for x in (states, weight, bias)]
        logp = head_scores(operands[0], Head(*operands[1:]), case.tokens)[0]
        assert torch.equal(torch.autograd.grad((logp * case.weights[0]).sum(), wanted)[0], whole[place])


def test_no_rows_have_zero_gradients() -> None:
    results = Case(0, 333).ours()
    assert [x.shape for x in results] == [(0,)] * 3 + [(0, 8), (333, 8), (333,)]
    assert not any(x.any() for x in results)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_extreme_logits_have_no_nan(sign, narrow) -> None:
    """Logits up to ±1e4, where exp and its inverse are far outside float32."""
    case = Case(11, 701, size=60.0)
    with torch.no_grad():
        case.operands[0] *= sign
    ours, exact = case.ours(), case.exact()
    assert exact[0].abs().max() > 1e4
    assert all(x.isfinite().all() for x in ours)
    assert max(errors(ours[:3], exact[:3])) < 1e-5


def test_excluded_tokens_contribute_nothing(narrow) -> None:
    """Logits of −inf, whole chunks of them included."""
    case = Case(7, 701)
    with torch.no_grad():
        case.operands[2][:400] = -torch.inf
        case.ref[2][:200] = -torch.inf
    case.tokens = case.tokens.clamp(min=400)
    ours = case.ours()
    assert max(errors(ours[:3], case.exact()[:3])) < 3e-6
    assert all(x.isfinite().all() for x in ours)
    assert not ours[4][:400].any()


@given(
    rows=st.integers(1, 40),
    vocabulary=st.integers(1, 900),
    width=st.sampled_from([128, 256, 1024]),
    seed=st.integers(0, 1000),
)
def test_shapes_and_chunks_do_not_matter(rows, vocabulary, width, seed) -> None:
    case = Case(rows, vocabulary, seed=seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gpu_head, "HEAD_ELEMENTS", 1)
        patch.setattr(gpu_head, "NARROWEST", width)
        ours = case.ours(**CURVES["softcap"])
    assert max(errors(ours, case.exact(**CURVES["softcap"]))) < 5e-6


@given(rows=st.integers(0, 1 << 20), vocabulary=st.integers(1, 300_000))
def test_chunks_cover_the_vocabulary_within_their_bound(rows, vocabulary) -> None:
    parts = list(chunks(rows, vocabulary))
    assert [n for part in parts for n in (part.start, part.stop)][1:-1:2] == [part.start for part in parts[1:]]
    assert not rows or (parts[0].start, parts[-1].stop) == (0, vocabulary)
    widths = [part.stop - part.start for part in parts]
    assert all(width <= max(gpu_head.HEAD_ELEMENTS // rows, gpu_head.NARROWEST) for width in widths)
    assert all(width % 128 == 0 for width in widths[:-1])


def test_heads_of_other_kinds_are_refused() -> None:
    case = Case(3, 20)
    states, weight, _ = case.operands
    for head in (Head(), Head(weight, module=lambda x: x @ weight.T)):
        with pytest.raises(ValueError, match="token_scores"):
            head_scores(states, head, case.tokens)
        with pytest.raises(ValueError, match="token_scores"):
            head_scores(states, Head(weight), case.tokens, reference=(states, head))
    with pytest.raises(ValueError, match="vocabular"):
        head_scores(states, Head(weight), case.tokens, reference=(states, Head(weight[:-1])))


@pytest.mark.skipif(not HAS_TRITON, reason="needs Triton")
def test_the_kernels_equal_their_twins() -> None:
    interpret(head_cases)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_the_kernels_equal_their_twins_on_a_gpu() -> None:
    head_cases.kernels_equal_their_twins("cuda")
    head_cases.scores_equal_eager_ones("cuda")
