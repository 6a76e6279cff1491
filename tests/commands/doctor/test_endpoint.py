"""Checks of an OpenAI-compatible server: what works, and what is said where it does not."""

import pytest
from offenders import for_each
from served import choices, serving

import tutelage as tt
from tutelage.commands.doctor.endpoint import check_endpoint

MODELS = {"data": [{"id": "tiny"}, {"id": "other"}]}
LOGPROBS = {"choices": [{"message": {"content": "a"}, "logprobs": {"content": [{"token": "a", "logprob": -1.0}]}}]}


def found(answer):
    """(subject, state) of the checks of a stub, and all that they say."""
    with serving(answer) as served:
        checks = check_endpoint(f"{served.url}")
    words = " ".join(f"{check.result} {check.advice}" for check in checks)
    return [(check.subject, check.state) for check in checks], words, served


def test_tutelages_own_server_has_everything(tiny_model):
    with tt.serve(model=tiny_model("llama"), port=0, name="tiny") as server:
        checks = check_endpoint(f"{server.url}/v1")
    assert [(check.subject, check.state) for check in checks] == [
        ("models", "ok"),
        ("answer", "ok"),
        ("log-probs", "ok"),
    ]
    assert "tiny" in checks[0].result


def test_a_server_without_log_probabilities_asks_for_one_token_of_the_first_model():
    checks, words, served = found(lambda body, number: MODELS if body["path"].endswith("models") else choices("a"))
    assert checks == [("models", "ok"), ("answer", "ok"), ("log-probs", "warning")]
    assert "tiny, other" in words
    assert {(body["model"], body["max_tokens"]) for body in served.asked[1:]} == {("tiny", 1)}


def test_a_server_that_refuses_log_probabilities_is_quoted():
    def answer(body, number):
        if body["path"].endswith("models"):
            return MODELS
        return (400, "no logprobs here") if "logprobs" in body else choices("a")

    checks, words, _ = found(answer)
    assert checks[-1] == ("log-probs", "warning")
    assert "no logprobs here" in words


@for_each(
    [
        (lambda body, number: 401, "models", "TUTELAGE_ENDPOINT_KEY"),
        (lambda body, number: 404, "models", "up to /chat/completions"),
        (lambda body, number: {"data": []}, "models", "with a model"),
        (lambda body, number: {"hello": 1}, "models", "without a list of models"),
        (lambda body, number: MODELS if number == 0 else (500, "out of memory"), "answer", "out of memory"),
    ]
)
def test_a_server_that_does_not_work_is_a_fault(answer, subject, advice):
    checks, words, _ = found(answer)
    assert checks[-1] == (subject, "fault")
    assert advice in words


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://host/v1"])
def test_what_is_no_address_is_a_fault(url):
    (check,) = check_endpoint(url)
    assert (check.state, "http://localhost:8000/v1" in check.advice) == ("fault", True)


def test_the_key_comes_from_the_environment(monkeypatch):
    monkeypatch.setenv("TUTELAGE_ENDPOINT_KEY", "secret")
    _, words, served = found(lambda body, number: MODELS if body["path"].endswith("models") else LOGPROBS)
    assert set(served.keys) == {"Bearer secret"}
    assert "secret" not in words
