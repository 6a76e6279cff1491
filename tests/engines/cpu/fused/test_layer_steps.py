"""Fused layers in two steps: gradients, tokens that the last layer need not compute, unsupported layers."""

import pytest
import tiny
import torch
from tiers import every_value

from tutelage.base import config
from tutelage.core.batch import Rows
from tutelage.core.rows import EncodedRow, collate
from tutelage.engines.cpu.capabilities import Capabilities
from tutelage.engines.cpu.fused.arithmetic import EXACT
from tutelage.engines.cpu.fused.layer_steps import AttentionInputs, LayerOutputs
from tutelage.engines.network import trunk
from tutelage.models.backbone import load_backbone
from tutelage.models.policy import Policy

CPU = torch.device("cpu")
ROWS = [
    EncodedRow((11, 12, 13, 14, 15, 16), (17, 18, 19)),
    EncodedRow((11, 12, 13, 14, 15, 16), (20, 21)),
    EncodedRow((22, 23), (24, 25, 26, 27)),
    EncodedRow((28, 29, 30), (31,)),
]


def doubles(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()


def policy_of(folder, rank=0, engine="auto"):
    policy = Policy(load_backbone(config.Model(folder, device="cpu", engine=engine), config.Lora(rank=rank)))
    tiny.roughen(policy.model)
    return policy


def as_transformers_has_them(policy, folder, rank=0):
    """The same model with the layers of transformers."""
    own = policy_of(folder, rank, engine="plain")
    own.model.load_state_dict(policy.model.state_dict())
    for parameter, other in zip(own.model.parameters(), policy.model.parameters(), strict=True):
        parameter.requires_grad_(other.requires_grad)
    return own


def batch() -> Rows:
    return collate(ROWS, 1, CPU)


def gradients(policy, rows):
    logp = policy.scores(rows).logp
    slopes = torch.arange(logp.numel()).view(logp.shape).mul(0.7).sin()
    return logp.detach(), torch.autograd.grad((logp * slopes).sum(), policy.parameters())


def tensors_of(shapes, *, biased, rank, frozen=()):
    """The scale of each linear layer, and W, b, A and B of each; the W of `frozen` ones without a gradient."""
    tensors = []
    for n, (out, size) in enumerate(shapes):
        weight, bias = doubles(out, size, seed=n), doubles(out, seed=3) if biased else None
        adapter = [doubles(rank, size, seed=n + 10), doubles(out, rank, seed=n + 20)] if rank else [None] * 2
        tensors += [weight.detach() if n in frozen else weight, bias, *adapter]
    return tuple(0.5 + n if rank else 0.0 for n in range(len(shapes))), tensors


@pytest.mark.parametrize(("rank", "biased", "normed"), every_value([0, 2], [False, True], [False, True]))
def test_gradients_of_the_first_step_equal_finite_differences(biased, normed, rank):
    """In double precision, against finite differences."""
    tokens, size, width = 3, 6, 4
    angle = doubles(tokens, 1, width // 2).detach().repeat(1, 1, 2)
    shapes = [(2 * width, size), (width, size), (width, size)]
    scales, products = tensors_of(shapes, biased=biased, rank=rank, frozen=range(3) if rank else ())
    of_heads = [doubles(width, seed=n) for n in (7, 8)] if normed else []

    def step(x, norm, *tensors):
        epsilons = (1e-6, 1e-5, 1e-4)
        return AttentionInputs.apply(x, EXACT, None, width, epsilons, angle.cos(), angle.sin(), norm, scales, *tensors)

    assert torch.autograd.gradcheck(step, (doubles(tokens, size), doubles(size), *products, *of_heads))


@pytest.mark.parametrize(("rank", "biased", "index"), every_value([0, 2], [False, True], [None, [0, 2]]))
def test_gradients_of_the_second_step_equal_finite_differences(biased, index, rank):
    tokens, size, heads, inside = 3, 4, 6, 5
    shapes = [(size, heads), (inside, size), (inside, size), (size, inside)]
    index = None if index is None else torch.tensor(index)
    scales, tensors = tensors_of(shapes, biased=biased, rank=rank)

    def step(x, a, norm, *tensors):
        return LayerOutputs.apply(x, a, EXACT, index, None, 1e-6, norm, scales, *tensors)

    states, norm = (doubles(tokens, size), doubles(tokens, heads)), doubles(size)
    assert torch.autograd.gradcheck(step, (*states, norm, *tensors))
    _, frozen = tensors_of(shapes, biased=biased, rank=rank, frozen=range(4))
    assert torch.autograd.gradcheck(step, (*states, norm.detach(), *frozen))


@pytest.mark.parametrize("family", ["llama", "qwen3"])
@pytest.mark.parametrize("rank", [0, 2])
def test_log_probabilities_and_gradients_equal_those_of_the_original_layers(tiny_model, family, rank):
    folder = tiny_model(family)
    policy = policy_of(folder, rank)
    other = as_transformers_has_them(policy, folder, rank)
    (expected, wanted), (found, got) = (gradients(each, batch()) for each in (other, policy))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    scale = max(float(g.abs().max()) for g in wanted)
    for a, b in zip(got, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5 * scale)


@pytest.mark.parametrize("frozen", ["gate_proj", "down_proj", "q_proj", "o_proj", "layernorm", "embed_tokens"])
def test_frozen_weights_get_no_gradient_and_trained_ones_theirs(tiny_model, frozen):
    folder = tiny_model("llama")
    policy = policy_of(folder)
    for name, parameter in policy.model.named_parameters():
        parameter.requires_grad_(frozen not in name)
    (_, wanted), (_, got) = (gradients(p, batch()) for p in (as_transformers_has_them(policy, folder), policy))
    for a, b in zip(got, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def widths(policy, monkeypatch):
    """Tokens that the second step of each layer computes, first layer to last."""
    seen = []
    own = LayerOutputs.forward

    def forward(ctx, x, a, arithmetic, index, *rest):
        seen.append(len(x) if index is None else len(index))
        return own(ctx, x, a, arithmetic, index, *rest)

    monkeypatch.setattr(LayerOutputs, "forward", staticmethod(forward))
    policy.scores(batch())
    return seen[-len(trunk(policy.model).layers) :]


@pytest.mark.parametrize("rank", [0, 2])
@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_the_last_layer_computes_no_state_that_is_not_used(tiny_model, family, rank, monkeypatch):
    *others, last = widths(policy_of(tiny_model(family), rank), monkeypatch)
    assert set(others) == {6 + 2 + 1 + 2 + 3 + 3}, "every prompt once, and of each response what predicts"
    assert last == 1 + 2 + 1 + 4 + 1, "the end of each prompt, and the same of the responses"


def test_a_model_that_needs_the_states_of_all_tokens_gets_them(tiny_model, monkeypatch):
    policy = policy_of(tiny_model("llama"))
    stack = trunk(policy.model)
    forward = stack.forward

    def by_position(*, position_ids, **more):
        out = forward(position_ids=position_ids, **more)
        out.last_hidden_state = out.last_hidden_state * (1 + 0.1 * position_ids[..., None])
        return out

    stack.forward = by_position
    assert set(widths(policy, monkeypatch)) == {6 + 2 + 1 + 2 + 3 + 3}


@pytest.mark.parametrize("family", sorted(set(tiny.EVERY) - {"llama", "qwen3"}))
def test_models_of_other_layers_are_left_unchanged(tiny_model, family):
    assert not Capabilities(policy_of(tiny_model(family)).model).selects_states


@pytest.mark.parametrize("part", ["self_attn", "mlp", "post_attention_layernorm", "mlp.up_proj"])
def test_hooks_of_a_submodule_are_called(tiny_model, part):
    policy, heard = policy_of(tiny_model("llama")), []
    expected = policy.scores(batch()).logp
    layer = trunk(policy.model).layers[-1]
    layer.get_submodule(part).register_forward_hook(lambda module, given, out: heard.append(module))
    torch.testing.assert_close(policy.scores(batch()).logp, expected)
    assert len(heard) == 1
