"""Divergence and perplexity against enumeration of everything that a tiny model can say."""

import itertools
import math

import pytest
import torch

from tutelage.base import config
from tutelage.core.batch import Rollout
from tutelage.core.rows import EncodedRow, collate
from tutelage.engines.interface import PromptTokens
from tutelage.models.backbone import load_backbone
from tutelage.models.drift import perplexity, response_logp, sequence_kl
from tutelage.models.policy import Policy

CPU = torch.device("cpu")
PROMPT = (40, 41, 42)


def load(folder):
    policy = Policy(load_backbone(config.Model(folder, device="cpu"), config.Lora()))
    policy.end_ids = ()
    return policy


def nudged(folder, by):
    policy = load(folder)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter += by * torch.randn(parameter.shape, generator=generator)
    return policy


@torch.no_grad()
def distribution(policy, prompt, temperature):
    logits = policy.model(input_ids=torch.tensor([prompt])).logits[0, -1].double()
    return (logits / temperature).log_softmax(-1)


@torch.no_grad()
def true_kl(first, second, temperature):
    """KL over all answers of two tokens: that of the first token plus the expectation of that of the second."""
    p, q = (distribution(policy, PROMPT, temperature) for policy in (first, second))
    total = float((p.exp() * (p - q)).sum())
    tokens = torch.arange(300)
    follow = torch.cat([torch.tensor([PROMPT]).expand(300, -1), tokens[:, None]], 1)
    p2, q2 = (
        (policy.model(input_ids=follow).logits[:, -1].double() / temperature).log_softmax(-1)
        for policy in (first, second)
    )
    return total + float((p.exp() * (p2.exp() * (p2 - q2)).sum(-1)).sum())


@pytest.mark.parametrize("temperature", [0.7, 1.0])
def test_the_divergence_is_that_of_the_enumerated_answers(tiny_model, temperature):
    first, second = load(tiny_model("llama")), nudged(tiny_model("llama"), 0.05)
    asked = config.Sampling(temperature=temperature, max_new_tokens=2)
    rollout = first.generate(PromptTokens((PROMPT,), ("a",)), 3000, asked, seed=1, rows_at_once=3000)
    got, error = sequence_kl(rollout, second, temperature=temperature)
    truth = true_kl(first, second, temperature)
    assert truth > 0.05
    assert abs(got - truth) < 4 * error
    assert error < 0.2 * truth
    assert sequence_kl(rollout, first, temperature=temperature)[0] == pytest.approx(0.0, abs=1e-4)


def test_the_error_is_that_of_a_mean_and_unknown_for_one_answer(tiny_model):
    policy = load(tiny_model("gpt2"))
    other = nudged(tiny_model("gpt2"), 0.05)
    rollout = policy.generate(PromptTokens((PROMPT,), ("a",)), 20, config.Sampling(max_new_tokens=4), seed=1)
    per_answer = [sequence_kl(rollout.rows(torch.tensor([i])), other, temperature=1.0) for i in range(20)]
    assert all(math.isnan(error) for _, error in per_answer)
    values = torch.tensor([value for value, _ in per_answer], dtype=torch.float64)
    got, error = sequence_kl(rollout, other, temperature=1.0, budget=17)
    assert got == pytest.approx(float(values.mean()), rel=1e-4)
    assert error == pytest.approx(float(values.std() / math.sqrt(20)), rel=1e-4)


def test_perplexity_is_the_inverse_geometric_mean_probability(tiny_model):
    policy = load(tiny_model("opt"))
    rows = [EncodedRow((40, 41), (50, 60, 70)), EncodedRow((42,), (51,))]
    logs = []
    for row in rows:
        for t, token in enumerate(row.response):
            logs.append(float(distribution(policy, row.prompt + row.response[:t], 1.0)[token]))
    got = perplexity(policy, collate(rows, 1, CPU))
    assert got == pytest.approx(math.exp(-sum(logs) / 4), rel=1e-4)
    assert got == pytest.approx(math.prod(math.exp(-x) for x in logs) ** 0.25, rel=1e-4)


def test_the_probabilities_of_all_answers_add_up_to_one(tiny_model):
    policy = load(tiny_model("qwen3"))
    rows = [EncodedRow(PROMPT, (token,)) for token in range(300)]
    batch = collate(rows, 1, CPU)
    for temperature in (0.5, 1.0):
        logp = response_logp(policy, batch, temperature=temperature, budget=50)
        assert float(logp.exp().sum()) == pytest.approx(1.0, abs=1e-4)


def test_a_rollout_of_several_prompts_needs_no_order(tiny_model):
    policy, other = load(tiny_model("llama")), nudged(tiny_model("llama"), 0.05)
    prompts = PromptTokens((PROMPT, (9,)), ("a", "b"))
    rollout = policy.generate(prompts, 3, config.Sampling(max_new_tokens=3), seed=1)
    assert isinstance(rollout, Rollout)
    expected = sequence_kl(rollout, other, temperature=1.0)[0]
    for order in itertools.islice(itertools.permutations(range(6)), 0, 720, 239):
        got = sequence_kl(rollout.rows(torch.tensor(order)), other, temperature=1.0, budget=20)[0]
        assert got == pytest.approx(expected, rel=1e-4)
