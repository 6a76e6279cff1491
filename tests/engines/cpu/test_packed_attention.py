"""Attention of packed sequences against its definition: each row by itself, softmax over all earlier tokens."""

from itertools import product

import pytest
import torch
from compilers import compiled_with, narrower_registers, needs_compiler, other_processors
from offenders import for_each
from tiers import every_value

from tutelage.core.rows import COMMON, EncodedRow, collate
from tutelage.engines import packing
from tutelage.engines.cpu import packed_attention as attention
from tutelage.engines.cpu.forward_pass import differentiable_twice
from tutelage.engines.cpu.native import attention_kernels as native_attention
from tutelage.engines.cpu.native.attention_kernels import NativeKernels
from tutelage.engines.cpu.packed_attention import packed_attention
from tutelage.engines.packing import pack

CPU = torch.device("cpu")
HEADS = [(4, 4), (4, 2), (3, 1)]
LAYER = torch.nn.Identity()  # the attention function ignores it
SHAPES = {
    "one group": [((5,), (3, 3, 3))],
    "ragged": [((7,), (2, 9, 1)), ((1,), (4,)), ((3,), (6, 5)), ((12,), (1, 30, 2, 8))],
    "lone": [((3,), (4,)), ((1,), (1,)), ((20,), (9,))],
    "lone and alike": [((8,), (4,)), ((9,), (2,)), ((2,), (1,)), ((7,), (3,))],
    "lone and neither short nor long": [((200,), (90,)), ((190,), (85,))],
    "nothing said": [((4,), (0, 0)), ((2,), (0, 3)), ((6,), (0,))],
    "equal": [((5,), (3, 3, 3)), ((2,), (4,)), ((3,), (3,))],
    "long": [((150,), (140, 20, 133)), ((200,), (40,))],
    "many suffixes": [((6,), (3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5)), ((40,), (8,) * 6), ((3,), (2, 7))],
    "alike at first": [
        *(((3, 20), (4, 2)), ((1, 20), (5,)), ((0, 20), (2, 2)), ((6,), (3,))),
        *(((9, 70), (9,)), ((4, 70), (1, 1)), ((2, 70), (0,))),
    ],
    "alike for long": [((150, 100), (40, 20)), ((10, 100), (133,)), ((50, 100), (1,))],
}
"""Groups of rows: the length of their prompt, how many of the same tokens are before that, and the lengths of their
responses."""


def rows_of(shape):
    """Rows with the prompt lengths and response lengths of a shape; no two prompts are equal."""
    rows = []
    for number, ((prompt, *common), responses) in enumerate(SHAPES[shape]):
        start = (*range(1000, 1000 + sum(common)), *(100 + number, *range(prompt - 1))[:prompt])
        rows += [EncodedRow(start, tuple(range(length))) for length in responses]
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(1)).tolist()
    return [rows[i] for i in order]


def packed_of(shape):
    return pack(collate(rows_of(shape), 0, CPU), with_last=True, common=True)


def by_definition(query, key, value, where, scale):
    """Σ_s softmax_s(scale · q k_s) v_s for every token of every row, in the order of the packed sequence."""
    repeats = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(repeats, 1), value.repeat_interleave(repeats, 1)
    out = torch.zeros(len(query), query.shape[1], value.shape[2], dtype=query.dtype)
    for line in where:
        scores = torch.einsum("thw,shw->hts", query[line], key[line]) * scale
        hidden = torch.ones(len(line), len(line)).triu(1).bool()
        found = torch.einsum("hts,shw->thw", scores.masked_fill(hidden, -torch.inf).softmax(-1), value[line])
        out = out.index_copy(0, line, found)
    return out


def lines(rows, packed):
    """Places of each row's tokens in the packed sequence, found by token id and position, which identify a token."""
    found, common = [], packed.layout.common
    token = torch.arange(len(packed.tokens)) if common is None else common.token
    ends = packed.last if common is None else common.place[packed.last]
    prefix_of, tokens, places = (packed.layout.prefix, packed.tokens[token].tolist(), packed.positions[token].tolist())
    for row, last in zip(rows, ends.tolist(), strict=True):
        prefix = [i for i in range(len(tokens)) if prefix_of[i] == prefix_of[last]]
        own = packed.layout.sequence[last]
        line = [i for i in prefix if packed.layout.sequence[i] == own or packed.layout.sequence[i] == prefix_of[last]]
        assert [tokens[i] for i in line] == list(row.prompt + row.response)
        assert [places[i] for i in line] == list(range(len(row)))
        found.append(token[line])
    return found


