"""Activations that sampling keeps for the update: equal results, fewer products, invalidation, memory."""

from contextlib import contextmanager
from dataclasses import replace

import pytest
import tiny
import torch
from compilers import needs_compiler
from tiers import every_value

from tutelage.base import config
from tutelage.base.errors import TutelageError
from tutelage.engines.cpu import activation_cache as activations
from tutelage.engines.cpu.activation_cache import ActivationCache
from tutelage.engines.cpu.capabilities import Capabilities
from tutelage.engines.cpu.fused import layer_steps
from tutelage.engines.cpu.native.attention_kernels import NativeKernels
from tutelage.engines.cpu.packed_attention import FlashKernels
from tutelage.engines.interface import PromptTokens
from tutelage.engines.network import trunk
from tutelage.models.backbone import load_backbone
from tutelage.models.policy import Policy

pytestmark = needs_compiler

PROMPTS = PromptTokens(((40, 41, 42), (50,), (9, 60, 61, 62, 63), (40, 41, 42)), ("a", "b", "c", "d"))
LONG = 12


@pytest.fixture(autouse=True)
def plenty(monkeypatch):
    """Raise the memory limit: the activations of tiny models are large beside their weights."""
    monkeypatch.setattr(activations, "OF_TRAINING", 1e9)


def policy_of(folder, rank=0):
    policy = Policy(load_backbone(config.Model(folder, device="cpu"), config.Lora(rank=rank)))
    policy.end_ids = (*policy.end_ids, *range(100, 120))
    tiny.roughen(policy.model)
    policy.engine._verified = True  # so that no forward pass beside the one is counted
    return policy


@pytest.fixture
def policy(tiny_model):
    return policy_of(tiny_model("llama"))


def sampled(policy, prompts=PROMPTS, n=4, limit=LONG, first=None, **more):
    """A rollout and the cache of its activations: of all its prompts, or of those with the ids `first`."""
    settings = config.Sampling(max_new_tokens=limit)
    policy.engine._cache = ActivationCache(policy.model)
    prompts = replace(prompts, scored_first=frozenset(prompts.ids if first is None else first))
    rollout = policy.generate(prompts, n, settings, seed=4, **more)
    kept, policy.engine._cache = policy.engine._cache, None
    return rollout, kept


@contextmanager
def reused(policy, kept):
    """A context in which the engine uses the cached activations."""
    policy.engine._cache = kept
    yield
    policy.engine._cache = None
    kept.forget()


def assert_same(found, expected):
    scale = max(float(x.abs().max()) for x in expected)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5 * scale)


@pytest.fixture
def products(monkeypatch):
    """The number of tokens in every call of attention and of the second step of a layer."""
    counts = []

    def counted(own):
        def noted(*given):
            counts.append(len(given[1]))
            return own(*given)

        return noted

    monkeypatch.setattr(layer_steps, "layer_outputs", counted(layer_steps.layer_outputs))
    for kernels in (FlashKernels, NativeKernels):
        monkeypatch.setattr(kernels, "forward", counted(kernels.forward))
    return counts


@pytest.mark.parametrize(("rank", "rows_at_once"), every_value([0, 3], [None, 4]))
def test_gradients_with_kept_activations_equal_those_without(tiny_model, rank, rows_at_once, products):
    policy = policy_of(tiny_model("llama"), rank)
    rollout, kept = sampled(policy, rows_at_once=rows_at_once)
    assert len(set(rollout.mask.sum(1).tolist())) > 4, "answers end at different times"
    expected = tiny.gradients(policy, rollout)
    products.clear()
    with reused(policy, kept):
        found = tiny.gradients(policy, rollout)
    assert_same(found, expected)
    assert products == [], "no layer computed anything again"


@pytest.mark.parametrize("first", ["abc", "b"])
def test_activations_of_prompts_that_begin_alike(policy, first, products):
    system = tuple(range(60, 100))
    prompts = PromptTokens(((*system, 1, 2), (50,), (*system, 3)), tuple("abc"))
    rollout, kept = sampled(policy, prompts, first=first)
    rollout = rollout.rows(torch.tensor([name in first for name in rollout.ids]))
    expected = tiny.gradients(policy, rollout)
    products.clear()
    with reused(policy, kept):
        assert_same(tiny.gradients(policy, rollout), expected)
    assert products == []


