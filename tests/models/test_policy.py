"""A policy's log-probabilities against the plain computation: one row at a time, without padding, with all logits."""

import itertools
import math
from dataclasses import replace
from itertools import product

import pytest
import tiny
import torch
from offenders import for_each
from tiers import every_value
from transformers import AutoModelForCausalLM, CohereConfig, GraniteConfig, PhiConfig

from tutelage.base import config
from tutelage.base.errors import TutelageError
from tutelage.core.batch import Rollout, Rows
from tutelage.core.rows import EncodedRow, by_tokens, collate
from tutelage.engines import logprobs
from tutelage.engines.interface import PromptTokens
from tutelage.engines.logprobs import Head, token_scores
from tutelage.engines.network import Backbone
from tutelage.models.backbone import adapter_dropout, load_backbone
from tutelage.models.policy import Policy, perplexity, response_logp, sequence_kl

CPU = torch.device("cpu")
PAD = 1
LENGTHS = ((3, 5), (1, 1), (14, 9), (7, 2), (2, 12), (9, 1))  # of prompt and response; the window of Gemma is 8


def encoded_rows(lengths=LENGTHS, seed=0, vocabulary=300):
    generator = torch.Generator().manual_seed(seed)

    def ids(count):
        return tuple(torch.randint(0, vocabulary, (count,), generator=generator).tolist())

    return [EncodedRow(ids(q), ids(r)) for q, r in lengths]


def load(folder, rank=None):
    lora = None if rank is None else config.Lora(rank=rank)
    return Policy(load_backbone(config.Model(folder, device="cpu"), lora))


