"""Sampling: the distribution, the log-probabilities, and independence of the other rows of a batch."""

import numpy as np
import pytest
import scipy.stats
import tiny
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiers import every_value, long_except
from torch.utils._python_dispatch import TorchDispatchMode

from tutelage.base import config
from tutelage.base.errors import TutelageError
from tutelage.engines.cpu.head import KERNELS
from tutelage.engines.interface import PromptTokens
from tutelage.engines.sampling import StopCondition, answers, text_of
from tutelage.engines.token_sampling import draw, inverse, row_seed, truncated, uniforms
from tutelage.models.backbone import load_backbone
from tutelage.models.policy import Policy

PROMPTS = PromptTokens(
    ((40, 41, 42), (50,), (9, 60, 61, 62, 63, 64, 65, 66, 67, 68, 69, 70, 71), (0, 80, 0, 81)), ("a", "b", "c", "d")
)  # one longer than the window of Gemma, one with end tokens in it


def load(folder, ends=()):
    policy = Policy(load_backbone(config.Model(folder, device="cpu"), config.Lora()))
    policy.end_ids = (*policy.end_ids, *ends)
    return policy


def settings(**changes):
    return config.Sampling(**{"max_new_tokens": 12} | changes)


def greedily(policy, prompt, limit):
    """Greedy decoding with a full forward pass for each token."""
    tokens = list(prompt)
    for _ in range(limit):
        logits = policy.model(input_ids=torch.tensor([tokens])).logits[0, -1]
        tokens.append(int(logits.argmax()))
        if tokens[-1] in policy.end_ids:
            break
    return tokens[len(prompt) :]


def spoken(rollout):
    """The tokens of each response."""
    return [row[mask].tolist() for row, mask in zip(rollout.response, rollout.mask, strict=True)]


def assert_same(one, other):
    assert spoken(one) == spoken(other)
    assert torch.equal(one.terminated, other.terminated)
    for a, b, x, y in zip(one.logp, other.logp, one.mask, other.mask, strict=True):
        torch.testing.assert_close(a[x], b[y], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("family", long_except(["gpt2", "qwen3", "gemma3"], tiny.EVERY))
@torch.no_grad()
def test_greedy_is_what_transformers_generates(tiny_model, family):
    policy = load(tiny_model(family), ends=range(100, 120))
    rollout = policy.generate(PROMPTS, 1, settings(temperature=0.0), seed=0)
    for prompt, got in zip(PROMPTS.tokens, spoken(rollout), strict=True):
        ids = torch.tensor([prompt])
        expected = policy.model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=12,
            do_sample=False,
            eos_token_id=list(policy.end_ids),
            pad_token_id=1,
        )
        assert got == expected[0, len(prompt) :].tolist() == greedily(policy, prompt, 12)
    assert not rollout.logp.any(), "a choice without chance has probability one"


