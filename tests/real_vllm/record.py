"""Writes down what a real vLLM answers, for the stub of the tests: `recorded.json` beside this file.

    TUTELAGE_VLLM_PYTHON=.vllm/bin/python .venv/bin/python tests/real_vllm/record.py

Each entry is a request and its answer. Values that change from run to run (ids, times) are written as 0 or "".
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import httpx

sys.path.insert(0, str(Path(__file__).parents[1]))
from real_vllm import running
from tutelage.base import config
from tutelage.models.backbone import load_backbone
from tutelage.models.policy import Policy
from tutelage.rollout.server.api import TokenRequest
from tutelage.rollout.server.vllm import sampling_params

RECORDED = Path(__file__).parent / "recorded.json"
VOLATILE = {"request_id", "created", "permission"}
PROMPT = (5, 6, 7, 40, 50)


def requests(model: Path, adapter: Path) -> list[tuple[str, str, dict[str, Any] | None]]:
    """What is asked, in order: method, path, body. Paths of folders are written as names."""
    drawn = sampling_params(TokenRequest(PROMPT, 2, 7, config.Sampling(0.7, max_new_tokens=6), (0,), ""))
    greedy = sampling_params(TokenRequest(PROMPT, 1, 7, config.Sampling(0.0, max_new_tokens=6), (0,), ""))
    ended = drawn | {"n": 1, "stop_token_ids": list(range(300)), "seed": 3}

    def generate(params: dict[str, Any], **more: Any) -> dict[str, Any]:
        body = {"model": "tiny", "token_ids": PROMPT, "stream": False}
        return body | {"sampling_params": params | {"detokenize": False}} | more

    completion = {"model": "tiny", "prompt": PROMPT, "return_token_ids": True, "stream": False}
    reload = {"method": "reload_weights", "kwargs": {"weights_path": str(model)}}
    return [
        ("GET", "/version", None),
        ("GET", "/v1/models", None),
        ("GET", "/get_server_info", None),
        *(("GET", path, None) for path in ("/inference/v1/generate", "/v1/completions", "/v1/load_lora_adapter")),
        ("GET", "/collective_rpc", None),
        ("POST", "/inference/v1/generate", generate(drawn)),
        ("POST", "/inference/v1/generate", generate(greedy)),
        ("POST", "/inference/v1/generate", generate(ended)),
        ("POST", "/inference/v1/generate", generate(greedy | {"n": 2})),
        ("POST", "/inference/v1/generate", generate(drawn) | {"token_ids": [100_000]}),
        ("POST", "/inference/v1/generate", generate(drawn) | {"token_ids": [5] * 95}),
        ("POST", "/inference/v1/generate", generate(drawn, model="nobody")),
        ("POST", "/v1/completions", completion | drawn),
        ("POST", "/v1/completions", completion | ended),
        ("POST", "/v1/load_lora_adapter", {"lora_name": "v1", "lora_path": str(adapter)}),
        ("POST", "/v1/load_lora_adapter", {"lora_name": "v1", "lora_path": str(adapter)}),
        ("POST", "/v1/load_lora_adapter", {"lora_name": "v2", "lora_path": "/nowhere"}),
        ("POST", "/v1/load_lora_adapter", {"lora_name": "v3", "lora_path": str(adapter) + "-16"}),
        ("GET", "/v1/models", None),
        ("POST", "/inference/v1/generate", generate(drawn, model="v1")),
        ("POST", "/v1/unload_lora_adapter", {"lora_name": "v1"}),
        ("POST", "/v1/unload_lora_adapter", {"lora_name": "v1"}),
        ("POST", "/pause?mode=wait", {}),
        ("POST", "/collective_rpc", reload),
        ("POST", "/update_weight_version", {"new_version": "run-1"}),
        ("POST", "/resume", {}),
        ("POST", "/inference/v1/generate", generate(drawn)),
        # last, since a vLLM that could not read weights ends with the next request
        ("POST", "/collective_rpc", {"method": "reload_weights", "kwargs": {"weights_path": "/nowhere"}}),
    ]


def record(url: str, model: Path, adapter: Path) -> list[dict[str, Any]]:
    """The requests with their answers."""
    found = []
    with httpx.Client(base_url=url, timeout=120) as client:
        for method, path, body in requests(model, adapter):
            answer = client.request(method, path, json=body)
            try:
                said: Any = steady(answer.json())
            except ValueError:
                said = answer.text
            entry = {"method": method, "path": path, "body": body, "status": answer.status_code, "answer": said}
            found.append(entry)
    text = json.dumps(found).replace(str(adapter), "ADAPTER").replace(str(model), "MODEL")
    return json.loads(text)


def steady(value: Any) -> Any:
    """A value without what changes from run to run."""
    if isinstance(value, dict):
        return {key: _blank(item) if key in VOLATILE else steady(item) for key, item in value.items()}
    if isinstance(value, list):
        return [steady(item) for item in value]
    return "" if isinstance(value, str) and value.startswith("cmpl-") else value


def _blank(value: Any) -> Any:
    return type(value)() if isinstance(value, str | int | list) else value


def write_adapter(model: Path, folder: Path, rank: int) -> None:
    """A LoRA adapter of the model, as training writes it."""
    Policy(load_backbone(config.Model(str(model), device="cpu"), config.Lora(rank=rank))).save(folder)


def main() -> None:
    """Record against a server of its own."""
    with tempfile.TemporaryDirectory() as place:
        model, adapter = Path(place) / "model", Path(place) / "adapter"
        running.model(model)
        write_adapter(model, adapter, 4)
        write_adapter(model, Path(f"{adapter}-16"), 16)  # above --max-lora-rank
        with running.running(str(model), Path(place) / "log", "--max-model-len=96") as url:
            rows = record(url, model, adapter)
    lines = ",\n".join(json.dumps(row) for row in rows)
    RECORDED.write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
