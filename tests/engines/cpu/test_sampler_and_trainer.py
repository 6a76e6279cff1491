"""The log-probabilities of the sampler and those of the trainer: the same bits, in float32 and in bfloat16."""

from itertools import product

import pytest
import tiny
import torch
from compilers import compiled_with, needs_compiler, needs_tiles, other_processors
from tiers import every_value, long_except

from tutelage.base import config
from tutelage.engines.cpu import activation_cache, decoders, decoding_weights, head
from tutelage.engines.cpu.fused import layer_steps
from tutelage.engines.cpu.native import matrix_products
from tutelage.engines.cpu.native.attention_kernels import NativeKernels
from tutelage.engines.interface import PromptTokens
from tutelage.engines.network import trunk
from tutelage.models.backbone import load_backbone
from tutelage.models.policy import Policy

pytestmark = [needs_compiler, pytest.mark.usefixtures("multiplying")]

SIZES = tiny.MIXED | {"initializer_range": 0.1, "max_position_embeddings": 256}
SHAPES = {
    "llama": ("llama", {}),
    "norms of heads": ("qwen3", {}),
    "biases": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "one head of keys": ("llama", {"num_attention_heads": 8, "num_key_value_heads": 1}),
    "keys of their own": ("llama", {"num_key_value_heads": 4, "tie_word_embeddings": False}),
    "no whole tiles": ("llama", {"hidden_size": 80, "head_dim": 64, "intermediate_size": 176}),
}
NO_LORA = config.Lora()
ADAPTERS = {
    "all": config.Lora(rank=4),
    "of an odd rank": config.Lora(rank=3, targets="q_proj,o_proj,down_proj"),
    "of more than a tile": config.Lora(rank=36, alpha=20.0),
    "of attention alone": config.Lora(rank=8, targets="v_proj"),
}
COMMON = tuple(range(20, 58))
PROMPTS = (
    (40, 41, 42),
    (*COMMON, 3),
    (9, 60, 61, 62, 63),
    (*COMMON, 58, 59),
    (*COMMON, *range(3, 50)),
    tuple(range(30, 46)),
)  # 32 of the common tokens are read once


DTYPES = pytest.mark.parametrize("dtype", ["float32", "bf16"])


def with_dtypes(name, values):
    """A diagonal of the values and of both types."""
    return pytest.mark.parametrize((name, "dtype"), every_value(values, ["float32", "bf16"]))


def policy_of(tiny_model, shape="llama", lora=NO_LORA, dtype="bf16"):
    family, changes = SHAPES[shape]
    folder = tiny_model(family, **SIZES | changes)
    policy = Policy(load_backbone(config.Model(folder, device="cpu", engine="cpu", dtype=dtype), lora))
    policy.end_ids = tuple(range(100, 130))
    tiny.roughen(policy.model)
    return policy


def rollout_of(policy, n=3, tokens=40, seed=4, first="", **sampling):
    prompts = PromptTokens(PROMPTS, tuple("abcdef"), frozenset(first))
    settings = config.Sampling(max_new_tokens=tokens, **sampling)
    return policy.generate(prompts, n, settings, seed=seed)


def assert_same_bits(policy, rollout, temperature=1.0):
    """Whole, row by row, and with gradients."""
    whole = policy.scores(rollout, temperature=temperature).logp
    assert torch.equal(whole.detach()[rollout.mask], rollout.logp[rollout.mask])
    with torch.no_grad():
        for row in range(0, len(rollout), 4):
            own = rollout.rows(torch.tensor([row]))
            found = policy.scores(own, temperature=temperature).logp
            assert torch.equal(found[own.mask], rollout.logp[row][rollout.mask[row]])


@with_dtypes("shape", SHAPES)
def test_several_models(tiny_model, shape, dtype):
    policy = policy_of(tiny_model, shape, dtype=dtype)
    rollout = rollout_of(policy)
    assert len(set(rollout.mask.sum(1).tolist())) > 2, "answers should have ended at different times"
    assert_same_bits(policy, rollout)


@pytest.mark.parametrize("shape", long_except(["llama", "norms of heads", "one head of keys"], SHAPES))
@torch.no_grad()
def test_weights_in_bf16(tiny_model, shape):
    """A model that is not trained has them: it computes what one computes whose float32 weights are these numbers."""
    policy, exact = policy_of(tiny_model, shape, None), policy_of(tiny_model, shape)
    for own, theirs in zip(policy.model.parameters(), exact.model.parameters(), strict=True):
        assert own.dtype == torch.bfloat16
        theirs.copy_(own)
    assert policy.is_exact
    rollout = rollout_of(policy)
    assert torch.equal(rollout.logp, rollout_of(exact).logp)
    assert torch.equal(policy.scores(rollout).logp[rollout.mask], rollout.logp[rollout.mask])