def stir(parameters, by=0.1, seed=1):
    """Change parameters, so that an adapter has an effect."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in parameters:
            parameter += by * torch.randn(parameter.shape, generator=generator)


def plain(model, rows, temperature=1.0):
    """[(log-probabilities, entropies)] of each row, straight from the definition."""
    found = []
    for row in rows:
        logits = model(input_ids=torch.tensor([row.prompt + row.response])).logits[0].float() / temperature
        distribution = torch.distributions.Categorical(logits=logits[len(row.prompt) - 1 : -1])
        found.append((distribution.log_prob(torch.tensor(row.response)), distribution.entropy()))
    return found


def weighted(logp, entropy, mask, seed=5):
    """A number that depends on every log-probability and entropy differently."""
    generator = torch.Generator().manual_seed(seed)
    a, b = (torch.randn(mask.shape, generator=generator) for _ in range(2))
    return (a * logp + b * entropy)[mask].sum()


def spread(parts, mask):
    """Ragged values as [B, R], zeros elsewhere."""
    out = torch.zeros(mask.shape)
    return out.masked_scatter(mask, torch.cat(parts))


def gradients(parameters):
    found = [torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in parameters]
    for parameter in parameters:
        parameter.grad = None
    return found


def assert_same_gradients(got, expected):
    assert any(g.abs().sum() > 0 for g in expected)
    scale = max(float(g.abs().max()) for g in expected)
    for one, other in zip(got, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5 * scale)


def in_chunks_of(elements, monkeypatch, kept=0):
    """Have so many logits computed at once, and up to `kept` logits kept for the backward pass."""
    monkeypatch.setattr(logprobs, "CHUNK_ELEMENTS", elements)
    monkeypatch.setattr(logprobs, "KEPT_ELEMENTS", kept)


@pytest.mark.parametrize(("kept", "products"), [(11 * 10, 4), (11 * 10 - 1, 8)])
def test_logits_that_are_kept_are_not_computed_again(kept, products, monkeypatch):
    """A second backward pass has to, since the first one writes its gradients over them."""
    in_chunks_of(11 * 3, monkeypatch, kept)
    states, weight = torch.randn(10, 5, requires_grad=True), torch.randn(11, 5, requires_grad=True)
    computed = []

    def linear(weight, bias):
        return lambda x: computed.append(len(x)) or torch.nn.functional.linear(x, weight, bias)

    kernels = replace(logprobs.PLAIN_KERNELS, linear=linear)
    logp, _ = token_scores(states, Head(weight), torch.arange(10), kernels=kernels)
    logp.sum().backward(retain_graph=True)
    assert len(computed) == products
    once = weight.grad.clone()
    logp.sum().backward()
    assert len(computed) == products + 4
    torch.testing.assert_close(weight.grad, 2 * once)


@pytest.mark.parametrize(("family", "rank"), every_value(tiny.EVERY, [0, 2]))
def test_scores_and_gradients_are_those_of_the_plain_computation(tiny_model, family, rank, monkeypatch):
    in_chunks_of(300 * 4, monkeypatch)  # several, the last one short
    policy = load(tiny_model(family), rank)
    stir(policy.parameters())
    rows = encoded_rows()
    batch = collate(rows, PAD, CPU)

    scores = policy.scores(batch, temperature=0.7, entropy=True)
    weighted(scores.logp, scores.entropy, batch.mask).backward()
    got = gradients(policy.parameters())

    expected = plain(policy.model, rows, temperature=0.7)
    logp, entropy = (spread([pair[i] for pair in expected], batch.mask) for i in (0, 1))
    weighted(logp, entropy, batch.mask).backward()

    torch.testing.assert_close(scores.logp, logp, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(scores.entropy, entropy, rtol=1e-5, atol=1e-5)
    assert_same_gradients(got, gradients(policy.parameters()))
    assert policy.head.weight is not None, "the memory-saving path must serve every family"


@for_each(tiny.EVERY)
def test_padding_order_and_other_rows_change_nothing(family, tiny_model):
    policy = load(tiny_model(family))
    rows = encoded_rows()
    batch = collate(rows, PAD, CPU)
    with torch.no_grad():
        expected = policy.scores(batch).logp

        wide = Rows(
            prompt=torch.nn.functional.pad(batch.prompt, (5, 0), value=PAD),
            prompt_mask=torch.nn.functional.pad(batch.prompt_mask, (5, 0)),
            response=torch.nn.functional.pad(batch.response, (0, 3), value=PAD),
            mask=torch.nn.functional.pad(batch.mask, (0, 3)),
        )
        torch.testing.assert_close(policy.scores(wide).logp[:, :-3], expected, rtol=1e-5, atol=1e-5)
        assert not policy.scores(wide).logp[:, -3:].any()

        garbage = Rows(
            prompt=torch.where(batch.prompt_mask, batch.prompt, 7),
            prompt_mask=batch.prompt_mask,
            response=torch.where(batch.mask, batch.response, 8),
            mask=batch.mask,
        )
        torch.testing.assert_close(policy.scores(garbage).logp, expected, rtol=1e-5, atol=1e-5)

        order = torch.tensor([4, 2, 0, 5, 1, 3])
        torch.testing.assert_close(policy.scores(batch.rows(order)).logp, expected[order], rtol=1e-5, atol=1e-5)

        for budget in (1, 20, 40):
            got = torch.zeros_like(expected)
            for index in by_tokens(batch.lengths(), budget):
                part = batch.rows(index).trimmed()
                got[index, : part.mask.shape[1]] = policy.scores(part).logp
            torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)


@for_each([1, 7, 16, 30, 1000])
def test_micro_batches_hold_every_row_once_and_stay_within_the_budget(budget):
    lengths = torch.tensor([8, 2, 21, 9, 3, 14, 10, 1])
    parts = list(by_tokens(lengths, budget))
    assert sorted(torch.cat(parts).tolist()) == list(range(8))
    assert all(len(part) == 1 or len(part) * int(lengths[part].max()) <= budget for part in parts)


@for_each(
    [
        PhiConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16),  # head has a bias
        CohereConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, logit_scale=3.0),
        GraniteConfig(
            hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, logits_scaling=0.2
        ),
    ],
    lambda settings: settings.model_type,
)
def test_biases_and_scales_of_other_heads_are_kept(settings, monkeypatch):
    in_chunks_of(300 * 4, monkeypatch)
    settings.vocab_size, settings.initializer_range = 300, 0.2
    settings.eos_token_id = settings.bos_token_id = settings.pad_token_id = 0
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(settings).eval()
    stir(model.parameters(), by=0.05)
    policy = Policy(Backbone(model, tiny.tokenizer(), CPU, torch.float32))
    assert policy.head.weight is not None
    rows = encoded_rows()
    batch = collate(rows, PAD, CPU)
    scores = policy.scores(batch, entropy=True)
    weighted(scores.logp, scores.entropy, batch.mask).backward()
    got = gradients(policy.parameters())
    expected = plain(model, rows)
    logp, entropy = (spread([pair[i] for pair in expected], batch.mask) for i in (0, 1))
    weighted(logp, entropy, batch.mask).backward()
    torch.testing.assert_close(scores.logp, logp, rtol=1e-5, atol=1e-5)
    assert_same_gradients(got, gradients(policy.parameters()))


def test_an_architecture_that_transforms_its_logits_computes_them_itself(tiny_model):
    """Where head(trunk(x)) is not what the model says, the policy falls back on the model's own logits."""
    backbone = load_backbone(config.Model(tiny_model("llama"), device="cpu"), config.Lora())
    model = backbone.model
    original = type(model).forward

    class Odd(type(model)):
        def forward(self, *args, **kwargs):
            out = original(self, *args, **kwargs)
            out.logits = out.logits * 1.5 + torch.arange(300) / 100
            return out

    model.__class__ = Odd
    policy = Policy(backbone)
    policy.freeze_reference()
    rows = encoded_rows()
    batch = collate(rows, PAD, CPU)
    got = policy.scores(batch).logp
    expected = spread([pair[0] for pair in plain(model, rows)], batch.mask)
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)
    with policy.reference():
        torch.testing.assert_close(policy.scores(batch).logp, expected.detach(), rtol=1e-5, atol=1e-5)


