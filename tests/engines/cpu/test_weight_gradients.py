"""Gradients that are accumulated in place are those of autograd, in one arena."""

import copy
from itertools import pairwise

import pytest
import tiny
import torch
from tiers import every_value
from torch import nn

from tutelage.base import config
from tutelage.core.rows import EncodedRow, collate
from tutelage.engines.cpu.fused import fuse
from tutelage.engines.cpu.weight_gradients import Gradients, add_product, add_rows
from tutelage.models.backbone import load_backbone
from tutelage.models.policy import Policy

CPU = torch.device("cpu")
BATCHES = [
    [EncodedRow((11, 12, 13, 14), (15, 16, 17)), EncodedRow((11, 12, 13, 14), (18, 15))],
    [EncodedRow((21,), (22, 23)), EncodedRow((11, 21, 21), (24,))],
    [EncodedRow((25, 26), (11, 12, 13))],
]


def holder(parameters):
    """A module with these parameters, in place of a model."""
    return nn.ParameterList(parameters)


def policy_of(folder, rank=0, **more):
    policy = Policy(load_backbone(config.Model(folder, device="cpu", **more), config.Lora(rank=rank)))
    tiny.roughen(policy.model)
    return policy


def pull(policy):
    """Backward passes through some batches, one after the other."""
    for rows in BATCHES:
        logp = policy.scores(collate(rows, 1, CPU), entropy=True)
        slopes = torch.arange(logp.logp.numel()).view(logp.logp.shape).mul(0.7).sin()
        (logp.logp * slopes + 0.3 * logp.entropy).sum().backward()


def found(policy):
    return [None if p.grad is None else p.grad.clone() for p in policy.parameters()]


def with_and_without(policy):
    """Pairs of gradients, those in place first."""
    pull(policy)
    expected = found(policy)
    policy.model.zero_grad()
    with Gradients(holder(policy.parameters())).in_place():
        pull(policy)
    return zip(found(policy), expected, strict=True)


@pytest.mark.parametrize(("rank", "family"), every_value([0, 2], tiny.EVERY))
def test_gradients_in_place_are_those_of_autograd(tiny_model, family, rank):
    for a, b in with_and_without(policy_of(tiny_model(family), rank)):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("tied", [False, True])
def test_gradients_of_all_matrices_of_a_fused_model_are_contiguous(tmp_path, tied):
    policy = policy_of(tiny.save("qwen3", tmp_path, tie_word_embeddings=tied))
    gradients = Gradients(holder(policy.parameters()))
    with gradients.in_place():
        pull(policy)
    matrices = [p for p in policy.parameters() if p.dim() == 2]
    places = [gradients.place(p)[0] for p in matrices]
    assert all(p.grad is place for p, place in zip(matrices, places, strict=True))
    steps = {b.data_ptr() - a.data_ptr() - a.nbytes for a, b in pairwise(places)}
    assert steps == {0}  # widths are multiples of a line


def test_no_gradient_of_an_update_remains_in_the_next(tiny_model):
    policy = policy_of(tiny_model("llama"))
    gradients, all_found = Gradients(holder(policy.parameters())), []
    for _ in range(2):
        with gradients.in_place():
            pull(policy)
        all_found.append(found(policy))
        policy.model.zero_grad()
        gradients.release()
    for a, b in zip(*all_found, strict=True):
        assert torch.equal(a, b)


def test_a_pass_adds_to_an_existing_gradient(tiny_model):
    policy = policy_of(tiny_model("llama"))
    pull(policy)
    once = found(policy)
    with Gradients(holder(policy.parameters())).in_place():
        pull(policy)
    for a, b in zip(found(policy), once, strict=True):
        torch.testing.assert_close(a, 2 * b, rtol=1e-4, atol=1e-6)


def test_weights_of_other_models_get_their_gradients_from_autograd(tiny_model):
    policy, other = (policy_of(tiny_model("llama")) for _ in range(2))
    pull(other)
    expected = found(other)
    other.model.zero_grad()
    with Gradients(holder(policy.parameters())).in_place():
        pull(other)
    for a, b in zip(found(other), expected, strict=True):
        assert torch.equal(a, b)


def test_bf16_gradients_are_accumulated_in_float32(tiny_model):
    for a, b in with_and_without(policy_of(tiny_model("llama"), dtype="bf16")):
        assert a.dtype == torch.float32
        torch.testing.assert_close(a, b, rtol=0.02, atol=0.02 * float(b.abs().max()))


def test_a_matrix_product_is_added_to_the_gradient_in_place():
    torch.manual_seed(0)
    weight = nn.Parameter(torch.randn(3, 4))
    terms = [(torch.randn(5, 3), torch.randn(5, 4)) for _ in range(2)]
    expected = sum(grad.T @ x for grad, x in terms)
    total = None
    for grad, x in terms:
        total = add_product(weight, grad, x, total)
    torch.testing.assert_close(total, expected)
    assert weight.grad is None
    with Gradients(holder([weight])).in_place():
        assert all(add_product(weight, *term) is None for term in terms)
    torch.testing.assert_close(weight.grad, expected)


def test_a_repeated_embedding_row_gets_the_sum():
    table, rows = nn.Parameter(torch.randn(4, 2)), torch.randn(3, 2)
    expected = torch.stack([torch.zeros(2), rows[0] + rows[2], torch.zeros(2), rows[1]])
    index = torch.tensor([1, 3, 1])
    torch.testing.assert_close(add_rows(table, index, rows), expected)
    with Gradients(holder([table])).in_place():
        assert add_rows(table, index, rows) is None
        assert add_rows(table, index, rows) is None
    torch.testing.assert_close(table.grad, 2 * expected)


@pytest.mark.parametrize("padding", [None, 2])
@pytest.mark.parametrize("in_place", [False, True])
def test_embedding_gradients_equal_those_of_torch(padding, in_place):
    torch.manual_seed(0)
    own = nn.Embedding(5, 3, padding_idx=padding)
    fused = nn.Sequential(copy.deepcopy(own))
    fuse(fused)
    assert type(fused[0]) is not nn.Embedding
    tokens, slopes = torch.tensor([[1, 2, 1], [4, 2, 0]]), torch.randn(2, 3, 3)
    (own(tokens) * slopes).sum().backward()
    with Gradients(holder(fused.parameters() if in_place else [])).in_place():
        assert torch.equal(fused(tokens), own(tokens))
        (fused(tokens) * slopes).sum().backward()
    torch.testing.assert_close(fused[0].weight.grad, own.weight.grad)


def test_embeddings_with_further_options_stay_with_torch():
    others = [{"max_norm": 1.0}, {"sparse": True}, {"scale_grad_by_freq": True}]
    model = nn.Sequential(*(nn.Embedding(3, 2, **more) for more in others))
    fuse(model)
    assert all(type(part) is nn.Embedding for part in model)
