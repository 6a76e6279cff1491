"""Whole models on packed rows that share prompts: each prompt is computed once, and no padding is."""

import logging
from itertools import chain, combinations

import pytest
import tiny
import torch
from tiers import every_value, long_except

from tutelage.base import config
from tutelage.core.batch import Pairs
from tutelage.core.rows import COMMON, EncodedRow, RowList, by_shared_tokens, collate, common_tokens, shares
from tutelage.engines import packing
from tutelage.engines.cpu import cpu_engine
from tutelage.engines.cpu.capabilities import Capabilities
from tutelage.engines.cpu.forward_pass import differentiable_twice
from tutelage.engines.network import inner
from tutelage.engines.plain import PlainEngine
from tutelage.models.backbone import load_backbone
from tutelage.models.heads import new_reward_model
from tutelage.models.policy import Policy
from tutelage.train.supervised.reward_model import row_scores, row_states

CPU = torch.device("cpu")
PAD = 1
FAMILIES = ("llama", "qwen3", "gpt2", "opt", "gemma3")
GROUPS = ((3, (5, 2, 7)), (1, (4, 4)), (14, (9, 1, 0, 12)), (7, (2,)), (2, (0,)), (9, (0, 0)), (1, (1,)))


def groups(shape=GROUPS, seed=0, common=0):
    """Rows in groups of different sizes, shuffled: ragged prompts, of one token too, and responses, some empty. All
    prompts begin with the same `common` tokens."""
    generator = torch.Generator().manual_seed(seed)

    def ids(count):
        return tuple(torch.randint(10, 299, (count,), generator=generator).tolist())

    rows, first = [], ids(common)
    for prompt, responses in shape:
        start = (*first, *ids(prompt))
        rows += [EncodedRow(start, ids(length)) for length in responses]
    return [rows[i] for i in torch.randperm(len(rows), generator=generator).tolist()]


def folder_of(tiny_model, family):
    """The folder of a tiny model whose window, where it has one, is not shorter than the rows."""
    return tiny_model(family, **({"sliding_window": 32} if family == "gemma3" else {}))


def policy_of(folder, rank=0, **more):
    policy = Policy(load_backbone(config.Model(folder, device="cpu", **more), config.Lora(rank=rank)))
    stir(policy.parameters())
    return policy


def stir(parameters, by=0.1):
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in parameters:
            parameter += by * torch.randn(parameter.shape, generator=generator)


def one_by_one(model, rows):
    """Hidden states of whole rows as the model itself computes them, each alone and without padding."""
    return [
        inner(model).base_model(input_ids=torch.tensor([row.prompt + row.response])).last_hidden_state[0]
        for row in rows
    ]


def weights_like(x, seed=3):
    return torch.randn(x.shape, generator=torch.Generator().manual_seed(seed))


def gradients(loss, parameters):
    return torch.autograd.grad(loss, parameters, materialize_grads=True, retain_graph=True)


def same_gradients(got, expected):
    scale = max(float(g.abs().max()) for g in expected)
    assert scale > 0
    for one, other in zip(got, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5 * scale)


@pytest.fixture
def reading(monkeypatch):
    """The number of tokens of each forward pass through a trunk."""
    counts = []
    line, aligned = cpu_engine.packed_states, PlainEngine._aligned

    def counted_line(model, tokens, positions):
        counts.append(len(tokens))
        return line(model, tokens, positions)

    def counted_aligned(engine, rows):
        out = aligned(engine, rows)
        counts.append(out.shape[0] * out.shape[1])
        return out

    monkeypatch.setattr(cpu_engine, "packed_states", counted_line)
    monkeypatch.setattr(PlainEngine, "_aligned", counted_aligned)
    return counts


