"""The reference engine and the CPU engine compute the same on every family of models, with and without adapters."""

import copy
from dataclasses import replace

import pytest
import tiny
import torch
from tiers import every_value

from tutelage.base import config
from tutelage.base.errors import TutelageError
from tutelage.core.batch import Branches
from tutelage.core.rows import EncodedRow, collate
from tutelage.engines.choose import engine_for
from tutelage.engines.interface import PromptTokens
from tutelage.engines.network import inner
from tutelage.models.backbone import load_backbone
from tutelage.models.policy import Policy

CPU = torch.device("cpu")
FAMILIES = ("opt", "gpt2", "llama", "qwen3", "gemma2", "gemma3")
families_and_ranks = pytest.mark.parametrize(("family", "rank"), every_value(FAMILIES, [0, 2]))
PROMPTS = PromptTokens(((40, 41, 42), (50,), (9, 60, 61, 62, 63), (40, 41, 42)), ("a", "b", "c", "d"))
ROWS = [
    EncodedRow((40, 41, 42), (7, 8, 9, 10)),
    EncodedRow((50,), (11,)),
    EncodedRow((40, 41, 42), (12, 13)),
    EncodedRow((9, 60, 61, 62, 63), (14, 15, 16, 17, 18, 19)),
    EncodedRow((40, 41, 42), (7, 8, 9, 10)),
]


@pytest.fixture
def pair(tiny_model):
    """`pair(family, rank)`: one policy on each engine, of equal weights."""

    def of(family, rank):
        made = {}
        for name in ("plain", "cpu"):
            settings = config.Model(tiny_model(family), device="cpu", engine=name)
            made[name] = Policy(load_backbone(settings, config.Lora(rank=rank)))
            made[name].end_ids = (*made[name].end_ids, *range(100, 120))
            tiny.roughen(made[name].model)
            stir_adapters(made[name].model)
        return made["plain"], made["cpu"]

    return of


def stir_adapters(model):
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.copy_(0.05 * torch.randn(parameter.shape, generator=generator))


def gradients(policy, rows):
    """Log-probabilities, entropies and values of all tokens, and the gradient of an uneven sum of them."""
    head = torch.nn.Linear(policy.width, 1, bias=False)
    torch.nn.init.constant_(head.weight, 0.1)
    for parameter in policy.parameters():
        parameter.grad = None
    scores = policy.scores(rows, temperature=0.7, entropy=True, value_head=head)
    columns = [x[rows.mask] for x in (scores.logp, scores.entropy, scores.value)]
    uneven = torch.linspace(0.5, 2.0, len(columns[0]))
    policy.backward((uneven * (columns[0] + 0.3 * columns[1] + 0.1 * columns[2])).sum())
    return columns, [torch.zeros_like(p) if p.grad is None else p.grad for p in policy.parameters()]


@families_and_ranks
def test_forward_and_gradients(pair, family, rank):
    plain, cpu = pair(family, rank)
    rows = collate(ROWS, 1, CPU)
    (expected, expected_gradients), (found, found_gradients) = gradients(plain, rows), gradients(cpu, rows)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
    largest = max(float(g.abs().max()) for g in expected_gradients)
    for a, b in zip(found_gradients, expected_gradients, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5 * largest)
    norms = [engine.total_norm(gs) for engine, gs in ((plain, expected_gradients), (cpu, found_gradients))]
    torch.testing.assert_close(norms[1], norms[0], rtol=1e-4, atol=0)
    torch.testing.assert_close(cpu.engine.last_states(rows), plain.engine.last_states(rows), rtol=1e-4, atol=1e-4)


@families_and_ranks
def test_sampled_tokens_and_their_update(pair, family, rank):
    """The tokens, their log-probabilities, and the gradient of the update that follows with kept activations."""
    plain, cpu = pair(family, rank)
    settings = config.Sampling(max_new_tokens=12, temperature=0.9)
    prompts = replace(PROMPTS, scored_first=frozenset(PROMPTS.ids))
    rollouts = [policy.generate(prompts, 4, settings, seed=3) for policy in (plain, cpu)]
    assert torch.equal(rollouts[1].response, rollouts[0].response)
    assert torch.equal(rollouts[1].terminated, rollouts[0].terminated)
    torch.testing.assert_close(rollouts[1].logp, rollouts[0].logp, rtol=1e-4, atol=1e-5)
    (_, expected), (_, found) = (
        gradients(policy, rollout) for policy, rollout in zip((plain, cpu), rollouts, strict=True)
    )
    largest = max(float(g.abs().max()) for g in expected)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5 * largest)