def check_definition(shape, heads, plain, sharpness, width):
    """Outputs and gradients are those of the definition, in float64."""
    scale = None if sharpness is None else sharpness * width**-0.5
    packed = packed_of(shape)
    where = lines(rows_of(shape), packed)
    generator = torch.Generator().manual_seed(0)
    count = len(packed.tokens)
    query, key, value = (
        torch.randn(1, count, number, width, generator=generator).transpose(1, 2).requires_grad_()
        for number in (heads[0], heads[1], heads[1])
    )
    weight = torch.randn(1, count, heads[0], width, generator=generator)
    with differentiable_twice() if plain else torch.enable_grad():
        got, _ = packed_attention(packed.layout)(LAYER, query, key, value, None, scaling=scale)
    slopes = torch.autograd.grad((got * weight).sum(), (query, key, value))

    exact = [x.detach().double()[0].transpose(0, 1).requires_grad_() for x in (query, key, value)]
    wanted = by_definition(*exact, where, width**-0.5 if scale is None else scale)
    expected = torch.autograd.grad((wanted * weight[0]).sum(), exact)
    assert set(torch.cat(where).tolist()) == set(range(count)), "no token stands in the line for nothing"
    torch.testing.assert_close(got[0].double(), wanted, rtol=1e-5, atol=1e-5)
    for one, other in zip(slopes, expected, strict=True):
        torch.testing.assert_close(one[0].transpose(0, 1).double(), other, rtol=1e-5, atol=1e-5)


# the kernels of torch, and those that are compiled
@pytest.mark.parametrize(("plain", "width"), every_value([False, True], [8, 16, 112]))
def test_outputs_and_gradients_are_those_of_the_definition(width, plain):
    @for_each(product(SHAPES, HEADS, [None, 1.1]))
    def hold(shape, heads, sharpness):
        check_definition(shape, heads, plain, sharpness, width)

    hold()


@for_each(SHAPES)
def test_neighbouring_sequences_of_one_length_are_batched(shape):
    for bucket in packed_of(shape).layout.buckets:
        token = bucket.token.flatten()
        in_a_row = torch.equal(token, torch.arange(len(token)) + token[0])
        assert bucket.start == (int(token[0]) if in_a_row else None)


def test_single_and_batched_sequences_give_the_same(monkeypatch):
    """Sequences may be computed one by one or in a batch: a choice of speed alone."""
    rows = collate(rows_of("ragged") + rows_of("lone"), 0, CPU)
    monkeypatch.setattr(packing, "SIMILAR", 0.1)
    together = pack(rows, with_last=True)
    monkeypatch.setattr(packing, "SIMILAR", 1.0)
    monkeypatch.setattr(packing, "SHORT", 1)
    apart = pack(rows, with_last=True)
    assert len(apart.layout.trees) > len(together.layout.trees)
    assert len(apart.layout.buckets) > len(together.layout.buckets)
    query, key, value = torch.randn(3, 1, 2, len(together.tokens), 8)
    one, other = (packed_attention(packed.layout)(LAYER, query, key, value, None)[0] for packed in (together, apart))
    torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


@for_each(["ragged", "lone and alike", "alike at first"])
def test_values_of_another_width_and_a_torch_without_the_kernels(shape, monkeypatch):
    rows = rows_of(shape)
    packed = pack(collate(rows, 0, CPU), with_last=True)
    query, key, value = torch.randn(3, 1, 2, len(packed.tokens), 8)
    where = lines(rows, packed)

    def flat(x):
        return x[0].transpose(0, 1)

    narrow, _ = packed_attention(packed.layout)(LAYER, query, key, value[..., :3], None)
    wanted = by_definition(flat(query), flat(key), flat(value)[..., :3], where, 8**-0.5)
    torch.testing.assert_close(narrow[0], wanted, rtol=1e-5, atol=1e-5)

    def gone(*args, **kwargs):
        raise NotImplementedError

    expected, _ = packed_attention(packed.layout)(LAYER, query, key, value, None)
    for name in ("_flash_agrees", "_flash_shares_heads"):
        getattr(attention, name).cache_clear()
    monkeypatch.setattr(attention, "flash_attention", gone)
    try:
        got, _ = packed_attention(packed.layout)(LAYER, query, key, value, None)
    finally:
        for name in ("_flash_agrees", "_flash_shares_heads"):
            getattr(attention, name).cache_clear()
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)


