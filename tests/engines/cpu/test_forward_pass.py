"""The context of a forward pass: attention that is replaced, and models restored after use."""

import pytest
import torch

from tutelage.base import config
from tutelage.engines.cpu import forward_pass
from tutelage.engines.cpu.forward_pass import attention_by
from tutelage.engines.network import inner, trunk
from tutelage.models.backbone import load_backbone


def model_of(folder, rank=None):
    lora = None if rank is None else config.Lora(rank=rank)
    return load_backbone(config.Model(folder, device="cpu"), lora).model


@pytest.mark.parametrize("rank", [None, 2])
def test_the_context_installs_the_function_and_restores_the_model(tiny_model, rank):
    model = model_of(tiny_model("qwen3"), rank)
    before = inner(model).config._attn_implementation
    tokens = torch.tensor([[4, 5, 6]])

    def hidden():
        with torch.no_grad():
            return trunk(model)(input_ids=tokens, use_cache=False).last_hidden_state

    expected = hidden()
    calls = []

    def silent(layer, query, key, value, mask, **more):
        calls.append((query.shape, key.shape, mask))
        return torch.zeros(1, 3, 4, 4), None

    def another(*args, **kwargs):
        calls.append(None)
        return silent(*args, **kwargs)

    with attention_by(model, silent):
        assert not torch.allclose(hidden(), expected)
        with attention_by(model, another):
            hidden()
        hidden()
    assert [call is None for call in calls] == [False] * 2 + [True, False] * 2 + [False] * 2
    assert calls[0] == ((1, 4, 3, 4), (1, 2, 3, 4), None)
    assert torch.equal(hidden(), expected)
    assert inner(model).config._attn_implementation == before

    with pytest.raises(RuntimeError, match="inside"), attention_by(model, silent):
        raise RuntimeError("inside")
    assert torch.equal(hidden(), expected)
    assert forward_pass.NAME not in model.config.to_json_string()
