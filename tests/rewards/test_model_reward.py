"""A reward model reads the sampled tokens where it can, and the text where it cannot."""

import copy
import math
from dataclasses import replace

import pytest
import torch
from call_templates import TAGGED, WITHOUT_THOUGHTS

from tutelage.base import config
from tutelage.base.errors import TutelageError
from tutelage.core.batch import Branches, Rollout
from tutelage.core.rows import EncodedRow, collate
from tutelage.data.chat_tokens import encode, end_token_ids
from tutelage.data.records import Message, Prompt, ToolCall, spoken, user
from tutelage.models.heads import new_reward_model
from tutelage.models.step_scores import encode_steps
from tutelage.rewards.composite import CappedReward, Ensemble, WeightedReward
from tutelage.rewards.model_reward import ModelReward, StepReward
from tutelage.rewards.names import FOLDS
from tutelage.rewards.reward import Completions

QUESTIONS = ["Why?", "What is the sun?", "Why?"]
ANSWERS = ["So.", "A star, and it is hot.", "It is far away."]


@pytest.fixture(scope="module")
def model(tiny_model):
    return new_reward_model(config.Model(tiny_model("llama"), device="cpu"), config.Lora(), seed=0)


def prompts():
    return [Prompt(f"p{i}", user(text)) for i, text in enumerate(QUESTIONS)]


def texts_as_tokens(model):
    return [
        EncodedRow(*map(tuple, encode(user(question), answer, model.tokenizer)))
        for question, answer in zip(QUESTIONS, ANSWERS, strict=True)
    ]


def rows_of_texts(model):
    return collate(texts_as_tokens(model), 0, torch.device("cpu"))


def test_tokens_and_texts_that_say_the_same_score_the_same(model):
    """One at a time, as a batch, from single completions, and as text: four ways to one number."""
    rows = rows_of_texts(model)
    alone = torch.cat([model.scores(collate([row], 0, torch.device("cpu"))) for row in texts_as_tokens(model)]).detach()
    completions = Completions(prompts(), ANSWERS, rows)
    for found in (
        ModelReward(model, same_tokens=True)(completions),
        ModelReward(model, same_tokens=True)(list(completions)),
        ModelReward(model, same_tokens=False)(completions),
        ModelReward(model, same_tokens=True)(Completions(prompts(), ANSWERS)),
    ):
        torch.testing.assert_close(found, alone, rtol=0, atol=1e-5)


def test_sampled_tokens_are_read_as_they_are_and_never_the_text_beside_them(model):
    rows = rows_of_texts(model)
    other = Completions(prompts(), ["something else"] * 3, rows)
    same = Completions(prompts(), ANSWERS, rows)
    assert torch.equal(ModelReward(model, same_tokens=True)(other), ModelReward(model, same_tokens=True)(same))
    by_text = ModelReward(model, same_tokens=False)
    assert not torch.allclose(by_text(other), by_text(same))


def test_no_completion_is_made_for_a_model_that_reads_tokens(model):
    completions = Completions(prompts(), ANSWERS, rows_of_texts(model))
    ModelReward(model, same_tokens=True)(completions)
    assert "_items" not in vars(completions)


def test_a_response_that_was_cut_is_read_at_the_token_that_ends_an_answer(model):
    """Tokens without an end score what the same text scores, to which tokenising adds the end."""
    whole, end = texts_as_tokens(model), end_token_ids(model.tokenizer)[0]
    assert all(row.response[-1] == end for row in whole)
    cut = [EncodedRow(row.prompt, row.response[:-1]) for row in whole]
    nowhere = torch.device("cpu")
    completions = Completions(prompts(), ANSWERS, collate([cut[0], whole[1], cut[2]], 0, nowhere))
    reward = ModelReward(model, same_tokens=True)
    torch.testing.assert_close(
        reward(completions), ModelReward(model, same_tokens=False)(completions), rtol=0, atol=1e-5
    )
    unread = model.scores(collate(cut, 0, nowhere))
    assert not torch.isclose(reward(completions)[[0, 2]], unread[[0, 2]], atol=1e-3).any()


