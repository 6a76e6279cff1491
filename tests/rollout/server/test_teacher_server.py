"""A teacher behind HTTP: the log-probabilities of tokens that another model wrote."""

import pytest
import tiny
import torch
from offenders import for_each
from served import serving
from tiny_training import CPU, PAD, policy_of, some_rows

import tutelage as tt
from tutelage.base.errors import TutelageError
from tutelage.core.rows import EncodedRow, collate
from tutelage.rollout.generator import RolloutError
from tutelage.rollout.server.teacher_server import connect_teacher


@pytest.fixture
def served(tiny_model):
    with tt.serve(model=tiny_model("llama"), port=0) as server:
        yield server


def test_it_says_what_the_model_says(served, tiny_model):
    policy = policy_of(tiny_model("llama"))
    teacher = connect_teacher(served.url, policy.tokenizer)
    rows = collate(some_rows(5), PAD, CPU)
    with torch.no_grad():
        expected = policy.scores(rows).logp
    torch.testing.assert_close(teacher(rows), expected, atol=1e-4, rtol=1e-4)
    long = collate([EncodedRow(tuple(range(10, 90)), tuple(range(10, 30)))], PAD, CPU)
    with pytest.raises(RolloutError, match=r"have 100 tokens, but the teacher .* has 96 positions"):
        teacher(long)


def test_a_served_teacher_teaches_what_its_folder_does(served, tiny_model, tmp_path):
    """The same steps, up to the rounding of the teacher's log-probabilities."""
    (tmp_path / "prompts.jsonl").write_text('{"prompt": "What is rain?"}\n{"prompt": "Why?"}\n')
    student = tiny.save("llama", tmp_path, seed=1)
    common = {
        "model": student,
        "prompts": tmp_path / "prompts.jsonl",
        "recipe": "reverse_kl",
        "set": ["samples=3"],
        "steps": 2,
        "device": "cpu",
    }
    given = {"optimiser.lr": 1e-2, "sampling.max_new_tokens": 6}
    found = [
        tt.distill(**common, **given, teacher=teacher, out=tmp_path / name)
        for name, teacher in (("folder", tiny_model("llama")), ("server", served.url))
    ]
    assert found[0].kl == pytest.approx(found[1].kl, rel=1e-4)
    one, other = (list(result.load(device="cpu").model.parameters()) for result in found)
    for a, b in zip(one, other, strict=True):
        torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-3)


def test_another_vocabulary_is_refused(served, tiny_model):
    other = policy_of(tiny_model("opt")).tokenizer
    with pytest.raises(TutelageError, match="has another vocabulary than the model: it reads"):
        connect_teacher(served.url, other)


@for_each(
    [
        ({"choices": [{"text": "well"}]}, "did not answer /v1/completions with the token ids"),
        ({"choices": [{"logprobs": {"tokens": ["a"], "token_logprobs": [None]}}]}, "did not answer /v1/completions"),
        (400, "refused the request"),
        (500, "did not answer after 1 attempt"),
    ]
)
def test_servers_that_are_no_teachers(answer, told, tiny_model):
    tokenizer = policy_of(tiny_model("llama")).tokenizer

    def said(body, number):
        return {"data": [{"id": "m"}]} if body["path"] == "/v1/models" else answer

    with serving(said) as server, pytest.raises(TutelageError, match=told):
        connect_teacher(server.url, tokenizer, retries=0)


def test_an_address_without_a_model(tiny_model):
    tokenizer = policy_of(tiny_model("llama")).tokenizer
    with serving(lambda *_: {"data": []}) as server, pytest.raises(TutelageError, match="lists no model"):
        connect_teacher(server.url, tokenizer, retries=0)
