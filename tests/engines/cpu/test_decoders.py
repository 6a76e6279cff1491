"""Decoders: no token is computed twice, and copies of weights are freed afterwards."""

import copy
from dataclasses import replace

import pytest
import tiny
import torch
from tiers import every_value, long_except

from tutelage.base import config
from tutelage.engines import cached_decoders
from tutelage.engines import devices as memory
from tutelage.engines.cpu import decoders, prompt_cache
from tutelage.engines.cpu import decoding_weights as forms
from tutelage.engines.cpu.capabilities import Capabilities
from tutelage.engines.cpu.decoders import CachedDecoder, CpuDecoders, SharedDecoder, decoder_class
from tutelage.engines.cpu.decoding_weights import MklLinear, OneDnnLinear, decoding_weights, has_onednn, padded_lines
from tutelage.engines.interface import PromptBatch, PromptTokens
from tutelage.engines.network import inner, trunk
from tutelage.models.backbone import load_backbone
from tutelage.models.policy import Policy

LONG = (9, *range(60, 79))
PROMPTS = PromptTokens(
    ((40, 41, 42), (50,), LONG, (40, 41, 42), (*LONG[:17], 0, 80, 0)), ("a", "b", "c", "d", "e")
)  # the first and the fourth are one prompt; 17 tokens of the third and the fifth are read once
SHARED = ("opt", "gpt2", "llama", "qwen3", "gemma3")
WIDE_WINDOW = {"gemma3": {"sliding_window": 64}}


def load(folder, *, ends=range(100, 140), lora=None, dtype="float32"):
    policy = Policy(load_backbone(config.Model(folder, device="cpu", dtype=dtype), lora or config.Lora()))
    policy.end_ids = (*policy.end_ids, *ends)
    return policy


@pytest.fixture
def made(tiny_model):
    """A policy of a family whose attention can be shared."""
    return lambda family, **more: load(tiny_model(family, **WIDE_WINDOW.get(family, {})), **more)


@pytest.fixture(autouse=True)
def without_the_compiled_step(monkeypatch):
    """Disable the compiled step, which test_step.py compares with these decoders."""
    monkeypatch.setattr(Capabilities, "has_compiled_step", lambda capabilities: False)


def settings(**changes):
    return config.Sampling(**{"max_new_tokens": 12} | changes)


def decoder_of(policy, batch, limit=12):
    """The class of decoder that is selected for a policy."""
    capabilities = Capabilities(policy.model, policy.backbone.dtype)
    return decoder_class(capabilities, policy.head, batch.longest + limit)


def decoders_of(policy, weights):
    engine = policy.engine
    return CpuDecoders(policy.backbone, engine._capabilities, weights, engine.cached_decoders)


def spoken(rollout):
    return [row[mask].tolist() for row, mask in zip(rollout.response, rollout.mask, strict=True)]


