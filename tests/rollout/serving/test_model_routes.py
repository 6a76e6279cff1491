"""What clients see: the formats, streams, refusals, departures."""

import json
import threading
import time
from itertools import chain

import httpx
import pytest
import torch
from call_templates import SCHEMA
from offenders import for_each
from served import leaving

from tutelage.base import config
from tutelage.commands.loading import load_policy
from tutelage.data.chat_endpoint import Endpoint
from tutelage.data.chat_tokens import encode
from tutelage.data.records import user
from tutelage.engines.interface import PromptTokens
from tutelage.engines.sampling import text_of
from tutelage.rollout.local import LocalGenerator
from tutelage.rollout.serving import jobs as groups

PROMPT = [40, 41, 42]
ASKED = {"prompt": PROMPT, "max_tokens": 20, "seed": 3, "temperature": 0.9}


@pytest.fixture(scope="module")
def policy(tiny_model):
    """The served model in this thread, computed by transformers' modules."""
    return load_policy(tiny_model("llama"), device="cpu", engine="plain")


def posted(client, path, body, status=200):
    response = client.post(path, json=body)
    assert response.status_code == status, response.text
    return response.json()


def events(client, path, body):
    """The chunks of a stream, which ends with [DONE]."""
    with client.stream("POST", path, json=body | {"stream": True}) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        lines = [line for line in response.iter_lines() if line]
    assert lines[-1] == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


def drawn(policy, prompt, sampling, seed, n=1, name=""):
    rollout = LocalGenerator(policy).generate(
        PromptTokens((tuple(prompt),), (name,)), n, config.Sampling(**sampling), seed=seed
    )
    return [rollout.response[row][rollout.mask[row]].tolist() for row in range(n)], rollout


def test_a_completion_of_ids_is_the_rollout_of_the_policy(client, policy):
    body = ASKED | {"n": 2, "logprobs": 2, "return_token_ids": True, "return_tokens_as_token_ids": True}
    found = posted(client, "/v1/completions", body)
    rows, rollout = drawn(policy, PROMPT, {"temperature": 0.9, "max_new_tokens": 20}, 3, n=2)
    assert (found["object"], found["model"]) == ("text_completion", "tiny")
    assert found["usage"] == {
        "prompt_tokens": 3,
        "completion_tokens": sum(map(len, rows)),
        "total_tokens": 3 + sum(map(len, rows)),
    }
    for index, (choice, tokens) in enumerate(zip(found["choices"], rows, strict=True)):
        assert choice["index"] == index
        assert choice["token_ids"] == tokens
        assert choice["prompt_token_ids"] == PROMPT
        assert choice["logprobs"]["tokens"] == [f"token_id:{token}" for token in tokens]
        expected = rollout.logp[index][: len(tokens)].tolist()
        assert choice["logprobs"]["token_logprobs"] == pytest.approx(expected, abs=1e-4)
        for top, token, logp in zip(choice["logprobs"]["top_logprobs"], tokens, expected, strict=True):
            assert len(top) in (2, 3), "the two likeliest tokens, and the one that was drawn"
            assert top[f"token_id:{token}"] == pytest.approx(logp, abs=1e-4)
        assert choice["finish_reason"] == ("stop" if rollout.terminated[index] else "length")
        text = policy.tokenizer.decode(tokens[: -1 if rollout.terminated[index] else None], skip_special_tokens=True)
        assert choice["text"] == text


def test_a_conversation_is_answered_in_the_plain_form(client, policy):
    messages = [{"role": "user", "content": [{"type": "text", "text": "What is "}, {"type": "text", "text": "rain?"}]}]
    body = {"messages": messages, "max_tokens": 30, "seed": 5}
    found = posted(client, "/v1/chat/completions", body)
    prompt = encode(user("What is rain?"), None, policy.tokenizer)[0]
    rows, _ = drawn(policy, prompt, {"max_new_tokens": 30, "stop": ("\nUser:",)}, 5)
    (choice,) = found["choices"]
    assert choice["message"] == {
        "role": "assistant",
        "content": text_of(rows[0], policy.tokenizer, policy.end_ids, ("\nUser:",)),
        "refusal": None,
    }
    assert found["usage"]["prompt_tokens"] == len(prompt)
    assert found["object"] == "chat.completion"