def test_activations_of_responses_of_full_length_are_returned_without_a_copy(policy, monkeypatch):
    policy.end_ids = ()
    rollout, kept = sampled(policy, PromptTokens(((40, 41, 42), (50,)), ("a", "b")))
    expected = tiny.gradients(policy, rollout)
    monkeypatch.setattr(torch.Tensor, "index_select", None)
    group = next(iter(kept._index.values()))[0]
    there = {x.untyped_storage().data_ptr() for x in group.activations[kept.layers[0]]}
    taken = group.take(kept.layers[0], 7, 0)
    assert {x.untyped_storage().data_ptr() for x in taken} == there
    monkeypatch.undo()
    with reused(policy, kept):
        assert_same(tiny.gradients(policy, rollout), expected)


@pytest.mark.parametrize("index", [[3, 14, 0, 9], [5], [8, 9, 10, 11], [15, 2, 13, 1, 3, 0]])
def test_some_rows_in_another_order(policy, index, products):
    rollout, kept = sampled(policy)
    some = rollout.rows(torch.tensor(index)).trimmed()
    expected = tiny.gradients(policy, some)
    products.clear()
    with reused(policy, kept):
        assert_same(tiny.gradients(policy, some), expected)
    assert products == []


def test_a_split_group_is_held_until_its_last_row_is_taken(policy, products):
    rollout, kept = sampled(policy)
    parts = [rollout.rows(torch.arange(start, start + 2)) for start in range(0, len(rollout), 2)]
    expected = [tiny.gradients(policy, part) for part in parts]
    products.clear()
    groups = {group for group, _ in kept._index.values()}
    with reused(policy, kept):
        for part, wanted in zip(parts, expected, strict=True):
            assert_same(tiny.gradients(policy, part), wanted)
        assert not any(group.activations for group in groups)
    assert products == []
    assert len(groups) == 3, "one prompt was asked twice"


def test_activations_are_returned_once_and_recomputed_afterwards(policy, products):
    rollout, kept = sampled(policy)
    tiny.gradients(policy, rollout)
    products.clear()
    with reused(policy, kept):
        first = tiny.gradients(policy, rollout)
        taken = kept.taken
        assert products == []
        assert_same(tiny.gradients(policy, rollout), first)
    assert products != []
    assert kept.taken == taken > 0
    assert len(kept) == 0


def test_other_weights_do_not_use_the_cache(policy):
    rollout, kept = sampled(policy)
    with torch.no_grad():
        trunk(policy.model).layers[1].mlp.up_proj.weight.mul_(1.5)
    expected = tiny.gradients(policy, rollout)
    with reused(policy, kept):
        found = tiny.gradients(policy, rollout)
    assert kept.taken == 0
    for a, b in zip(found, expected, strict=True):
        assert torch.equal(a, b)


def test_an_optimiser_step_invalidates_and_frees_the_cache(policy):
    rollout, kept = sampled(policy)
    optimiser = torch.optim.AdamW(policy.parameters(), lr=1e-3, fused=True)
    tiny.gradients(policy, rollout)
    optimiser.step()
    with reused(policy, kept):
        policy.scores(rollout)
        assert len(kept) == 0
    assert kept.taken == 0


@pytest.mark.parametrize(("first", "rows_at_once"), every_value(["b", "bc", "cd"], [None, 4]))
def test_only_activations_of_prompts_that_are_scored_first_are_kept(policy, first, rows_at_once, products):
    rollout, kept = sampled(policy, first=first, rows_at_once=rows_at_once)
    tokens = {PROMPTS.tokens[PROMPTS.ids.index(name)] for name in first}
    known = [prompt in tokens for prompt in PROMPTS.tokens for _ in range(4)]
    assert len(kept) == len({(p, tuple(r)) for p, r in _texts(rollout) if p in tokens})
    (of_first, of_others) = (rollout.rows(torch.tensor(known) == which).trimmed() for which in (True, False))
    expected = [tiny.gradients(policy, rows) for rows in (of_first, of_others)]
    products.clear()
    with reused(policy, kept):
        assert_same(tiny.gradients(policy, of_first), expected[0])
        assert products == [], "no layer computed anything again"
        assert_same(tiny.gradients(policy, of_others), expected[1])
    assert products != []


def _texts(rollout):
    """The tokens of the prompt and of the response, row by row."""
    for row in range(len(rollout)):
        prompt, response = rollout.prompt[row], rollout.response[row]
        yield tuple(prompt[rollout.prompt_mask[row]].tolist()), response[rollout.mask[row]].tolist()


def test_rows_that_were_not_sampled_are_computed(policy, products):
    rollout, kept = sampled(policy)
    response = rollout.response.clone()
    response[0, 0] += 1
    other = type(rollout)(**{**vars(rollout), "response": response})
    expected = tiny.gradients(policy, other)
    products.clear()
    with reused(policy, kept):
        assert_same(tiny.gradients(policy, other), expected)
    assert products != []