@pytest.mark.parametrize("lora", [NO_LORA, ADAPTERS["of an odd rank"], None], ids=["weights", "adapters", "bf16"])
def test_weights_are_laid_out_once_for_prompts_and_answers(tiny_model, lora, monkeypatch):
    made, own = [], matrix_products.PanelLinear.__init__
    policy = policy_of(tiny_model, lora=lora)
    rollout_of(policy)
    monkeypatch.setattr(matrix_products.PanelLinear, "__init__", lambda *a, **k: (made.append(1), own(*a, **k))[1])
    rollout_of(policy)
    assert len(made) == 4 * len(trunk(policy.model).layers) + 1, "the products of the layers, and the head"


@pytest.mark.parametrize(
    ("adapters", "shape", "dtype"),
    long_except(
        [
            *((adapters, "llama", "bf16") for adapters in ADAPTERS),
            *(("of an odd rank", shape, "float32") for shape in SHAPES),
        ],
        [
            (adapters, *each)
            for adapters in ADAPTERS
            for each in list(product(SHAPES, ("float32", "bf16")))[:-1]  # bf16 needs whole tiles
        ],
    ),
)
def test_adapters(tiny_model, shape, dtype, adapters):
    policy = policy_of(tiny_model, shape, ADAPTERS[adapters], dtype)
    rollout = rollout_of(policy)
    assert policy.is_exact
    assert_same_bits(policy, rollout)
    with policy.model.disable_adapter():
        base = rollout_of(policy)
        assert not torch.equal(base.logp, rollout.logp)
        assert_same_bits(policy, base)


@pytest.mark.parametrize(
    ("n", "dtype"), long_except([(1, "float32"), (24, "bf16")], product([1, 2, 24], ["float32", "bf16"]))
)
def test_numbers_of_answers(tiny_model, n, dtype, monkeypatch):
    steps, own = [], decoders.NativeStep.__call__
    monkeypatch.setattr(decoders.NativeStep, "__call__", lambda *a: (steps.append(len(a[1])), own(*a))[1])
    policy = policy_of(tiny_model, dtype=dtype)
    policy.end_ids = ()
    rollout = rollout_of(policy, n, tokens=12)
    assert max(steps) == 6 * n, "the compiled step computes any number of lines"
    assert_same_bits(policy, rollout)


@DTYPES
def test_temperature_and_long_answers(tiny_model, dtype):
    policy = policy_of(tiny_model, dtype=dtype)
    policy.end_ids = (100,)
    rollout = rollout_of(policy, 2, tokens=150, temperature=0.7)
    assert rollout.mask.sum(1).max() > 130, "the room for answers should have grown twice"
    assert_same_bits(policy, rollout, 0.7)


@DTYPES
def test_several_threads(tiny_model, dtype):
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        policy = policy_of(tiny_model, dtype=dtype)
        rollout = rollout_of(policy)
        assert_same_bits(policy, rollout)
        torch.set_num_threads(1)
        assert_same_bits(policy, rollout)
    finally:
        torch.set_num_threads(before)


@other_processors
def test_on_other_processors(tiny_model, flag):
    with compiled_with(flag):
        for shape, lora, dtype in (
            ("llama", NO_LORA, "bf16"),
            ("norms of heads", NO_LORA, "bf16"),
            ("llama", ADAPTERS["of an odd rank"], "bf16"),
            ("norms of heads", NO_LORA, "float32"),
            ("llama", ADAPTERS["of an odd rank"], "float32"),
        ):
            policy = policy_of(tiny_model, shape, lora, dtype)
            assert_same_bits(policy, rollout_of(policy, tokens=20))


@needs_tiles
def test_without_tiles(tiny_model):
    with compiled_with("-mno-amx-bf16"):
        for lora in (NO_LORA, ADAPTERS["of an odd rank"]):
            policy = policy_of(tiny_model, lora=lora)
            assert_same_bits(policy, rollout_of(policy))


def assert_kept_activations_change_nothing(policy, monkeypatch, first="abcdef"):
    """Log-probabilities and gradients with the activations that sampling kept are, bit for bit, those without."""
    monkeypatch.setattr(activation_cache, "OF_TRAINING", 1e9)
    rollout = rollout_of(policy, tokens=20, first=first)
    rollout = rollout.rows(torch.tensor([name in first for name in rollout.ids]))
    assert len(set(rollout.mask.sum(1).tolist())) > 2, "answers should have ended at different times"
    cache, policy.engine._cache = policy.engine._cache, None
    expected = tiny.gradients(policy, rollout)
    policy.engine._cache = cache
    policy.engine._verified = True
    computed = []
    for owner, name in ((layer_steps, "layer_outputs"), (NativeKernels, "forward")):
        own = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *a, own=own, name=name: (computed.append(name), own(*a))[1])
    found = tiny.gradients(policy, rollout)
    assert cache.taken > 0
    assert computed == [], "no layer is computed again"
    for layer in cache.layers:
        assert not any(layer in group.activations for group, _ in cache._index.values())
    assert all(map(torch.equal, found, expected))


