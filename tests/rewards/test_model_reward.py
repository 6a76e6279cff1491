"""A reward model reads the sampled tokens where it can, and the text where it cannot."""

import pytest
import torch

from tutelage.base import config
from tutelage.core.rows import EncodedRow, collate
from tutelage.data.chat_tokens import encode, end_token_ids
from tutelage.data.records import Prompt, user
from tutelage.models.heads import new_reward_model
from tutelage.rewards.model_reward import ModelReward
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