@pytest.mark.parametrize("detailed", [False, True])
def test_the_pieces_of_streams_are_the_whole(client, detailed):
    more = {"logprobs": 1, "return_token_ids": True} if detailed else {}
    whole = posted(client, "/v1/completions", ASKED | {"n": 2} | more)
    chunks = events(client, "/v1/completions", ASKED | {"n": 2, "stream_options": {"include_usage": True}} | more)
    assert chunks[-1]["usage"] == whole["usage"]
    assert chunks[-1]["choices"] == []
    for expected in whole["choices"]:
        own = [c for chunk in chunks for c in chunk["choices"] if c["index"] == expected["index"]]
        assert "".join(c["text"] for c in own) == expected["text"]
        assert [c["finish_reason"] for c in own if c["finish_reason"]] == [expected["finish_reason"]]
        if detailed:
            assert list(chain(*(c["token_ids"] for c in own))) == expected["token_ids"]
            logp = list(chain(*(c["logprobs"]["token_logprobs"] for c in own)))
            assert logp == pytest.approx(expected["logprobs"]["token_logprobs"], abs=1e-4)
    talk = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 24, "seed": 1}
    talk |= {"logprobs": True, "top_logprobs": 2} if detailed else {}
    whole, chunks = posted(client, "/v1/chat/completions", talk), events(client, "/v1/chat/completions", talk)
    assert {chunk["id"] for chunk in chunks} == {chunks[0]["id"]}
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    deltas = [chunk["choices"][0]["delta"].get("content", "") for chunk in chunks]
    assert "".join(deltas) == whole["choices"][0]["message"]["content"]
    assert chunks[-1]["choices"][0]["finish_reason"] == whole["choices"][0]["finish_reason"]
    if detailed:
        parts = [chunk["choices"][0]["logprobs"] for chunk in chunks]
        content = list(chain(*(part["content"] for part in parts if part)))
        assert [c["token"] for c in content] == [c["token"] for c in whole["choices"][0]["logprobs"]["content"]]
        assert all(len(c["top_logprobs"]) == 2 for c in content)


def test_texts_are_scored_as_harnesses_ask(client, policy):
    """The request of lm-evaluation-harness for log-likelihoods: the prompt echoed, with one more token."""
    prompts = [[9, 60, 61, 62], [40, 41]]
    body = {"prompt": prompts, "max_tokens": 1, "temperature": 0, "logprobs": 1, "echo": True, "seed": 1}
    found = posted(client, "/v1/completions", body)["choices"]
    for choice, prompt in zip(found, prompts, strict=True):
        logp = choice["logprobs"]["token_logprobs"]
        assert logp[0] is None
        assert len(logp) == len(prompt) + 1
        assert choice["text"].startswith(policy.tokenizer.decode(prompt))
        for top, own in zip(choice["logprobs"]["top_logprobs"][1:], logp[1:], strict=True):
            assert own in top.values()
            assert own <= max(top.values())
    alone = posted(client, "/v1/completions", body | {"max_tokens": 0, "prompt": prompts[0]})["choices"][0]
    assert alone["logprobs"]["token_logprobs"] == pytest.approx(
        found[0]["logprobs"]["token_logprobs"][:-1], abs=1e-5, nan_ok=True
    )


def test_ids_in_ids_out_is_the_rollout_of_the_policy(client, policy):
    params = {"n": 3, "temperature": 0.7, "max_tokens": 9, "seed": 11, "logprobs": 0, "detokenize": False, "top_k": 0}
    body = {"request_id": "prompt 7", "token_ids": PROMPT, "sampling_params": params, "model": "tiny"}
    found = posted(client, "/inference/v1/generate", body)
    sampling = {"temperature": 0.7, "max_new_tokens": 9}
    rows, rollout = drawn(policy, PROMPT, sampling, 11, n=3, name="prompt 7")
    assert found["request_id"] == "prompt 7"
    for row, (choice, tokens) in enumerate(zip(found["choices"], rows, strict=True)):
        assert choice["token_ids"] == tokens
        content = choice["logprobs"]["content"]
        assert [entry["token_id"] for entry in content] == tokens
        expected = rollout.logp[row][: len(tokens)].tolist()
        assert [entry["logprob"] for entry in content] == pytest.approx(expected, abs=1e-4)
        assert choice["weight_versions"] == [{"version": "default", "start": 0, "end": len(tokens)}]