@pytest.mark.parametrize("family", FAMILIES)
def test_exact_kl_to_the_reference(pair, family):
    rows, kl = collate(ROWS, 1, CPU), []
    for policy in pair(family, 0):
        policy.freeze_reference()
        with torch.no_grad():
            for parameter in policy.parameters():
                parameter.mul_(1.05)
        kl.append(policy.scores(rows, divergence=1.0).divergence)
    assert (kl[0] > 0).any()
    torch.testing.assert_close(kl[1], kl[0], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_reference_engine_computes_packed_sequences_as_padded_batches(tiny_model, family):
    """Packing is its default on a GPU; here it runs on a processor."""
    settings = config.Model(tiny_model(family), device="cpu", engine="plain")
    policy = Policy(load_backbone(settings, config.Lora()))
    tiny.roughen(policy.model)
    rows = collate(ROWS, 1, CPU)
    expected = gradients(policy, rows)
    policy.engine.packs = True
    packed = policy.engine._pack(rows)
    assert (packed is None) == family.startswith("gemma"), "their windows are shorter than the longest row"
    found = gradients(policy, rows)
    largest = max(float(g.abs().max()) for g in expected[1])
    for a, b in zip(found[0], expected[0], strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
    for a, b in zip(found[1], expected[1], strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5 * largest)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_reference_engine_leaves_a_model_unchanged_and_starts_no_compiler(tiny_model, family, monkeypatch):
    backbone = load_backbone(config.Model(tiny_model(family), device="cpu", engine="plain"), config.Lora())
    before = [type(module) for module in backbone.model.modules()]
    monkeypatch.setattr("subprocess.run", lambda *_, **__: pytest.fail("a process was started"))
    policy = Policy(backbone)
    prompts = replace(PROMPTS, scored_first=frozenset(PROMPTS.ids))
    rollout = policy.generate(prompts, 2, config.Sampling(max_new_tokens=4), seed=0)
    policy.backward(policy.scores(rollout).logp.sum())
    assert [type(module) for module in backbone.model.modules()] == before
    assert not any("forward" in vars(module) for module in inner(backbone.model).modules())
    assert policy.metrics() == {}


def test_the_environment_replaces_auto_and_nothing_else(tiny_model, monkeypatch):
    def name_of(engine):
        backbone = load_backbone(config.Model(tiny_model("llama"), device="cpu", engine=engine))
        return engine_for(copy.deepcopy(backbone)).name

    monkeypatch.delenv("TUTELAGE_ENGINE", raising=False)
    assert [name_of(engine) for engine in ("auto", "plain", "cpu")] == ["cpu", "plain", "cpu"]
    monkeypatch.setenv("TUTELAGE_ENGINE", "plain")
    assert [name_of(engine) for engine in ("auto", "plain", "cpu")] == ["plain", "plain", "cpu"]
    monkeypatch.setenv("TUTELAGE_ENGINE", "fast")
    with pytest.raises(TutelageError, match=r"TUTELAGE_ENGINE is 'fast'.*auto, plain, cpu or gpu"):
        name_of("auto")


def episodes():
    """Two prompts with two episodes each: text that was read stands between the turns, and one has two contexts."""
    texts = [
        ((40, 41, 42), (7, 8, 90, 91, 92, 9), (0, 1, 5)),
        ((40, 41, 42), (10, 11), (0, 1)),
        ((40, 41, 42, 93), (11, 94, 12, 95, 13), (2, 4)),
        ((50,), (14,), (0,)),
        ((50,), (96, 97, 15, 16), (2, 3)),
    ]
    contexts = collate([EncodedRow(prompt, rest) for prompt, rest, _ in texts], 1, CPU)
    sampled = torch.zeros_like(contexts.mask)
    for row, (*_, columns) in enumerate(texts):
        sampled[row, list(columns)] = True
    branches = Branches(contexts, sampled, torch.tensor([0, 1, 1, 2, 3]))
    own = [[texts[c][1][i] for c in which for i in texts[c][2]] for which in ([0], [1, 2], [3], [4])]
    prompts = [(40, 41, 42)] * 2 + [(50,)] * 2
    rows = collate([EncodedRow(p, tuple(o)) for p, o in zip(prompts, own, strict=True)], 1, CPU)
    alone = [EncodedRow(p + r[:i], (r[i],)) for p, r, columns in texts for i in columns]
    return replace(rows, branches=branches), collate(alone, 1, CPU)


@families_and_ranks
def test_tokens_of_episodes_are_scored_as_each_alone_after_what_was_read(pair, family, rank):
    rows, alone = episodes()
    for policy in pair(family, rank):
        expected, expected_gradients = gradients(policy, alone)
        for engine_packs in (False, True) if policy.engine.name == "plain" else (None,):
            if engine_packs is not None:
                policy.engine.packs = engine_packs
            found, found_gradients = gradients(policy, rows)
            for a, b in zip(found, expected, strict=True):
                torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
            largest = max(float(g.abs().max()) for g in expected_gradients)
            for a, b in zip(found_gradients, expected_gradients, strict=True):
                torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5 * largest)
        parts = [i for part in policy.split(rows, 12) for i in part.tolist()]
        assert sorted(parts) == [0, 1, 2, 3]
