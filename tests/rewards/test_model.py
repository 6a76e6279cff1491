"""A reward model reads the sampled tokens where it can, and the text where it cannot."""

import pytest
import torch

from tutelage import config
from tutelage.core.rows import EncodedRow, collate
from tutelage.data.chat import encode
from tutelage.data.records import Prompt, user
from tutelage.models.heads import new_reward_model
from tutelage.rewards.completions import Completions
from tutelage.rewards.model import ModelReward

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
    alone = torch.cat(
        [model.scores(collate([row], 0, torch.device("cpu"))) for row in texts_as_tokens(model)]
    ).detach()
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
    assert torch.equal(
        ModelReward(model, same_tokens=True)(other), ModelReward(model, same_tokens=True)(same)
    )
    by_text = ModelReward(model, same_tokens=False)
    assert not torch.allclose(by_text(other), by_text(same))


def test_no_completion_is_made_for_a_model_that_reads_tokens(model):
    completions = Completions(prompts(), ANSWERS, rows_of_texts(model))
    ModelReward(model, same_tokens=True)(completions)
    assert "_items" not in vars(completions)