def test_a_row_that_fills_all_positions_is_read_at_an_end_too(model):
    room = model.context
    prompt = texts_as_tokens(model)[0].prompt
    response = tuple(7 + i % 20 for i in range(room - len(prompt)))
    full = collate([EncodedRow(prompt, response)], 0, torch.device("cpu"))
    last = collate([EncodedRow(prompt, (*response[:-1], end_token_ids(model.tokenizer)[0]))], 0, torch.device("cpu"))
    found = ModelReward(model, same_tokens=True)(Completions(prompts()[:1], ["?"], full))
    torch.testing.assert_close(found, model.scores(last), rtol=0, atol=1e-5)


CPU = torch.device("cpu")
CALL = Message("assistant", "", calls=(ToolCall("map", '{"to": "b"}', "1"),))
RESULT = Message("tool", "3 km", name="map", call_id="1")
SAID, NEXT = Message("assistant", "It is 3 km."), Message("user", "Sure?")
PROMPTS = [Prompt("a", user("How far is it?")), Prompt("b", user("Why?")), Prompt("a", user("How far is it?"))]
EPISODES = [(CALL, RESULT, SAID), (SAID,), (SAID, NEXT, SAID, NEXT, Message("assistant", "Yes."))]
BY_HAND = {"last": lambda p: p[-1], "min": min, "product": math.prod, "mean": lambda p: sum(p) / len(p), "sum": sum}


def model_of(folder, separator, template=None):
    model = new_reward_model(config.Model(folder, device="cpu"), config.Lora(), seed=3)
    with torch.no_grad():
        model.head.weight.mul_(8)  # probabilities that differ
    model.tokenizer = copy.deepcopy(model.tokenizer)
    if template:
        model.tokenizer.chat_template = template
    model.separator = separator
    return model


def turns_of(said):
    starts = [place for place, message in enumerate(said) if message.role == "assistant"]
    return [said[start:end] for start, end in zip(starts, [*starts[1:], len(said)], strict=True)]


def probabilities(model, messages, steps):
    """The probability of each step, from transformers' own classifier on the tokens up to its end."""
    encoded = encode_steps(messages, steps, model.separator, model.tokenizer)
    found = []
    for context, end in encoded.ends:
        row = encoded.contexts[context]
        ids = torch.tensor([[*row.prompt, *row.response[:end]]])
        logits = model.model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits
        found.append(logits[0, 0].sigmoid().item())
    return found


def episodes(model, *, cut=0):
    """The episodes as a rollout whose sampled tokens are those of the template; the last turn of the last one without
    its last `cut` tokens."""
    contexts, marks, number, rows, turns = [], [], [], [], []
    for row, (prompt, said) in enumerate(zip(PROMPTS, EPISODES, strict=True)):
        steps = turns_of(said)
        encoded = encode_steps(prompt.messages, steps, "", model.tokenizer)
        before, own, tokens, turn = prompt.messages, [[] for _ in encoded.contexts], [], []
        for place, ((context, end), step) in enumerate(zip(encoded.ends, steps, strict=True)):
            sampled = encode(before, spoken(step[0]), model.tokenizer)[1]
            before = (*before, *step)
            last = row == len(PROMPTS) - 1 and place == len(steps) - 1
            sampled = sampled[: len(sampled) - cut] if last else sampled
            start = end - len(sampled) - (cut if last else 0)
            own[context] += range(start, start + len(sampled))
            tokens += sampled
            turn += [place] * len(sampled)
        for context, places in zip(encoded.contexts, own, strict=True):
            contexts.append(EncodedRow(context.prompt, context.response[: places[-1] + 1]))
            marks.append(places)
            number.append(row)
        rows.append(EncodedRow(tuple(encode(prompt.messages, None, model.tokenizer)[0]), tuple(tokens)))
        turns.append(turn)
    read, batch = collate(contexts, 0, CPU), collate(rows, 0, CPU)
    sampled = torch.zeros_like(read.mask)
    for row, places in enumerate(marks):
        sampled[row, places] = True
    turn = torch.zeros_like(batch.response)
    for row, own in enumerate(turns):
        turn[row, : len(own)] = torch.tensor(own)
    ended = torch.ones(len(rows), dtype=torch.bool)
    return Rollout(
        prompt=batch.prompt, prompt_mask=batch.prompt_mask, response=batch.response, mask=batch.mask,
        logp=torch.zeros(batch.mask.shape), terminated=ended, truncated=~ended, group=1, ids=("a", "b", "a"),
        texts=tuple(said[-1].content for said in EPISODES), turn=turn,
        transcripts=tuple((*prompt.messages, *said) for prompt, said in zip(PROMPTS, EPISODES, strict=True)),
        outcome=torch.zeros(len(rows)), branches=Branches(read, sampled, torch.tensor(number)),
    )  # fmt: skip


