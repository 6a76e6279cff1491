"""Keys and values are read as they were stored, and the pairs of a block are those that the kernel multiplies."""

import pytest
import torch

from tutelage.engines.cpu.prompt_cache import BLOCK, BlockLayout, TokenLayout

HEADS, ANSWERS = 2, 3
BLOCKS = [BlockLayout(torch.float32), BlockLayout(torch.bfloat16)]


def stored(layout, key, value):
    """Keys and values [K, T, w] of an answer in the first and the last of its slots, token by token."""
    tokens, width = key.shape[1:]
    shape = (1, HEADS, ANSWERS, -(-tokens // layout.tokens), layout.numbers(width))
    keys, values = torch.zeros(shape), torch.zeros(shape)
    for token in range(tokens):
        slots = [x[None, :, None, token].expand(1, HEADS, ANSWERS, width) for x in (key, value)]
        layout.put(keys, values, token, *slots)
    return keys, values


@pytest.mark.parametrize("layout", [TokenLayout(), *BLOCKS])
@pytest.mark.parametrize("width", [4, BLOCK, 24])
@pytest.mark.parametrize("tokens", [1, BLOCK - 1, BLOCK, 2 * BLOCK + 5])
def test_tokens_are_read_as_they_were_stored(layout, width, tokens):
    key, value = torch.randn(2, HEADS, tokens, width)
    together, one_by_one = layout.pack(key, value), stored(layout, key, value)
    for whole, parts in zip(together, one_by_one, strict=True):
        assert torch.equal(whole, parts[0, :, 0])
        assert torch.equal(whole, parts[0, :, -1])
    for count in {1, tokens}:
        found = layout.unpack(*one_by_one, count, width)
        for read, written in zip(found, (key, value), strict=True):
            assert torch.equal(read, written[None, :, None, :count].expand_as(read))


@pytest.mark.parametrize("layout", BLOCKS)
def test_blocks_hold_features_of_keys_and_tokens_of_values_together(layout):
    tokens, width, each = BLOCK + 3, 24, layout.together
    key, value = torch.randn(2, HEADS, tokens, width)
    keys, values = layout.pack(key, value)
    of_keys = keys.view(HEADS, 2, -1, BLOCK, each)
    of_values = values.view(HEADS, 2, BLOCK // each, -1, each)
    for token in range(tokens):
        row, place = divmod(token, BLOCK)
        assert torch.equal(of_keys[:, row, : width // each, place].flatten(1), key[:, token])
        assert torch.equal(of_values[:, row, place // each, :width, place % each], value[:, token])
    assert not of_keys[:, :, width // each :].any(), "padded features are zero"
    assert not of_keys[:, 1, :, 3:].any(), "so are tokens after the last one"
    assert not of_values[:, 1, -(-3 // each) :].any()
