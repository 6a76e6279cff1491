"""Modules that are replaced by fused forms: what a model keeps, and what the modules that it had keep."""

import copy
import io

import tiny
import torch
from peft import LoraConfig, get_peft_model
from torch import nn
from transformers import AutoModelForCausalLM

from tutelage.engines.cpu.fused import fuse
from tutelage.engines.cpu.fused.norm import FusedNorm

TOKENS = torch.tensor([[11, 12, 13, 14, 15]])


def loaded(tiny_model, family="llama", **more):
    return AutoModelForCausalLM.from_pretrained(tiny_model(family, **more), dtype=torch.float32)


def test_parameters_keep_their_identity_their_names_and_their_order(tiny_model):
    for family in tiny.EVERY:
        model = loaded(tiny_model, family)
        parameters, names = list(model.named_parameters()), [name for name, _ in model.named_modules()]
        fuse(model)
        found = list(model.named_parameters())
        assert [name for name, _ in found] == [name for name, _ in parameters]
        assert all(a is b for (_, a), (_, b) in zip(found, parameters, strict=True))
        assert [name for name, _ in model.named_modules()] == names
        assert model.get_output_embeddings() is not None
        assert (model.get_output_embeddings().weight is model.get_input_embeddings().weight) == (
            model.config.tie_word_embeddings
        )


def test_modules_are_replaced_and_stay_as_they_were(tiny_model):
    model = loaded(tiny_model)
    before = list(model.modules())
    kinds, expected = [type(module) for module in before], model(TOKENS).logits
    layer = model.base_model.layers[0]
    fuse(model)
    assert [type(module) for module in before] == kinds
    assert model.base_model.layers[0] is not layer
    assert all(isinstance(new, kind) for new, kind in zip(model.modules(), kinds, strict=True))
    torch.testing.assert_close(model(TOKENS).logits, expected, rtol=1e-5, atol=1e-5)


def test_a_model_is_fused_once(tiny_model):
    model = loaded(tiny_model)
    fuse(model)
    modules = list(model.modules())
    fuse(model)
    assert all(a is b for a, b in zip(model.modules(), modules, strict=True))


def test_a_module_in_two_places_is_replaced_by_one(tiny_model):
    norm = loaded(tiny_model).base_model.norm
    model = nn.ModuleDict({"one": norm, "other": nn.Sequential(norm)})
    fuse(model)
    assert isinstance(model["one"], FusedNorm)
    assert model["one"] is model["other"][0]


def test_hooks_stay(tiny_model):
    model, heard = loaded(tiny_model), []
    model.base_model.embed_tokens.register_forward_hook(lambda module, given, out: heard.append(out.shape))
    fuse(model)
    heard.clear()  # it was tried
    model(TOKENS)
    assert heard == [(1, 5, 16)]


def test_a_fused_model_is_saved_loaded_copied_and_adapted_as_any(tiny_model, tmp_path):
    model = loaded(tiny_model)
    fuse(model)
    expected = model(TOKENS).logits
    model.save_pretrained(tmp_path)
    assert torch.equal(AutoModelForCausalLM.from_pretrained(tmp_path).base_model.norm.weight, model.model.norm.weight)
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    other = loaded(tiny_model)
    other.load_state_dict(torch.load(io.BytesIO(file.getvalue())))
    assert torch.equal(copy.deepcopy(model)(TOKENS).logits, expected)
    adapted = get_peft_model(model, LoraConfig(r=2, target_modules=["q_proj", "embed_tokens"]))
    torch.testing.assert_close(adapted(TOKENS).logits, expected)
    merged = adapted.merge_and_unload()
    torch.testing.assert_close(merged(TOKENS).logits, expected)
    assert list(merged.state_dict()) == list(other.state_dict())
