"""The exact KL to the reference, over whole distributions: the penalty of the kind "exact"."""

from itertools import product

import tiny
import torch
from offenders import for_each
from tiny_training import CPU, PAD, World, gradients_of, policy_of, recipe_of, some_rows
from torch.utils._python_dispatch import TorchDispatchMode

from tutelage.base import config
from tutelage.core.kl import exact_kl
from tutelage.core.rows import collate
from tutelage.models.backbone import load_backbone
from tutelage.models.policy import Policy


def moved(policy):
    """A policy that differs from its reference."""
    policy.freeze_reference()
    with torch.no_grad():
        for p in policy.parameters():
            p.add_(0.05 * torch.randn(p.shape, generator=torch.Generator().manual_seed(p.numel())))
    return policy


def by_definition(policy, rows, temperature):
    here = policy.logits(rows, temperature=temperature)
    with policy.reference():
        there = policy.logits(rows, temperature=temperature)
    kl = torch.zeros(rows.mask.shape)
    return kl.masked_scatter(rows.mask, exact_kl(here, there.detach()))


@for_each(product(tiny.EVERY, [0, 2]))
def test_value_and_gradient_are_those_of_the_definition(family, rank, tiny_model, monkeypatch):
    from tutelage.engines import logprobs

    monkeypatch.setattr(logprobs, "CHUNK_ELEMENTS", 300 * 4)  # several chunks
    policy = moved(policy_of(tiny_model(family), rank))
    rows = collate(some_rows(4), PAD, CPU)
    weight = torch.rand(rows.mask.shape, generator=torch.Generator().manual_seed(0))
    found = policy.scores(rows, temperature=0.7, divergence=1.0).divergence
    (weight * found).sum().backward()
    got = gradients_of(policy)
    expected = by_definition(policy, rows, 0.7)
    (weight * expected).sum().backward()
    assert float(found.detach().sum()) > 0.01
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)
    for one, other in zip(got, gradients_of(policy), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)


def test_an_adapter_on_the_head_is_off_for_the_reference(tiny_model):
    settings = config.Model(tiny_model("llama"), device="cpu")
    policy = moved(Policy(load_backbone(settings, config.Lora(rank=2, targets="q_proj,lm_head"))))
    assert policy.head.module is not None
    rows = collate(some_rows(3), PAD, CPU)
    found = policy.scores(rows, divergence=1.0).divergence
    torch.testing.assert_close(found, by_definition(policy, rows, 1.0), rtol=1e-4, atol=1e-6)
    found.sum().backward()
    assert any(p.grad is not None and p.grad.any() for p in policy.parameters())
    after = policy.scores(rows, divergence=1.0).divergence
    assert torch.equal(after, found), "the backward pass leaves the adapter on"


class LargestFloats(TorchDispatchMode):
    """The most numbers in any floating tensor that an operation makes."""

    most = 0

    def __torch_dispatch__(self, function, types, given=(), named=None):
        made = function(*given, **(named or {}))
        for tensor in made if isinstance(made, tuple | list) else (made,):
            if isinstance(tensor, torch.Tensor) and tensor.is_floating_point():
                self.most = max(self.most, tensor.numel())
        return made


def test_no_logits_of_either_model_exist_for_all_tokens(tiny_model, monkeypatch):
    """In the forward and in the backward pass a chunk of tokens at a time goes through the heads."""
    from tutelage.engines import logprobs

    rows = collate(some_rows(24), PAD, CPU)
    policy = policy_of(tiny_model("llama"), engine="plain")
    policy.refer_to(policy_of(tiny_model("llama")))
    tokens, vocabulary = int(rows.mask.sum()), policy.vocabulary
    most = []
    for chunk in (10**9, 8 * vocabulary):
        monkeypatch.setattr(logprobs, "CHUNK_ELEMENTS", chunk)
        with LargestFloats() as largest:
            policy.scores(rows, divergence=0.5).divergence.sum().backward()
        most.append(largest.most)
    heads = vocabulary * policy.width
    assert most[0] >= tokens * vocabulary > 2 * most[1]
    assert most[1] <= max(8 * vocabulary, heads, 2 * (rows.prompt.numel() + rows.mask.numel()) * 32)


def test_before_anything_is_learnt_it_is_zero(tiny_model):
    policy = policy_of(tiny_model("llama"))
    policy.freeze_reference()
    assert not policy.scores(collate(some_rows(3), PAD, CPU), divergence=1.0).divergence.any()


def test_a_penalty_of_the_exact_kind_holds_the_policy_near_the_reference(tiny_model):
    """The loop computes the exact KL for the loss, and a larger coefficient keeps the KL lower."""
    found = []
    for coef in (0.001, 3.0):
        policy = policy_of(tiny_model("gpt2"))
        changes = ("penalty.kind=exact", "penalty.where=loss", f"penalty.coef={coef}", "shaping.missing_end=none")
        world = World(policy, recipe_of(*changes, name="reinforce_pp"), steps=8, lr=1e-2)
        for _ in world.train():
            pass
        rows = collate(some_rows(6), PAD, CPU)
        with torch.no_grad():
            found.append(float(policy.scores(rows, divergence=1.0).divergence.sum() / rows.mask.sum()))
    assert found[1] < 0.5 * found[0]