def completions(model, **changes):
    rollout = episodes(model, **changes)
    return Completions(PROMPTS, rollout.texts, rollout)


@pytest.mark.parametrize("fold", FOLDS)
@pytest.mark.parametrize("template", [TAGGED, WITHOUT_THOUGHTS])
def test_the_score_of_an_episode_folds_the_probabilities_of_its_turns(tiny_model, fold, template):
    model = model_of(tiny_model("qwen3", max_position_embeddings=256), "", template)
    given = completions(model)
    expected = [
        BY_HAND[fold](probabilities(model, prompt.messages, turns_of(said)))
        for prompt, said in zip(PROMPTS, EPISODES, strict=True)
    ]
    for same_tokens in (True, False):
        found = StepReward(model, same_tokens=same_tokens, fold=fold)(given)
        torch.testing.assert_close(found, torch.tensor(expected), rtol=0, atol=1e-5)


@pytest.mark.parametrize("fold", FOLDS)
def test_a_turn_is_credited_for_what_it_changed(tiny_model, fold):
    """What is paid from turn k on is the score less the fold of the turns before it."""
    model = model_of(tiny_model("qwen3", max_position_embeddings=256), "", TAGGED)
    given = completions(model)
    found = StepReward(model, same_tokens=True, fold=fold).breakdown(given)
    for row, (prompt, said) in enumerate(zip(PROMPTS, EPISODES, strict=True)):
        p = probabilities(model, prompt.messages, turns_of(said))
        turn, mask = given.rows.turn[row], given.rows.mask[row]
        for k in range(len(p)):
            from_here = float(found.credit[row][mask & (turn >= k)].sum() + found.total[row])
            before = BY_HAND[fold](p[:k]) if k else 0.0
            assert from_here == pytest.approx(float(found.total[row]) - before, abs=1e-5)
        ends = [place for place in range(len(turn)) if mask[place] and (turn[place + 1 :][:1] != turn[place]).all()]
        paid = found.credit[row].nonzero().flatten().tolist()
        assert set(paid) <= {*ends, int(mask.sum()) - 1}


def test_a_turn_that_was_cut_is_read_at_the_end_that_it_lacks(tiny_model):
    model = model_of(tiny_model("qwen3", max_position_embeddings=256), "", TAGGED)
    whole, cut = completions(model), completions(model, cut=1)
    assert int(cut.rows.mask[2].sum()) == int(whole.rows.mask[2].sum()) - 1
    reward = StepReward(model, same_tokens=True, fold="mean")
    torch.testing.assert_close(reward(cut), reward(whole), rtol=0, atol=1e-6)


def test_a_single_turn_is_split_at_the_separator(tiny_model):
    model = model_of(tiny_model("llama"), "\n")
    texts = ["First a.\n\nThen b.\n", "Only c.", " \n"]
    given = Completions(PROMPTS, texts)
    expected = [
        math.prod(probabilities(model, prompt.messages, steps))
        for prompt, steps in zip(PROMPTS, (["First a.", "Then b."], ["Only c."], [""]), strict=True)
    ]
    for some in (given, list(given)):
        found = StepReward(model, same_tokens=True, fold="product").breakdown(some)
        torch.testing.assert_close(found.total, torch.tensor(expected), rtol=0, atol=1e-5)
        assert found.credit is None


