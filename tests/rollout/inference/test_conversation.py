"""Replies as they are streamed: nothing is shown that is not said, and nothing is taken back."""

import pytest
import torch
from offenders import for_each

from tutelage.base import config
from tutelage.base.errors import TutelageError
from tutelage.data.records import Message, user
from tutelage.models.backbone import load_backbone
from tutelage.models.policy import Policy
from tutelage.rollout.inference import conversation
from tutelage.rollout.inference.conversation import reply
from tutelage.rollout.local import LocalGenerator


def load(folder):
    return Policy(load_backbone(config.Model(folder, device="cpu")))


def recited(monkeypatch, policy, text):
    """What is shown, piece by piece, of a model that says `text` token by token; and what it is said to have said."""
    script = policy.tokenizer(text, add_special_tokens=False)["input_ids"]

    def recite(generator, prompts, n, sampling, *, seed, on_token):
        for token in script:
            on_token(torch.tensor([token]))

    monkeypatch.setattr(LocalGenerator, "generate", recite)
    pieces = []
    said = reply(policy, user("What is rain?"), config.Sampling(), seed=0, show=pieces.append)
    return pieces, said


@for_each(["llama", "qwen3", "opt"])
def test_what_is_streamed_is_what_is_said(family, tiny_model):
    policy = load(tiny_model(family))
    for seed in range(6):
        pieces = []
        sampling = config.Sampling(temperature=1.2, max_new_tokens=30)
        text = reply(policy, user("Hello"), sampling, seed=seed, show=pieces.append)
        assert "".join(pieces).strip() == text
        assert len([piece for piece in pieces if piece]) > 3 or len(text) < 20


@for_each(["Water.", "Two  words\n\nand lines", "Grüße, 水 and 🌧️ fall", "Us and User and \nUser in a line", ""])
def test_any_text_arrives_as_it_is_and_in_pieces(text, tiny_model, monkeypatch):
    policy = load(tiny_model("llama"))
    pieces, said = recited(monkeypatch, policy, text)
    assert said == "".join(pieces) == text
    assert not any("\ufffd" in piece for piece in pieces), "no character is shown before it is whole"
    assert len([piece for piece in pieces if piece]) > 1 or len(text) < 8


def test_answers_stop_before_the_next_question(tiny_model, monkeypatch):
    """In the plain form a model may write the next question itself; nothing of it is ever shown."""
    pieces, said = recited(monkeypatch, load(tiny_model("llama")), "Water.\nUs is wet.\nUser: And snow?")
    assert said == "".join(pieces) == "Water.\nUs is wet."


def test_with_a_template_those_words_are_words(tiny_model, monkeypatch):
    text = "Water.\nUser: is a word"
    pieces, said = recited(monkeypatch, load(tiny_model("qwen3")), text)
    assert said == "".join(pieces) == text


@pytest.mark.parametrize("system", [False, True])
def test_what_does_not_fit_is_forgotten_from_the_beginning(tiny_model, monkeypatch, system):
    policy, asked = load(tiny_model("llama")), []
    original = conversation.encode

    def record(messages, response, tokenizer):
        asked.append(messages)
        return original(messages, response, tokenizer)

    monkeypatch.setattr(conversation, "encode", record)
    start = (Message("system", "Be kind."),) if system else ()
    turns = [m for i in range(9) for m in (Message("user", f"Question {i}?"), Message("assistant", f"Answer {i}."))]
    messages = (*start, *turns, Message("user", "Last?"))
    reply(policy, messages, config.Sampling(max_new_tokens=10), seed=0, show=lambda text: None)
    kept = asked[-1]
    assert kept[: len(start)] == start
    assert kept[len(start)].role == "user", "an answer does not stand without its question"
    assert kept[len(start) :] == messages[-len(kept) + len(start) :], "what is kept is the end"
    assert len(original(kept, None, policy.tokenizer)[0]) + 10 <= 96
    assert len(original((*start, *messages[-len(kept) + len(start) - 2 :]), None, policy.tokenizer)[0]) + 10 > 96


@pytest.mark.parametrize("system", [(), (Message("system", "Be kind."),)])
def test_a_question_that_does_not_fit_by_itself_is_refused(tiny_model, system):
    long = (*system, Message("user", "word " * 80))
    with pytest.raises(TutelageError, match="the model has 96"):
        reply(load(tiny_model("llama")), long, config.Sampling(), seed=0, show=print)
