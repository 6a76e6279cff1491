"""Answers as records: who said what to which prompt, under ids that say the same tomorrow."""

import pytest

from tutelage.base import config
from tutelage.base.errors import TutelageError
from tutelage.data.records import Prompt, user
from tutelage.models.backbone import load_backbone
from tutelage.models.policy import Policy
from tutelage.rollout.inference.completion_records import records_of, sample_completions

PROMPTS = [Prompt(f"p{i}", user(text)) for i, text in enumerate(["Why?", "What is rain?", "Explain the sun."])]
ASKED = config.Sampling(temperature=0.9, max_new_tokens=10)


@pytest.fixture
def policy(tiny_model):
    loaded = Policy(load_backbone(config.Model(tiny_model("qwen3"), device="cpu")))
    loaded.end_ids = (*loaded.end_ids, *range(100, 130))
    return loaded


def test_every_answer_belongs_to_its_prompt(policy):
    answered = sample_completions(policy, PROMPTS, 4, ASKED, seed=1)
    assert [prompt.id for prompt in answered.prompts] == [p.id for p in PROMPTS for _ in range(4)]
    assert answered.rollout.ids == tuple(p.id for p in answered.prompts)
    for number, prompt in enumerate(PROMPTS):
        alone = sample_completions(policy, [prompt], 4, ASKED, seed=1)
        assert alone.texts == answered.texts[4 * number : 4 * number + 4]


def test_records_say_who_was_asked_how_and_whether_it_finished(policy):
    answered = sample_completions(policy, PROMPTS, 4, ASKED, seed=1)
    records = records_of(answered, "a/model", ASKED)
    assert [(r.prompt_id, r.text) for r in records] == [
        (p.id, text) for p, text in zip(answered.prompts, answered.texts, strict=True)
    ]
    assert [r.finished for r in records] == answered.rollout.terminated.tolist()
    assert len({r.finished for r in records}) == 2
    assert all("temperature=0.9" in r.sampling and "max_new_tokens=10" in r.sampling for r in records)
    assert len({r.id for r in records}) == 12, "equal texts of one prompt are still different answers"
    assert records == records_of(sample_completions(policy, PROMPTS, 4, ASKED, seed=1), "a/model", ASKED)
    other = records_of(answered, "another", ASKED)
    assert not {r.id for r in records} & {r.id for r in other}


def test_equal_answers_have_ids_of_their_own(policy):
    greedy = config.Sampling(temperature=0.0, max_new_tokens=5)
    records = records_of(sample_completions(policy, PROMPTS[:1], 3, greedy, seed=0), "m", greedy)
    assert len({r.text for r in records}) == 1
    assert len({r.id for r in records}) == 3


def test_nothing_to_answer(policy):
    with pytest.raises(TutelageError, match="no prompt to answer"):
        sample_completions(policy, [], 1, ASKED, seed=0)