@with_dtypes("shape", [shape for shape in SHAPES if shape != "norms of heads"])
def test_kept_activations(tiny_model, shape, dtype, monkeypatch):
    assert_kept_activations_change_nothing(policy_of(tiny_model, shape, dtype=dtype), monkeypatch)


def test_kept_activations_of_some_prompts(tiny_model, monkeypatch):
    assert_kept_activations_change_nothing(policy_of(tiny_model), monkeypatch, first="acd")


@other_processors
def test_kept_activations_on_other_processors(tiny_model, flag, monkeypatch):
    with compiled_with(flag):
        assert_kept_activations_change_nothing(policy_of(tiny_model), monkeypatch)


def test_kept_activations_take_half_the_bytes_of_products(tiny_model, monkeypatch):
    policy = policy_of(tiny_model)
    monkeypatch.setattr(activation_cache, "OF_TRAINING", 1e9)
    rollout_of(policy, first="abcdef")
    kept = policy.engine._cache
    assert len(kept) == 18
    for group, _ in kept._index.values():
        for layer, activations in group.activations.items():
            assert sum(x[0].nbytes for x in activations) == activation_cache._bytes_per_token(layer, True)


@with_dtypes("adapters", ADAPTERS)
def test_kept_activations_with_adapters(tiny_model, adapters, dtype, monkeypatch):
    policy = policy_of(tiny_model, lora=ADAPTERS[adapters], dtype=dtype)
    assert_kept_activations_change_nothing(policy, monkeypatch)


def test_logits_are_those_of_the_scores(tiny_model):
    """They are not rounded to bfloat16."""
    policy = policy_of(tiny_model)
    rollout = rollout_of(policy, 1, tokens=12)
    with torch.no_grad():
        logits = policy.logits(rollout)
        expected = policy.scores(rollout).logp[rollout.mask]
    assert logits.dtype == torch.float32
    found = logits.log_softmax(-1).gather(1, rollout.response[rollout.mask][:, None]).squeeze(1)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


def test_logits_with_derivatives_are_not_rounded_either():
    x, weight, bias = (torch.randn(size).requires_grad_() for size in ((5, 64), (40, 64), (40,)))
    with torch.autocast("cpu", torch.bfloat16):
        found, expected = head.differentiable_linear(weight, bias)(x), head.linear(weight, bias)(x)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
    (to_x,) = torch.autograd.grad(found.square().sum(), x, create_graph=True)
    (twice,) = torch.autograd.grad(to_x.sum(), x)
    rounded = weight.bfloat16().float()
    torch.testing.assert_close(twice, 2 * torch.ones(5, 64) @ rounded.T @ rounded, rtol=0.02, atol=0.5)


def exact(folder, **settings):
    lora = config.Lora(rank=settings.pop("rank", 0))
    return Policy(
        load_backbone(config.Model(folder, device="cpu", **{"engine": "cpu", "dtype": "bf16"} | settings), lora)
    )


def test_what_is_exact(tiny_model, monkeypatch):
    folder = tiny_model("llama", **SIZES)
    assert exact(folder).is_exact
    assert exact(folder, dtype="float32").is_exact
    assert exact(folder, dtype="float32", engine="plain").is_exact
    assert not exact(folder, engine="plain").is_exact
    assert exact(folder, rank=4).is_exact
    other = tiny_model("llama", **SIZES | {"hidden_size": 80, "head_dim": 64})
    assert exact(other).is_exact
    assert not exact(other, rank=4).is_exact, "no whole tiles: decoding merges the adapter"
    assert not exact(tiny_model("llama")).is_exact, "heads that are no whole vectors"
    assert not exact(tiny_model("gpt2")).is_exact


def test_sampling_without_room_for_the_weights_is_not_exact(tiny_model, monkeypatch):
    policy = policy_of(tiny_model)
    usual = rollout_of(policy, tokens=1)
    monkeypatch.setattr(decoding_weights, "available_memory", lambda device: 1000)
    rollout = rollout_of(policy, tokens=1)
    assert not policy.is_exact
    same = rollout.response == usual.response
    assert same.float().mean() > 0.8
    torch.testing.assert_close(rollout.logp[same], usual.logp[same], rtol=0, atol=0.1)
