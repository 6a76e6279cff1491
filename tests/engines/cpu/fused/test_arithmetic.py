"""Layers in two steps with products in bfloat16: against float32, and against transformers' modules under autocast.

Rounding an operand moves it by up to ε/2 = 2⁻⁸ of itself, 2⁻⁹ in the root mean square. The errors of a dozen roundings
on the way through a layer, forwards and backwards, are independent, so that a gradient of two layers is off by about
√24 · 2⁻⁹ = 1 %. What counts beside that: the error is no larger than that of the reference engine in bfloat16.
"""

import pytest
import tiny
import torch
from compilers import compiled_with, needs_compiler, other_processors

from tutelage.base import config
from tutelage.core.rows import EncodedRow, collate
from tutelage.engines.cpu import cpu_engine
from tutelage.engines.cpu.fused.arithmetic import MIXED
from tutelage.engines.cpu.fused.layer import FusedLayer
from tutelage.engines.packing import pack
from tutelage.models.backbone import adapter_dropout, load_backbone
from tutelage.models.policy import Policy

pytestmark = [needs_compiler, pytest.mark.usefixtures("multiplying")]


ROWS = [
    EncodedRow((11, 12, 13, 14, 15, 16), (17, 18, 19)),
    EncodedRow((11, 12, 13, 14, 15, 16), (20, 21)),
    EncodedRow((22, 23), (24, 25, 26, 27)),
    EncodedRow((28, 29, 30), (31,)),
]


@pytest.fixture(params=[0, 3], ids=["full", "lora"])
def rank(request):
    return request.param


@pytest.fixture(params=[pytest.param("llama", marks=pytest.mark.long), "qwen3", "biased"])
def folder(request, tiny_model):
    if request.param == "biased":
        return tiny_model("llama", **tiny.MIXED, initializer_range=0.1, attention_bias=True, mlp_bias=True)
    return tiny_model(request.param, **tiny.MIXED, initializer_range=0.1)


def policy_of(folder, engine, dtype, rank):
    settings = config.Model(folder, device="cpu", engine=engine, dtype=dtype)
    policy = Policy(load_backbone(settings, config.Lora(rank=rank)))
    tiny.roughen(policy.model)
    return policy


def computed(folder, engine, dtype, rank, *, parts=1):
    """Log-probabilities and all gradients, as one vector each; the rows in a number of parts."""
    policy = policy_of(folder, engine, dtype, rank)
    rows, found = collate(ROWS, 1, torch.device("cpu")), []
    for part in torch.arange(len(ROWS)).chunk(parts):
        own = rows.rows(part)
        logp = policy.scores(own).logp
        slopes = torch.arange(rows.mask.numel()).view(rows.mask.shape).mul(0.7).sin()[part, : logp.shape[1]]
        policy.backward((logp * slopes).sum())
        found.append(logp.detach()[own.mask])
    return torch.cat(found), torch.cat([p.grad.flatten() for p in policy.parameters()])


def error(found, exact):
    return float((found - exact).norm() / exact.norm())


def assert_as_close_as_autocast(folder, rank):
    exact = computed(folder, "plain", "float32", rank)
    reference, found = (computed(folder, engine, "bf16", rank) for engine in ("plain", "cpu"))
    for own, plain, wanted in zip(found, reference, exact, strict=True):
        assert 0 < error(own, wanted) < 1.3 * error(plain, wanted) + 2**-9
        assert error(own, wanted) < 24**0.5 * 2**-9 * 2


@pytest.fixture
def steps(monkeypatch):
    """An entry for each layer that was computed in mixed steps."""
    counts, own = [], FusedLayer._in_steps

    def counted(layer, arithmetic, *rest):
        counts.extend([arithmetic] * (arithmetic is MIXED))
        return own(layer, arithmetic, *rest)

    monkeypatch.setattr(FusedLayer, "_in_steps", counted)
    return counts


def test_log_probabilities_and_gradients(folder, rank, steps):
    assert_as_close_as_autocast(folder, rank)
    assert len(steps) == 2, "both layers, once"


