"""Weights that change under a server: from folders, and as adapters beside the model's own."""

from itertools import product

import pytest
import tiny
import torch
from offenders import for_each
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

from tutelage.base import config
from tutelage.base.errors import TutelageError
from tutelage.commands.loading import load_policy
from tutelage.core.rows import EncodedRow, collate
from tutelage.engines.interface import PromptTokens
from tutelage.rollout.serving.served_weights import ServedWeights

ROWS = [EncodedRow((40, 41, 42), (50, 60, 70)), EncodedRow((9,), (8, 7))]
PROMPTS = PromptTokens(((40, 41, 42), (9, 8)), ("a", "b"))


def save_adapter(base, folder, *, seed, rank=4, targets="all-linear"):
    """The folder of a LoRA adapter that changes its base model a lot."""
    model = AutoModelForCausalLM.from_pretrained(base)
    settings = LoraConfig(r=rank, lora_alpha=32, target_modules=targets, task_type="CAUSAL_LM")
    model = get_peft_model(model, settings)
    torch.manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_" in name:
                parameter.normal_(0, 0.2)
    model.save_pretrained(str(folder))
    tiny.tokenizer().save_pretrained(folder)
    return str(folder)


def computed(policy, weights=None, adapter=""):
    """Log-probabilities of some rows, and sampled answers with theirs."""
    with torch.no_grad():
        if weights is None:
            return _computed(policy)
        with weights.using(adapter):
            return _computed(weights.policy)


def _computed(policy):
    scores = policy.scores(collate(ROWS, 0, policy.device)).logp
    rollout = policy.generate(PROMPTS, 2, config.Sampling(max_new_tokens=8), seed=1)
    return scores, rollout.response, rollout.logp


def assert_same(found, expected):
    torch.testing.assert_close(found[0], expected[0], rtol=1e-4, atol=1e-4)
    assert torch.equal(found[1], expected[1])
    torch.testing.assert_close(found[2], expected[2], rtol=1e-4, atol=1e-4)


@for_each(product(["plain", "auto"], ["llama", "gpt2"]))
def test_weights_of_a_folder_are_those_of_a_policy_loaded_from_it(engine, family, tiny_model, tmp_path):
    own, other = tiny_model(family), tiny_model(family, seed=7)
    weights = ServedWeights(load_policy(own, device="cpu", engine=engine))
    before = computed(None, weights)
    weights.reload(other)
    assert_same(computed(None, weights), computed(load_policy(other, device="cpu", engine=engine)))
    adapter = save_adapter(own, tmp_path / "adapter", seed=1)
    weights.reload(adapter)
    assert_same(computed(None, weights), computed(load_policy(adapter, device="cpu", engine=engine)))
    weights.reload(own)
    assert_same(computed(None, weights), before)


@pytest.mark.parametrize("engine", ["plain", "auto"])
def test_adapters_compute_what_merged_ones_do_and_leave_the_model_alone(tiny_model, tmp_path, engine):
    own = tiny_model("llama")
    folders = {name: save_adapter(own, tmp_path / name, seed=seed) for seed, name in enumerate("abc")}
    wider = save_adapter(own, tmp_path / "wider", seed=9, rank=8, targets=["q_proj", "down_proj"])
    merged = {folder: computed(load_policy(folder, device="cpu")) for folder in (*folders.values(), wider)}
    weights = ServedWeights(load_policy(own, device="cpu", engine=engine))
    before = computed(None, weights)
    weights.load_adapter("x", folders["a"])
    weights.load_adapter("y", folders["b"])
    assert_same(computed(None, weights, "x"), merged[folders["a"]])
    assert_same(computed(None, weights, "y"), merged[folders["b"]])
    assert_same(computed(None, weights), before)
    weights.load_adapter("x", folders["c"])
    assert_same(computed(None, weights, "x"), merged[folders["c"]])
    weights.load_adapter("x", wider)
    assert_same(computed(None, weights, "x"), merged[wider])
    assert dict(weights.adapters) == {"x": wider, "y": folders["b"]}
    other = tiny_model("llama", seed=7)
    weights.reload(other)
    assert_same(computed(None, weights), computed(load_policy(other, device="cpu")))
    weights.unload_adapter("x")
    assert set(weights.policy.model.peft_config) == {"y"}, "its memory is free"
    with pytest.raises(TutelageError, match="no adapter 'x'"):
        weights.unload_adapter("x")
    weights.load_adapter("x", folders["a"])
    weights.reload(own)
    assert_same(computed(None, weights, "x"), merged[folders["a"]])


@pytest.mark.parametrize("engine", ["plain", "auto"])
def test_adapters_on_tied_layers_compute_what_merged_ones_do(tiny_model, tmp_path, engine):
    own = tiny_model("qwen3")
    weights = ServedWeights(load_policy(own, device="cpu", engine=engine))
    for name in ("embed_tokens", "lm_head", "embed_tokens,lm_head"):
        policy = load_policy(own, device="cpu", lora=config.Lora(rank=4, targets=name))
        torch.manual_seed(1)
        with torch.no_grad():
            for parameter in policy.parameters():
                parameter.normal_(0, 0.2)
        policy.save(tmp_path / name)
        weights.load_adapter(name, str(tmp_path / name))
        assert_same(computed(None, weights, name), computed(load_policy(tmp_path / name, device="cpu")))
    assert_same(computed(None, weights), computed(load_policy(own, device="cpu")))


def test_weights_that_do_not_fit_change_nothing(tiny_model, tmp_path):
    weights = ServedWeights(load_policy(tiny_model("llama"), device="cpu"))
    before = computed(None, weights)
    with pytest.raises(TutelageError, match=r"the weight .* has the shape"):
        weights.reload(tiny_model("llama", intermediate_size=48))
    with pytest.raises(TutelageError, match="another shape"):
        weights.reload(tiny_model("gpt2"))
    with pytest.raises(TutelageError, match="There is no model folder"):
        weights.reload("/nowhere/at/all")
    with pytest.raises(TutelageError, match="not the folder of a LoRA adapter"):
        weights.load_adapter("x", tiny_model("llama"))
    foreign = save_adapter(tiny_model("gpt2"), tmp_path / "foreign", seed=0)
    with pytest.raises(TutelageError, match=r"the model has no layer transformer\.h"):
        weights.load_adapter("x", foreign)
    other = save_adapter(tiny_model("llama", intermediate_size=48), tmp_path / "other", seed=0)
    with pytest.raises(TutelageError, match="does not fit the layer"):
        weights.load_adapter("x", other)
    assert_same(computed(None, weights), before)
    assert not weights.adapters
    weights.load_adapter("x", save_adapter(tiny_model("llama"), tmp_path / "right", seed=0))
    assert_same(computed(None, weights), before)
