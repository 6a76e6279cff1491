"""The routes that change the weights, in the order in which a trainer calls them."""

import pytest

import tutelage as tt
from tutelage.base import config
from tutelage.commands.loading import load_policy
from tutelage.engines.interface import PromptTokens
from tutelage.rollout.local import LocalGenerator

from .test_served_weights import save_adapter

PARAMS = {"max_tokens": 8, "seed": 1, "logprobs": 0}


def generated(client, model="tiny"):
    body = {"token_ids": [40, 41, 42], "sampling_params": PARAMS, "model": model}
    (choice,) = client.post("/inference/v1/generate", json=body).raise_for_status().json()["choices"]
    return choice


def expected(folder):
    prompts = PromptTokens(((40, 41, 42),), ("",))
    policy = load_policy(folder, device="cpu")
    rollout = LocalGenerator(policy).generate(prompts, 1, config.Sampling(max_new_tokens=8), seed=1)
    return rollout.response[0].tolist(), rollout.logp[0].tolist()


def assert_same(choice, folder):
    tokens, logp = expected(folder)
    assert choice["token_ids"] == tokens
    found = [entry["logprob"] for entry in choice["logprobs"]["content"]]
    assert found == pytest.approx(logp, abs=1e-4)


def post(client, path, **body):
    return client.post(path, json=body).raise_for_status()


def test_weights_from_disk_arrive_with_their_version(client, tiny_model):
    own, other = tiny_model("llama"), tiny_model("llama", seed=5)
    assert_same(generated(client), own)
    for version, folder in ((1, other), ("step-2", own)):
        assert client.post("/pause", params={"mode": "wait"}).json() == {"status": "paused"}
        assert client.get("/is_paused").json() == {"is_paused": True}
        post(client, "/collective_rpc", method="reload_weights", kwargs={"weights_path": folder})
        post(client, "/update_weight_version", new_version=version)
        assert client.post("/resume").json() == {"status": "resumed"}
        choice = generated(client)
        assert_same(choice, folder)
        assert choice["weight_versions"] == [{"version": version, "start": 0, "end": len(choice["token_ids"])}]
        assert client.get("/weight_info").json() == {"weight_version": version}


def test_adapters_are_models_of_their_own(client, tiny_model, tmp_path):
    own = tiny_model("llama")
    first, second = (save_adapter(own, tmp_path / str(seed), seed=seed) for seed in (1, 2))
    assert post(client, "/v1/load_lora_adapter", lora_name="policy", lora_path=first).text.startswith("Success")
    assert_same(generated(client, "policy"), first)
    assert_same(generated(client), own)
    assert [model["id"] for model in client.get("/v1/models").json()["data"]] == ["tiny", "policy"]
    again = client.post("/v1/load_lora_adapter", json={"lora_name": "policy", "lora_path": second})
    assert "set load_inplace" in again.json()["error"]["message"]
    post(client, "/v1/load_lora_adapter", lora_name="policy", lora_path=second, load_inplace=True)
    assert_same(generated(client, "policy"), second)
    post(client, "/v1/unload_lora_adapter", lora_name="policy")
    assert client.post("/inference/v1/generate", json={"token_ids": [1], "model": "policy"}).status_code == 404


@pytest.mark.parametrize(
    ("path", "body", "reason"),
    [
        ("/pause?mode=keep", {}, "this server has wait and abort"),
        ("/collective_rpc", {"method": "sleep"}, "this server has reload_weights"),
        ("/collective_rpc", {"method": "reload_weights"}, "give the folder of a model"),
        ("/collective_rpc", {"method": "reload_weights", "kwargs": {"weights_path": "/no/such"}}, "no model folder"),
        ("/update_weight_version", {}, "must be a text or a whole number"),
        ("/v1/load_lora_adapter", {"lora_name": "x"}, "must be given"),
        ("/v1/load_lora_adapter", {"lora_name": "tiny", "lora_path": "x"}, "the name of the model itself"),
        ("/v1/load_lora_adapter", {"lora_name": "x", "lora_path": "/no/such"}, "not the folder of a LoRA adapter"),
    ],
)
def test_updates_that_cannot_be_made_are_refused(client, tiny_model, path, body, reason):
    response = client.post(path, json=body)
    assert response.status_code == 400
    assert reason in response.json()["error"]["message"]
    assert_same(generated(client), tiny_model("llama"))


def test_without_the_setting_there_are_no_such_routes(tiny_model):
    import httpx

    with tt.serve(model=tiny_model("llama"), port=0) as server:
        for path in ("/pause", "/resume", "/collective_rpc", "/v1/load_lora_adapter"):
            assert httpx.post(server.url + path, json={}).status_code == 404