@for_each(product([False, True], [None, 2.0], [1.0, 0.3], [1.0, 0.6], [0, 11 * 10]))
def test_the_chunked_head_has_the_gradient_of_the_plain_one(bias, softcap, scale, temperature, kept, monkeypatch):
    in_chunks_of(11 * 3, monkeypatch, kept)
    torch.manual_seed(3)
    states, weight = torch.randn(10, 5, requires_grad=True), torch.randn(11, 5, requires_grad=True)
    offset = torch.randn(11, requires_grad=True) if bias else None
    tokens = torch.randint(0, 11, (10,))
    leaves = [x for x in (states, weight, offset) if x is not None]

    logp, entropy = token_scores(
        states, Head(weight, offset, scale, softcap), tokens, temperature=temperature, entropy=True
    )
    everywhere = torch.ones(10, dtype=torch.bool)
    weighted(logp, entropy, everywhere).backward()
    got = gradients(leaves)

    raw = scale * (states @ weight.T + (0 if offset is None else offset))
    logits = raw if softcap is None else softcap * torch.tanh(raw / softcap)
    true = torch.distributions.Categorical(logits=logits / temperature)
    weighted(true.log_prob(tokens), true.entropy(), everywhere).backward()
    torch.testing.assert_close(logp, true.log_prob(tokens), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(entropy, true.entropy(), rtol=1e-5, atol=1e-5)
    assert_same_gradients(got, gradients(leaves))


def test_in_bfloat16_the_gradient_belongs_to_the_log_probabilities_that_were_computed(monkeypatch):
    """The backward pass rebuilds the logits; under autocast it has to rebuild the same ones."""
    in_chunks_of(50 * 4, monkeypatch)
    torch.manual_seed(0)
    states, weight = 3 * torch.randn(9, 32), torch.randn(50, 32, requires_grad=True)
    bias, tokens = torch.randn(50, requires_grad=True), torch.randint(0, 50, (9,))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logp, _ = token_scores(states, Head(weight, bias), tokens)
    logp.sum().backward()
    got = gradients([weight, bias])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = torch.nn.functional.linear(states, weight, bias)
    expected_logp = logits.float().log_softmax(-1).gather(1, tokens[:, None]).squeeze(1)
    expected_logp.sum().backward()
    torch.testing.assert_close(logp, expected_logp, rtol=1e-5, atol=1e-5)
    for one, other in zip(got, gradients([weight, bias]), strict=True):
        assert (one - other).norm() < 0.01 * other.norm()  # products are rounded to 8 bits, sums are not


def test_lora_on_the_head_itself(tiny_model, monkeypatch):
    in_chunks_of(16 * 4, monkeypatch)
    lora = config.Lora(rank=2, targets="q_proj,lm_head")
    policy = Policy(load_backbone(config.Model(tiny_model("llama"), device="cpu"), lora))
    stir(policy.parameters())
    assert policy.head.module is not None
    rows = encoded_rows()
    batch = collate(rows, PAD, CPU)
    scores = policy.scores(batch, entropy=True)
    weighted(scores.logp, scores.entropy, batch.mask).backward()
    got = gradients(policy.parameters())
    expected = plain(policy.model, rows)
    logp, entropy = (spread([pair[i] for pair in expected], batch.mask) for i in (0, 1))
    weighted(logp, entropy, batch.mask).backward()
    torch.testing.assert_close(scores.logp, logp, rtol=1e-5, atol=1e-5)
    assert_same_gradients(got, gradients(policy.parameters()))


def test_an_unknown_layer_is_refused_with_the_known_ones(tiny_model):
    with pytest.raises(TutelageError, match="q_proj"):
        load_backbone(config.Model(tiny_model("llama"), device="cpu"), config.Lora(rank=2, targets="query"))


# The reference ----------------------------------------------------------------------------------------------


def continued_adapter(tiny_model, tmp_path, rank=2):
    """A folder with an adapter that was trained before."""
    policy = load(tiny_model("llama"), rank)
    stir(policy.parameters(), by=0.3, seed=9)
    policy.save(tmp_path / "adapter")
    return str(tmp_path / "adapter")


@for_each(["full", "lora", "continued"])
def test_the_reference_is_the_policy_as_it_was(kind, tiny_model, tmp_path):
    folder = continued_adapter(tiny_model, tmp_path) if kind == "continued" else tiny_model("llama")
    policy = load(folder, 0 if kind == "full" else 2)
    batch = collate(encoded_rows(), PAD, CPU)
    before = policy.scores(batch).logp.detach()
    names = {name for name, p in policy.model.named_parameters() if p.requires_grad}
    policy.freeze_reference()
    with policy.reference():
        assert torch.equal(policy.scores(batch).logp, before)
    assert {name for name, p in policy.model.named_parameters() if p.requires_grad} == names

    stir(policy.parameters(), by=0.3)
    moved = policy.scores(batch).logp.detach()
    assert (moved - before).abs().max() > 0.1
    kept = [p.detach().clone() for p in policy.parameters()]
    with policy.reference():
        asked = policy.scores(batch).logp
        assert not asked.requires_grad
        assert torch.equal(asked, before)
    assert torch.equal(policy.scores(batch).logp, moved)
    assert all(torch.equal(a, b) for a, b in zip(kept, policy.parameters(), strict=True))
    policy.scores(batch).logp.sum().backward()
    assert all(p.grad is not None for p in policy.parameters())
    assert {name for name, p in policy.model.named_parameters() if p.requires_grad} == names


def test_gradients_survive_a_pass_through_the_reference(tiny_model, tmp_path):
    policy = load(continued_adapter(tiny_model, tmp_path), 2)
    policy.freeze_reference()
    batch = collate(encoded_rows(), PAD, CPU)
    loss = policy.scores(batch).logp.sum()
    with policy.reference():
        policy.scores(batch)
    loss.backward()
    got = gradients(policy.parameters())
    policy.scores(batch).logp.sum().backward()
    for one, other in zip(got, gradients(policy.parameters()), strict=True):
        assert torch.equal(one, other)


def test_a_policy_leaves_the_reference_even_when_something_fails_inside(tiny_model):
    policy = load(tiny_model("gpt2"), 0)
    policy.freeze_reference()
    model = policy.model
    with pytest.raises(RuntimeError, match="inside"), policy.reference():
        raise RuntimeError("inside")
    assert policy.model is model


# Saving and loading -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("family", "rank"), every_value(tiny.EVERY, [0, 2]))
def test_what_is_saved_loads_with_plain_transformers(tiny_model, tmp_path, family, rank):
    policy = load(tiny_model(family), rank)
    stir(policy.parameters())
    rows = encoded_rows()
    with torch.no_grad():
        expected = policy.scores(collate(rows, PAD, CPU)).logp
    policy.save(tmp_path / "checkpoint")
    policy.save_whole(tmp_path / "model")
    for folder in ("checkpoint", "model"):
        model = AutoModelForCausalLM.from_pretrained(tmp_path / folder, dtype=torch.float32)
        with torch.no_grad():
            got = spread([pair[0] for pair in plain(model, rows)], expected != 0)
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)
    with torch.no_grad():  # and saving changed nothing
        assert torch.equal(policy.scores(collate(rows, PAD, CPU)).logp, expected)
    assert not (tmp_path / "model" / "adapter_config.json").exists()


