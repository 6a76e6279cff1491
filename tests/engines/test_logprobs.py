"""The log-probabilities and entropies of heads whose logits may be −inf; tests/models/test_policy.py has the others."""

import pytest
import torch
from torch import Tensor

from tutelage.engines.logprobs import Head, reference_divergence, token_scores

STATES, WEIGHT = (torch.randn(n, 4, generator=torch.Generator().manual_seed(n)) for n in (6, 9))
TOKENS = torch.tensor([0, 1, 3, 4, 5, 8])
LOW = {"excluded": -torch.inf, "limit": -1e4}
"""The bias of the words 2, 6 and 7, which are never chosen."""


def heads(low: float) -> dict[str, Head]:
    bias = torch.zeros(9).index_fill(0, torch.tensor([2, 6, 7]), low)
    return {"matrix": Head(WEIGHT, bias), "module": Head(WEIGHT, module=lambda x: x @ WEIGHT.T + bias)}


def values_and_gradient(kind: str, low: float) -> list[Tensor]:
    """log π, H, KL(π‖ref) and KL(ref‖π) of the tokens, and the gradient of a weighted sum of all in the states."""
    head, states = heads(low)[kind], STATES.clone().requires_grad_()
    logp, entropy = token_scores(states, head, TOKENS, temperature=0.7, entropy=True)
    assert entropy is not None
    kls = [reference_divergence(states, head, STATES.flip(0), head.logits, mixture=m) for m in (0.0, 0.5, 1.0)]
    values = torch.stack([logp, entropy, *kls])
    weight = torch.linspace(1, 2, values.numel()).view_as(values)
    return [values, *torch.autograd.grad((weight * values).sum(), states)]


@pytest.mark.parametrize("kind", ["matrix", "module"])
def test_an_excluded_word_contributes_nothing(kind: str) -> None:
    for found, expected in zip(*(values_and_gradient(kind, low) for low in LOW.values()), strict=True):
        assert found.isfinite().all()
        torch.testing.assert_close(found, expected)