def attended(shape, width, heads=(4, 2), dtype=torch.float32):
    """The attention of random tensors, and their gradients."""
    packed = packed_of(shape)
    generator = torch.Generator().manual_seed(0)
    tensors = [
        torch.randn(1, heads[n > 0], len(packed.tokens), width, generator=generator).to(dtype).requires_grad_()
        for n in range(3)
    ]
    out, _ = packed_attention(packed.layout)(LAYER, *tensors, None)
    return [out, *torch.autograd.grad(out.square().sum(), tensors)]


@needs_compiler
@pytest.mark.parametrize("width", [8, 16])
def test_the_compiled_kernel_serves_heads_of_whole_vectors(width, monkeypatch):
    counts = []
    for name in ("forward", "backward"):
        own = getattr(NativeKernels, name)
        monkeypatch.setattr(NativeKernels, name, lambda *given, own=own: counts.append(1) or own(*given))
    attended("ragged", width)
    assert len(counts) == (2 if width == 16 else 0)


@needs_compiler
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_compiled_kernel_is_bit_identical_for_any_number_of_threads(dtype):
    @for_each(SHAPES)
    def hold(shape):
        found = []
        for threads in (1, 2, 3, 3, 3, 5):
            torch.set_num_threads(threads)
            found.append(attended(shape, 32, dtype=dtype))
        assert all(torch.equal(a, b) for each in found[1:] for a, b in zip(each, found[0], strict=True))

    before = torch.get_num_threads()
    try:
        hold()
    finally:
        torch.set_num_threads(before)


@needs_compiler
@pytest.mark.parametrize(("dtype", "relative", "absolute"), [(torch.float32, 1e-4, 1e-3), (torch.bfloat16, 2**-7, 0.5)])
def test_large_scores_do_not_overflow(dtype, relative, absolute):
    packed = packed_of("ragged")
    query, key, value = (30 * torch.randn(1, 2, len(packed.tokens), 16).to(dtype) for _ in range(3))
    got, _ = packed_attention(packed.layout)(LAYER, query, key, value, None)
    with differentiable_twice():
        expected, _ = packed_attention(packed.layout)(LAYER, *(x.float() for x in (query, key, value)), None)
    torch.testing.assert_close(got.float(), expected, rtol=relative, atol=absolute)


@needs_compiler
@narrower_registers
@for_each(["ragged", "long", "alike at first"])
def test_on_processors_with_narrower_registers(shape, flag):
    with compiled_with(flag):
        check_definition(shape, (4, 2), False, None, 48)


def check_bfloat16(shape, heads, width, sharpness=None):
    """Operands of products are rounded, and so are results: P, dS and the results are off by half a unit in the last of
    8 bits, 2⁻⁹ / √3 in the root mean square, which sums over tokens do not add up. So the whole is off by less than
    2⁻⁸. Whole models are held against the reference engine in fused/test_arithmetic.py."""
    packed = packed_of(shape)
    where = lines(rows_of(shape), packed)
    generator = torch.Generator().manual_seed(0)
    count, scale = len(packed.tokens), width**-0.5 if sharpness is None else sharpness
    tensors = [
        torch.randn(1, number, count, width, generator=generator).bfloat16().requires_grad_()
        for number in (heads[0], heads[1], heads[1])
    ]
    weight = torch.randn(1, count, heads[0], width, generator=generator).bfloat16()
    out, _ = packed_attention(packed.layout)(LAYER, *tensors, None, scaling=scale)
    found = [out[0], *(x[0].transpose(0, 1) for x in torch.autograd.grad(out, tensors, weight))]
    exact = [x.detach().double()[0].transpose(0, 1).requires_grad_() for x in tensors]
    wanted = by_definition(*exact, where, scale)
    expected = [wanted.detach(), *torch.autograd.grad(wanted, exact, weight[0].double())]
    for own, true in zip(found, expected, strict=True):
        assert own.dtype == torch.bfloat16
        assert (own.double() - true).norm() < 2**-8 * true.norm()


@needs_compiler
@for_each(product(SHAPES, HEADS))
def test_in_bfloat16_only_operands_of_products_are_rounded(shape, heads):
    check_bfloat16(shape, heads, 32)