def test_an_adapter_is_continued_or_merged(tiny_model, tmp_path):
    folder = continued_adapter(tiny_model, tmp_path)
    batch = collate(encoded_rows(), PAD, CPU)
    whole, merged, continued = load(folder), load(folder, 0), load(folder, 2)
    with torch.no_grad():
        expected = continued.scores(batch).logp
        for other in (whole, merged):
            torch.testing.assert_close(other.scores(batch).logp, expected, rtol=1e-4, atol=1e-4)
    assert len(merged.parameters()) == len(load(tiny_model("llama"), 0).parameters())
    continued.freeze_reference()
    stir(continued.parameters())
    continued.save(tmp_path / "again")
    with torch.no_grad():
        torch.testing.assert_close(load(str(tmp_path / "again"), 2).scores(batch).logp, continued.scores(batch).logp)
    with pytest.raises(TutelageError, match=r"rank 2.*--lora.rank is 4"):
        load(folder, 4)


@pytest.mark.parametrize("engine", ["plain", "cpu"])
def test_weights_are_rounded_for_inference_in_bf16_and_rotary_frequencies_are_not(tiny_model, engine):
    rounded, exact = (
        load_backbone(config.Model(tiny_model("llama"), device="cpu", engine=engine, dtype=dtype)).model
        for dtype in ("bf16", "float32")
    )
    assert {weight.dtype for weight in rounded.parameters()} == {torch.bfloat16}
    frequencies = dict(exact.named_buffers())
    assert any("inv_freq" in name for name in frequencies)
    for name, buffer in rounded.named_buffers():
        assert torch.equal(buffer, frequencies[name])


