"""Attention of one decoding step over shared prompts: time per layer, and its rate of reading as a share of what the
device copies. On a GPU the layers are one captured graph, as in decoding; they differ, so that no cache holds them.

    PYTHONPATH=. python -m bench.gpu.attention
"""

import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from bench.gpu.stopwatch import copy_rate
from tutelage.engines.gpu.slot_attention import DecodeAttention, SlotIndices, SlotTensors, attend_reference


@dataclass(frozen=True)
class AttentionShape:
    """Prompts of equal length, each shared by the same number of slots, and as many own tokens of every slot."""

    prompts: int = 8
    per_prompt: int = 8
    prompt_tokens: int = 512
    own_tokens: int = 256
    heads: int = 16
    kv_heads: int = 8
    width: int = 128
    layers: int = 8

    @property
    def slots(self) -> int:
        """All slots."""
        return self.prompts * self.per_prompt

    def read_bytes(self, itemsize: int) -> int:
        """Bytes of keys and values that one layer must read: of each prompt once, and of all own tokens."""
        tokens = self.prompts * self.prompt_tokens + self.slots * self.own_tokens
        return 2 * tokens * self.kv_heads * self.width * itemsize


TINY = AttentionShape(2, 2, 20, 6, 4, 2, 16, 2)
"""A shape for a rehearsal on a CPU."""


def measure(device: str, repeats: int = 30) -> dict[str, Any]:
    """Seconds of one layer's attention (median), which also writes the new keys and values; bytes read per second,
    their share of the copy rate; and the largest difference from the eager twin."""
    gpu = torch.device(device).type == "cuda"
    shape, dtype = (AttentionShape(), torch.bfloat16) if gpu else (TINY, torch.float32)
    torch.manual_seed(0)
    new = {"device": device, "dtype": dtype}
    stored = shape.layers, 2
    prompts = torch.randn(*stored, shape.prompts * shape.prompt_tokens, shape.kv_heads, shape.width, **new)
    own = torch.randn(*stored, shape.slots, shape.own_tokens, shape.kv_heads, shape.width, **new)
    query = torch.randn(shape.slots, shape.heads, shape.width, **new)
    key, value = torch.randn(2, shape.slots, shape.kv_heads, shape.width, **new)
    indices, scale = _indices(shape, device), shape.width**-0.5
    sizes = shape.slots, shape.heads, shape.kv_heads, shape.width, shape.prompt_tokens, shape.own_tokens
    attention = DecodeAttention(*sizes, torch.device(device), dtype)

    def attend() -> None:
        for shared, apart in zip(prompts, own, strict=True):
            attention(SlotTensors(query, key, value, *shared, *apart), indices, scale)

    seconds = _median(_captured(attend, gpu), gpu, repeats) / shape.layers
    layer = SlotTensors(query, key, value, *prompts[0], *own[0]), indices, scale
    output, twin = attention(*layer), attend_reference(*layer, shape.prompt_tokens)
    rate, copy = shape.read_bytes(dtype.itemsize) / seconds, copy_rate(device, 2**30 if gpu else 2**22)
    return {
        "device": torch.cuda.get_device_name() if gpu else device,
        "seconds": seconds,
        "bytes": shape.read_bytes(dtype.itemsize),
        "bytes per second": rate,
        "copied bytes per second": copy,
        "share": rate / copy,
        "largest difference": float((output.float() - twin.float()).abs().max()),
    }


def _indices(shape: AttentionShape, device: str) -> SlotIndices:
    """As many groups as slots, as in decoding; most of them are unused."""
    start, length = torch.zeros(2, shape.slots, dtype=torch.int32)
    members = torch.full((shape.slots, shape.per_prompt), -1, dtype=torch.int32)
    start[: shape.prompts] = torch.arange(shape.prompts) * shape.prompt_tokens
    length[: shape.prompts] = shape.prompt_tokens
    members[: shape.prompts] = torch.arange(shape.slots).view(shape.prompts, -1)
    group = torch.arange(shape.slots, dtype=torch.int32) // shape.per_prompt
    own = torch.full((shape.slots,), shape.own_tokens, dtype=torch.int32)
    return SlotIndices(*(x.to(device) for x in (start, length, members, group, own)))


def _captured(call: Callable[[], Any], gpu: bool) -> Callable[[], Any]:
    """The call as a CUDA graph on a GPU; the first calls compile the kernels."""
    if not gpu:
        return call
    call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


def _median(call: Callable[[], Any], gpu: bool, repeats: int) -> float:
    """The median of the seconds of a call, after three that do not count."""
    for _ in range(3):
        call()
    if not gpu:
        seconds = []
        for _ in range(repeats):
            started = time.perf_counter()
            call()
            seconds.append(time.perf_counter() - started)
        return statistics.median(seconds)
    marks = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(repeats)]
    for before, after in marks:
        before.record()
        call()
        after.record()
    torch.cuda.synchronize()
    return statistics.median(before.elapsed_time(after) for before, after in marks) / 1000


if __name__ == "__main__":
    print(json.dumps(measure("cuda" if torch.cuda.is_available() else "cpu"), indent=1))