def test_twenty_clients_at_once_get_what_each_gets_alone(client, served):
    bodies = [
        ASKED | {"seed": seed, "temperature": 0.5 + seed / 20, "max_tokens": 5 + seed, "prompt": [40 + seed % 3, 41]}
        for seed in range(20)
    ]
    alone = [posted(client, "/v1/completions", body)["choices"] for body in bodies]
    together = [None] * len(bodies)

    def ask(number):
        with httpx.Client(base_url=served.url, timeout=60) as own:
            together[number] = posted(own, "/v1/completions", bodies[number])["choices"]

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(len(bodies))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert together == alone


def test_our_own_client_understands_it(client, served):
    endpoint = Endpoint(f"{served.url}/v1", "tiny")
    found = endpoint.ask(user("Why?"), n=2, seed=4, max_tokens=6)
    body = {"messages": [{"role": "user", "content": "Why?"}], "n": 2, "seed": 4, "max_tokens": 6}
    expected = posted(client, "/v1/chat/completions", body)["choices"]
    assert [reply.text for reply in found] == [choice["message"]["content"] for choice in expected]


def test_stop_strings_and_stop_tokens_end_answers(client, policy):
    whole = posted(client, "/v1/completions", ASKED | {"return_token_ids": True})["choices"][0]
    token = whole["token_ids"][4]
    body = ASKED | {"stop_token_ids": [token], "return_token_ids": True}
    found = posted(client, "/v1/completions", body)["choices"][0]
    place = whole["token_ids"].index(token)
    assert found["token_ids"] == whole["token_ids"][: place + 1]
    assert (found["finish_reason"], found["stop_reason"]) == ("stop", token)
    stop = next(letter for letter in whole["text"] if letter.isascii() and letter.isprintable())
    found = posted(client, "/v1/completions", ASKED | {"stop": stop})["choices"][0]
    assert (found["text"], found["stop_reason"]) == (whole["text"].partition(stop)[0], stop)


REFUSED = [
    ({"prompt": PROMPT, "max_tokens": -1}, "max_tokens must be a whole number from 0 to 80"),
    ({"prompt": PROMPT, "maxtokens": 1}, "did you mean 'max_tokens'"),
    ({"prompt": PROMPT, "temperature": "hot"}, "temperature must be a number"),
    ({"prompt": PROMPT, "temperature": -1}, "temperature must be a number from 0"),
    ({"prompt": PROMPT, "n": 100}, "n must be a whole number from 1 to 64"),
    ({"prompt": PROMPT, "top_p": 0}, "top_p is 0.0"),
    ({"prompt": PROMPT, "logit_bias": {"3": 1}}, "logit_bias is not supported"),
    ({"prompt": PROMPT, "frequency_penalty": 1.5}, "frequency_penalty is not supported"),
    ({"prompt": PROMPT, "best_of": 3}, "best_of is not supported"),
    ({"prompt": PROMPT, "stop": [""]}, "A stop string is empty"),
    ({"prompt": PROMPT, "stop": ["<|end|>"]}, "a special token"),
    ({"prompt": PROMPT, "stop": [1]}, "stop must be a text or a list of texts"),
    ({"prompt": PROMPT, "stream": 1}, "stream must be true or false"),
    ({"prompt": PROMPT, "stream": True, "echo": True}, "echo is not supported together with stream"),
    ({"prompt": PROMPT, "max_tokens": 0}, "leaves nothing to answer"),
    ({"prompt": list(range(90))}, "room for 96 tokens, but the prompt has 90"),
    ({"prompt": []}, "prompt is empty"),
    ({"prompt": [99999]}, "the tokens 0 to 299"),
    ({"prompt": [1.5]}, "prompt must be a list of token ids"),
    ({"max_tokens": 3}, "prompt must be a list of token ids"),
    ({"prompt": PROMPT, "seed": 1e30}, "seed must be a whole number"),
    ([], "The body must be a JSON object"),
]


@for_each(REFUSED)
def test_requests_that_cannot_be_answered_are_refused_with_the_reason(body, reason, client):
    error = posted(client, "/v1/completions", body, status=400)["error"]
    assert reason in error["message"]
    assert error["type"] == "invalid_request_error"
    assert set(error) == {"message", "type", "param", "code"}


CHATS = [
    ({"messages": []}, "at least one message"),
    ({"messages": ["hi"]}, "messages[0] must be a JSON object"),
    ({"messages": [{"role": "function", "content": "x"}]}, "messages[0].role must be system"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "this model reads nothing else"),
    ({"messages": [{"role": "user"}]}, "messages[0].content is missing"),
    ({"messages": [{"role": "assistant", "content": "x"}]}, "ends with an assistant turn"),
    (
        {"messages": [{"role": "user", "content": "x"}], "tools": [{"type": "function", "name": "f"}]},
        "without a chat template",
    ),
    ({"messages": [{"role": "user", "content": "x"}], "top_logprobs": 2}, "set logprobs to true"),
    ({"messages": [{"role": "user", "content": "x" * 400}]}, "room for 96 tokens"),
]


