"""What every generator promises: tokens, log-probabilities, texts and versions that belong together."""

import pytest
import torch
from scripted import ScriptedGenerator

from tutelage.base import config
from tutelage.core.batch import Rollout
from tutelage.data.chat_tokens import decode_response
from tutelage.data.records import Prompt, user
from tutelage.models.backbone import load_backbone
from tutelage.models.policy import Policy
from tutelage.rollout.generator import (
    PromptTokens,
    SampledCompletion,
    assemble,
    concatenate,
    encode_prompts,
    prompt_tokens,
)
from tutelage.rollout.local import LocalGenerator
from tutelage.rollout.samplers import GeneratorSampler

FREE = config.Sampling(temperature=1.0, max_new_tokens=6)
PROMPTS = PromptTokens(((5, 6, 7), (8,)), ("a", "b"))


@pytest.fixture
def policy(tiny_model):
    loaded = Policy(load_backbone(config.Model(tiny_model("llama"), device="cpu")))
    loaded.end_ids = (*loaded.end_ids, *range(100, 150))
    return loaded


def parts(rollout: Rollout) -> tuple[PromptTokens, list[SampledCompletion]]:
    """The responses of a rollout, as a server would send them."""
    first = range(0, len(rollout), rollout.group)
    tokens = tuple(tuple(rollout.prompt[b][rollout.prompt_mask[b]].tolist()) for b in first)
    responses = [
        SampledCompletion(
            tuple(rollout.response[b][mask].tolist()),
            tuple(rollout.logp[b][mask].tolist()),
            bool(rollout.terminated[b]),
            rollout.texts[b],
            tuple(rollout.version[b][mask].tolist()),
        )
        for b, mask in enumerate(rollout.mask)
    ]
    return PromptTokens(tokens, tuple(rollout.ids[b] for b in first)), responses


def same(one: Rollout, other: Rollout) -> None:
    """Equal wherever there is a token."""
    for name in ("prompt_mask", "mask", "terminated", "truncated"):
        assert torch.equal(getattr(one, name), getattr(other, name)), name
    assert (one.group, one.ids, one.texts) == (other.group, other.ids, other.texts)
    assert torch.equal(one.prompt[one.prompt_mask], other.prompt[other.prompt_mask])
    for name in ("response", "logp", "version"):
        assert torch.equal(getattr(one, name)[one.mask], getattr(other, name)[other.mask]), name


def test_a_local_rollout_has_the_policys_log_probabilities_texts_and_version(policy):
    generator = LocalGenerator(policy)
    rollout = generator.generate(PROMPTS, 3, FREE, seed=1)
    assert rollout.ids == ("a",) * 3 + ("b",) * 3
    assert rollout.texts == tuple(
        decode_response(row[mask].tolist(), policy.tokenizer, policy.end_ids)
        for row, mask in zip(rollout.response, rollout.mask, strict=True)
    )
    scores = policy.scores(rollout, temperature=1.0).logp
    torch.testing.assert_close(rollout.logp, scores, rtol=0, atol=1e-5)
    assert set(rollout.version[rollout.mask].tolist()) == {0}
    generator.sync(7)
    later = generator.generate(PROMPTS, 3, FREE, seed=1)
    assert set(later.version[later.mask].tolist()) == {7}
    assert torch.equal(later.response, rollout.response)


def test_a_text_ends_before_the_stop_string_and_its_tokens_with_it(policy):
    """Stopped at a text that the free answer contains, a row is the same up to there."""
    generator, sampling = LocalGenerator(policy), config.Sampling(temperature=1.0, max_new_tokens=20)
    free = generator.generate(PROMPTS, 8, sampling, seed=1)
    text = max(free.texts, key=len)
    stop = text[len(text) // 2]
    stopped = generator.generate(PROMPTS, 8, config.Sampling(temperature=1.0, max_new_tokens=20, stop=(stop,)), seed=1)
    cut = [row for row, text in enumerate(free.texts) if stop in text]
    assert cut
    assert not any(stop in text for text in stopped.texts)
    assert all(stopped.texts[row] == free.texts[row].partition(stop)[0].strip() for row in cut)
    assert all(
        stop in decode_response(r[m].tolist(), policy.tokenizer, policy.end_ids)
        for r, m in zip(stopped.response[cut], stopped.mask[cut], strict=True)
    )


def test_a_rollout_that_was_taken_apart_and_assembled_is_the_same(policy):
    rollout = LocalGenerator(policy).generate(PROMPTS, 3, FREE, seed=1)
    prompts, responses = parts(rollout)
    assert prompts == PROMPTS
    assert len({len(response.tokens) for response in responses}) > 1
    same(assemble(prompts, responses, pad=0), rollout)


def test_joined_rollouts_equal_one_rollout_of_all_prompts(policy):
    generator = LocalGenerator(policy)
    each = [PromptTokens((tokens,), (name,)) for tokens, name in zip(PROMPTS.tokens, PROMPTS.ids, strict=True)]
    rollouts = [generator.generate(prompt, 3, FREE, seed=1) for prompt in each]
    whole, together = concatenate(rollouts), generator.generate(PROMPTS, 3, FREE, seed=1)
    assert torch.equal(whole.response[whole.mask], together.response[together.mask])
    torch.testing.assert_close(whole.logp[whole.mask], together.logp[together.mask], rtol=0, atol=1e-5)
    assert (whole.texts, whole.ids, whole.group) == (together.texts, together.ids, 3)
    responses = [response for rollout in rollouts for response in parts(rollout)[1]]
    same(whole, assemble(PROMPTS, responses, pad=0))


def test_an_uneven_number_of_responses_per_prompt_is_refused():
    with pytest.raises(ValueError, match="3 responses cannot be shared among 2 prompts"):
        assemble(PROMPTS, [SampledCompletion((1,), (0.0,), True, "x")] * 3, pad=0)


def test_a_script_ends_at_its_end_token_and_is_cut_at_the_limit():
    """A script is deterministic, so each of its tokens has probability 1."""

    def script(prompt, number):
        return (*prompt, number, 99, 4) if number else range(20, 40)

    generator = ScriptedGenerator(script, frozenset({99}))
    rollout = generator.generate(PROMPTS, 2, FREE, seed=0)
    said = [row[mask].tolist() for row, mask in zip(rollout.response, rollout.mask, strict=True)]
    cut = [20, 21, 22, 23, 24, 25]
    assert said == [cut, [5, 6, 7, 1, 99], cut, [8, 1, 99]]
    assert rollout.terminated.tolist() == [False, True, False, True]
    assert rollout.texts == ("20 21 22 23 24 25", "5 6 7 1", "20 21 22 23 24 25", "8 1")
    assert not rollout.logp.any()
    assert rollout.version is None


def test_a_generator_with_its_tokenizer_is_a_sampler(policy):
    """The prompt that it is given is the conversation as the policy's tokenizer writes it."""
    conversation = user("Why?")
    expected = prompt_tokens(encode_prompts([Prompt("p", conversation)], policy.tokenizer)).tokens[0]
    generator = ScriptedGenerator(lambda prompt, number: (int(prompt == expected), number, 2), frozenset({2}))
    replies = GeneratorSampler(generator, policy.tokenizer, "script")([conversation], 2, FREE, seed=0)
    assert [[(reply.text, reply.finished) for reply in group] for group in replies] == [[("1 0", True), ("1 1", True)]]