@needs_compiler
@pytest.mark.parametrize("sharpness", [-0.2, 1.1])
def test_scores_in_bfloat16_are_scaled_in_float32(sharpness):
    check_bfloat16("long", (4, 2), 16, sharpness)


@needs_compiler
@other_processors
@for_each(["ragged", "long", "alike at first"])
def test_in_bfloat16_on_other_processors(shape, flag):
    with compiled_with(flag):
        check_bfloat16(shape, (4, 2), 48)


@needs_compiler
@pytest.mark.parametrize("why", ["wrong", "long prompts"])
def test_where_the_compiled_kernel_is_wrong_those_of_torch_serve(why, monkeypatch, caplog):
    expected = attended("ragged", 16)
    attention._native_agrees.cache_clear()
    if why == "wrong":
        own = NativeKernels.forward
        monkeypatch.setattr(NativeKernels, "forward", lambda *given: (own(*given)[0] * 1.01, own(*given)[1]))
    else:
        monkeypatch.setattr(native_attention, "MOST_FLOATS", 10)
    monkeypatch.setattr(NativeKernels, "backward", None)  # would be called if it served
    found = attended("ragged", 16)
    attention._native_agrees.cache_clear()
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
    assert ("compiled attention is not used" in caplog.text) == (why == "wrong")


def test_the_error_of_bfloat16_is_its_rounding():
    packed = packed_of("ragged")
    query, key, value = torch.randn(3, 1, 2, len(packed.tokens), 8)
    exact, _ = packed_attention(packed.layout)(LAYER, query, key, value, None)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rounded, _ = packed_attention(packed.layout)(LAYER, query, key, value, None)
    assert rounded.dtype == torch.bfloat16
    torch.testing.assert_close(rounded.float(), exact, rtol=0.05, atol=0.05)


def test_second_derivatives_exist_in_the_plain_form_only():
    packed = packed_of("one group")
    count = len(packed.tokens)
    inputs = tuple(torch.randn(1, 2, count, 4, dtype=torch.float64, requires_grad=True) for _ in range(3))

    def attend(*inputs):
        return packed_attention(packed.layout)(LAYER, *inputs, None)[0]

    with differentiable_twice():
        assert torch.autograd.gradcheck(attend, inputs)
        assert torch.autograd.gradgradcheck(attend, inputs)
    (slope,) = torch.autograd.grad(attend(*inputs).square().sum(), inputs[:1], create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        slope.sum().backward()


def test_dropout_is_refused():
    packed = packed_of("one group")
    x = torch.randn(1, 1, len(packed.tokens), 4)
    with pytest.raises(ValueError, match="dropout"):
        packed_attention(packed.layout)(LAYER, x, x, x, None, dropout=0.1)


def test_a_prompt_of_no_tokens_is_refused():
    rows = collate([EncodedRow((4, 5), (6,)), EncodedRow((4,), (6,))], 0, CPU)
    rows.prompt_mask[1] = False
    with pytest.raises(ValueError, match="at least one token"):
        pack(rows, with_last=True)


@pytest.mark.parametrize("repeats", [1, 2])
def test_the_trial_of_the_kernels_within_a_bf16_pass_is_in_float32(repeats):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert attention._agree_with_masked(attention.FlashKernels, repeats)


def test_what_prompts_begin_with_stands_once():
    """The tokens of the prompts are a tree: those of a prompt stand where those of another stand, up to the first that
    differs. Fewer than COMMON tokens are not worth it."""
    packed, whole = (
        pack(collate(rows_of("alike at first"), 0, CPU), with_last=True, common=common) for common in (True, False)
    )
    common = packed.layout.common
    assert len(whole.tokens) - len(packed.tokens) == 20 + 20 + 20 + 70 + 70
    for got, all_of_them in ((packed.tokens, whole.tokens), (packed.positions, whole.positions)):
        assert torch.equal(common.spread(got), all_of_them)
        assert torch.equal(common.gathered(all_of_them), got)
    assert torch.equal(packed.tokens[packed.last], whole.tokens[whole.last])
    x = torch.randn(len(common.token), 2, dtype=torch.float64)
    summed = torch.zeros(len(packed.tokens), 2, dtype=torch.float64).index_add_(0, common.token, x)
    torch.testing.assert_close(common.summed(x), summed)
    few = collate([EncodedRow((*range(COMMON - 1), 50 + n), (1,)) for n in range(3)], 0, CPU)
    assert pack(few, with_last=True, common=True).layout.common is None
