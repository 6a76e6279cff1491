"""Activation checkpointing: the same gradients from less memory. The context of a model."""

import pytest
import torch
from test_engines_agree import FAMILIES, PROMPTS, ROWS, gradients
from tiers import every_value
from transformers import LlamaConfig, Phi3Config

from tutelage.base import config
from tutelage.base.errors import TutelageError
from tutelage.core.rows import collate
from tutelage.engines.network import about_context, context_in
from tutelage.models.backbone import load_backbone
from tutelage.models.policy import Policy

CPU = torch.device("cpu")


def policy_of(folder, checkpointing, rank=0, engine="plain"):
    settings = config.Model(folder, device="cpu", engine=engine)
    lora = config.Lora(rank=rank, dropout=0.1 if rank else 0.0)
    return Policy(load_backbone(settings, lora, checkpointing=checkpointing))


def bytes_kept(policy, rows):
    """Bytes of distinct tensors that a forward pass keeps for the backward pass."""
    kept = {}

    def pack(tensor):
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = policy.states(rows).sum()
    weights = {p.untyped_storage().data_ptr() for p in policy.model.parameters()}
    assert loss.requires_grad
    return sum(size for place, size in kept.items() if place not in weights)


@pytest.mark.parametrize(("rank", "family"), every_value([0, 2], FAMILIES))
def test_gradients_are_equal_to_the_last_bit(tiny_model, family, rank):
    rows = collate(ROWS, 1, CPU)
    expected = gradients(policy_of(tiny_model(family), False, rank), rows)
    found = gradients(policy_of(tiny_model(family), True, rank), rows)
    for one, other in zip(expected, found, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_the_dropout_of_adapters_is_drawn_once(tiny_model):
    """The second pass over a layer drops what the first one dropped."""
    rows, found = collate(ROWS, 1, CPU), []
    for checkpointing in (False, True):
        policy = policy_of(tiny_model("llama"), checkpointing, 2)
        policy.model.train()
        torch.manual_seed(5)
        found.append(gradients(policy, rows))
    for one, other in zip(*found, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_sampled_tokens_and_curvature_are_the_same(tiny_model):
    """Decoding with a cache, and a second derivative through the layers."""
    rows, found = collate(ROWS, 1, CPU), []
    for checkpointing in (False, True):
        policy = policy_of(tiny_model("llama"), checkpointing)
        rollout = policy.generate(PROMPTS, 2, config.Sampling(max_new_tokens=6), seed=3)
        weight = policy.parameters()[-2]
        (first,) = torch.autograd.grad(policy.logits(rows).square().sum(), weight, create_graph=True)
        (second,) = torch.autograd.grad(first.square().sum(), weight)
        found.append((rollout.response, second))
    assert torch.equal(found[0][0], found[1][0])
    torch.testing.assert_close(found[1][1], found[0][1], rtol=1e-6, atol=0)


def test_of_eight_layers_a_third_of_the_memory_is_kept(tiny_model):
    folder = tiny_model("llama", num_hidden_layers=8)
    rows = collate(ROWS, 1, CPU)
    whole, less = (bytes_kept(policy_of(folder, checkpointing), rows) for checkpointing in (False, True))
    assert less < whole / 3


def test_another_engine_is_refused(tiny_model):
    with pytest.raises(TutelageError, match="requires the plain engine"):
        policy_of(tiny_model("llama"), True, engine="cpu")
    assert policy_of(tiny_model("llama"), True, engine="auto").engine.name == "plain"


def model_of(configuration):
    model = torch.nn.Module()
    model.config = configuration
    return model


def test_the_context_ends_where_the_frequencies_of_longrope_change():
    """Beyond it a row's log-probabilities would depend on the longest row of its batch."""
    factors = {"short_factor": [1.0] * 2, "long_factor": [4.0] * 2}
    sizes = {"hidden_size": 16, "num_attention_heads": 4, "num_key_value_heads": 4, "max_position_embeddings": 128}
    rope = {"rope_type": "longrope", "rope_theta": 1e4, "original_max_position_embeddings": 32} | factors
    changed = Phi3Config(**sizes, rope_parameters=rope, original_max_position_embeddings=32)
    whole = LlamaConfig(**sizes)
    assert (context_in(changed), context_in(whole)) == (32, 128)
    said, usual = (about_context(model_of(each)) for each in (changed, whole))
    assert "32" in said
    assert "128" in said
    assert "longrope" in said
    assert usual == "the model has {}"