@pytest.mark.parametrize(("family", "rank"), every_value(FAMILIES, [0, 2]))
@pytest.mark.parametrize(("short", "common"), [(packing.SHORT, 0), (1, 0), (packing.SHORT, COMMON)])
def test_log_probabilities_and_gradients_are_those_of_each_row_alone(
    tiny_model, family, rank, short, common, monkeypatch
):
    monkeypatch.setattr(packing, "SHORT", short)
    policy = policy_of(folder_of(tiny_model, family), rank)
    rows = groups(common=common)
    batch = collate(rows, PAD, CPU)
    got = policy.scores(batch, entropy=True)

    logp, entropy = [], []
    for row, hidden in zip(rows, one_by_one(policy.model, rows), strict=True):
        every = policy.head.logits(hidden[len(row.prompt) - 1 : -1]).log_softmax(-1)
        logp.append(every.gather(1, torch.tensor(row.response, dtype=torch.long)[:, None]).squeeze(1))
        entropy.append(-(every.exp() * every).sum(1))
    expected = torch.cat(logp), torch.cat(entropy)
    for one, other in zip((got.logp, got.entropy), expected, strict=True):
        torch.testing.assert_close(one[batch.mask], other, rtol=1e-5, atol=1e-5)
    loss = (weights_like(expected[0]) * (got.logp + 0.1 * got.entropy)[batch.mask]).sum()
    wanted = (weights_like(expected[0]) * (expected[0] + 0.1 * expected[1])).sum()
    same_gradients(gradients(loss, policy.parameters()), gradients(wanted, policy.parameters()))


WAYS = ((0, 0), (2, 0), (2, COMMON))
EACH_WAY = [(family, *WAYS[2 * (number % 2)]) for number, family in enumerate(FAMILIES)]


@pytest.mark.parametrize(
    ("family", "rank", "common"), long_except(EACH_WAY, [(family, *way) for family in FAMILIES for way in WAYS])
)
def test_rewards_and_values_and_gradients_are_those_of_each_row_alone(tiny_model, family, rank, common):
    model = new_reward_model(config.Model(folder_of(tiny_model, family), device="cpu"), config.Lora(rank=rank), seed=0)
    stir(model.parameters())
    rows = groups(common=common)
    batch = collate(rows, model.tokenizer.pad_token_id, CPU)
    hidden = one_by_one(model.model, rows)
    scores = torch.stack([model.head(states[-1])[0] for states in hidden])
    values = torch.cat(
        [model.head(states[len(row.prompt) - 1 : -1])[:, 0] for row, states in zip(rows, hidden, strict=True)]
    )
    for got, expected in ((model.scores(batch), scores), (model.values(batch)[batch.mask], values)):
        torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)
        weight = weights_like(expected)
        same_gradients(
            gradients((got * weight).sum(), model.parameters()),
            gradients((expected * weight).sum(), model.parameters()),
        )


@pytest.mark.parametrize("common", [0, COMMON])
def test_each_prompt_is_computed_once_and_padding_never(tiny_model, common):
    """Counted at the trunk's input; tokens that predict nothing are not computed for log-probabilities either."""
    policy = policy_of(tiny_model("llama"))
    model = new_reward_model(config.Model(tiny_model("llama"), device="cpu"), config.Lora(rank=0), seed=0)
    rows = groups(common=common)
    batch = collate(rows, PAD, CPU)

    def compute():
        for score in (policy.scores, model.scores, model.values):
            score(batch)

    compute()  # the first time a model is tried, on a few tokens
    entered = []
    for trunk in (policy.model.model, model.model.model):
        trunk.embed_tokens.register_forward_hook(lambda module, inputs, out: entered.append(inputs[0].numel()))
    compute()
    prompts = common + sum(len(prompt) - common for prompt in {row.prompt for row in rows})
    spoken = [len(row.response) for row in rows]
    predicting = prompts + sum(max(0, length - 1) for length in spoken)
    assert entered == [predicting, prompts + sum(spoken), predicting]


