"""The compiled decoding step against the one in Python, its weights, and the activations that it keeps."""

from dataclasses import replace

import pytest
import tiny
import torch
from compilers import (
    compiled_with,
    forget_library,
    narrower_registers,
    needs_compiler,
    other_processors,
    uncompiled_steps,
)
from tiers import every_value

from tutelage.base import config
from tutelage.base.errors import TutelageError
from tutelage.engines.cpu import activation_cache as activations
from tutelage.engines.cpu import decoders
from tutelage.engines.cpu.activation_cache import ActivationCache
from tutelage.engines.cpu.capabilities import Capabilities
from tutelage.engines.cpu.decoders import CpuDecoders, NativeDecoder, SharedDecoder, decoder_class
from tutelage.engines.cpu.decoding_weights import decoding_weights
from tutelage.engines.cpu.forward_pass import attention_by, of_one_token
from tutelage.engines.cpu.native import bindings, build
from tutelage.engines.cpu.native.compiled_step import MANY, NativeHead, NativeWeights
from tutelage.engines.interface import PromptBatch, PromptTokens, RolloutSize
from tutelage.engines.logprobs import Head
from tutelage.engines.network import trunk
from tutelage.models.backbone import load_backbone
from tutelage.models.policy import Policy

RAGGED = ((40, 41, 42), (50,), (9, 60, 61, 62, 63), tuple(range(20, 60)))
PROMPTS = PromptTokens(RAGGED, ("a", "b", "c", "d"))


def policy_of(folder, lora=None, ends=range(100, 140)):
    policy = Policy(load_backbone(config.Model(folder, device="cpu"), lora or config.Lora()))
    policy.end_ids = tuple(ends)
    tiny.roughen(policy.model)
    return policy


def check(policy, prompts=PROMPTS, answers=3, tokens=12, **sampling):
    settings = config.Sampling(max_new_tokens=tokens, **sampling)
    with uncompiled_steps():
        expected = policy.generate(prompts, answers, settings, seed=4)
    found = policy.generate(prompts, answers, settings, seed=4)
    assert torch.equal(found.response, expected.response)
    torch.testing.assert_close(found.logp, expected.logp, rtol=1e-5, atol=1e-5)
    return found


def decoder_of(policy, batch, limit=8):
    """The class of decoder that is selected for a policy."""
    capabilities = Capabilities(policy.model, policy.backbone.dtype)
    return decoder_class(capabilities, policy.head, batch.longest + limit)


@pytest.fixture
def steps(monkeypatch):
    """The number of rows of each native step, without those of its trial."""
    seen = []
    monkeypatch.setattr(Capabilities, "try_compiled_step", lambda *given: True)
    own = decoders.NativeStep.__call__

    def noted(self, tokens, where):
        seen.append(len(tokens))
        return own(self, tokens, where)

    monkeypatch.setattr(decoders.NativeStep, "__call__", noted)
    return seen


@needs_compiler
@pytest.mark.parametrize(("family", "lora"), every_value(["llama", "qwen3"], [config.Lora(), config.Lora(rank=4)]))
def test_the_native_step_samples_the_same_tokens(tiny_model, family, lora, steps):
    rollout = check(policy_of(tiny_model(family), lora))
    assert steps[0] <= 12
    assert steps[-1] < steps[0], "answers should have ended at different times"
    assert len(set(rollout.mask.sum(1).tolist())) > 2


@needs_compiler
@pytest.mark.parametrize(
    "shape",
    [
        {"attention_bias": True, "mlp_bias": True},
        {"hidden_size": 20, "intermediate_size": 27, "head_dim": 6},
        {"hidden_size": 40, "intermediate_size": 70, "head_dim": 22, "num_key_value_heads": 4},
        {"hidden_size": 36, "head_dim": 8, "num_attention_heads": 18, "num_key_value_heads": 1},
        {
            "hidden_size": 48,
            "num_attention_heads": 6,
            "num_key_value_heads": 2,
            "head_dim": 16,
            "tie_word_embeddings": False,
        },
    ],
    ids=["biases", "odd", "odd and lone keys", "many to one key", "whole vectors"],
)
def test_shapes(tiny_model, shape):
    check(policy_of(tiny_model("llama", **shape)))


@needs_compiler
@pytest.mark.parametrize("answers", [1, 4, 5, 9])
def test_numbers_of_rows(tiny_model, answers, steps):
    check(policy_of(tiny_model("llama"), ends=()), answers=answers, tokens=4)
    assert steps == [4 * answers] * 3