@for_each(CHATS)
def test_conversations_that_cannot_be_answered_are_refused(body, reason, client):
    assert reason in posted(client, "/v1/chat/completions", body, status=400)["error"]["message"]


def test_other_refusals_have_their_status(client):
    assert posted(client, "/v1/completions", ASKED | {"model": "gpt"}, 404)["error"]["code"] == "model_not_found"
    long = {"prompt": "x" * 30_000}
    assert posted(client, "/v1/completions", long, 413)["error"]["code"] == "request_too_large"
    assert "POST" not in client.get("/v1/completions").json()["error"]["message"]
    assert client.get("/v1/completions").status_code == 405
    assert client.get("/nothing").status_code == 404
    bad = client.post("/v1/completions", content=b"{", headers={"content-type": "application/json"})
    assert (bad.status_code, "not JSON" in bad.text) == (400, True)
    form = client.post("/v1/completions", data={"prompt": "x"})
    assert form.status_code == 415
    other = client.post("/v1/completions", json=ASKED, headers={"origin": "https://elsewhere.example"})
    assert other.status_code == 403
    rebound = client.post("/v1/completions", json=ASKED, headers={"host": "elsewhere.example"})
    assert rebound.status_code == 403


def test_models_health_and_version(client):
    (model,) = client.get("/v1/models").json()["data"]
    assert (model["id"], model["max_model_len"]) == ("tiny", 96)
    assert client.get("/v1/models/tiny").json()["id"] == "tiny"
    assert client.get("/v1/models/other").status_code == 404
    assert client.get("/health").status_code == 200
    assert "tutelage" in client.get("/version").json()["version"]


@pytest.mark.parametrize("streams", [True, False])
def test_who_leaves_ends_the_computation(client, served, monkeypatch, streams):
    steps, whole = [], groups.DecodingGroup.advance

    def advance(group, logits):
        steps.append(len(group.lines))
        time.sleep(0.03)
        whole(group, logits)

    monkeypatch.setattr(groups.DecodingGroup, "advance", advance)
    body = {"prompt": PROMPT, "max_tokens": 80, "ignore_eos": True, "stream": streams}
    if streams:
        with httpx.stream("POST", f"{served.url}/v1/completions", json=body, timeout=60) as response:
            next(response.iter_lines())
    else:
        with leaving(served.url, "/v1/completions", body):
            while not steps:
                time.sleep(0.01)
    done = 0
    while done < len(steps):
        done = len(steps)
        time.sleep(0.3)
    assert 0 < len(steps) < 70


def test_calls_of_tools_reach_clients_whole_and_streamed(tools_client, monkeypatch):
    """The model is made to write a text: its tokens one by one, then its end."""
    from transformers import AutoTokenizer

    model = tools_client.get("/v1/models").json()["data"][0]["root"]
    tokenizer = AutoTokenizer.from_pretrained(model)
    text = 'So.<tool_call>{"name": "lookup", "arguments": {"x": 1}}</tool_call><|im_end|>'
    tokens = tokenizer.encode(text, add_special_tokens=False)

    def script(logits, lines):
        own = [tokens[line.count] for line in lines]
        return torch.tensor(own), [groups.TokenLogp(token, 0.0, {}) for token in own]

    monkeypatch.setattr(groups, "next_tokens", script)
    messages = [{"role": "user", "content": "Hi"}]
    body = {"messages": messages, "tools": [json.loads(SCHEMA)], "max_tokens": len(tokens)}
    (choice,) = posted(tools_client, "/v1/chat/completions", body)["choices"]
    assert (choice["finish_reason"], choice["message"]["content"]) == ("tool_calls", "So.")
    (call,) = choice["message"]["tool_calls"]
    assert call["function"] == {"name": "lookup", "arguments": '{"x": 1}'}
    chunks = [chunk["choices"][0] for chunk in events(tools_client, "/v1/chat/completions", body)]
    assert "".join(chunk["delta"].get("content", "") for chunk in chunks) == "So."
    assert [c for chunk in chunks for c in chunk["delta"].get("tool_calls", ())] == [{"index": 0} | call]
    assert chunks[-1]["finish_reason"] == "tool_calls"
