"""vLLM's API, as a real one was recorded by `tests/real_vllm/record.py`: the stub says the same; it is understood."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from offenders import for_each
from served import serving
from tiny_training import policy_of
from vllm_stub import VllmStub

from tutelage.base import config
from tutelage.base.errors import TutelageError
from tutelage.data.transport import Transport, Unanswered
from tutelage.rollout.server.api import Connection, TokenRequest
from tutelage.rollout.server.vllm import CompletionsApi, DiskHandover, GenerateApi, sampling_params

RECORDED = json.loads((Path(__file__).parents[2] / "real_vllm" / "recorded.json").read_text())
ASKED = TokenRequest((5, 6, 7), 2, 7, config.Sampling(0.7, max_new_tokens=6), (0,), "tiny")


def follows(said: Any, recorded: Any) -> bool:
    """Whether an answer has nothing that the recorded one has not, and all of it of the same kind."""
    if isinstance(said, dict) and isinstance(recorded, dict):
        return all(key in recorded and follows(value, recorded[key]) for key, value in said.items())
    if isinstance(said, list) and isinstance(recorded, list):
        return all(follows(value, recorded[0]) for value in said) if recorded else not said
    return type(said) is type(recorded) or None in (said, recorded)


def test_the_stub_answers_every_recorded_request_as_vllm_did(tiny_model, tmp_path):
    model, adapter = tiny_model("llama"), tmp_path / "adapter"
    for folder, rank in ((adapter, 4), (Path(f"{adapter}-16"), 16)):
        policy_of(model, rank=rank).save(folder)
    with serving(VllmStub(model)) as served:
        for entry in RECORDED:
            body = json.dumps(entry["body"]).replace("ADAPTER", str(adapter)).replace("MODEL", model)
            url = served.url.removesuffix("/v1") + entry["path"]
            asked = None if entry["body"] is None else json.loads(body)
            answer = httpx.request(entry["method"], url, json=asked, timeout=60)
            assert answer.status_code == entry["status"], entry["path"]
            if answer.is_success and isinstance(entry["answer"], dict):
                assert follows(answer.json(), entry["answer"]), (entry["path"], answer.json())
            elif answer.is_success:
                assert answer.text.split()[0] == entry["answer"].split()[0] == "Success:"


@pytest.mark.parametrize(("api", "path"), [(GenerateApi(), "inference"), (CompletionsApi(), "completions")])
def test_recorded_answers_are_understood(api, path):
    entries = [e for e in RECORDED if path in e["path"] and e["method"] == "POST" and e["status"] == 200]
    assert len(entries) > 1
    for entry in entries:
        choices = entry["answer"]["choices"]
        backwards = entry["answer"] | {"choices": choices[::-1]}
        with serving(lambda asked, number, said=backwards: said) as served:
            connection = Connection(served.url, Transport("it", retries=0))
            n = len(choices)
            found = api.generate(connection, TokenRequest((5,), n, 7, ASKED.sampling, (0,), "tiny"))
        for one, choice in zip(found, choices, strict=True):
            assert list(one.tokens) == choice["token_ids"]
            assert len(one.logp) == len(one.tokens)
            assert max(one.logp) <= 0
            assert one.stopped == (choice["finish_reason"] == "stop")
            assert one.labels is None or len(one.labels) == len(one.tokens)
    versions = {one.labels[0] for one in found if one.labels}
    assert versions == ({"run-1"} if path == "inference" else set())


def test_every_setting_is_said_so_that_no_default_of_the_server_counts():
    params = sampling_params(ASKED)
    assert (params["top_p"], params["top_k"], params["min_p"]) == (1.0, 0, 0.0)
    assert params["repetition_penalty"] == 1.0
    assert params["ignore_eos"] is True
    assert params["stop_token_ids"] == [0]
    assert "stop" not in params


@for_each(
    [
        ({"choices": [{"index": 0, "finish_reason": "abort"}]}, Unanswered, "aborted a request"),
        ({}, TutelageError, "did not answer as vLLM's"),
        ({"choices": []}, TutelageError, "with 2 responses"),
        ({"choices": [{"index": 0, "finish_reason": "stop", "token_ids": [1]}] * 2}, TutelageError, "did not"),
    ]
)
def test_an_answer_in_another_form_is_shown(said, error, told):
    with serving(lambda asked, number: said) as served, pytest.raises(error, match=told):
        GenerateApi().generate(Connection(served.url, Transport("it", retries=0)), ASKED)


@pytest.mark.parametrize(("wait", "mode"), [(True, "wait"), (False, "keep")])
def test_a_server_goes_on_after_a_reload_that_failed(wait, mode):
    def fails(asked, number):
        return (500, "no") if "collective" in asked["path"] else {}

    with serving(fails) as served:
        connection = Connection(served.url, Transport("it"))
        with pytest.raises(TutelageError, match="status 500, no"):
            DiskHandover().give(connection, Path("/weights"), "v1", wait=wait)
    paths = [asked["path"].removeprefix("/v1") for asked in served.asked]
    assert paths == [f"/pause?mode={mode}", "/collective_rpc", "/resume"]
