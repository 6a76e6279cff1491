"""The mask of packed rows with shared prompts, dense and in blocks, against the causal relation of single rows."""

import pytest
import torch
from compilers import needs_compiler
from hypothesis import given
from hypothesis import strategies as st
from test_sampling import NoWaits

from tutelage.engines.gpu import span_attention
from tutelage.engines.gpu.span_attention import Spans, block_mask
from tutelage.engines.packing import layout_of, visible_tokens

from . import compiled_cases

CPU = torch.device("cpu")
GROUPS = st.lists(
    st.tuples(st.integers(1, 11), st.lists(st.integers(0, 9), min_size=1, max_size=5)), min_size=1, max_size=6
)
"""For each prompt its length and the lengths of its completions."""


@pytest.fixture(scope="module", autouse=True)
def small_blocks():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(span_attention, "BLOCK", 4)
        yield


def spans_of(groups):
    """The spans of packed rows."""
    rows = [(number, prompt, own) for number, (prompt, owns) in enumerate(groups) for own in owns]
    layout = layout_of(*zip(*rows, strict=True), device=CPU)
    return Spans.padded(layout.sequence, layout.prefix)


def relation(groups):
    """Whether a token sees another: each row is a sequence of packed tokens that see those before them."""
    rows, at = [], 0
    for prompt, owns in groups:
        start, at = list(range(at, at + prompt)), at + prompt
        rows.append(start)
        for own in owns:
            rows.append(start + list(range(at, at + own)))
            at += own
    visible = torch.zeros(at, at, dtype=torch.bool)
    for row in rows:
        for place, token in enumerate(row):
            visible[token, row[: place + 1]] = True
    return visible


def listed(counts, columns):
    """Lists of blocks as a matrix."""
    marked = torch.zeros(columns.shape[-2:], dtype=torch.bool)
    for row, (count, own) in enumerate(zip(counts[0, 0].tolist(), columns[0, 0].tolist(), strict=True)):
        marked[row, own[:count]] = True
        assert len({*own[:count]}) == count
    return marked


def of_tokens(blocks):
    """A matrix of blocks as one of tokens."""
    size = span_attention.BLOCK
    return blocks.repeat_interleave(size, 0).repeat_interleave(size, 1)


@given(GROUPS)
def test_the_dense_mask_is_the_relation_of_single_rows(groups):
    expected = relation(groups)
    spans = spans_of(groups)
    visible = visible_tokens(spans.sequence, spans.prefix)
    count = len(expected)
    assert len(visible) % span_attention.BLOCK == 0
    assert len(visible) < count + span_attention.BLOCK
    assert torch.equal(visible[:count, :count], expected)
    assert not visible[:count, count:].any(), "no token sees padding"
    assert not visible[count:, :count].any(), "nor padding a token"
    assert visible.diagonal().all(), "every query has a key"


@given(GROUPS)
def test_the_blocks_hold_the_relation(groups):
    spans = spans_of(groups)
    visible, blocks = visible_tokens(spans.sequence, spans.prefix), block_mask(spans)
    places = torch.arange(len(spans.sequence))
    partial = listed(blocks.kv_num_blocks, blocks.kv_indices)
    full = listed(blocks.full_kv_num_blocks, blocks.full_kv_indices)
    zero = torch.zeros((), dtype=torch.long)
    assert torch.equal(blocks.mask_mod(zero, zero, places[:, None], places[None]), visible)
    assert not (partial & full).any()
    assert visible[of_tokens(full)].all(), "all pairs of a full block are visible"
    assert of_tokens(partial | full)[visible].all(), "every visible pair is in a block"
    assert torch.equal(listed(blocks.q_num_blocks, blocks.q_indices), partial.T), "the lists of the backward pass"
    assert torch.equal(listed(blocks.full_q_num_blocks, blocks.full_q_indices), full.T)


def test_whole_blocks_of_one_row_are_full():
    blocks = block_mask(spans_of([(4 * 10, [0])]))
    assert torch.equal(listed(blocks.full_kv_num_blocks, blocks.full_kv_indices), torch.ones(10, 10).bool().tril(-1))
    assert torch.equal(listed(blocks.kv_num_blocks, blocks.kv_indices), torch.eye(10).bool())


@pytest.mark.parametrize(
    "groups",
    [[(3, [4])] * 200, [(4, [3] * 400)], [(4, [5] * 8)] * 50],
    ids=["lone rows", "completions of one prompt", "several prompts"],
)
def test_the_number_of_blocks_grows_with_the_tokens_not_their_square(groups):
    blocks = block_mask(spans_of(groups))
    count = int(blocks.kv_num_blocks.sum() + blocks.full_kv_num_blocks.sum())
    assert count < 5 * blocks.kv_num_blocks.shape[-1]


def test_the_host_waits_for_nothing():
    layout = layout_of([0, 0, 1], [5, 5, 3], [4, 2, 6], device=CPU)
    with NoWaits():
        spans = Spans.padded(layout.sequence, layout.prefix)
        block_mask(spans)
        spans.attention(0.5, 4)


@needs_compiler
@pytest.mark.long
def test_compiled_attention_in_blocks_is_that_with_the_dense_mask():
    compiled_cases.run_apart("attention")