def test_steps_of_text_are_not_those_of_an_episode(tiny_model):
    model = model_of(tiny_model("qwen3", max_position_embeddings=256), "\n", TAGGED)
    with pytest.raises(TutelageError, match="steps of messages"):
        StepReward(model, same_tokens=True)(completions(model))


def test_steps_of_text_within_a_single_turn_are_no_turns(tiny_model):
    """Rows have turns if the environment adds to a prompt, even if every episode is a single one."""
    model = model_of(tiny_model("llama"), "\n")
    texts = ["First a.\nThen b.", "Only c.", "One.\nTwo.\nThree."]
    rows = collate([EncodedRow((5, 6), (7,) * length) for length in (4, 2, 3)], 0, CPU)
    ended = torch.ones(3, dtype=torch.bool)
    rollout = Rollout(
        prompt=rows.prompt, prompt_mask=rows.prompt_mask, response=rows.response, mask=rows.mask,
        logp=torch.zeros(rows.mask.shape), terminated=ended, truncated=~ended, group=1, ids=("a", "b", "a"),
        texts=tuple(texts), turn=torch.zeros_like(rows.response), outcome=torch.zeros(3),
        transcripts=tuple((*p.messages, Message("assistant", text)) for p, text in zip(PROMPTS, texts, strict=True)),
    )  # fmt: skip
    found = StepReward(model, same_tokens=True, fold="product").breakdown(Completions(PROMPTS, texts, rollout))
    assert found.credit is None
    expected = [
        math.prod(probabilities(model, prompt.messages, text.split("\n")))
        for prompt, text in zip(PROMPTS, texts, strict=True)
    ]
    torch.testing.assert_close(found.total, torch.tensor(expected), rtol=0, atol=1e-5)


def test_turns_outside_of_the_last_conversation_are_refused_to_a_model_that_reads_texts(tiny_model):
    model = model_of(tiny_model("qwen3", max_position_embeddings=256), "", TAGGED)
    rollout = episodes(model)
    rollout = replace(rollout, transcripts=(rollout.transcripts[1], *rollout.transcripts[1:]))
    given = Completions(PROMPTS, rollout.texts, rollout)
    assert StepReward(model, same_tokens=True).breakdown(given).credit is not None
    with pytest.raises(TutelageError, match="tokenizer of the policy"):
        StepReward(model, same_tokens=False).breakdown(given)


def test_an_episode_longer_than_the_context_of_the_model_is_refused(tiny_model):
    model = model_of(tiny_model("qwen3"), "", TAGGED)
    for same_tokens in (True, False):
        with pytest.raises(TutelageError, match="96"):
            StepReward(model, same_tokens=same_tokens)(completions(model))


def test_an_episode_without_a_turn_has_no_score(tiny_model):
    model = model_of(tiny_model("qwen3", max_position_embeddings=256), "", TAGGED)
    given = completions(model)
    rollout = given.rows
    rollout.mask[1] = False
    rollout.branches.sampled[1 if len(rollout.branches.episode) == 3 else 2] = False
    found = StepReward(model, same_tokens=True).breakdown(Completions(PROMPTS, rollout.texts, rollout))
    assert found.total.isnan().tolist() == [False, True, False]
    assert not found.credit[1].any()


def test_composite_rewards_weigh_the_credit_with_the_score(tiny_model):
    model = model_of(tiny_model("qwen3", max_position_embeddings=256), "", TAGGED)
    given, step = (
        completions(model),
        StepReward(model_of(tiny_model("qwen3", max_position_embeddings=256), "", TAGGED), same_tokens=True),
    )
    alone = step.breakdown(given)

    def other(completions):
        return [1.0] * len(completions)

    summed = WeightedReward(((0.5, step), (2.0, other))).breakdown(given)
    torch.testing.assert_close(summed.credit, 0.5 * alone.credit)
    torch.testing.assert_close(summed.total, 0.5 * alone.total + 2.0)
    torch.testing.assert_close(CappedReward(step, highest=0.1).breakdown(given).credit, alone.credit)
    torch.testing.assert_close(Ensemble((step, other)).breakdown(given).credit, alone.credit / 2)
    assert WeightedReward(((1.0, other),)).breakdown(given).credit is None