@other_processors
def test_on_other_processors(tiny_model, rank, flag):
    with compiled_with(flag):
        assert_as_close_as_autocast(tiny_model("llama", **tiny.MIXED, initializer_range=0.1), rank)


def test_gradients_of_parts_add_up(folder, rank):
    """Terms are added in float32: two parts differ from one by the rounding of their terms."""
    whole, parts = (computed(folder, "cpu", "bf16", rank, parts=n) for n in (1, 2))
    assert torch.equal(*(x[0].sort().values for x in (whole, parts))) or error(parts[0], whole[0]) < 2**-9
    assert error(parts[1], whole[1]) < 2 * 24**0.5 * 2**-9


def test_a_forward_pass_is_repeatable(folder, rank):
    first, second = (computed(folder, "cpu", "bf16", rank) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def kept(folder):
    """Bytes that a pass keeps for its gradient, each storage once, and the tokens of its packed sequence."""
    policy, storages = policy_of(folder, "cpu", "bf16", 0), {}
    rows = collate(ROWS, 1, torch.device("cpu"))
    own = {weight.untyped_storage().data_ptr() for weight in policy.parameters()}

    def keep(x):
        if x.untyped_storage().data_ptr() not in own:
            storages[x.untyped_storage().data_ptr()] = x  # held, so that no other takes its address
        return x

    policy.scores(rows)  # kernels are tried first
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        policy.scores(rows)
    size = sum(x.untyped_storage().nbytes() for x in storages.values())
    return size, len(pack(rows, with_last=False).tokens)


def test_a_layer_keeps_its_activations_in_bfloat16(tiny_model):
    """x and h, heads, attention, gate and up in two bytes each; lse and the r of both norms in four."""
    sizes, tokens = zip(*(kept(tiny_model("llama", **tiny.MIXED, num_hidden_layers=n)) for n in (3, 4)), strict=True)
    hidden, heads, keys, width, inner = 64, 4, 2, 32, 96
    of_token = 2 * (2 * hidden + (2 * heads + 2 * keys) * width + 2 * inner) + 4 * (heads + 2)
    assert sizes[1] - sizes[0] == tokens[0] * of_token


@torch.no_grad()
def test_the_reference_is_the_model_without_its_adapter(folder, steps):
    """Bit for bit: where adapters are switched off, the products are those of a model that has none."""
    adapted, whole = (policy_of(folder, "cpu", "bf16", rank) for rank in (3, 0))
    own = dict(whole.model.named_parameters())
    for name, parameter in adapted.model.get_base_model().named_parameters():
        if "lora_" not in name:
            own[name.replace(".base_layer.", ".")].copy_(parameter)
    rows = collate(ROWS, 1, torch.device("cpu"))
    with adapted.model.disable_adapter():
        found = adapted.scores(rows).logp
    assert torch.equal(found, whole.scores(rows).logp)
    assert not torch.equal(adapted.scores(rows).logp, found)
    assert len(steps) == 6, "both layers, three times"


def test_dropout_before_adapters_is_left_to_the_modules(folder, steps):
    """With dropout a layer is not computed in two steps; without, as in every pass that only scores, it is."""
    policy = policy_of(folder, "cpu", "bf16", 3)
    rows = collate(ROWS, 1, torch.device("cpu"))
    for module in policy.model.modules():
        if "lora_dropout" in dict(module.named_children()):
            module.lora_dropout["default"] = torch.nn.Dropout(0.5)
    adapter_dropout(policy.model, True)
    dropped = policy.scores(rows).logp
    assert not steps
    adapter_dropout(policy.model, False)
    assert not torch.equal(policy.scores(rows).logp, dropped)
    assert len(steps) == 2


def test_without_products_of_bf16_the_trainer_computes_in_float32(folder, monkeypatch, steps, caplog):
    exact = computed(folder, "cpu", "float32", 0)
    monkeypatch.setattr(cpu_engine, "multiplies_bf16", lambda: False)
    found = computed(folder, "cpu", "bf16", 0)
    assert all(torch.equal(a, b) for a, b in zip(found, exact, strict=True))
    assert not steps
    assert "no bf16 instructions" in caplog.text
