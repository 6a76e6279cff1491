"""Every causal language model of transformers, tiny and random: in a batch, token by token, on each engine and with an
adapter it computes what its forward pass computes for each row alone, or it is refused by name."""

import copy
from itertools import product

import architectures
import pytest
import torch
from tiers import long_except

from tutelage.base import config
from tutelage.base.errors import TutelageError
from tutelage.core.rows import EncodedRow, collate
from tutelage.engines.interface import PromptTokens
from tutelage.models.backbone import load_backbone
from tutelage.models.policy import Policy

FEW = ("mamba", "rwkv", "recurrent_gemma", "bamba", "falcon_h1", "qwen3_next", "lfm2", "diffllama", "gpt_oss", "afmoe")
FEW += ("bart", "roberta", "phi3", "xlnet")
"""States of all kinds, attention called twice, experts, positions of their own, and no causal model."""
WAYS = [(kind, *(("plain", 2), ("cpu", 0))[number % 2]) for number, kind in enumerate(FEW)]
CASES = long_except(
    [*WAYS, ("afmoe", "cpu", 2), ("mamba", "cpu", 0), ("llama", "gpu", 2), ("diffllama", "gpu", 0)],
    product(architectures.KINDS, ("plain", "cpu", "gpu"), (0, 2)),
)
ROWS = [
    EncodedRow(tuple(range(40, 52)), tuple(range(60, 74, 2))),
    EncodedRow((9, 30), (7, 8, 12)),
    EncodedRow((101, 5, 140, 7, 7, 200, 33), (91, 90, 203, 8, 270, 44, 46, 120, 121, 9, 10)),
    EncodedRow((50,), (11,)),
]
PROMPTS = PromptTokens(((40, 41, 42), (50,), (9, 60, 61, 62, 63, 7, 8), (40, 41, 42)), ("a", "b", "c", "d"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """`folder(kind)`: a tiny model of the kind, made once; the test is skipped if transformers makes none."""
    made = {}

    def of(kind):
        if kind not in made:
            try:
                made[kind] = architectures.save(kind, tmp_path_factory.mktemp(kind))
            except Exception as error:
                made[kind] = f"{type(error).__name__}: {error}"
        if "Error: " in made[kind]:
            pytest.skip(f"transformers makes no tiny {kind}: {made[kind]}")
        return made[kind]

    return of


def logp(model, prompt, response):
    """The log-probabilities of a completion from a forward pass of transformers over the row alone."""
    logits = model(input_ids=torch.tensor([[*prompt, *response]]), use_cache=False).logits[0].float()
    before = logits.log_softmax(-1)[len(prompt) - 1 : -1]
    return before.gather(1, torch.tensor(response)[:, None]).squeeze(1)


def check_scores(policy, model):
    """Log-probabilities of a batch of rows of all lengths, and their gradient."""
    scored = policy.scores(collate(ROWS, 0, policy.device))
    own = [logp(model, row.prompt, row.response) for row in ROWS]
    for row, expected in enumerate(own):
        torch.testing.assert_close(scored.logp[row, : len(expected)], expected, rtol=1e-4, atol=1e-4)
    policy.backward(scored.logp.sum())
    torch.cat(own).sum().backward()
    for found, expected in zip(policy.model.parameters(), model.parameters(), strict=True):
        if expected.grad is not None:
            largest = max(1e-3, float(expected.grad.abs().max()))
            grad = torch.zeros_like(expected) if found.grad is None else found.grad
            torch.testing.assert_close(grad, expected.grad, rtol=1e-3, atol=1e-3 * largest)


@torch.no_grad()
def check_decoding(policy, model):
    """Log-probabilities of sampled tokens, each from a state that was carried to it."""
    rollout = policy.generate(PROMPTS, 2, config.Sampling(max_new_tokens=8), seed=3)
    for row in range(len(rollout)):
        response = rollout.response[row][rollout.mask[row]].tolist()
        expected = logp(model, PROMPTS.tokens[row // 2], response)
        torch.testing.assert_close(rollout.logp[row, : len(response)], expected, rtol=1e-4, atol=1e-4)


def loaded(folder, engine, rank):
    """A policy, and a copy of its model from before an engine changed it; adapters differ from zero."""
    backbone = load_backbone(config.Model(folder, device="cpu", engine=engine), config.Lora(rank=rank))
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in backbone.model.named_parameters():
            if "lora_B" in name:
                parameter.copy_(0.05 * torch.randn(parameter.shape, generator=generator))
    model = copy.deepcopy(backbone.model)
    policy = Policy(backbone)
    policy.end_ids = (*policy.end_ids, *range(100, 120))
    return policy, model


@pytest.mark.parametrize(("kind", "engine", "rank"), CASES)
def test_a_batch_and_decoding_compute_what_a_row_computes_alone(folder, kind, engine, rank, tmp_path):
    refusal = ""
    try:
        policy, model = loaded(folder(kind), engine, rank)
    except TutelageError as error:
        refusal = str(error)
    if refusal:
        assert kind in architectures.REFUSED or (engine == "gpu" and kind not in architectures.ON_GPU)
        assert architectures.REFUSED.get(kind, "gpu engine") in refusal
        return
    assert kind not in architectures.REFUSED
    check_scores(policy, model)
    check_decoding(policy, model)
    if rank and engine == "plain":
        policy.save_whole(tmp_path)
        policy.verify(tmp_path)
