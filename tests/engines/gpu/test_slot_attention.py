"""Attention of one decoding step: the eager twin against one softmax over prompt and own tokens, and the kernels
against the twin in Triton's interpreter."""

import pytest
import torch

from tutelage.engines.gpu.slot_attention import SlotTensors

from . import decode_cases
from .decode_cases import GROUPS, LENGTHS, PROMPTS, SHAPES, attention, indices, tensors
from .interpreter import HAS_TRITON, interpret


def with_new(own, new):
    """Own keys or values with the new one of each used slot at position length − 1."""
    own = own.clone()
    for slot, length in enumerate(LENGTHS):
        if length:
            own[slot, length - 1] = new[slot]
    return own


def plainly(query, key, value, prompt_k, prompt_v, own_k, own_v, places, scale):
    """softmax(scale q Kᵀ) V in float64 of each slot and head, over its prompt's keys and its own; 0 without keys."""
    own_k, own_v = with_new(own_k, key), with_new(own_v, value)
    output = torch.zeros(query.shape, dtype=torch.float64)
    prompt_of = {slot: group for group, (_, slots) in enumerate(GROUPS) for slot in slots}
    for slot, length in enumerate(LENGTHS):
        group = prompt_of.get(slot)
        start = places.group_start[group] if group is not None else 0
        end = start + PROMPTS[GROUPS[group][0]] if group is not None else 0
        keys = torch.cat([prompt_k[start:end], own_k[slot, :length]]).double()
        values = torch.cat([prompt_v[start:end], own_v[slot, :length]]).double()
        for head in range(query.shape[1]):
            kv = head * keys.shape[1] // query.shape[1]
            if len(keys):
                shares = (keys[:, kv] @ query[slot, head].double() * scale).softmax(0)
                output[slot, head] = shares @ values[:, kv]
    return output


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_twin_is_one_softmax_over_prompt_and_own_tokens(shape, dtype):
    expected = plainly(*tensors(*shape, dtype), indices(), 0.3)
    got = attention(*shape, dtype)(tensors(*shape, dtype), indices(), 0.3)
    assert got.dtype == dtype
    torch.testing.assert_close(got.double(), expected, rtol=0, atol=1e-5 if dtype == torch.float32 else 2e-2)
    assert not got[6].any(), "a slot without keys gets zeros"


def test_the_twin_of_a_slot_does_not_depend_on_the_others():
    decode_cases.assert_independent(attention(4, 2, 80), 4, 2, 80)


def test_the_new_token_is_written_to_its_position_alone():
    given = tensors(4, 2, 80)
    _, key, value, *prompts, own_k, own_v = (x.clone() for x in given)
    attention(4, 2, 80)(given, indices(), 0.3)
    expected = key, value, *prompts, with_new(own_k, key), with_new(own_v, value)
    for now, after in zip(given[1:], expected, strict=True):
        torch.testing.assert_close(now, after, rtol=0, atol=0, equal_nan=True)


@pytest.mark.skipif(not HAS_TRITON, reason="needs Triton")
def test_the_kernels_equal_their_twin_and_do_not_depend_on_other_slots():
    interpret(decode_cases)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_captured_step_equals_the_twin_at_other_lengths():
    """One graph, captured with empty slots, is played with these lengths."""
    given = SlotTensors(*(x.cuda() for x in tensors(4, 2, 80)))
    made, places = attention(4, 2, 80, device="cuda"), type(indices())(*(x.cuda() for x in indices()))
    lengths, graph = places.length.clone(), torch.cuda.CUDAGraph()
    places.length.zero_()
    made(given, places, 0.3)  # compiles the kernels
    with torch.cuda.graph(graph):
        got = made(given, places, 0.3)
    places.length.copy_(lengths)
    graph.replay()
    twins = tensors(4, 2, 80)
    expected = attention(4, 2, 80)(twins, indices(), 0.3)
    torch.testing.assert_close(got.cpu(), expected, rtol=0, atol=1e-5)
    for one, other in zip(given, twins, strict=True):
        torch.testing.assert_close(one.cpu(), other, rtol=0, atol=0, equal_nan=True)
