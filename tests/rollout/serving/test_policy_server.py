"""A server from its beginning to its end: addresses, keys, signals."""

import json
import signal

import httpx
import pytest
from forked import command
from offenders import for_each

import tutelage as tt
from tutelage.base.errors import TutelageError
from tutelage.rollout.serving import policy_server as servers
from tutelage.rollout.serving.http_requests import Guard


def test_a_key_is_asked_for_where_one_is_set(tiny_model, monkeypatch):
    monkeypatch.setenv("TUTELAGE_SERVE_KEY", "s3cret")
    with tt.serve(model=tiny_model("llama"), engine="plain", port=0, name="m") as server:
        for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": "s3cret"}):
            refused = httpx.get(f"{server.url}/v1/models", headers=headers)
            assert (refused.status_code, refused.json()["error"]["type"]) == (401, "authentication_error")
        right = httpx.get(f"{server.url}/v1/models", headers={"authorization": "Bearer s3cret"})
        assert right.json()["data"][0]["id"] == "m"
        assert httpx.get(f"{server.url}/health").status_code == 200
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{server.url}/health")


def test_a_key_that_no_header_can_hold_is_refused(tiny_model, monkeypatch):
    monkeypatch.setenv("TUTELAGE_SERVE_KEY", "a\nb")
    with pytest.raises(TutelageError, match="not allowed in an HTTP header"):
        tt.serve(model=tiny_model("llama"), engine="plain", port=0)


def test_a_port_in_use_is_refused(tiny_model):
    with tt.serve(model=tiny_model("llama"), engine="plain", port=0) as server:
        port = int(server.url.rpartition(":")[2])
        with pytest.raises(TutelageError, match=f"Port {port} of 127.0.0.1 cannot be used"):
            tt.serve(model=tiny_model("llama"), engine="plain", port=port)


def test_other_machines_get_a_warning(tiny_model, caplog):
    with caplog.at_level("INFO", "tutelage"):
        server = tt.serve(model=tiny_model("llama"), engine="plain", host="0.0.0.0", port=0)
    server.close()
    assert "without a key" in caplog.text
    assert server.url.startswith("http://127.0.0.1:")


@for_each(
    [
        ("localhost:80", True),
        ("127.0.0.1:80", True),
        ("[::1]:80", True),
        ("127.0.0.2", True),
        ("evil.example", False),
        ("localhost.evil.example", False),
        ("", False),
        ("[", False),
    ]
)
def test_only_names_of_this_machine_are_answered(host, allowed):
    guard = Guard(app=None, key="", only_local=True)
    assert (guard._refusal("/v1/models", {"host": host})[0] == 0) == allowed
    assert Guard(app=None, key="", only_local=False)._refusal("/", {"host": host}) == (0, "")


def test_a_signal_ends_the_process_in_order(tiny_model):
    words = ["serve", "--model", tiny_model("llama"), "--port", "0", "--engine", "plain"]
    process = command(words)
    try:
        lines = [process.stdout.readline() for _ in range(3)]
        url = lines[1].split()[1]
        body = {"prompt": [40, 41], "max_tokens": 8, "stream": True}
        with httpx.stream("POST", f"{url}/completions", json=body, timeout=60) as response:
            text = [line for line in response.iter_lines() if line]
        assert text[-1] == "data: [DONE]"
        assert json.loads(text[0].removeprefix("data: "))["object"] == "text_completion"
        process.send_signal(signal.SIGTERM)
        _, error = process.communicate(timeout=30)
    finally:
        process.kill()
    assert (process.returncode, error) == (0, "")


def test_a_server_that_is_never_started_can_be_closed(tiny_model):
    server = tt.serve(model=tiny_model("llama"), engine="plain", port=0)
    server.close()
    assert not server.service.worker.is_alive
    assert servers.listen("127.0.0.1", 0).proto, "small answers are sent at once only on a socket that says it is TCP"