@needs_compiler
def test_uneven_numbers_of_answers(tiny_model):
    prompts = PromptTokens((*RAGGED, RAGGED[1], RAGGED[3]), tuple("abcdef"))
    check(policy_of(tiny_model("llama")), prompts, answers=3)


@needs_compiler
def test_long_answers(tiny_model, steps):
    policy = policy_of(tiny_model("llama", max_position_embeddings=256), ends=range(100, 103))
    rollout = check(policy, tokens=150)
    assert rollout.mask.sum(1).max() > 130, "the room for answers should have grown twice"


@needs_compiler
def test_several_threads(tiny_model):
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(4)
        check(policy_of(tiny_model("llama")), answers=6)
        check(policy_of(tiny_model("llama")), PromptTokens(RAGGED[2:3], ("c",)), answers=20)
    finally:
        torch.set_num_threads(before)


@needs_compiler
def test_many_lines(tiny_model, steps):
    check(policy_of(tiny_model("llama")), answers=100)
    assert max(steps) > 256


@needs_compiler
def test_without_memory_for_its_weights_the_other_decoder_is_selected(tiny_model, monkeypatch, steps):
    monkeypatch.setattr("tutelage.engines.cpu.decoding_weights.available_memory", lambda device: 1.0)
    check(policy_of(tiny_model("llama")))
    assert not steps


@needs_compiler
def test_layers_of_different_shapes_are_refused_or_left_alone(tiny_model):
    policy = policy_of(tiny_model("llama"))
    model = policy.model
    gate = trunk(model).layers[1].mlp
    for name in ("gate_proj", "up_proj", "down_proj"):
        sizes = getattr(gate, name).weight.shape
        narrow = [size - 8 if size != model.config.hidden_size else size for size in sizes]
        setattr(gate, name, torch.nn.Linear(*narrow[::-1], bias=False))
    with pytest.raises(TutelageError, match=r"layers have several shapes.*--engine plain"):
        NativeWeights(model)
    assert decoder_of(policy, PromptBatch(RAGGED, (1,) * 4)) is SharedDecoder


@needs_compiler
@pytest.mark.parametrize("family", tiny.EVERY)
def test_where_the_native_step_is_the_default(tiny_model, family):
    policy, asked = policy_of(tiny_model(family)), PromptBatch(RAGGED, (1,) * 4)
    assert (decoder_of(policy, asked) is NativeDecoder) == (family in ("llama", "qwen3"))
    policy.backbone = replace(policy.backbone, dtype=torch.bfloat16)
    assert (decoder_of(policy, asked) is NativeDecoder) == (family in ("llama", "qwen3"))
    policy.backbone = replace(policy.backbone, dtype=torch.float16)
    assert decoder_of(policy, asked) is not NativeDecoder


@needs_compiler
def test_a_native_step_that_computes_something_else_is_not_used(tiny_model, monkeypatch, caplog):
    policy, own, calls = policy_of(tiny_model("llama")), decoders.NativeStep.__call__, []

    def wrong(self, tokens, where):
        calls.append(len(tokens))
        return own(self, tokens, where) * torch.tensor(1.001)

    with uncompiled_steps():
        expected = policy.generate(PROMPTS, 3, config.Sampling(max_new_tokens=12), seed=4)
    monkeypatch.setattr(decoders.NativeStep, "__call__", wrong)
    monkeypatch.setattr(activations, "OF_TRAINING", 1e9)
    for _ in range(2):
        prompts = replace(PROMPTS, scored_first=frozenset(PROMPTS.ids))
        found = policy.generate(prompts, 3, config.Sampling(max_new_tokens=12), seed=4)
        assert torch.equal(found.response, expected.response)
        assert torch.equal(policy.scores(found).logp, policy.scores(expected).logp)
        assert policy.metrics() == {"tokens/kept": 0.0}
    assert len(calls) == 1, "it is tried once for a model"
    assert len(caplog.records) == 1
    assert "differ by 1.0e-03" in caplog.text


