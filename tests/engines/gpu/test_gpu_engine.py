"""The engine for a GPU against the reference engine: on the CPU, by the same code but the capture of graphs."""

import copy
import itertools
from dataclasses import replace

import hypothesis
import pytest
import torch
import typechecks
from compilers import needs_compiler
from hypothesis import given
from hypothesis import strategies as st
from peft import LoraConfig, get_peft_model
from simple_goal import low_tokens
from test_engines_agree import PROMPTS, ROWS, gradients, stir_adapters
from tiers import every_value
from tiny import roughen
from tiny_training import World, learner_of, recipe_of, some_pairs, some_rows

from tutelage.base import config
from tutelage.base.errors import TutelageError
from tutelage.core.preferences import PREFERENCE_LOSSES
from tutelage.core.rows import EncodedRow, collate
from tutelage.engines.gpu import sampler
from tutelage.engines.gpu.gpu_engine import GpuEngine
from tutelage.engines.gpu.sampler import release_slots
from tutelage.engines.interface import PromptTokens
from tutelage.engines.network import inner
from tutelage.models.backbone import adapter_dropout, load_backbone, load_whole
from tutelage.models.heads import new_reward_model
from tutelage.models.policy import REFERENCE, Policy
from tutelage.train.supervised.batches import collate_pairs
from tutelage.train.supervised.fit import WeightedPairs, WeightedRows, fit, imitate
from tutelage.train.supervised.preference_job import paired_job, refer
from tutelage.train.supervised.reward_model import prefer

from . import compiled_cases

CPU = torch.device("cpu")
FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "gemma", "granite")
SAMPLINGS = ({"top_k": 5}, {"top_p": 0.7, "temperature": 1.3}, {"min_p": 0.1}, {"temperature": 0.0}, {})
ranks = pytest.mark.parametrize("rank", [0, 2], ids=["full", "lora"])


def policy_of(folder, engine, rank=0, *, checkpointing=False, dropout=0.0, **more):
    """A policy whose weights are uneven and whose adapter changes something."""
    settings = config.Model(folder, device="cpu", engine=engine, **more)
    lora = config.Lora(rank=rank, dropout=dropout)
    policy = Policy(load_backbone(settings, lora, checkpointing=checkpointing))
    policy.end_ids = (*policy.end_ids, *range(100, 120))
    stir(policy)
    return policy