@pytest.mark.parametrize(("family", "temperature"), every_value(tiny.EVERY, [0.7, 1.0]))
@torch.no_grad()
def test_a_rollout_has_its_log_probabilities_and_end_flags(tiny_model, family, temperature):
    policy = load(tiny_model(family), ends=range(100, 130))
    rollout = policy.generate(PROMPTS, 4, settings(temperature=temperature), seed=3)
    recomputed = policy.scores(rollout, temperature=temperature).logp
    assert (rollout.logp - recomputed).abs().max() < 1e-5
    assert rollout.terminated.any()
    assert rollout.truncated.any()
    assert torch.equal(rollout.truncated, ~rollout.terminated)
    for tokens, ended in zip(spoken(rollout), rollout.terminated.tolist(), strict=True):
        assert not set(tokens[:-1]) & set(policy.end_ids)
        assert ended == (tokens[-1] in policy.end_ids)
        assert ended or len(tokens) == 12
    assert torch.equal(rollout.mask, rollout.mask.cumprod(1).bool()), "responses are padded on the right alone"
    assert not rollout.logp[~rollout.mask].any()
    assert rollout.ids == tuple(name for name in PROMPTS.ids for _ in range(4))
    for row in range(16):
        assert tuple(rollout.prompt[row][rollout.prompt_mask[row]].tolist()) == PROMPTS.tokens[row // 4]


@pytest.mark.parametrize("family", ["gpt2", "qwen3", "gemma3"])
@torch.no_grad()
def test_a_row_does_not_depend_on_the_rest_of_the_batch(tiny_model, family):
    policy = load(tiny_model(family), ends=range(100, 130))
    together = policy.generate(PROMPTS, 3, settings(), seed=5)
    in_parts = policy.generate(PROMPTS, 3, settings(), seed=5, rows_at_once=6)
    assert_same(in_parts, together)
    backwards = policy.generate(PromptTokens(PROMPTS.tokens[::-1], PROMPTS.ids[::-1]), 3, settings(), seed=5)
    order = torch.tensor([9, 10, 11, 6, 7, 8, 3, 4, 5, 0, 1, 2])
    assert_same(backwards.rows(order), together)
    fewer = policy.generate(PromptTokens(PROMPTS.tokens[1:2], PROMPTS.ids[1:2]), 2, settings(), seed=5)
    assert_same(fewer, together.rows(torch.tensor([3, 4])))
    longer = policy.generate(PROMPTS, 3, settings(max_new_tokens=20), seed=5)
    assert [tokens[:12] for tokens in spoken(longer)] == spoken(together)
    other = policy.generate(PROMPTS, 3, settings(), seed=6)
    assert spoken(other) != spoken(together)
    assert len({tuple(tokens) for tokens in spoken(together)}) == 12, "no two rows share a stream"


@pytest.mark.parametrize("pad_is_end", [False, True])
@torch.no_grad()
def test_where_an_answer_ends(tiny_model, pad_is_end):
    """The end token first, in the middle, exactly at the limit, beyond it: whatever its id, and the pad's."""
    policy = load(tiny_model("llama") if pad_is_end else tiny_model("gemma2"))
    assert (policy.tokenizer.pad_token_id in policy.end_ids) == pad_is_end
    prompt = PromptTokens((PROMPTS.tokens[0],), ("a",))
    policy.end_ids = ()
    (free,) = spoken(policy.generate(prompt, 1, settings(max_new_tokens=6), seed=4))
    assert len(set(free)) == 6
    for at in range(6):
        policy.end_ids = (free[at],)
        for limit in (1, 3, 6):
            rollout = policy.generate(prompt, 1, settings(max_new_tokens=limit), seed=4)
            ended = at < limit
            expected = free[: at + 1] if ended else free[:limit]
            assert spoken(rollout) == [expected]
            assert rollout.terminated.tolist() == [ended]
            assert rollout.mask.shape[1] == len(expected)


@torch.no_grad()
def test_the_text_of_a_response_excludes_the_end_token(tiny_model):
    policy = load(tiny_model("llama"))
    free = greedily(policy, (40, 41, 42), 6)
    policy.end_ids = (free[4],)
    rollout = policy.generate(PromptTokens(((40, 41, 42),), ("a",)), 1, settings(temperature=0.0), seed=0)
    assert list(answers(policy, rollout)) == [policy.tokenizer.decode(free[:4]).strip()]


@pytest.mark.parametrize("family", ["opt", "gpt2", "llama"])
@torch.no_grad()
def test_the_context_is_used_to_its_last_position_and_not_beyond(tiny_model, family):
    policy = load(tiny_model(family))
    policy.end_ids = ()
    prompt = tuple(range(10, 100))
    exact = policy.generate(PromptTokens((prompt,), ("a",)), 1, settings(temperature=0.0, max_new_tokens=6), seed=0)
    assert spoken(exact) == [greedily(policy, prompt, 6)]
    with pytest.raises(TutelageError, match=r"90 tokens.*up to 7.*97 positions.*96"):
        policy.generate(PromptTokens((prompt,), ("a",)), 1, settings(max_new_tokens=7), seed=0)


@torch.no_grad()
def test_tokens_are_reported_while_they_are_sampled(tiny_model):
    policy = load(tiny_model("gpt2"), ends=range(100, 130))
    seen = []
    rollout = policy.generate(PROMPTS, 2, settings(), seed=1, on_token=lambda token: seen.append(token.clone()))
    assert torch.equal(torch.stack(seen, 1), rollout.response)


# The distribution of one token ------------------------------------------------------------------------------


def kept_by_hand(logits, *, top_k=0, top_p=1.0, min_p=0.0):
    """The tokens that may be sampled, by the definitions of the filters, one after the other."""
    p = {i: float(x) for i, x in enumerate(torch.tensor(logits).softmax(-1).double())}
    if top_k:
        p = dict(sorted(p.items(), key=lambda item: -item[1])[:top_k])
    total, mass, nucleus = sum(p.values()), 0.0, {}
    for token, share in sorted(p.items(), key=lambda item: -item[1]):
        if mass >= top_p:
            break
        nucleus[token] = share
        mass += share / total
    p = nucleus
    return {token for token, share in p.items() if share >= min_p * max(p.values())}


FILTERS = [
    {},
    {"top_k": 1},
    {"top_k": 4},
    {"top_k": 50},
    {"top_p": 0.01},
    {"top_p": 0.5},
    {"top_p": 0.9},
    {"min_p": 0.3},
    {"min_p": 1.0},
    {"top_k": 6, "top_p": 0.8},
    {"top_k": 6, "top_p": 0.8, "min_p": 0.25},
]


@pytest.mark.parametrize("filters", FILTERS, ids=str)
@pytest.mark.parametrize("temperature", [0.6, 1.0, 1.7])
def test_truncation_keeps_what_the_definitions_keep(filters, temperature):
    generator = torch.Generator().manual_seed(2)
    logits = torch.randn(40, 12, generator=generator) * 1.5
    asked = config.Sampling(temperature=temperature, **filters)
    left = truncated(logits / temperature, asked)
    for row in range(40):
        expected = kept_by_hand((logits[row] / temperature).tolist(), **filters)
        assert set(left[row].isfinite().nonzero().flatten().tolist()) == expected


@pytest.mark.parametrize(
    ("count", "top_p", "kept"), [(2, 0.5, 1), (4, 0.5, 2), (4, 0.75, 3), (4, 0.74, 3), (4, 0.76, 4)]
)
def test_the_nucleus_ends_where_it_reaches_its_share(count, top_p, kept):
    """Equal tokens, whose shares are exact in binary: two halves reach one half with the first."""
    left = truncated(torch.zeros(1, count), config.Sampling(top_p=top_p))
    assert int(left.isfinite().sum()) == kept


@pytest.mark.parametrize("filters", FILTERS, ids=str)
def test_token_frequencies_are_the_probabilities(filters):
    """Chi-square over 20,000 draws, each from a stream of its own; and `logp` is the log of those probabilities."""
    logits = torch.tensor([1.0, -0.5, 2.0, 0.3, -3.0, 1.9, 0.0, -1.0])
    asked = config.Sampling(temperature=0.8, **filters)
    kept = sorted(kept_by_hand((logits / 0.8).tolist(), **filters))
    exact = torch.zeros(8, dtype=torch.float64)
    exact[kept] = (logits.double() / 0.8)[kept].softmax(-1)
    numbers = uniforms([row_seed(11, f"prompt {i}", i % 3) for i in range(20_000)], 1)[:, 0]
    token, logp = draw(logits.expand(20_000, -1), asked, numbers)
    counts = torch.bincount(token, minlength=8)
    assert set(token.tolist()) == set(kept)
    if len(kept) > 1:
        assert scipy.stats.chisquare(counts[kept].numpy(), (exact[kept] * 20_000).numpy()).pvalue > 1e-3
    torch.testing.assert_close(logp, exact.log()[token].float(), rtol=1e-5, atol=1e-5)


def test_a_uniform_number_selects_the_token_by_the_cumulative_distribution():
    logits = torch.tensor([0.1, 0.0, 0.4, 0.2, 0.3]).log()
    numbers = torch.tensor([0.0, 0.0999, 0.1001, 0.4999, 0.5001, 0.6999, 0.7001, 1 - 2**-53], dtype=torch.float64)
    token, _ = draw(logits.expand(8, -1), config.Sampling(), numbers)
    assert token.tolist() == [0, 0, 2, 2, 3, 3, 4, 4]


@pytest.mark.parametrize("search", [inverse, lambda shares, numbers: KERNELS.sample(shares.log(), numbers)[0]])
@pytest.mark.parametrize("vocabulary", [1, 63, 64, 65, 5000])
def test_the_search_by_blocks_equals_the_cumulative_sum(vocabulary, search):
    """Against the cumulative sum in double precision, with many tokens left out, also whole blocks and the last."""
    generator = torch.Generator().manual_seed(vocabulary)
    logits = torch.randn(500, vocabulary, generator=generator) * 3
    logits[:, 1:] = logits[:, 1:].masked_fill(torch.rand(500, vocabulary - 1, generator=generator) < 0.5, -torch.inf)
    logits[:, 100:400] = -torch.inf
    logits[:, 1:][:, -70:] = -torch.inf
    numbers = torch.rand(500, generator=generator, dtype=torch.float64)
    numbers[:3] = torch.tensor([0.0, 1 - 2**-53, 2**-53])
    probabilities = logits.softmax(-1)
    cumulative = probabilities.double().cumsum(-1)
    expected = (cumulative <= numbers[:, None] * cumulative[:, -1:]).sum(-1)
    token = search(probabilities, numbers)
    assert (probabilities.gather(-1, token[:, None]) > 0).all()
    border = (cumulative - numbers[:, None] * cumulative[:, -1:]).abs().min(-1).values < 1e-7
    border[:3] = True
    assert border.float().mean() < 0.05
    assert torch.equal(token[~border], expected[~border])
    ends = probabilities > 0
    assert token[0] == ends[0].long().argmax()
    assert token[1] == vocabulary - 1 - ends[1].flip(0).long().argmax()


def test_a_nucleus_may_be_larger_than_the_first_candidates():
    """1,000 tokens as likely as each other, beside a row whose nucleus is one token."""
    logits = torch.zeros(3, 1024)
    logits[:, 1000:] = -torch.inf
    logits[1, 7] = 100.0
    kept = truncated(logits, config.Sampling(top_p=0.5)).isfinite().sum(-1)
    assert abs(int(kept[0]) - 500) <= 1  # 0.5 is reached with the 500th, or by rounding with the next
    assert kept.tolist() == [kept[0], 1, kept[0]]


@given(
    seed=st.integers(0, 2**32),
    vocabulary=st.sampled_from([5, 256, 257, 700]),
    levels=st.integers(1, 300),
    spread=st.floats(0, 6),
    filters=st.builds(
        dict,
        top_p=st.floats(0.001, 0.999) | st.sampled_from([0.25, 0.5, 0.75]),
        top_k=st.sampled_from([0, 3, 300]),
        min_p=st.sampled_from([0.0, 0.2]),
        temperature=st.sampled_from([0.7, 1.0]),
    ),
)
def test_the_fixed_shape_keeps_and_samples_the_same(seed, vocabulary, levels, spread, filters):
    """Logits with few levels, so that many are equal; some rows need more than the first candidates, others do not."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randint(levels, (6, vocabulary), generator=generator) * (spread / levels)
    logits[1, :3] += 20.0
    logits[2, 4:] = -torch.inf
    asked = config.Sampling(**filters)
    assert torch.equal(truncated(logits, asked, fixed_shape=True), truncated(logits, asked))
    numbers = torch.rand(6, generator=generator, dtype=torch.float64)
    for one, other in zip(draw(logits, asked, numbers, fixed_shape=True), draw(logits, asked, numbers), strict=True):
        assert torch.equal(one, other)


class NoWaits(TorchDispatchMode):
    """Inside, operations for which the host would wait for a device are refused."""

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        name = operation.__name__.partition(".")[0]
        waits = name in ("_local_scalar_dense", "nonzero", "masked_select", "is_nonzero", "equal")
        assert not waits, f"the host waits in {name}"
        places = args[1] if name.startswith(("index", "_index_put")) else ()
        masks = [x for x in places if isinstance(x, torch.Tensor) and x.dtype == torch.bool]
        assert not masks, f"a mask in {name}"
        return operation(*args, **(kwargs or {}))


@pytest.mark.parametrize("filters", [*FILTERS, {"temperature": 0.0}, {"temperature": 0.7, "top_p": 0.5}], ids=str)
def test_the_fixed_shape_never_waits_for_the_device(filters):
    logits = torch.randn(4, 1000, generator=torch.Generator().manual_seed(0)) * 0.1
    numbers = torch.rand(4, dtype=torch.float64)
    with NoWaits():
        draw(logits, config.Sampling(**filters), numbers, fixed_shape=True)
    if "top_p" in filters and "top_k" not in filters:
        with pytest.raises(AssertionError, match="nonzero"), NoWaits():
            draw(logits, config.Sampling(**filters), numbers)


def test_random_streams_are_uniform_and_independent():
    seeds = [row_seed(s, name, n) for s in range(3) for name in ("a", "b", "ab") for n in range(300)]
    assert len(set(seeds)) == len(seeds)
    numbers = uniforms(seeds, 4).numpy()
    for column in numbers.T:
        assert scipy.stats.kstest(column, "uniform").pvalue > 1e-3
    neighbours = np.corrcoef(numbers[:-1, 0], numbers[1:, 0])[0, 1]
    assert abs(neighbours) < 4 / np.sqrt(len(seeds))
    assert row_seed(1, "a\x002", 3) != row_seed(1, "a", 23)


@torch.no_grad()
def test_first_token_frequencies_are_the_probabilities_of_the_model(tiny_model):
    """From model to draw: 3,000 answers of one token, sharing one prompt, against the model's own softmax."""
    policy = load(tiny_model("gpt2"))
    rollout = policy.generate(
        PromptTokens(((40, 41, 42),), ("a",)), 3000, settings(max_new_tokens=1), seed=2, rows_at_once=3000
    )
    p = policy.model(input_ids=torch.tensor([[40, 41, 42]])).logits[0, -1].double().softmax(-1)
    likely = p.argsort(descending=True)[:15]
    counts = torch.bincount(rollout.response[:, 0], minlength=300)
    observed = torch.cat([counts[likely], (3000 - counts[likely].sum())[None]]).numpy()
    expected = 3000 * torch.cat([p[likely], (1 - p[likely].sum())[None]]).numpy()
    assert scipy.stats.chisquare(observed, expected).pvalue > 1e-3


TOKENIZER = tiny.tokenizer()


def ended_at(tokens, stop, tokenizer=TOKENIZER):
    """The number of tokens after which an answer ends."""
    ends = StopCondition(tokenizer, (), stop, torch.device("cpu"))
    response = torch.tensor([tokens])
    for length in range(1, len(tokens) + 1):
        if ends.reached(response, torch.tensor([0]), length).any():
            return length
    return None


def by_prefixes(tokens, stop):
    """The same from the definition: the first prefix whose text contains a stop string."""
    for length in range(1, len(tokens) + 1):
        text = TOKENIZER.decode(tokens[:length], skip_special_tokens=True)
        if any(each in text for each in stop):
            return length
    return None


SAID = "The sun is hot. 🌞 naïve — User: What?\n\nHuman: no more"


@pytest.mark.parametrize("letters", [False, True])
@pytest.mark.parametrize(
    "stop",
    [("User:",), ("r:",), ("\n\nHuman",), ("🌞",), ("ï",), (" — ",), ("T",), ("more",), ("?", "hot"), ("absent",)],
)
def test_an_answer_ends_with_the_token_that_completes_a_stop_string(stop, letters):
    parts = SAID if letters else [SAID]
    tokens = [token for part in parts for token in TOKENIZER.encode(part)]
    assert ended_at(tokens, stop) == by_prefixes(tokens, stop)
    length = ended_at(tokens, stop) or len(tokens)
    before = min(SAID.find(each) for each in stop if each in SAID) if stop != ("absent",) else len(SAID)
    assert text_of(tokens[:length], TOKENIZER, (), stop) == SAID[:before].strip()


def test_tokens_without_text_hide_no_stop_string():
    silent = TOKENIZER.pad_token_id
    word = [token for letter in "User:" for token in TOKENIZER.encode(letter)]
    tokens = [x for token in word for x in (token, *[silent] * 40)]
    assert ended_at(tokens, ("User:",)) == 4 * 41 + 1
    assert text_of(tokens, TOKENIZER, (), ("User:",)) == ""


def test_the_end_token_ends_the_text_before_a_stop_string():
    end = TOKENIZER.convert_tokens_to_ids(tiny.END)
    tokens = [*TOKENIZER.encode("one "), end, *TOKENIZER.encode("two stop")]
    assert text_of(tokens, TOKENIZER, (end,), ("stop",)) == "one"
    assert text_of(tokens, TOKENIZER, (), ("\n", "stop")) == "one two"


def test_special_tokens_and_empty_text_are_no_stop_strings():
    with pytest.raises(TutelageError, match=r"special token.*omit it"):
        StopCondition(TOKENIZER, (), (f"a{tiny.END}",), torch.device("cpu"))
    with pytest.raises(TutelageError, match="empty"):
        config.Sampling(stop=("x", ""))


@torch.no_grad()
def test_rows_end_at_stop_strings_as_they_do_at_end_tokens(tiny_model):
    """The tokens, log-probabilities and streams are those of the free answer, cut at the first stop string."""
    policy = Policy(load_backbone(config.Model(tiny_model("llama"), device="cpu")))
    policy.end_ids = ()
    prompts = PromptTokens(((40, 41, 42), (50, 51)), ("a", "b"))
    free = policy.generate(prompts, 6, config.Sampling(max_new_tokens=20), seed=4)
    stop = ("e", "th", "s")
    rollout = policy.generate(prompts, 6, config.Sampling(max_new_tokens=20, stop=stop), seed=4)
    lengths = rollout.mask.sum(1).tolist()
    assert len(set(lengths)) > 2
    for row in range(12):
        tokens = free.response[row].tolist()
        expected = by_prefixes_of(policy.tokenizer, tokens, stop)
        assert lengths[row] == (expected or 20)
        assert bool(rollout.terminated[row]) == (expected is not None)
        assert rollout.response[row, : lengths[row]].tolist() == tokens[: lengths[row]]
        torch.testing.assert_close(
            rollout.logp[row, : lengths[row]], free.logp[row, : lengths[row]], rtol=1e-5, atol=1e-5
        )
    for text in answers(policy, rollout, stop):
        assert not any(each in text for each in stop)


def by_prefixes_of(tokenizer, tokens, stop):
    texts = (tokenizer.decode(tokens[:length], skip_special_tokens=True) for length in range(1, len(tokens) + 1))
    return next((i for i, text in enumerate(texts, 1) if any(each in text for each in stop)), None)