@needs_compiler
@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_the_activations_that_it_keeps_are_those_of_the_layers(tiny_model, family):
    """Against hooks on the modules of transformers. Some responses end before the second token."""
    policy = policy_of(tiny_model(family))
    asked, tokens, going = PromptBatch(RAGGED, (3, 5, 4, 6)), torch.arange(5, 23), torch.arange(0, 18, 2)
    assert decoder_of(policy, asked) is NativeDecoder
    with torch.no_grad(), decoding_weights(policy.model, policy.head, policy.dtype) as weights:
        cache = ActivationCache(policy.model)
        cache.start(RolloutSize(RAGGED, 5, 8, frozenset(RAGGED)))
        shared = (policy.backbone, policy.engine._capabilities, weights, policy.engine.cached_decoders)
        ours = NativeDecoder(CpuDecoders(*shared, cache), asked, 8)
        plain = SharedDecoder(CpuDecoders(*shared), asked, 8)
        recording = ours.recording
        for decoder in (ours, plain):
            plain.has_fused_step = False
            decoder.start()
            decoder.step(tokens)
            decoder.keep(going)
        weights.restore()
        ours.step(tokens[going] + 1)
        expected = _by_hooks(policy, plain, tokens[going] + 1)
    groups, first = recording.lines()
    for layer, kinds in zip(trunk(policy.model).layers, expected, strict=True):
        of_lines = [
            recording.groups[group].activations[layer].map(lambda x, place=place: x[place + 1])
            for group, place in zip(groups, first, strict=True)
        ]
        for found, wanted in zip(zip(*of_lines, strict=True), kinds, strict=True):
            torch.testing.assert_close(torch.stack(found), wanted, rtol=1e-4, atol=1e-5)


def _by_hooks(policy, decoder, tokens):
    """The activations of each layer, in the order of `LayerActivations`."""
    rows, handles, stack, store = [], [], trunk(policy.model), decoder.kv_cache

    def keep(module, given, out):
        rows[-1].append((given[0] if module in residuals else out)[:, -1])

    def attend(layer, query, key, value, scaling):
        out = store.attend(layer, query, key, value, scaling)
        rows.append([query, key, value, out, ends(layer, query, scaling)])
        return out

    def ends(layer, query, scaling):
        entry, found = store.layers[layer], []
        for q, place in zip(query, store.place.tolist(), strict=True):
            prompt, slot = divmod(place, store.width)
            before = entry.prompt[0][prompt, :, : store.lengths[prompt]]
            keys = torch.cat([before, entry.answer[0][prompt, :, slot, : store.written]], 1)
            scores = q.unflatten(0, (len(keys), -1)) @ keys.mT * scaling
            found.append(scores.logsumexp(-1).flatten())
        return torch.stack(found)

    residuals = {layer.post_attention_layernorm for layer in stack.layers}
    for layer in stack.layers:
        parts = (layer.post_attention_layernorm, layer.mlp.gate_proj, layer.mlp.up_proj, layer)
        handles += [part.register_forward_hook(keep) for part in parts]
    where = store.open()
    with attention_by(policy.model, of_one_token(attend)):
        stack(input_ids=tokens[:, None], position_ids=where[:, None], use_cache=False)
    for handle in handles:
        handle.remove()
    return rows


@needs_compiler
@narrower_registers
def test_on_processors_with_narrower_registers(tiny_model, flag, steps):
    policy = policy_of(tiny_model("llama", hidden_size=40, intermediate_size=70, head_dim=22), ends=())
    with compiled_with(flag):
        for answers in (1, 3, 5):
            check(policy, answers=answers, tokens=4)
        test_exponentials_are_as_exact_as_their_type()
        test_exponentials_of_what_is_not_finite()
    assert set(steps) == {4, 12, 20}


@needs_compiler
def test_exponentials_are_as_exact_as_their_type():
    x = torch.cat([torch.linspace(-87, 88, 160_000), torch.linspace(-1, 1, 160_000)])
    x, y = x.contiguous(), torch.empty_like(x)
    bindings.library().tutelage_exponential(x.data_ptr(), y.data_ptr(), len(x))
    exact = x.double().exp()
    assert ((y - exact) / exact).abs().max() < 1.2e-7


@needs_compiler
def test_exponentials_of_what_is_not_finite():
    x = torch.tensor([-torch.inf, -1e30, -120.0, 0.0, -0.0, torch.nan, torch.inf, 100.0] * 2)
    y = torch.empty_like(x)
    bindings.library().tutelage_exponential(x.data_ptr(), y.data_ptr(), len(x))
    assert y[:5].tolist() == [0, 0, 0, 1, 1]
    assert y[5].isnan()
    assert y[6:8].isfinite().all()
    assert (y[6:8] > 2e38).all()


@pytest.fixture
def never_built():
    forget_library()
    yield
    forget_library()


def test_without_a_compiler_the_error_names_what_is_missing(tiny_model, monkeypatch, never_built):
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(TutelageError, match=r"needs a C\+\+ compiler.*no-such-compiler.*--engine plain"):
        Policy(load_backbone(config.Model(tiny_model("llama"), device="cpu", engine="cpu")))


