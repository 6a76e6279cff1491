"""Operations that are counted while the engine runs, against torch's own counter and closed forms."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode
from transformers import LlamaForCausalLM

from bench.flops import Tree, training
from bench.operations import BLOCK, LANES, Operations, attention_pairs, counting
from bench.shapes import Shape
from bench.worlds import llama_config
from tutelage.core.batch import Rows
from tutelage.core.rows import EncodedRow, collate
from tutelage.engines.cpu.cpu_engine import CpuEngine
from tutelage.engines.cpu.native import bindings, matrix_products
from tutelage.engines.logprobs import Head
from tutelage.engines.network import Backbone
from tutelage.engines.packing import layout_of

SHAPE = Shape("small", vocabulary=64, hidden=64, layers=3, heads=4, kv_heads=2, feed_forward=96)
PROMPT, RESPONSES, LENGTH = 50, 3, 20


def model() -> LlamaForCausalLM:
    torch.manual_seed(0)
    return LlamaForCausalLM(llama_config(SHAPE, attn_implementation="eager"))


def plain_pass() -> Tensor:
    """A forward and a backward pass of transformers' own modules over one sequence."""
    loss: Tensor = model()(torch.ones(1, 12, dtype=torch.long)).logits.sum()
    loss.backward()
    return loss


def test_products_of_torch_are_those_that_its_own_counter_finds() -> None:
    with FlopCounterMode(display=False) as expected:
        plain_pass()
    with Operations() as found:
        plain_pass()
    assert sum(found.kernels.values()) == expected.get_total_flops()


@pytest.mark.parametrize("context", [torch.enable_grad, torch.no_grad, torch.inference_mode])
def test_a_product_counts_once_wherever_and_however_it_is_made(context: Callable[[], Any]) -> None:
    """Torch's own counter misses a product that is added in place."""
    x, w = torch.ones(5, 7), torch.ones(3, 7)
    once = 2 * 5 * 7 * 3
    ways: tuple[Callable[[], object], ...] = (
        lambda: torch.nn.functional.linear(x, w),
        lambda: torch.nn.functional.linear(x, w, torch.ones(3)),
        lambda: x @ w.T,
        lambda: torch.mm(x, w.T, out=torch.empty(5, 3)),
        lambda: torch.zeros(5, 3).addmm_(x, w.T),
        lambda: torch.matmul(x[None], w.T),
    )
    for way in ways:
        with context(), counting() as kernels:
            way()
        assert sum(kernels.values()) == once


def test_attention_reads_the_prefix_and_each_block_up_to_its_last_token() -> None:
    """A prompt of two blocks and 4 tokens, and two answers of 20 that continue it."""
    prompt = 2 * BLOCK + 4
    layout = layout_of([0, 0], [prompt] * 2, [20] * 2, device=torch.device("cpu"))
    read, padded = attention_pairs(layout, BLOCK)
    own = BLOCK * BLOCK + BLOCK * 2 * BLOCK + 4 * prompt
    assert read == own + 2 * 20 * (prompt + 20)
    assert prompt % LANES
    assert padded == own + 4 * (112 - prompt) + 2 * 20 * (112 + 32)


def rows() -> Rows:
    """Answers to one prompt."""
    generator = torch.Generator().manual_seed(0)

    def tokens(count: int) -> tuple[int, ...]:
        return tuple(torch.randint(2, SHAPE.vocabulary, (count,), generator=generator).tolist())

    prompt = tokens(PROMPT)
    return collate([EncodedRow(prompt, tokens(LENGTH)) for _ in range(RESPONSES)], pad=1, device=torch.device("cpu"))


@pytest.fixture(scope="module")
def engine() -> CpuEngine:
    """An engine that has tried its layers already."""
    transformer = model()
    backbone = Backbone(transformer, None, torch.device("cpu"), torch.float32)
    made = CpuEngine(backbone, Head(transformer.lm_head.weight))
    update(made)
    return made


def update(engine: CpuEngine) -> dict[str, int]:
    """Operations of a forward and a backward pass over the rows, by kernel."""
    with counting() as kernels:
        engine.backward(engine.score(rows()).logp.sum())
    return dict(kernels)


@pytest.mark.skipif(not bindings.is_available(), reason="there is no compiler here")
def test_an_update_of_the_engine_against_a_closed_form(engine: CpuEngine) -> None:
    """The last token of an answer predicts nothing and is not read. Of the last layer, states of a prompt but its last
    serve as keys and values only."""
    found = update(engine)
    answers = RESPONSES * (LENGTH - 1)
    width = SHAPE.hidden // SHAPE.heads
    to_heads = SHAPE.hidden * (SHAPE.hidden + 2 * SHAPE.kv_heads * width)
    rest = SHAPE.trunk // SHAPE.layers - to_heads
    read, selected = PROMPT + answers, 1 + answers
    weights = SHAPE.layers * read * to_heads + ((SHAPE.layers - 1) * read + selected) * rest
    products = 3 * 2 * (weights + RESPONSES * LENGTH * SHAPE.head)
    assert sum(found.get(name, 0) for name in ("mm", "addmm", "bmm", "float products")) == products
    pairs, padded = attention_pairs(
        layout_of([0] * RESPONSES, [PROMPT] * RESPONSES, [LENGTH - 1] * RESPONSES, device=torch.device("cpu"))
    )
    each = 2 * SHAPE.hidden * SHAPE.layers
    assert found["attention"] == each * (pairs + padded)
    assert found["attention gradients"] == each * (3 * pairs + 2 * padded)
    assert set(found) <= {"mm", "addmm", "bmm", "float products", "attention", "attention gradients"}


@pytest.mark.skipif(not bindings.is_available(), reason="there is no compiler here")
def test_what_is_needed_is_within_a_fifth_of_what_the_engine_performs(engine: CpuEngine) -> None:
    needed = training(SHAPE, [Tree(PROMPT, (LENGTH,) * RESPONSES)])
    assert 0.8 < sum(update(engine).values()) / needed < 1.2


@pytest.mark.skipif(not bindings.is_available(), reason="there is no compiler here")
def test_compiled_products_in_bfloat16_count_by_their_shapes() -> None:
    x = torch.ones(5, 64, dtype=torch.bfloat16)
    adapter = (torch.ones(8, 64), torch.ones(32, 8))
    for linear, columns in (([torch.ones(32, 64)],), 0), (([torch.ones(32, 64)], None, adapter), 8):
        with counting() as kernels:
            matrix_products.PanelLinear(*linear)(x)
        assert kernels == {"panels": 2 * 5 * (64 * 32 + columns * (64 + 32))}
