"""Samplers of text: a local model, an endpoint and a script return one type."""

import threading

import pytest
from scripted import ScriptedSampler
from served import choices, serving

from tutelage.base import config
from tutelage.base.errors import TutelageError
from tutelage.data.chat_endpoint import Endpoint
from tutelage.data.records import Prompt, user
from tutelage.models.backbone import load_backbone
from tutelage.models.policy import Policy
from tutelage.rollout.inference.completion_records import sample_completions
from tutelage.rollout.local import LocalGenerator
from tutelage.rollout.samplers import GeneratorSampler, HttpSampler

ASKED = config.Sampling(temperature=0.9, max_new_tokens=8)
QUESTIONS = [user("Why?"), user("What is rain?"), user("Explain the sun.")]


@pytest.fixture
def policy(tiny_model):
    loaded = Policy(load_backbone(config.Model(tiny_model("llama"), device="cpu")))
    loaded.end_ids = (*loaded.end_ids, *range(100, 130))
    return loaded


def test_a_local_model_gives_the_texts_of_its_policy(policy):
    sampler = GeneratorSampler(LocalGenerator(policy), policy.tokenizer, "mine")
    found = sampler(QUESTIONS, 3, ASKED, seed=4)
    assert [len(group) for group in found] == [3, 3, 3]
    assert sampler(QUESTIONS[1:2], 3, ASKED, seed=4) == [found[1]], "whoever else is asked"
    assert sampler(QUESTIONS, 3, ASKED, seed=5) != found
    assert sampler([], 3, ASKED, seed=4) == []
    other = sample_completions(policy, [Prompt("p", user("Why?"))], 3, config.Sampling(temperature=0.0), seed=0)
    greedy = sampler(QUESTIONS[:1], 1, config.Sampling(temperature=0.0), seed=9)
    assert greedy[0][0].text == other.texts[0]
    assert {reply.finished for group in found for reply in group} == {True, False}


def test_a_conversation_that_fills_the_context_is_refused(policy):
    sampler = GeneratorSampler(LocalGenerator(policy), policy.tokenizer, "mine")
    with pytest.raises(TutelageError, match="positions"):
        sampler([user("why " * 90)], 1, ASKED, seed=0)


def test_an_endpoint_is_asked_in_parallel_and_answers_keep_their_places():
    gate = threading.Barrier(3, timeout=5)

    def echo(body, number):
        gate.wait()  # nobody passes unless all three are being asked at once
        return choices(*(f"{body['messages'][0]['content']} {i}" for i in range(body["n"])))

    with serving(echo) as served:
        sampler = HttpSampler(Endpoint(served.url, "remote", wait=0.0))
        found = sampler(QUESTIONS, 2, ASKED, seed=3)
    assert [[reply.text for reply in group] for group in found] == [
        [f"{messages[0].content} {i}" for i in range(2)] for messages in QUESTIONS
    ]
    assert sampler.name == "remote"
    assert len({asked["seed"] for asked in served.asked}) == 3
    (first, *_) = served.asked
    assert (first["temperature"], first["max_tokens"], first["top_p"]) == (0.9, 8, 1.0)
    assert "top_k" not in first


def test_settings_beyond_the_protocol_are_sent_only_where_they_are_set():
    with serving(lambda body, number: choices("x")) as served:
        sampling = config.Sampling(top_k=5, min_p=0.1, top_p=0.9)
        HttpSampler(Endpoint(served.url, "m"))([user("?")], 1, sampling, seed=0)
    (asked,) = served.asked
    assert (asked["top_k"], asked["min_p"], asked["top_p"]) == (5, 0.1, 0.9)


def test_the_error_of_one_conversation_is_the_error_of_all():
    def second_fails(body, number):
        return 400 if "rain" in body["messages"][0]["content"] else choices("fine")

    with serving(second_fails) as served, pytest.raises(TutelageError, match="status 400"):
        HttpSampler(Endpoint(served.url, "m"))(QUESTIONS, 1, ASKED, seed=0)


def test_a_script_answers_by_itself():
    sampler = ScriptedSampler(lambda messages, number: f"{messages[-1].content} {number}")
    (first, _, _) = sampler(QUESTIONS, 2, ASKED, seed=0)
    assert [reply.text for reply in first] == ["Why? 0", "Why? 1"]