def test_without_a_compiler_another_decoder_runs_with_one_warning(tiny_model, monkeypatch, never_built, caplog):
    monkeypatch.setenv("CXX", "no-such-compiler")
    policy = policy_of(tiny_model("llama"))
    for _ in range(2):
        policy.generate(PROMPTS, 1, config.Sampling(max_new_tokens=4), seed=0)
    assert len(caplog.records) == 1
    assert "steps and attention are not compiled" in caplog.text
    assert "no-such-compiler" in caplog.text


# Weights in bfloat16: sums in float32, which holds products of rounded numbers exactly --------------------------------


PRODUCTS = [(48, 33), (64, 160), (20, 7)]


def policy_in(folder, *, dtype="bf16", train=True):
    settings = config.Model(folder, device="cpu", dtype=dtype)
    policy = Policy(load_backbone(settings, config.Lora() if train else None))
    policy.end_ids = tuple(range(100, 120))
    if train:
        tiny.roughen(policy.model)
    return policy


def check_products(tiny_model):
    for size, vocabulary in PRODUCTS:
        policy = policy_in(tiny_model("llama", hidden_size=size))
        output = torch.nn.Linear(size, vocabulary)
        torch.nn.init.normal_(output.weight)
        policy.model.set_output_embeddings(output)
        weights = NativeWeights(policy.model, torch.bfloat16)
        head = NativeHead(weights, weights.head, Head(output.weight, output.bias))
        for rows in (1, 5, 16, 17, 40):
            x = torch.randn(rows, size, generator=torch.Generator().manual_seed(rows))
            rounded, matrix = x.bfloat16().double(), output.weight.bfloat16().double()
            expected = rounded @ matrix.T + output.bias.double()
            with torch.no_grad():
                found = head(x)
            scale = float((rounded.abs() @ matrix.abs().T).detach().max())
            torch.testing.assert_close(found.double(), expected, rtol=0, atol=size * 2**-24 * scale)
            assert torch.equal(found[:1], head(x[:1])), "the bits of a row do not depend on the rows beside it"


@needs_compiler
def test_products(tiny_model):
    check_products(tiny_model)


@needs_compiler
def test_logits_of_many_rows_have_the_bits_of_few(tiny_model):
    policy = policy_in(tiny_model("llama", hidden_size=64), dtype="float32")
    output = torch.nn.Linear(64, 161)
    policy.model.set_output_embeddings(output)
    weights = NativeWeights(policy.model)
    head, x = NativeHead(weights, weights.head, Head(output.weight, output.bias)), torch.randn(MANY, 64)
    with torch.no_grad():
        assert torch.equal(head(x), torch.cat([head(x[:100]), head(x[100:])]))


@needs_compiler
@other_processors
def test_products_on_other_processors(tiny_model, flag):
    with compiled_with(flag):
        check_products(tiny_model)


@pytest.mark.long
@needs_compiler
@pytest.mark.skipif("avx512_bf16" not in build._instruction_sets(), reason="the processor has no such products")
def test_products_of_pairs_and_of_widened_numbers_agree(tiny_model):
    with compiled_with("-mno-avx512bf16"):
        check_products(tiny_model)


@needs_compiler
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


@needs_compiler
@pytest.mark.parametrize(("train", "family"), every_value([True, False], ["llama", "qwen3"]))
@pytest.mark.usefixtures("multiplying")
def test_a_rollout_is_as_close_to_float32_as_the_trainer(tiny_model, family, train, monkeypatch):
    counts, own = [], decoders.NativeStep.__call__
    monkeypatch.setattr(decoders.NativeStep, "__call__", lambda *a: (counts.append(1), own(*a))[1])
    folder = tiny_model(family, initializer_range=0.1)
    policy, exact = (policy_in(folder, dtype=dtype, train=train) for dtype in ("bf16", "float32"))
    rollout = policy.generate(PROMPTS, 8, config.Sampling(max_new_tokens=12), seed=3)
    assert len(counts) > 5, "the compiled step decodes"
    with torch.no_grad():
        trainer, truth = (each.scores(rollout).logp[rollout.mask] for each in (policy, exact))
    sampler = rollout.logp[rollout.mask]
    error = (trainer - truth).square().mean()
    assert 0 < (sampler - truth).square().mean() < 1.5 * error
    assert (sampler - trainer).square().mean() < 2 * 1.5 * error, "two independent errors add up"
