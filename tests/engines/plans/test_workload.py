"""Closed forms of operations and activations, against torch's own counter and against tensors that are kept."""

import numpy as np
import pytest
import tiny
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoModelForCausalLM

from tutelage.engines.cpu import activation_cache
from tutelage.engines.plans.workload import BatchShape, Transformer
from tutelage.models.outline import outline

from .sizes import SMALL, on_policy

ROWS, LONG = 2, 12


@pytest.mark.parametrize("family", tiny.EVERY)
def test_operations_are_those_that_torch_counts(family, tmp_path):
    """Eager attention computes all pairs of tokens, so pairs = T². A backward pass costs twice the forward pass."""
    path = tiny.save(family, tmp_path / family)
    model = AutoModelForCausalLM.from_pretrained(path, attn_implementation="eager")
    tokens = torch.randint(5, 200, (ROWS, LONG))
    with FlopCounterMode(display=False) as forward:
        logits = model(input_ids=tokens, use_cache=False).logits
    with FlopCounterMode(display=False) as backward:
        logits.float().square().sum().backward()
    expected = outline(path).forward(ROWS * LONG, ROWS * LONG**2, ROWS * LONG)
    assert forward.get_total_flops() == pytest.approx(expected, rel=0.02)
    assert backward.get_total_flops() == pytest.approx(2 * expected, rel=0.05)


def test_activations_are_near_what_autograd_keeps(tmp_path):
    """Of a Llama with room between its norms: within 15 % of the bytes that are saved for the backward pass."""
    shape = {"hidden_size": 64, "intermediate_size": 192, "num_hidden_layers": 4, "head_dim": 16}
    path = tiny.save("llama", tmp_path / "llama", **shape)
    model = AutoModelForCausalLM.from_pretrained(path, attn_implementation="sdpa").model
    own = {p.untyped_storage().data_ptr() for p in model.parameters()}
    kept: dict[int, int] = {}

    def keep(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own and tensor.is_floating_point():
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    tokens = torch.randint(5, 200, (2, 48))
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        states = model(input_ids=tokens, use_cache=False).last_hidden_state
    assert states.requires_grad
    assert sum(kept.values()) == pytest.approx(tokens.numel() * outline(path).kept(half=False), rel=0.15)


@pytest.mark.parametrize("half", [False, True])
def test_what_is_recorded_is_what_the_engine_keeps_of_sampling(tmp_path, half):
    """But for the log-sum-exp of each head, which a plan leaves out."""
    path = tiny.save("llama", tmp_path / "llama", **tiny.MIXED)
    layers = AutoModelForCausalLM.from_pretrained(path).model.layers
    heads = 4 * len(layers) * tiny.MIXED["num_attention_heads"]
    kept = sum(activation_cache._bytes_per_token(layer, half) for layer in layers)
    assert outline(path).recorded(half=half) == kept - heads


def test_checkpointing_keeps_less_and_bf16_keeps_less():
    assert SMALL.kept(half=True) < SMALL.kept(half=False)
    assert SMALL.kept(half=False, checkpointing=True) < SMALL.kept(half=False) / 2
    one = Transformer(**{**vars(SMALL), "layers": 1})
    assert one.kept(half=False, checkpointing=True) > one.kept(half=False)  # nothing to save in a single layer


@pytest.mark.parametrize("shared", [True, False])
def test_tokens_and_pairs_are_those_of_the_mask(shared):
    """The mask of a packed sequence: prompts see themselves, responses their prompt and themselves, all causally."""
    prompts, samples, prompt, response = 3, 4, 20, 10
    batch = BatchShape(prompts, samples, prompt, response, shared)
    count = pairs = 0
    for _ in range(prompts if shared else prompts * samples):
        responses = samples if shared else 1
        owner = np.repeat(np.arange(1 + responses), [prompt, *[response] * responses])
        seen = (owner[:, None] == owner) | (owner[None, :] == 0)
        count += len(owner)
        pairs += int(np.tril(seen).sum())
    assert batch.tokens == count
    assert batch.pairs == pytest.approx(pairs, rel=0.05)  # the closed form counts half of the diagonal
    assert batch.scored == prompts * samples * response


def test_shares_add_up():
    batch = BatchShape(12, 4, 20, 10)
    for ranks in (1, 2, 3, 12):
        assert ranks * batch.share(ranks).tokens == pytest.approx(batch.tokens)
    assert 24 * batch.share(24).scored == pytest.approx(batch.scored)  # two rows each, with a prompt of their own
    assert 24 * batch.share(24).tokens > batch.tokens


def test_adapters_alone_are_trained():
    assert on_policy().trainable == on_policy().model.parameters
    assert on_policy(lora=8).trainable == 8 * on_policy().model.adapter
    assert on_policy(trains=False).trainable == 0
