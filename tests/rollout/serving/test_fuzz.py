"""Requests that no client should send, to every route: each is answered or refused."""

import json
import random
from copy import deepcopy
from urllib.parse import quote

import pytest
from call_templates import SCHEMA
from hostile import BODIES, TEXTS, VALUES
from offenders import for_each

PROMPT = [40, 41, 42]
ASKED = {"prompt": PROMPT, "max_tokens": 20, "seed": 3, "temperature": 0.9}
CALL = {"id": "a", "type": "function", "function": {"name": "lookup", "arguments": "{}"}}
TOOL_CHAT = {
    "messages": [
        {"role": "user", "content": "Hi"}, {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "a", "content": "6"},
    ],
    "tools": [json.loads(SCHEMA)], "tool_choice": "auto", "max_tokens": 1, "stream": False,
}  # fmt: skip
VALID = {
    "/v1/completions": ASKED | {"max_tokens": 1, "stream": False, "stop": "x", "n": 1, "logprobs": 1, "echo": False},
    "/v1/chat/completions": {
        "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1, "temperature": 1.0, "top_p": 1.0, "top_k": 5,
        "logprobs": True, "top_logprobs": 1, "stop": ["x"], "seed": 1, "user": "me", "tools": [], "metadata": {},
    },
    "/inference/v1/generate": {"token_ids": PROMPT, "sampling_params": {"max_tokens": 1, "logprobs": 1}},
    "/collective_rpc": {"method": "reload_weights", "kwargs": {"weights_path": "nowhere"}},
    "/update_weight_version": {"new_version": "1"},
    "/v1/load_lora_adapter": {"lora_name": "a", "lora_path": "nowhere"},
    "/v1/unload_lora_adapter": {"lora_name": "a"},
}  # fmt: skip


def mutated(body, chance):
    """The body with hostile values in one to three places, sections included."""
    body = json.loads(json.dumps(body))
    for _ in range(chance.randint(1, 3)):
        place, name = body, chance.choice([*body, "zzz"])
        while isinstance(place.get(name), dict) and place[name] and chance.random() < 0.7:
            place = place[name]
            name = chance.choice(list(place))
        if isinstance(place.get(name), list) and place[name] and chance.random() < 0.5:
            place[name] = [deepcopy(chance.choice(VALUES)) if chance.random() < 0.5 else each for each in place[name]]
        else:
            place[name] = deepcopy(chance.choice(VALUES))
    return json.dumps(body).encode()


OTHERS = ("/v1/models", "/v1/models/{}", "/health", "/ping", "/version", "/is_paused", "/weight_info", "/resume", "/{}")


def hostile_request(client, chance):
    """A request of any route, with a body or an address that no client should send."""
    if chance.random() < 0.1:
        name = quote(chance.choice(TEXTS)[:2000].encode(errors="replace"), safe="")
        return client.request(chance.choice(["GET", "POST"]), chance.choice(OTHERS).format(name))
    if chance.random() < 0.02:
        paused = client.post("/pause", params={"mode": chance.choice(TEXTS)[:2000].encode(errors="replace")})
        return paused if paused.status_code >= 500 else client.post("/resume")
    path = chance.choice(list(VALID))
    content = chance.choice(BODIES) if chance.random() < 0.1 else mutated(VALID[path], chance)
    return client.post(path, content=content, headers={"content-type": "application/json"})


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 12))])
def test_no_request_is_a_defect(client, seed):
    chance, statuses = random.Random(seed), set()
    for _ in range(150 if seed == 1 else 1_000):
        response = hostile_request(client, chance)
        sent = response.request
        assert response.status_code < 500, (sent.url, sent.content[:300], response.text[:300])
        statuses.add(response.status_code)
    assert {200, 400} <= statuses


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 12))])
def test_no_request_with_tools_is_a_defect(tools_client, seed):
    chance, statuses = random.Random(seed), set()
    for _ in range(60 if seed == 1 else 1_000):
        content = mutated(TOOL_CHAT, chance)
        response = tools_client.post(
            "/v1/chat/completions", content=content, headers={"content-type": "application/json"}
        )
        assert response.status_code < 500, (content[:300], response.text[:300])
        statuses.add(response.status_code)
    assert {200, 400} <= statuses


@for_each([rb'"\ud83d half"', b'"\xed\xa0\xbd half"', b"1e999", b"NaN", b"9" * 5000, b"[" * 9000])
def test_what_is_no_text_and_no_number_is_refused(content, client):
    body = b'{"model": "tiny", "max_tokens": 1, "messages": [{"role": "user", "content": %s}]}' % content
    response = client.post("/v1/chat/completions", content=body, headers={"content-type": "application/json"})
    assert response.status_code == 400
    assert response.json()["error"]["type"] == "invalid_request_error"