def test_dropout_of_the_base_model_is_off(tiny_model):
    """OPT is saved with dropout .1; with it on, two passes would differ."""
    policy = load(tiny_model("opt"), 0)
    policy.model.train()
    batch = collate(encoded_rows(), PAD, CPU)
    with torch.no_grad():
        assert torch.equal(policy.scores(batch).logp, policy.scores(batch).logp)


def test_dropout_of_an_adapter_is_off_until_a_step_wants_it(tiny_model):
    lora = config.Lora(rank=4, dropout=0.5)
    policy = Policy(load_backbone(config.Model(tiny_model("llama"), device="cpu"), lora))
    stir(policy.parameters())
    batch = collate(encoded_rows(), PAD, CPU)
    with torch.no_grad():
        first = policy.scores(batch).logp
        assert torch.equal(policy.scores(batch).logp, first)
        adapter_dropout(policy.model, True)
        assert not torch.allclose(policy.scores(batch).logp, first)
        adapter_dropout(policy.model, False)
        assert torch.equal(policy.scores(batch).logp, first)


def test_a_new_adapter_is_a_function_of_the_seed(tiny_model):
    def first(seed):
        torch.rand(seed + 3)  # whatever happened before
        model = config.Model(tiny_model("llama"), device="cpu")
        return Policy(load_backbone(model, config.Lora(rank=2), seed=seed)).parameters()

    assert all(torch.equal(a, b) for a, b in zip(first(1), first(1), strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(first(1), first(2), strict=True))


# Divergence and perplexity, against enumeration of everything that a tiny model can say -------------------------------

PROMPT = (40, 41, 42)


def endless(folder):
    """A policy without an end token."""
    policy = load(folder, 0)
    policy.end_ids = ()
    return policy


def nudged(folder, by):
    policy = endless(folder)
    stir(policy.parameters(), by)
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
    first, second = endless(tiny_model("llama")), nudged(tiny_model("llama"), 0.05)
    asked = config.Sampling(temperature=temperature, max_new_tokens=2)
    rollout = first.generate(PromptTokens((PROMPT,), ("a",)), 3000, asked, seed=1, rows_at_once=3000)
    got, error = sequence_kl(rollout, second, temperature=temperature)
    truth = true_kl(first, second, temperature)
    assert truth > 0.05
    assert abs(got - truth) < 4 * error
    assert error < 0.2 * truth
    assert sequence_kl(rollout, first, temperature=temperature)[0] == pytest.approx(0.0, abs=1e-4)


def test_the_error_is_that_of_a_mean_and_unknown_for_one_answer(tiny_model):
    policy = endless(tiny_model("gpt2"))
    other = nudged(tiny_model("gpt2"), 0.05)
    rollout = policy.generate(PromptTokens((PROMPT,), ("a",)), 20, config.Sampling(max_new_tokens=4), seed=1)
    per_answer = [sequence_kl(rollout.rows(torch.tensor([i])), other, temperature=1.0) for i in range(20)]
    assert all(math.isnan(error) for _, error in per_answer)
    values = torch.tensor([value for value, _ in per_answer], dtype=torch.float64)
    got, error = sequence_kl(rollout, other, temperature=1.0, budget=17)
    assert got == pytest.approx(float(values.mean()), rel=1e-4)
    assert error == pytest.approx(float(values.std() / math.sqrt(20)), rel=1e-4)


def test_perplexity_is_the_inverse_geometric_mean_probability(tiny_model):
    policy = endless(tiny_model("opt"))
    rows = [EncodedRow((40, 41), (50, 60, 70)), EncodedRow((42,), (51,))]
    logs = []
    for row in rows:
        for t, token in enumerate(row.response):
            logs.append(float(distribution(policy, row.prompt + row.response[:t], 1.0)[token]))
    got = perplexity(policy, collate(rows, 1, CPU))
    assert got == pytest.approx(math.exp(-sum(logs) / 4), rel=1e-4)
    assert got == pytest.approx(math.prod(math.exp(-x) for x in logs) ** 0.25, rel=1e-4)


def test_the_probabilities_of_all_answers_add_up_to_one(tiny_model):
    policy = endless(tiny_model("qwen3"))
    rows = [EncodedRow(PROMPT, (token,)) for token in range(300)]
    batch = collate(rows, 1, CPU)
    for temperature in (0.5, 1.0):
        logp = response_logp(policy, batch, temperature=temperature, budget=50)
        assert float(logp.exp().sum()) == pytest.approx(1.0, abs=1e-4)


def test_a_rollout_of_several_prompts_needs_no_order(tiny_model):
    policy, other = endless(tiny_model("llama")), nudged(tiny_model("llama"), 0.05)
    prompts = PromptTokens((PROMPT, (9,)), ("a", "b"))
    rollout = policy.generate(prompts, 3, config.Sampling(max_new_tokens=3), seed=1)
    assert isinstance(rollout, Rollout)
    expected = sequence_kl(rollout, other, temperature=1.0)[0]
    for order in itertools.islice(itertools.permutations(range(6)), 0, 720, 239):
        got = sequence_kl(rollout.rows(torch.tensor(order)), other, temperature=1.0, budget=20)[0]
        assert got == pytest.approx(expected, rel=1e-4)