def test_other_models_do_not_use_the_cache(policy, tiny_model):
    policy.freeze_reference()
    rollout, kept = sampled(policy)
    with reused(policy, kept), policy.reference():
        policy.scores(rollout)
    assert kept.taken == 0


def test_scoring_without_gradients_leaves_the_cache_as_it_is(policy, products):
    rollout, kept = sampled(policy)
    expected = tiny.gradients(policy, rollout)
    with reused(policy, kept):
        with torch.no_grad():
            policy.scores(rollout)
        assert kept.taken == 0
        products.clear()
        assert_same(tiny.gradients(policy, rollout), expected)
    assert products == []


def test_kept_activations_that_disagree_with_a_forward_pass_are_refused(policy):
    rollout, kept = sampled(policy)
    policy.engine._verified = False
    for group, _ in kept._index.values():
        group.activations[kept.layers[-1]].y.add_(torch.linspace(0, 3, policy.width))
    with reused(policy, kept), pytest.raises(TutelageError, match=r"kept from sampling.*--engine plain"):
        policy.scores(rollout)


@pytest.mark.parametrize("limit", [1, 2])
def test_responses_of_one_token_or_none(policy, limit, products):
    rollout, kept = sampled(policy, limit=limit)
    expected = tiny.gradients(policy, rollout)
    products.clear()
    with reused(policy, kept):
        assert_same(tiny.gradients(policy, rollout), expected)
    assert products == []


def test_layers_with_hooks_are_computed(policy):
    rollout, kept = sampled(policy)
    expected = tiny.gradients(policy, rollout)
    heard = []
    handle = trunk(policy.model).layers[0].mlp.register_forward_hook(lambda *_: heard.append(1))
    with reused(policy, kept):
        assert_same(tiny.gradients(policy, rollout), expected)
    handle.remove()
    assert heard


def test_prompts_that_other_code_computed_are_recomputed(policy):
    """A backward hook does not affect decoding; it does affect the layers that compute the prompts."""
    handle = trunk(policy.model).layers[0].mlp.register_full_backward_hook(lambda *_: None)
    rollout, kept = sampled(policy)
    handle.remove()
    expected = tiny.gradients(policy, rollout)
    with reused(policy, kept):
        assert_same(tiny.gradients(policy, rollout), expected)
    assert kept.taken == 0


@pytest.mark.parametrize("share", ["OF_TRAINING", "OF_MEMORY"])
def test_activations_beyond_the_limit_are_not_kept(policy, share, monkeypatch):
    monkeypatch.setattr(activations, share, 0.0)
    rollout, kept = sampled(policy)
    assert len(kept) == 0
    assert torch.equal(rollout.response, sampled(policy)[0].response)


@pytest.mark.parametrize(("rank", "first"), every_value([0, 3], [None, "b"]))
def test_the_limit_counts_all_responses_at_full_length_and_all_weights(tiny_model, rank, first, monkeypatch):
    policy = policy_of(tiny_model("llama"), rank)
    held = 16 * sum(p.numel() for p in policy.model.parameters())
    of_token = [activations._bytes_per_token(layer, False) for layer in trunk(policy.model).layers]
    bytes_kept = (12 + 16 * (LONG - 1)) * sum(of_token)
    for share, fits in ((1.001, True), (0.999, False)):
        monkeypatch.setattr(activations, "OF_TRAINING", share * bytes_kept / held)
        kept = sampled(policy, first=first)[1]
        assert bool(len(kept)) == fits
        for group, _ in kept._index.values():
            for layer, computed in group.activations.items():
                assert sum(x[0].nbytes for x in computed) == activations._bytes_per_token(layer, False)


@pytest.mark.parametrize(("family", "rank"), every_value(tiny.EVERY, [0, 2]))
def test_which_models_the_cache_supports(tiny_model, family, rank):
    model = policy_of(tiny_model(family), rank).model
    assert Capabilities(model).keeps_activations() == (family == "llama")


def test_on_processors_whose_layers_are_laid_out_for_prompts_too(policy, monkeypatch, products):
    monkeypatch.setattr("tutelage.engines.cpu.decoding_weights._mkl_is_faster", lambda: False)
    rollout, kept = sampled(policy)
    expected = tiny.gradients(policy, rollout)
    products.clear()
    with reused(policy, kept):
        assert_same(tiny.gradients(policy, rollout), expected)
    assert products == []


def test_sampling_with_the_cache_gives_the_same_tokens(policy):
    rollout, _ = sampled(policy)
    plain = policy.generate(PROMPTS, 4, config.Sampling(max_new_tokens=LONG), seed=4)
    assert torch.equal(rollout.response, plain.response)
    torch.testing.assert_close(rollout.logp, plain.logp, rtol=1e-6, atol=1e-6)