@pytest.mark.parametrize("family", ["llama", "gpt2"])
@torch.no_grad()
def test_order_and_other_rows_change_nothing(tiny_model, family):
    policy = policy_of(tiny_model(family))
    batch = collate(groups(), PAD, CPU)
    expected = policy.scores(batch).logp
    order = torch.randperm(len(batch), generator=torch.Generator().manual_seed(5))
    torch.testing.assert_close(policy.scores(batch.rows(order)).logp, expected[order], rtol=1e-5, atol=1e-5)
    for index in order[:5]:
        alone = policy.scores(batch.rows(index[None])).logp
        torch.testing.assert_close(alone[0], expected[index], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("family", ["llama", "opt"])
@pytest.mark.usefixtures("multiplying")
@torch.no_grad()
def test_bfloat16_differs_by_its_rounding_alone(tiny_model, family, monkeypatch):
    """Packed rows and single rows are equally far from float32."""
    batch = collate(groups(), PAD, CPU)
    exact = policy_of(tiny_model(family)).scores(batch).logp
    rounded = policy_of(tiny_model(family), dtype="bf16")
    together = rounded.scores(batch).logp
    monkeypatch.setattr(Capabilities, "shares_prompts", lambda capabilities, rows: False)
    apart = rounded.scores(batch).logp
    assert together.dtype == torch.float32
    assert 0 < (together - exact).norm() < 1.5 * (apart - exact).norm()


def test_second_derivatives_are_those_of_each_row_alone(tiny_model):
    """The curvature along a direction, as a natural gradient needs it."""
    policy = policy_of(tiny_model("qwen3"), 2)
    rows = groups()
    batch = collate(rows, PAD, CPU)
    weight = weights_like(torch.zeros(int(batch.mask.sum()), 300))

    def curvature(logits):
        slopes = torch.autograd.grad((logits.log_softmax(-1) * weight).sum(), parameters, create_graph=True)
        return gradients(sum((slope * weights_like(slope)).sum() for slope in slopes), parameters)

    parameters = policy.parameters()
    with differentiable_twice():
        got = curvature(policy.logits(batch))
        apart = [
            policy.head.logits(hidden[len(row.prompt) - 1 : -1])
            for row, hidden in zip(rows, one_by_one(policy.model, rows), strict=True)
        ]
        expected = curvature(torch.cat(apart))
    same_gradients(got, expected)


def test_the_reference_and_the_adapter_share_prompts_too(tiny_model, reading):
    policy = policy_of(tiny_model("llama"), 2)
    policy._fresh_adapter = True
    batch = collate(groups(), PAD, CPU)
    with policy.reference():
        apart = policy.scores(batch).logp
    scores = policy.scores(batch, divergence=1.0)
    assert len(set(reading)) == 1
    assert (apart - scores.logp).abs().max() > 0.01
    assert scores.divergence.sum() > 0


# Where it does not fit -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["gemma2", "gemma3"])
def test_unsupported_attention_is_computed_row_by_row_with_one_warning(tiny_model, family, caplog, reading):
    """Gemma 2 caps its scores; some layers of Gemma 3 have a window of 8 tokens, which concerns longer rows only."""
    policy = policy_of(tiny_model(family))
    short = collate(groups(((2, (3, 4)), (4, (4, 1)))), PAD, CPU)
    long = collate(groups(), PAD, CPU)
    with caplog.at_level(logging.WARNING, logger="tutelage"):
        for batch in (short, long, long):
            got = policy.scores(batch).logp
            assert torch.isfinite(got).all()
    width = [
        len({*rows}) * (batch.prompt.shape[1] + batch.response.shape[1])
        for rows, batch in ((groups(((2, (3, 4)), (4, (4, 1)))), short), (groups(), long))
    ]
    assert reading == [width[0] if family == "gemma2" else 2 + 2 + 3 + 4 + 3, width[1], width[1]]
    (said,) = caplog.messages
    assert "prompts are read once for each response" in said
    rows = groups()
    for row, hidden, found, mask in zip(rows, one_by_one(policy.model, rows), got, long.mask, strict=True):
        logits = policy.head.logits(hidden[len(row.prompt) - 1 : -1])
        expected = logits.log_softmax(-1).gather(1, torch.tensor(row.response, dtype=torch.long)[:, None])
        torch.testing.assert_close(found[mask], expected.squeeze(1), rtol=1e-5, atol=1e-5)


# Micro-batches ---------------------------------------------------------------------------------------------------


def tokens_of(rows):
    """The number of tokens that some rows cost."""
    rows = set(rows)
    return sum(len(prompt) for prompt in {row.prompt for row in rows}) + sum(len(r.response) for r in rows)


@pytest.mark.parametrize("budget", [1, 9, 20, 35, 10**6])
def test_micro_batches_count_what_is_computed_and_keep_groups_together(budget):
    rows = groups()
    parts = [index.tolist() for index in by_shared_tokens(shares(collate(rows, PAD, CPU)), budget)]
    assert sorted(chain(*parts)) == list(range(len(rows)))
    for part in parts:
        assert len(part) == 1 or tokens_of([rows[i] for i in part]) <= budget
    for prompt in {row.prompt for row in rows}:
        group = [i for i, row in enumerate(rows) if row.prompt == prompt]
        if tokens_of([rows[i] for i in group]) <= budget:
            assert sum(bool(set(group) & set(part)) for part in parts) == 1
    if budget == 10**6:
        assert len(parts) == 1


@pytest.mark.parametrize("budget", [1, 40, 70, 10**6])
@pytest.mark.parametrize("as_list", [False, True])
def test_micro_batches_count_what_all_prompts_begin_with_once(budget, as_list):
    rows = groups(common=COMMON + 4)
    batch = RowList(rows) if as_list else collate(rows, PAD, CPU)
    assert common_tokens(batch) == COMMON + 4
    assert common_tokens(RowList(rows[:1])) == len(rows[0].prompt), "all of the only prompt"
    assert common_tokens(RowList(groups(common=COMMON - 1))) == 0
    assert common_tokens(collate(groups(common=COMMON - 1), PAD, CPU)) == 0
    parts = [index.tolist() for index in by_shared_tokens(shares(batch), budget, common_tokens(batch))]
    assert sorted(chain(*parts)) == list(range(len(rows)))
    for part in parts:
        packed = packing.pack(collate([rows[i] for i in part], PAD, CPU), with_last=True, common=True)
        assert len(part) == 1 or len(packed.tokens) <= budget
    if budget == 70:
        cost = sum(
            len(packing.pack(collate([rows[i] for i in part], PAD, CPU), with_last=True).tokens) for part in parts
        )
        assert len(parts) < cost / budget, "more rows fit into a pass"


def pairs_of(rows, others):
    chosen, rejected = (collate(side, PAD, CPU) for side in (rows, others))
    ones = torch.ones(len(rows))
    return Pairs(chosen=chosen, rejected=rejected, p_chosen=ones, weight=ones, margin=0 * ones)


def test_pairs_stay_whole_and_their_prompt_counts_once(tiny_model, reading):
    rows = groups(((3, (5,)), (8, (4,)), (6, (9,))))
    others = [EncodedRow(row.prompt, (*row.response[::-1], 7)) for row in rows]
    pairs = pairs_of(rows, others)
    model = policy_of(tiny_model("llama"))
    sizes = [tokens_of([row, other]) for row, other in zip(rows, others, strict=True)]
    parts = [index.tolist() for index in model.split(pairs, max(sizes) + min(sizes))]
    assert sorted(chain(*parts)) == [0, 1, 2]
    assert len(parts) == 2
    model.scores(pairs.both())
    assert reading == [sum(sizes) - 2 * len(rows)]
    cut = pairs_of(rows, [EncodedRow(row.prompt[1:], row.response) for row in others])
    model.scores(cut.both())
    assert reading[-1] == tokens_of(rows + [EncodedRow(r.prompt[1:], r.response) for r in others]) - 2 * len(rows)


def all_pairs(counts=((3, (5, 4, 6, 5)), (4, (3, 7, 2, 4)))):
    """Every pair of four answers to each of two prompts, shuffled."""
    by_prompt = {}
    for row in groups(counts):
        by_prompt.setdefault(row.prompt, []).append(row)
    both = [pair for rows in by_prompt.values() for pair in combinations(rows, 2)]
    order = torch.randperm(len(both), generator=torch.Generator().manual_seed(1)).tolist()
    return [both[i][0] for i in order], [both[i][1] for i in order]


@pytest.mark.parametrize("spare", [0, -1])
def test_answers_of_several_pairs_count_once_and_their_pairs_are_neighbours(spare):
    rows, others = all_pairs()
    sizes = {
        prompt: tokens_of([row for row in rows + others if row.prompt == prompt])
        for prompt in {row.prompt for row in rows}
    }
    budget = max(sizes.values()) + spare
    parts = [index.tolist() for index in by_shared_tokens(shares(pairs_of(rows, others)), budget)]
    costs = [tokens_of([rows[i] for i in part] + [others[i] for i in part]) for part in parts]
    assert sorted(chain(*parts)) == list(range(len(rows)))
    assert max(costs) <= budget
    if spare == 0:
        assert len(parts) == 2
        assert sorted(costs) == sorted(sizes.values())
    else:
        alone = [tokens_of([row, other]) for row, other in zip(rows, others, strict=True)]
        assert sum(costs) < 0.7 * sum(alone)


def test_log_probabilities_of_equal_rows_are_computed_once(tiny_model, reading):
    rows, others = all_pairs()
    pairs = pairs_of(rows, others).both()
    policy = policy_of(tiny_model("llama"))
    scores = policy.scores(pairs, entropy=True)
    assert reading == [tokens_of(rows + others) - len({*rows, *others})]
    weight = weights_like(pairs.mask)
    found = gradients((weight * scores.logp).sum(), policy.parameters())
    total = [torch.zeros_like(p) for p in policy.parameters()]
    for number in range(len(pairs)):
        one = policy.scores(pairs.rows(torch.tensor([number])), entropy=True)
        torch.testing.assert_close(one.logp[0], scores.logp[number], rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(one.entropy[0], scores.entropy[number], rtol=1e-5, atol=1e-5)
        each = gradients((weight[number] * one.logp[0]).sum(), policy.parameters())
        total = [a + b for a, b in zip(total, each, strict=True)]
    same_gradients(found, total)


def test_rows_that_are_not_padded_yet_are_dealt_to_the_same_passes(tiny_model):
    """A list of rows shares prompts in a pass as a batch of them does."""
    rows = groups()
    model = new_reward_model(config.Model(tiny_model("llama"), device="cpu"), config.Lora(), seed=0)
    for budget in (1, 12, 30, 10**6):
        parts = [part.tolist() for part in model.split(RowList(rows), budget)]
        assert parts == [part.tolist() for part in model.split(collate(rows, PAD, CPU), budget)]
    assert len(parts) == 1


def test_scores_of_many_answers_read_a_prompt_once_in_each_pass(tiny_model, reading):
    """Passes of 30 tokens over the answers of three prompts, four each."""
    prompts = [tuple(range(10 * k + 1, 10 * k + 11)) for k in range(3)]
    rows = [EncodedRow(prompt, (40 + k, 50 + i, 60)) for i in range(4) for k, prompt in enumerate(prompts)]
    model = new_reward_model(config.Model(tiny_model("llama"), device="cpu"), config.Lora(), seed=0)
    alone = [float(model.scores(collate([row], PAD, CPU))) for row in rows]
    reading.clear()
    found = row_scores(model, rows, 30)
    assert reading == [10 + 4 * 3] * 3
    torch.testing.assert_close(found, torch.tensor(alone), rtol=0, atol=1e-5)
    reading.clear()
    states = row_states(model, [*rows, rows[0]], 30)  # a row that is there twice is read once
    assert reading == [10 + 4 * 3] * 3
    torch.testing.assert_close(states[:-1] @ model.head.weight[0], found, rtol=0, atol=1e-5)
    assert torch.equal(states[-1], states[0])


@pytest.mark.parametrize("family", ["llama", "gemma2"])
def test_no_budget_changes_the_gradient(tiny_model, family):
    policy = policy_of(tiny_model(family))
    batch = collate(groups(), PAD, CPU)
    weight = weights_like(batch.mask)

    def slopes(budget):
        total = [torch.zeros_like(p) for p in policy.parameters()]
        for index in policy.split(batch, budget):
            part = batch.rows(index).trimmed()
            logp = policy.scores(part).logp
            found = gradients((weight[index][:, : logp.shape[1]] * logp).sum(), policy.parameters())
            total = [a + b for a, b in zip(total, found, strict=True)]
        return total

    whole = slopes(10**6)
    for budget in (1, 12, 30):
        same_gradients(slopes(budget), whole)


def test_the_families_of_this_file_are_all_but_the_refused_one():
    assert {*FAMILIES, "gemma2"} == set(tiny.EVERY)