def stir(policy, *, seed=1):
    """Move all parameters."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter += 0.05 * torch.randn(parameter.shape, generator=generator)


@pytest.fixture
def both(tiny_model):
    """`both(family, rank)`: one policy on the reference engine and on that for a GPU."""
    return lambda family, rank=0: [policy_of(tiny_model(family), engine, rank) for engine in ("plain", "gpu")]


@pytest.fixture
def unchecked():
    """No checks of annotations, which double the time of rollouts; other tests have them."""
    with typechecks.unchecked():
        yield


@pytest.fixture
def few_slots(monkeypatch):
    """Fewer slots than rows, so that they are refilled."""
    monkeypatch.setattr(sampler, "SLOTS", (4,))


def assert_gradients(found, expected):
    largest = max(float(g.abs().max()) for g in expected)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5 * largest)


def assert_scores(found, expected):
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def assert_rollouts(found, expected):
    assert torch.equal(found.response, expected.response)
    assert torch.equal(found.mask, expected.mask)
    assert torch.equal(found.prompt, expected.prompt)
    assert torch.equal(found.terminated, expected.terminated)
    assert torch.equal(found.truncated, expected.truncated)
    assert found.ids == expected.ids
    torch.testing.assert_close(found.logp, expected.logp, rtol=1e-4, atol=1e-5)


def generated(policies, *, prompts=PROMPTS, n=3, seed=3, **changes):
    """The rollout of each policy. Its engine must be able to."""
    sampling = config.Sampling(**{"max_new_tokens": 12, "temperature": 0.9} | changes)
    return [policy.generate(prompts, n, sampling, seed=seed) for policy in policies]


# Rows -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("family", "rank"), every_value(FAMILIES, [0, 2]))
def test_scores_states_and_gradients(both, family, rank):
    plain, gpu = both(family, rank)
    rows = collate(ROWS, 1, CPU)
    (expected, expected_gradients), (found, found_gradients) = gradients(plain, rows), gradients(gpu, rows)
    assert_scores(found, expected)
    assert_gradients(found_gradients, expected_gradients)
    torch.testing.assert_close(gpu.states(rows), plain.states(rows), rtol=1e-4, atol=1e-4)
    last = [policy.engine.last_states(rows) for policy in (plain, gpu)]
    torch.testing.assert_close(last[1], last[0], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(gpu.logits(rows), plain.logits(rows), rtol=1e-4, atol=1e-4)
    assert gpu.engine._form is not None, "the engine itself computed it"


REFERENCES = ["frozen copy", "adapter off", "reference adapter", "mixture"]


@pytest.mark.parametrize(("kind", "family"), every_value(REFERENCES, ["llama", "qwen3"]))
def test_exact_kl_and_its_gradient(both, family, kind):
    policies = both(family, 0 if kind == "frozen copy" else 2)
    rows, kl, slopes = collate(ROWS, 1, CPU), [], []
    for policy in policies:
        policy._fresh_adapter = kind != "reference adapter"
        policy.freeze_reference()
        assert (REFERENCE in getattr(policy.model, "peft_config", {})) == (kind == "reference adapter")
        stir(policy, seed=2)
        scores = policy.scores(rows, temperature=0.8, divergence=0.5 if kind == "mixture" else 1.0)
        (scores.divergence.sum() + 0.3 * scores.logp.sum()).backward()
        kl.append(scores.divergence)
        slopes.append([p.grad for p in policy.parameters()])
    assert (kl[0] > 0).any()
    assert_scores([kl[1]], [kl[0]])
    assert_gradients(slopes[1], slopes[0])
    with torch.no_grad():
        again = [policy.scores(rows).logp for policy in policies]
    torch.testing.assert_close(again[1], again[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("family", "rank"), every_value(["llama", "gemma"], [0, 2]))
def test_a_reward_model(tiny_model, family, rank):
    rows, scores, slopes = collate(ROWS, 1, CPU), [], []
    for engine in ("plain", "gpu"):
        settings = config.Model(tiny_model(family), device="cpu", engine=engine)
        model = new_reward_model(settings, config.Lora(rank=rank), seed=3)
        stir(model)
        scores.append([model.scores(rows), model.values(rows)])
        (scores[-1][0].square().sum() + scores[-1][1].sum()).backward()
        slopes.append([p.grad for p in model.parameters()])
    assert_scores(scores[1], scores[0])
    assert_gradients(slopes[1], slopes[0])


TOKENS = st.lists(st.integers(5, 250), min_size=1, max_size=7).map(tuple)


@hypothesis.settings(max_examples=hypothesis.settings.default.max_examples // 3)
@given(data=st.data())
@ranks
def test_ragged_rows_of_shared_prompts(tiny_model, rank, data):
    """Any lengths and any sharing of prompts, of parts of prompts and of whole rows."""
    if rank not in _known:
        _known[rank] = [policy_of(tiny_model("qwen3"), engine, rank) for engine in ("plain", "gpu")]
    plain, gpu = _known[rank]
    prompts = data.draw(st.lists(TOKENS, min_size=1, max_size=3))
    prompts += [prompt[:-1] for prompt in prompts if len(prompt) > 1]
    responses = st.one_of(TOKENS, st.just((7, 8)))
    drawn = data.draw(st.lists(st.tuples(st.sampled_from(prompts), responses), min_size=1, max_size=8))
    rows = collate([EncodedRow(*each) for each in drawn], 1, CPU)
    with torch.no_grad():
        assert_scores(
            [gpu.scores(rows).logp, gpu.engine.last_states(rows)],
            [plain.scores(rows).logp, plain.engine.last_states(rows)],
        )


_known = {}


def test_more_tokens_than_a_block_of_the_mask(both):
    plain, gpu = both("llama")
    rows = collate(some_rows(30), 1, CPU)
    (expected, expected_gradients), (found, found_gradients) = gradients(plain, rows), gradients(gpu, rows)
    assert_scores(found, expected)
    assert_gradients(found_gradients, expected_gradients)
    parts = list(gpu.split(rows, 60))
    assert sorted(torch.cat(parts).tolist()) == list(range(30))
    assert len(parts) > 2


@ranks
def test_activation_checkpointing(tiny_model, rank):
    rows, found = collate(ROWS, 1, CPU), []
    for checkpointing in (False, True):
        policy = policy_of(tiny_model("qwen2"), "gpu", rank, checkpointing=checkpointing)
        assert policy.engine.name == "gpu"
        assert policy.backbone.checkpointing == checkpointing
        found.append([*itertools.chain(*gradients(policy, rows)), *generated([policy])[:1]])
    assert_rollouts(found[1].pop(), found[0].pop())
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


# Sampling -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("family", "rank", "samplings"),
    [*((family, (number % 2) * 2, ({},)) for number, family in enumerate(FAMILIES)), ("llama", 2, SAMPLINGS)],
)
@pytest.mark.usefixtures("few_slots", "unchecked")
def test_rollouts(both, family, rank, samplings):
    """Prompts of one token, repeated prompts, and refilled slots, since rows end at different steps."""
    policies = both(family, rank)
    for sampling in samplings:
        expected, found = generated(policies, **sampling)
        assert_rollouts(found, expected)
    assert len({*found.mask.sum(1).tolist()}) > 2
    assert policies[1].engine.sampler.slots.sizes.slots == 4
    logp = policies[1].scores(found, temperature=0.9).logp
    torch.testing.assert_close(logp, found.logp, rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("unchecked")
def test_what_the_reference_engine_samples(both):
    """A callback and stop strings; no token ends a completion."""
    policies = both("llama")
    told, limit = [[], []], config.Sampling(max_new_tokens=6)
    rollouts = [
        policy.generate(PROMPTS, 2, limit, seed=1, on_token=lambda tokens, own=own: own.append(tokens.clone()))
        for policy, own in zip(policies, told, strict=True)
    ]
    assert_rollouts(rollouts[1], rollouts[0])
    assert all(torch.equal(a, b) for a, b in zip(*told, strict=True))
    expected, found = generated(policies, stop=("e",))
    assert_rollouts(found, expected)
    for policy in policies:
        policy.end_ids = ()
    expected, found = generated(policies)
    assert_rollouts(found, expected)
    assert not found.terminated.any()


@ranks
@pytest.mark.usefixtures("few_slots", "unchecked")
def test_weights_change_in_place_between_rollouts(both, rank):
    policies = both("llama", rank)
    rows = collate(ROWS, 1, CPU)
    before = None
    optimisers = [torch.optim.SGD(policy.parameters(), lr=0.05) for policy in policies]
    for seed in range(3):
        expected, found = generated(policies, seed=seed)
        assert_rollouts(found, expected)
        slots = policies[1].engine.sampler.slots
        assert before in (None, slots), "the slots, and so their graph, remain"
        before = slots
        for policy, optimiser in zip(policies, optimisers, strict=True):
            policy.backward(-policy.scores(rows).logp.mean())
            optimiser.step()
            optimiser.zero_grad()


@ranks
@pytest.mark.usefixtures("unchecked")
def test_the_copy_in_bf16_follows_the_weights(tiny_model, rank):
    policy = policy_of(tiny_model("qwen3"), "gpu", rank, dtype="bf16")
    rollouts = []
    for seed in range(3):
        (rollout,) = generated([policy])
        fresh = copy.copy(policy)
        fresh.engine = GpuEngine(policy.backbone, policy.head)
        fresh.engine._form, fresh.engine._reach = policy.engine._form, policy.engine._reach
        assert_rollouts(rollout, generated([fresh])[0])
        rollouts.append(rollout)
        stir(policy, seed=seed)
    assert not torch.equal(rollouts[0].logp[:, 0], rollouts[1].logp[:, 0])


@pytest.mark.usefixtures("few_slots", "unchecked")
def test_rollouts_of_other_sizes(both):
    """Longer and shorter prompts, other limits and numbers of rows on one engine."""
    policies = both("mistral", 2)
    long = PromptTokens((tuple(range(20, 80)), (50,), tuple(range(20, 70))), ("x", "y", "z"))
    one = PromptTokens(((50,),), ("y",))
    for prompts, limit, n in ((PROMPTS, 8, 2), (long, 8, 3), (one, 30, 1), (PROMPTS, 5, 4), (long, 8, 1)):
        expected, found = generated(policies, prompts=prompts, n=n, max_new_tokens=limit)
        assert_rollouts(found, expected)


@pytest.mark.usefixtures("unchecked")
def test_an_adapter_that_is_off_or_another(both):
    """The reference samples too, between rollouts of the policy."""
    for fresh in (True, False):
        policies = both("qwen3", 2)
        for policy in policies:
            policy._fresh_adapter = fresh
            policy.freeze_reference()
            stir(policy, seed=2)
        ours = generated(policies)
        with policies[0].reference(), policies[1].reference():
            theirs = generated(policies)
        again = generated(policies)
        for expected, found in (ours, theirs, again):
            assert_rollouts(found, expected)
        assert not torch.equal(ours[0].response, theirs[0].response)
        assert torch.equal(ours[1].logp, again[1].logp)


@pytest.mark.usefixtures("few_slots", "unchecked")
def test_a_row_does_not_depend_on_other_rows(tiny_model):
    policy = policy_of(tiny_model("gemma"), "gpu")
    (crowd,) = generated([policy], n=5)
    for number, (tokens, name) in enumerate(zip(PROMPTS.tokens, PROMPTS.ids, strict=True)):
        (alone,) = generated([policy], prompts=PromptTokens((tokens,), (name,)), n=2)
        width = alone.mask.shape[1]
        same = crowd.rows(torch.tensor([number * 5, number * 5 + 1]))
        assert torch.equal(same.mask.sum(1), alone.mask.sum(1))
        assert torch.equal(same.response[:, :width], alone.response)
        torch.testing.assert_close(same.logp[:, :width], alone.logp, rtol=1e-5, atol=1e-6)


@pytest.mark.usefixtures("few_slots", "unchecked")
def test_a_rollout_after_one_that_was_interrupted(both):
    policies = both("llama")
    generated(policies)
    slots = policies[1].engine.sampler.slots
    run, steps = slots.run, iter(range(11))
    slots.run = lambda: (run(), next(steps))
    with pytest.raises(StopIteration):
        generated(policies[1:], seed=4)
    slots.run = run
    expected, found = generated(policies, seed=5)
    assert_rollouts(found, expected)
    assert policies[1].engine.sampler.slots is slots


def test_prompts_beyond_the_context_are_refused(both):
    prompts = PromptTokens((tuple(range(20, 90)),), ("x",))
    for policy in both("llama"):
        with pytest.raises(TutelageError, match="need 100 positions"):
            generated([policy], prompts=prompts, max_new_tokens=30)
        with pytest.raises(ValueError, match="at least one prompt"):
            generated([policy], prompts=PromptTokens((), ()))


# Models of another form -----------------------------------------------------------------------------------------------


def backbone_of(folder, engine, case):
    lora = config.Lora(rank=case.get("rank", 0), dropout=case.get("dropout", 0.0), targets=case.get("targets", "auto"))
    backbone = load_backbone(config.Model(folder, device="cpu", engine=engine), lora)
    if case.get("dora"):
        torch.manual_seed(3)
        dora = LoraConfig(r=2, target_modules=["q_proj"], use_dora=True, task_type="CAUSAL_LM")
        backbone = replace(backbone, model=get_peft_model(backbone.model, dora).eval())
    roughen(backbone.model)
    stir_adapters(backbone.model)
    return backbone


OTHERS = {
    "opt": ({"family": "opt"}, "its trunk consists of"),
    "gpt2": ({"family": "gpt2"}, "its trunk consists of"),
    "gemma2": ({"family": "gemma2"}, "its Gemma2DecoderLayer consists of"),
    "gemma3": ({"family": "gemma3"}, "its Gemma3DecoderLayer consists of"),
    "dora": ({"dora": True}, r"more than W \+ s B A"),
    "head": ({"rank": 2, "targets": "q_proj,lm_head"}, "its head is more than a matrix"),
    "embedding": ({"rank": 2, "targets": "q_proj,embed_tokens"}, "Embedding has more than a weight"),
    "window": ({"family": "mistral", "sliding_window": 8}, "a row has 11 tokens and its attention window 8"),
    "dropout": ({"rank": 2, "dropout": 0.5}, "its adapter has dropout"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_a_model_of_another_form(tiny_model, name, caplog):
    """The reference engine computes it, with one warning; `--engine gpu` refuses it."""
    case, reason = OTHERS[name]
    folder = tiny_model(case.get("family", "llama"), **{k: case[k] for k in ("sliding_window",) if k in case})
    plain, other, insisting = (backbone_of(folder, engine, case) for engine in ("plain", "plain", "gpu"))
    policies = [Policy(plain), Policy(other)]
    policies[1].engine = GpuEngine(other, policies[1].head)
    rows, scores = collate(ROWS, 1, CPU), []
    for policy in policies:
        if "dropout" in case:
            assert not policy.scores(rows).logp.isnan().any()
            adapter_dropout(policy.model, True)
            torch.manual_seed(4)
        scores.append(gradients(policy, rows))
        adapter_dropout(policy.model, False)
    assert_scores(*[each[0] for each in scores])
    assert_gradients(*[each[1] for each in scores])
    expected, found = generated(policies, n=1)
    assert_rollouts(found, expected)
    assert len(caplog.records) == 1
    assert "the reference engine computes it" in caplog.text
    caplog.clear()
    if name != "dropout":  # which only training has
        with pytest.raises(TutelageError, match=rf"{'' if name == 'window' else reason}.*Use --engine plain"):
            Policy(insisting)
        return
    refusing = Policy(insisting)
    assert not refusing.scores(rows).logp.isnan().any()
    adapter_dropout(refusing.model, True)
    for call in (lambda: refusing.scores(rows), lambda: generated([refusing])):
        with pytest.raises(TutelageError, match=rf"{reason}.*Use --engine plain"):
            call()
    assert not caplog.records


# bf16 -----------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained(tmp_path_factory, tiny_model):
    """The folder of a model that has learnt a few rows by heart, so that its distributions are far from uniform."""
    policy = policy_of(tiny_model("qwen3", **WIDER), "plain")
    rows = collate(some_rows(6), 1, CPU)
    optimiser = torch.optim.AdamW(policy.parameters(), lr=5e-3)
    with typechecks.unchecked():
        for _ in range(100):
            optimiser.zero_grad()
            policy.backward(-policy.scores(rows).logp[rows.mask].mean())
            optimiser.step()
    folder = tmp_path_factory.mktemp("trained") / "model"
    policy.save(folder)
    return str(folder)


WIDER = {"hidden_size": 64, "head_dim": 16, "intermediate_size": 96, "initializer_range": 0.08}


@ranks
def test_errors_of_bf16_on_trained_weights(trained, rank):
    """Not larger than those of the reference engine in bf16, against it in float32."""
    rows, numbers = collate(some_rows(6), 1, CPU), {}
    for engine, dtype in (("plain", "float32"), ("plain", "bf16"), ("gpu", "bf16")):
        settings = config.Model(trained, device="cpu", engine=engine, dtype=dtype)
        policy = Policy(load_backbone(settings, config.Lora(rank=rank)))
        stir_adapters(policy.model)
        scores, slopes = gradients(policy, rows)
        numbers[engine, dtype] = [*scores, torch.cat([g.flatten() for g in slopes])]
        assert all(g.dtype == torch.float32 for g in slopes)
    exact, theirs, ours = numbers.values()
    assert exact[0].exp().mean() > 0.3, "it has learnt the rows"
    for right, other, mine in zip(exact, theirs, ours, strict=True):
        error, usual = (float((x - right).detach().norm() / right.detach().norm()) for x in (mine, other))
        assert error < 0.03
        assert error < 1.2 * usual


@pytest.mark.usefixtures("unchecked")
@ranks
def test_the_sampler_in_bf16_has_the_log_probabilities_of_the_trainer(trained, rank):
    settings = config.Model(trained, device="cpu", engine="gpu", dtype="bf16")
    policy = Policy(load_backbone(settings, config.Lora(rank=rank)))
    stir_adapters(policy.model)
    (rollout,) = generated([policy], n=8, temperature=1.0)
    with torch.no_grad():
        drift = (policy.scores(rollout).logp - rollout.logp)[rollout.mask]
    k3 = drift.exp() - 1 - drift
    assert k3.mean() < 1e-3
    assert ((drift.exp() - 1).abs() < 0.02).double().mean() > 0.8


def test_frozen_matrices_are_stored_in_bf16(trained, tmp_path):
    """An adapter of such a model is float32, and merged with it in float32."""
    settings = config.Model(trained, device="cpu", engine="gpu", dtype="bf16")
    policy = Policy(load_backbone(settings, config.Lora(rank=2)))
    stir_adapters(policy.model)
    rows = collate(some_rows(6), 1, CPU)
    policy.backward(policy.scores(rows).logp.sum())
    for name, weight in policy.model.named_parameters():
        assert weight.dtype == (torch.float32 if "lora_" in name or weight.dim() == 1 else torch.bfloat16), name
        assert (weight.grad is not None) == ("lora_" in name)
    policy.save(tmp_path / "adapter")
    policy.save_whole(tmp_path / "whole")
    policy.verify(tmp_path / "whole")
    again = load_backbone(config.Model(str(tmp_path / "adapter"), device="cpu"), config.Lora(rank=2)).model
    own = dict(policy.model.named_parameters())
    for name, weight in again.named_parameters():
        assert torch.equal(weight.to(own[name].dtype), own[name]), name
    part = policy.model.get_base_model().model.layers[0].self_attn.q_proj
    merged = part.base_layer.weight.double() + (part.get_delta_weight("default")).double()
    saved = load_whole(str(tmp_path / "whole")).model.layers[0].self_attn.q_proj.weight
    torch.testing.assert_close(saved.double(), merged, rtol=1e-6, atol=1e-7)


# Compiled steps -------------------------------------------------------------------------------------------------------


@needs_compiler
@pytest.mark.long
def test_compiled_steps():
    """In a process of its own, since functions whose annotations are checked are not compiled."""
    compiled_cases.run_apart("steps")


# Training -------------------------------------------------------------------------------------------------------------

COSTS = {"tokens_per_second", "tokens_at_once", "tokens/kept", "skipped"}


def assert_same_figures(one, other):
    assert one.keys() - COSTS == other.keys() - COSTS
    for name in one.keys() - COSTS:
        assert other[name] == pytest.approx(one[name], rel=2e-3, abs=2e-4, nan_ok=True), name


@pytest.mark.parametrize(
    ("name", "rank", "changes"), [("ppo", 0, ()), ("grpo", 2, ("penalty.kind=exact", "penalty.where=loss"))]
)
@pytest.mark.usefixtures("unchecked")
def test_improve(tiny_model, name, rank, changes):
    told = []
    for engine in ("plain", "gpu"):
        policy = policy_of(tiny_model("llama"), engine, rank)
        world = World(policy, recipe_of(*changes, name=name), steps=2, reward=low_tokens, tokens=6, batch=3)
        told.append([step.metrics for step in world.train()])
    for one, other in zip(*told, strict=True):
        assert_same_figures(one, other)


@pytest.mark.parametrize("kind", ["sft", "dpo", "reward"])
@pytest.mark.usefixtures("unchecked")
def test_supervised(tiny_model, kind):
    told = []
    for engine in ("plain", "gpu"):
        if kind == "reward":
            settings = config.Model(tiny_model("qwen2"), device="cpu", engine=engine)
            model = new_reward_model(settings, config.Lora(), seed=3)
            pairs = WeightedPairs.of(collate_pairs(some_pairs(6), 1, CPU))
            batch, objective = lambda step, pairs=pairs: pairs, lambda part, model=model: prefer(model, part)
        else:
            model = policy_of(tiny_model("qwen2"), engine)
            rows = WeightedRows.of(collate(some_rows(6), 1, CPU))
            batch, objective = lambda step, rows=rows: rows, lambda part, model=model: imitate(model, part)
        if kind == "dpo":
            known = refer(model, some_pairs(6, p_chosen=0.9), 1000, drift=False, max_length=90)
            job = paired_job(model, PREFERENCE_LOSSES[kind], lambda step, known=known: known, 3, budget=1000)
            batch, objective = job.batch, job.objective
        learner = learner_of({"all": model.parameters()}, 3, 1e-3)
        told.append([step.metrics for step in fit(learner, model, batch, objective, budget=1000, seed=0)])
    for one, other in zip(*told, strict=True):
        assert_same_figures(one, other)


def test_adapters_stay_in_float32_when_the_reference_is_scored_first(tiny_model):
    """A reference freezes them for its pass."""
    policy = policy_of(tiny_model("llama"), "gpu", 2, dtype="bf16")
    policy.freeze_reference()
    with policy.reference():
        policy.scores(collate(ROWS, 1, CPU))
    assert {parameter.dtype for parameter in policy.parameters()} == {torch.float32}
    assert inner(policy.model).get_input_embeddings().weight.dtype == torch.bfloat16


def test_the_embedding_of_the_pad_token_is_not_trained(both):
    policies = both("qwen3", 0)
    pad = inner(policies[0].model).get_input_embeddings().padding_idx
    rows = collate([EncodedRow((40, pad, 42), (7, pad, 9)), EncodedRow((50,), (pad, 11))], 1, CPU)
    slopes = []
    for policy in policies:
        policy.backward(policy.states(rows).sin().sum())
        slopes.append(inner(policy.model).get_input_embeddings().weight.grad)
    assert not slopes[1][pad].any()
    torch.testing.assert_close(slopes[1], slopes[0], rtol=1e-3, atol=1e-5 * float(slopes[0].abs().max()))


def test_parts_are_those_of_the_engine_that_computes_them(tiny_model):
    """Dropout before adapters is computed by the reference engine, which pads."""
    plain, gpu = (policy_of(tiny_model("llama"), engine, 2, dropout=0.5) for engine in ("plain", "auto"))
    gpu.engine = GpuEngine(gpu.backbone, gpu.head)
    rows = collate([EncodedRow((40, 41, 42), tuple(range(4, 4 + length))) for length in range(1, 30)], 1, CPU)
    apart = list(gpu.split(rows, 64))
    for policy in (plain, gpu):
        adapter_dropout(policy.model, on=True)
    parts = list(gpu.split(rows, 64))
    assert len(apart) < len(parts)
    assert [part.tolist() for part in parts] == [part.tolist() for part in plain.split(rows, 64)]


def test_freed_slots_are_allocated_again(both):
    policies = both("llama", 0)
    expected, first = generated(policies)
    release_slots()
    assert policies[1].engine.sampler.slots is None
    assert_rollouts(generated(policies)[1], expected)
    assert_rollouts(first, expected)
