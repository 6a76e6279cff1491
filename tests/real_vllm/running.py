"""A real vLLM on this machine, for the opt-in tests and for recording what it answers.

`TUTELAGE_VLLM_PYTHON` names the interpreter of an environment with vLLM; `make test-vllm` makes one with its CPU build.
"""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import tiny

PYTHON = os.environ.get("TUTELAGE_VLLM_PYTHON", "")
SHAPE = {
    "hidden_size": 128,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "intermediate_size": 256,
}
"""A Llama of a head size that vLLM's attention has kernels for."""
FLAGS = [
    "--dtype=float32",
    "--enforce-eager",
    "--enable-scale-out",
    "--logprobs-mode=processed_logprobs",
    "--enable-lora",
    "--max-lora-rank=8",
    "--no-enable-chunked-prefill",  # its CPU build cannot cut the prompt of a seeded request
    "--max-num-batched-tokens=16384",
]
STARTUP = 900.0
"""Seconds until it has to answer."""


def model(folder: Path, *, seed: int = 0) -> str:
    """The folder of a small random Llama that vLLM can serve."""
    return tiny.save("llama", folder, seed=seed, **SHAPE)


@contextmanager
def running(folder: str, log: Path, *flags: str) -> Iterator[str]:
    """The address of a vLLM that serves the model in `folder`, as long as the block lasts."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = {"VLLM_SERVER_DEV_MODE": "1", "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True", "VLLM_CPU_KVCACHE_SPACE": "1"}
    openmp = Path(PYTHON).parents[1] / "lib" / "libiomp5.so"
    if openmp.exists():
        settings["LD_PRELOAD"] = str(openmp)
    command = [PYTHON, "-m", "vllm.entrypoints.openai.api_server", "--host=127.0.0.1", f"--port={port}"]
    command += [f"--model={folder}", "--served-model-name=tiny", *FLAGS, *flags]
    env = os.environ | settings
    with log.open("w") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, env=env, start_new_session=True)
        url = f"http://127.0.0.1:{port}"
        try:
            _wait(url, process, log)
            yield url
        finally:
            process.terminate()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)


def _wait(url: str, process: subprocess.Popen, log: Path) -> None:
    began = time.monotonic()
    while time.monotonic() - began < STARTUP:
        if process.poll() is not None:
            raise RuntimeError(f"vLLM ended with {process.returncode}:\n{log.read_text()[-3000:]}")
        try:
            if httpx.get(f"{url}/health").is_success:
                return
        except httpx.HTTPError:
            time.sleep(0.5)
    raise RuntimeError(f"vLLM did not answer within {STARTUP:.0f} seconds:\n{log.read_text()[-3000:]}")
