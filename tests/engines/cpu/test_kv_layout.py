"""Keys and values are read as they were stored, and the pairs of a block are those that the kernel multiplies."""

import pytest
import torch

from tutelage.engines.cpu.kv_layout import BLOCK, PairLayout, TokenLayout

HEADS, ANSWERS = 2, 3


def stored(layout, key, value):
    """Keys and values [K, T, w] of an answer in the first and the last of its slots, token by token."""
    tokens, width = key.shape[1:]
    shape = (1, HEADS, ANSWERS, -(-tokens // layout.tokens), layout.numbers(width))
    keys, values = torch.zeros(shape), torch.zeros(shape)
    for token in range(tokens):
        slots = [x[None, :, None, token].expand(1, HEADS, ANSWERS, width) for x in (key, value)]
        layout.put(keys, values, token, *slots)
    return keys, values


@pytest.mark.parametrize("layout", [TokenLayout(), PairLayout()])
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


def test_blocks_hold_pairs_of_features_of_keys_and_pairs_of_tokens_of_values():
    tokens, width = BLOCK + 3, 24
    key, value = torch.randn(2, HEADS, tokens, width)
    keys, values = PairLayout().pack(key, value)
    of_keys, of_values = keys.view(HEADS, 2, -1, BLOCK, 2), values.view(HEADS, 2, BLOCK // 2, -1, 2)
    for token in range(tokens):
        row, place = divmod(token, BLOCK)
        pairs = of_keys[:, row, : width // 2, place]
        assert torch.equal(pairs.flatten(1), key[:, token])
        assert torch.equal(of_values[:, row, place // 2, :width, place % 2], value[:, token])
    assert not of_keys[:, :, width // 2 :].any(), "padded features are zero"
    assert not of_keys[:, 1, :, 3:].any(), "so are tokens after the last one"
    assert not of_values[:, 1, 2:].any()
