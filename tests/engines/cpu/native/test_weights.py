"""Weights in bfloat16 and products with them: sums in float32, which holds products of rounded numbers exactly."""

import pytest
import tiny
import torch
from compilers import compiled_with, needs_compiler, other_processors

from tutelage.base import config
from tutelage.engines.cpu import decoders
from tutelage.engines.cpu.native import build
from tutelage.engines.cpu.native.step import NativeHead
from tutelage.engines.cpu.native.weights import NativeWeights
from tutelage.engines.interface import PromptTokens
from tutelage.engines.network import trunk
from tutelage.models.backbone import load_backbone
from tutelage.models.policy import Policy

pytestmark = needs_compiler
SIZES = [(48, 33), (64, 160), (20, 7)]
PROMPTS = PromptTokens(((40, 41, 42), (50,), (9, 60, 61, 62, 63), tuple(range(20, 60))), ("a", "b", "c", "d"))


def policy_of(folder, *, dtype="bf16", train=True):
    settings = config.Model(folder, device="cpu", dtype=dtype)
    policy = Policy(load_backbone(settings, config.Lora() if train else None))
    policy.end_ids = tuple(range(100, 120))
    if train:
        tiny.roughen(policy.model)
    return policy


def check_products(tiny_model):
    for size, vocabulary in SIZES:
        policy = policy_of(tiny_model("llama", hidden_size=size))
        output = torch.nn.Linear(size, vocabulary)
        torch.nn.init.normal_(output.weight)
        policy.model.set_output_embeddings(output)
        weights = NativeWeights(policy.model, torch.bfloat16)
        head = NativeHead(weights, weights.head)
        for rows in (1, 5, 16, 17, 40):
            x = torch.randn(rows, size, generator=torch.Generator().manual_seed(rows))
            rounded, matrix = x.bfloat16().double(), output.weight.bfloat16().double()
            expected = rounded @ matrix.T + output.bias.double()
            with torch.no_grad():
                found = head(x)
            scale = float((rounded.abs() @ matrix.abs().T).detach().max())
            torch.testing.assert_close(found.double(), expected, rtol=0, atol=size * 2**-24 * scale)
            assert torch.equal(found[:1], head(x[:1])), (
                "the bits of a row do not depend on the rows beside it"
            )


def test_products(tiny_model):
    check_products(tiny_model)


@other_processors
def test_products_on_other_processors(tiny_model, flag):
    with compiled_with(flag):
        check_products(tiny_model)


@pytest.mark.skipif(
    "avx512_bf16" not in build._instruction_sets(), reason="the processor has no such products"
)
def test_products_of_pairs_and_of_widened_numbers_agree(tiny_model):
    with compiled_with("-mno-avx512bf16"):
        check_products(tiny_model)


@pytest.mark.parametrize(("size", "kept"), [(64, 4), (80, 3)], ids=["whole tiles", "no whole tiles"])
def test_products_with_merged_adapters_serve_no_forward_pass(tiny_model, size, kept):
    """A forward pass computes adapters beside the weights. Without whole tiles decoding merges them, and of a joint
    product one merged layer is enough."""
    folder = tiny_model("llama", hidden_size=size, head_dim=64, num_hidden_layers=1)
    lora = config.Lora(rank=4, targets="v_proj")
    policy = Policy(load_backbone(config.Model(folder, device="cpu", dtype="bf16"), lora))
    attention = trunk(policy.model).layers[0].self_attn
    panels = NativeWeights(policy.model, torch.bfloat16).panels
    assert (attention.q_proj.weight.data_ptr() in panels) == (kept == 4)
    assert attention.o_proj.weight.data_ptr() in panels
    assert len(panels) == kept + 1, "and the head"


@pytest.mark.parametrize("train", [True, False], ids=["float32 weights", "bf16 weights"])
@pytest.mark.parametrize("family", ["llama", "qwen3"])
@pytest.mark.usefixtures("multiplying")
def test_a_rollout_is_as_close_to_float32_as_the_trainer(tiny_model, family, train, monkeypatch):
    counts, own = [], decoders.NativeStep.__call__
    monkeypatch.setattr(decoders.NativeStep, "__call__", lambda *a: (counts.append(1), own(*a))[1])
    folder = tiny_model(family, initializer_range=0.1)
    policy, exact = (policy_of(folder, dtype=dtype, train=train) for dtype in ("bf16", "float32"))
    rollout = policy.generate(PROMPTS, 8, config.Sampling(max_new_tokens=12), seed=3)
    assert len(counts) > 5, "the compiled step decodes"
    with torch.no_grad():
        trainer, truth = (each.scores(rollout).logp[rollout.mask] for each in (policy, exact))
    sampler = rollout.logp[rollout.mask]
    error = (trainer - truth).square().mean()
    assert 0 < (sampler - truth).square().mean() < 1.5 * error
    assert (sampler - trainer).square().mean() < 2 * 1.5 * error, "two independent errors add up"