def assert_same(one, other):
    assert spoken(one) == spoken(other)
    assert torch.equal(one.terminated, other.terminated)
    torch.testing.assert_close(one.logp, other.logp, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("family", long_except(["llama", "gemma3"], SHARED))
def test_all_decoders_sample_the_same_tokens(made, family, monkeypatch):
    policy = made(family)
    expected = policy.generate(PROMPTS, 4, settings(), seed=1)
    assert len(set(expected.mask.sum(1).tolist())) > 3, "rows end at different times"
    for name, values in {"MOVE_WHEN": (0.0, 1.0), "ROOM": (1, 3)}.items():
        for value in values:
            with monkeypatch.context() as changed:
                changed.setattr(prompt_cache, name, value)
                assert_same(policy.generate(PROMPTS, 4, settings(), seed=1), expected)
    with monkeypatch.context() as changed:
        changed.setattr(decoders, "READ_AT_ONCE", 4)
        assert_same(policy.generate(PROMPTS, 4, settings(), seed=1), expected)


@pytest.mark.parametrize("family", long_except(["gpt2", "llama", "gemma3"], tiny.EVERY))
def test_a_cache_of_transformers_gives_the_same_tokens(tiny_model, family, monkeypatch):
    policy = load(tiny_model(family, **WIDE_WINDOW.get(family, {})))
    expected = policy.generate(PROMPTS, 4, settings(), seed=1)
    monkeypatch.setattr(Capabilities, "attends", lambda capabilities, length: False)
    assert_same(policy.generate(PROMPTS, 4, settings(), seed=1), expected)
    for share in (0.0, 1.0):
        monkeypatch.setattr(cached_decoders, "DEPART_WHEN", share)
        assert_same(policy.generate(PROMPTS, 4, settings(), seed=1), expected)
    for form in ("aligned", "reread"):
        policy.engine._decoding_form = form
        assert_same(policy.generate(PROMPTS, 4, settings(), seed=1), expected)
    monkeypatch.setattr(cached_decoders.CachedDecoder, "_rows_can_move", False)
    policy.engine._decoding_form = "aligned"
    assert_same(policy.generate(PROMPTS, 4, settings(), seed=1), expected)


def test_windows_and_capped_scores_are_left_to_the_model(tiny_model, made):
    asked = PromptBatch(PROMPTS.tokens[:3], (1, 1, 1))
    for policy in (load(tiny_model("gemma3")), load(tiny_model("gemma2"))):
        assert decoder_of(policy, asked) is CachedDecoder
    for family in SHARED:
        policy = made(family)
        assert decoder_of(policy, asked) is SharedDecoder
        policy.backbone = replace(policy.backbone, dtype=torch.bfloat16)
        assert decoder_of(policy, asked) is SharedDecoder


def counted(policy, monkeypatch, n, limit):
    """The rollout, and how many tokens went through the trunk for it."""
    seen = []
    hook = (
        trunk(policy.model)
        .get_input_embeddings()
        .register_forward_hook(lambda module, given, _: seen.append(given[0].numel()))
    )
    rollout = policy.generate(PROMPTS, n, settings(max_new_tokens=limit), seed=1)
    hook.remove()
    return rollout, sum(seen)


@pytest.mark.parametrize("family", SHARED)
@pytest.mark.parametrize("n", long_except([4], [1, 4]))
def test_each_token_and_each_prompt_is_computed_once(made, family, n, monkeypatch):
    policy = made(family)
    policy.generate(PROMPTS, 1, settings(max_new_tokens=1), seed=1)  # tries its decoders once, and remembers
    prompt_tokens = sum(map(len, set(PROMPTS.tokens))) - 17
    _, more = counted(policy, monkeypatch, n, 12)
    monkeypatch.setattr(forms, "padded_lines", lambda count: count)
    monkeypatch.setattr(forms, "_is_close", lambda wanted, laid_out: wanted == laid_out)
    rollout, read = counted(policy, monkeypatch, n, 12)
    lengths = rollout.mask.sum(1)
    assert read == prompt_tokens + int((lengths - 1).sum()), "nothing follows the last token of an answer"
    idle = 1.25 if not forms._mkl_is_faster() else 2.5
    assert read <= more <= prompt_tokens + idle * int((lengths - 1).sum())


def test_the_row_counts_of_layouts_are_few_and_close():
    sizes = [padded_lines(count) for count in range(1, 513)]
    assert all(count <= size <= count * 1.25 for count, size in enumerate(sizes, 1))
    assert all(padded_lines(size) == size for size in sizes)
    assert len(set(sizes)) == 8 + 4 * 6
    assert sizes[:8] == list(range(1, 9))


def test_a_repeated_prompt_gets_separate_responses(made):
    policy = made("llama")
    together = policy.generate(PROMPTS, 3, settings(), seed=5)
    for index, (tokens, name) in enumerate(zip(PROMPTS.tokens, PROMPTS.ids, strict=True)):
        alone = policy.generate(PromptTokens((tokens,), (name,)), 3, settings(), seed=5)
        rows = together.rows(torch.arange(3 * index, 3 * index + 3))
        assert spoken(alone) == spoken(rows)
    assert spoken(together)[:3] != spoken(together)[9:12]


def test_a_prompt_with_many_more_samples_changes_nothing(made):
    policy = made("qwen3")
    often = PromptTokens((PROMPTS.tokens[0],) * 9 + PROMPTS.tokens[1:3], tuple("abcdefghijk"))
    together = policy.generate(often, 2, settings(), seed=2)
    reordered = policy.generate(PromptTokens(often.tokens[::-1], often.ids[::-1]), 2, settings(), seed=2)
    order = torch.arange(22).view(11, 2).flip(0).flatten()
    assert spoken(reordered.rows(order)) == spoken(together)


def test_a_step_makes_no_copy_that_grows_with_what_is_stored(made):
    """Bytes of new tensors per step: scores grow by one column, and no more than that."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Made(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, given=(), named=None):
            out = function(*given, **(named or {}))
            held = {x.untyped_storage().data_ptr() for x in given if isinstance(x, torch.Tensor) and not x.is_mkldnn}
            for x in out if isinstance(out, tuple | list) else (out,):
                if isinstance(x, torch.Tensor) and not x.is_mkldnn and x.untyped_storage().data_ptr() not in held:
                    self.bytes += x.numel() * x.element_size()
            return out

    policy, made_bytes = made("llama"), []
    asked = PromptBatch((tuple(range(3, 43)),), (4,))
    with torch.no_grad(), decoding_weights(policy.model, policy.head, policy.dtype) as weights:
        decoder = SharedDecoder(decoders_of(policy, weights), asked, 50)
        decoder.start()
        for _ in range(50):
            with Made() as mode:
                mode.bytes = 0
                decoder.step(torch.tensor([5, 6, 7, 8]))
            made_bytes.append(mode.bytes)
    growth = made_bytes[49] - made_bytes[9]
    layers, rows, heads, more = 2, 4, 4, 40
    assert growth <= layers * rows * heads * more * 4 * 3, "scores, side by side, and their softmax"


# The weights ----------------------------------------------------------------------------------------------------------


def stirred(policy):
    """A policy with an adapter whose weights are not zero."""
    generator = torch.Generator().manual_seed(1)
    for name, parameter in policy.model.named_parameters():
        if "lora_B" in name:
            parameter.data = 0.02 * torch.randn(parameter.shape, generator=generator)
    return policy


@pytest.mark.parametrize(("family", "targets"), every_value(["gpt2", "llama", "opt"], ["auto", "head"]))
def test_decoding_applies_an_adapter(made, family, targets):
    if targets == "head" and family != "llama":
        pytest.skip("the head is tied to the embedding")
    lora = config.Lora(rank=4, targets="lm_head,q_proj" if targets == "head" else "auto")
    policy = stirred(made(family, lora=lora))
    before = copy.deepcopy(policy.model.state_dict())
    rollout = policy.generate(PROMPTS, 4, settings(temperature=0.8), seed=3)
    scores = policy.scores(rollout, temperature=0.8).logp
    assert (rollout.logp - scores).abs().max() < 1e-5
    with policy.reference():
        assert (rollout.logp - policy.scores(rollout, temperature=0.8).logp).abs().max() > 0.01
        other = policy.generate(PROMPTS, 4, settings(temperature=0.8), seed=3)
        assert (other.logp - policy.scores(other, temperature=0.8).logp).abs().max() < 1e-5
    after = policy.model.state_dict()
    assert all(torch.equal(after[name], value) for name, value in before.items())


def test_the_layers_are_restored_even_after_an_error(made, layout):
    policy = made("llama", lora=config.Lora(rank=2))

    def failing():
        with decoding_weights(policy.model, policy.head, policy.dtype) as weights:
            weights.for_answers(3)
            assert any("forward" in vars(module) for module in policy.model.modules())
            raise KeyError

    with pytest.raises(KeyError):
        failing()
    assert not any("forward" in vars(module) for module in policy.model.modules())


@pytest.fixture(params=[OneDnnLinear, MklLinear])
def layout(request, monkeypatch):
    """Decode in this layout of weights, whatever the processor."""
    if request.param is MklLinear and not torch.backends.mkl.is_available():
        pytest.skip("this torch was built without MKL")
    if not has_onednn(torch.float32):
        pytest.skip("this torch was built without oneDNN")
    monkeypatch.setattr(forms, "_mkl_is_faster", lambda: request.param is MklLinear)
    return request.param


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_decoding_layers_compute_what_the_layers_compute(made, family, layout):
    policy = made(family)
    layers = {
        name: module
        for name, module in inner(policy.model).named_modules()
        if type(module).__name__ in ("Linear", "Conv1D")
    }
    inputs = {
        name: torch.randn(5, 1, module.weight.shape[0 if type(module).__name__ == "Conv1D" else 1])
        for name, module in layers.items()
    }
    with torch.no_grad():
        expected = {name: module(inputs[name]) for name, module in layers.items()}
        with decoding_weights(policy.model, policy.head, policy.dtype) as weights:
            assert weights.for_answers(5) == 5
            assert all("forward" in vars(module) for module in layers.values())
            for name, module in layers.items():
                torch.testing.assert_close(module(inputs[name]), expected[name], rtol=1e-5, atol=1e-5)
            states = torch.randn(5, policy.width)
            expected_logits = policy.head.logits(states)
            torch.testing.assert_close(weights.head.logits(states), expected_logits, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("bias", [False, True])
def test_a_layout_adds_to_an_existing_output(layout, bias):
    weight, x, there = torch.randn(6, 4), torch.randn(3, 4), torch.randn(3, 6)
    shift = torch.randn(6) if bias else None
    form = MklLinear(weight, shift, 3) if layout is MklLinear else OneDnnLinear(weight, shift)
    expected = torch.nn.functional.linear(x, weight, shift)
    before = there.clone()
    torch.testing.assert_close(form(x), expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(form.plus(there, x), there + expected, rtol=1e-5, atol=1e-6)
    assert torch.equal(there, before)


def test_a_layout_refuses_other_numbers_of_rows():
    if not torch.backends.mkl.is_available():
        pytest.skip("this torch was built without MKL")
    with pytest.raises(RuntimeError, match="laid out for 3 lines"):
        MklLinear(torch.randn(6, 4), None, 3)(torch.randn(2, 4))


COUNTS = (40, 33, 21, 9, 6, 80, 70, 60, 56)


@pytest.mark.parametrize(
    ("by_lines", "expected"),
    [(False, (40, 40, 24, 10, 6, 80, 80, 64, 56)), (True, (40, 40, 40, 10, 10, 80, 80, 80, 56))],
)
def test_idle_rows_are_computed_where_another_layout_costs_more(made, monkeypatch, by_lines, expected):
    if by_lines and not torch.backends.mkl.is_available():
        pytest.skip("this torch was built without MKL")
    monkeypatch.setattr(forms, "_mkl_is_faster", lambda: by_lines)
    policy = made("llama")
    with decoding_weights(policy.model, policy.head, policy.dtype) as weights:
        assert tuple(weights.for_answers(count) for count in COUNTS) == expected
        assert weights.version == (7 if by_lines else 1), "taking back counts as well"


@pytest.mark.parametrize("lora", [config.Lora(), config.Lora(rank=4)], ids=["whole", "adapter"])
def test_without_memory_for_copies_the_layers_decode_as_they_are(made, lora, monkeypatch, tmp_path):
    policy = stirred(made("llama", lora=lora))
    expected = policy.generate(PROMPTS, 4, settings(), seed=1)
    (tmp_path / "meminfo").write_text("MemTotal:       64 kB\nMemAvailable:   8 kB\n")
    monkeypatch.setattr(memory, "MEMINFO", tmp_path / "meminfo")
    with decoding_weights(policy.model, policy.head, policy.dtype) as weights:
        weights.for_answers(3)
        assert not any("forward" in vars(module) for module in policy.model.modules())
    assert_same(policy.generate(PROMPTS, 4, settings(), seed=1), expected)


@pytest.mark.parametrize("family", ["gpt2", "qwen3", "gemma3"])
@pytest.mark.usefixtures("multiplying")
def test_bf16_keeps_its_softmax_in_float32_and_stays_near_the_trainer(made, family):
    policy = made(family, dtype="bf16")
    rollout = policy.generate(PROMPTS, 4, settings(), seed=3)
    assert rollout.logp.dtype == torch.float32
    mismatch = (rollout.logp - policy.scores(rollout).logp).abs()[rollout.mask]
    exact = made(family)
    error = (policy.scores(rollout).logp - exact.scores(rollout).logp).abs()[rollout.mask]
    assert mismatch.mean() < 2 * error.mean(), "two bf16 computations differ as much as one does from float32"


def test_bf16_keys_and_values_are_stored_as_such(made):
    policy = made("llama", dtype="bf16")
    asked = PromptBatch(PROMPTS.tokens[:3], (2, 2, 2))
    policy.engine._capabilities.try_decoding()
    with torch.no_grad(), decoding_weights(policy.model, policy.head, policy.dtype) as weights:
        decoder = SharedDecoder(decoders_of(policy, weights), asked, 12)
        decoder.start()
    (entry, *_) = decoder.kv_cache.layers.values()
    assert {x.dtype for x in (*entry.prompt, *entry.answer)} == {torch.bfloat16}
