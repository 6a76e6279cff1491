"""The output head on one device: seconds and memory of log-probabilities, forwards and backwards, ours and others'.

    measure(16_384, 248_320, 2_048, "cuda")

All have bfloat16 states, the mean negative log-probability as loss, and gradients of states and weight. Ours has a
float32 gradient of the bfloat16 weight where torch has `grad_dtype` (2.11), the others have what they give.
"""

import gc
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from tutelage.engines.gpu.chunked_head import head_scores
from tutelage.engines.logprobs import Head

Loss = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(states, weight, tokens) -> loss"""


def ours(states: Tensor, weight: Tensor, tokens: Tensor) -> Tensor:
    return -head_scores(states, Head(weight), tokens)[0].mean()


def whole(states: Tensor, weight: Tensor, tokens: Tensor) -> Tensor:
    """Cross entropy of all logits in bfloat16."""
    return nn.functional.cross_entropy(nn.functional.linear(states, weight), tokens)


def liger() -> Loss:
    from liger_kernel.transformers import LigerFusedLinearCrossEntropyLoss

    loss = LigerFusedLinearCrossEntropyLoss()
    return lambda states, weight, tokens: loss(weight, states, tokens)


def cut_cross_entropy() -> Loss:
    from cut_cross_entropy import linear_cross_entropy

    return lambda states, weight, tokens: linear_cross_entropy(states, weight, tokens)


WAYS: dict[str, Callable[[], Loss]] = {
    "ours": lambda: ours,
    "whole": lambda: whole,
    "liger_kernel": liger,
    "cut_cross_entropy": cut_cross_entropy,
}


def measure(rows: int, vocabulary: int, width: int, device: str, calls: int = 5) -> dict[str, dict[str, Any]]:
    """For each way: its loss, the median seconds of `calls` forward and backward passes after two others, and on CUDA
    the peak of memory in GB, operands included; or why there is no figure."""
    generator = torch.Generator(device).manual_seed(0)
    states = torch.randn(rows, width, device=device, generator=generator).bfloat16().requires_grad_()
    weight = (torch.randn(vocabulary, width, device=device, generator=generator) / width**0.5).bfloat16()
    tokens = torch.randint(vocabulary, (rows,), device=device, generator=generator)
    results = {}
    for name, load in WAYS.items():
        leaf = weight.detach().requires_grad_()
        if name == "ours" and hasattr(leaf, "grad_dtype"):
            leaf.grad_dtype = torch.float32
        try:
            results[name] = _figures(load(), (states, leaf, tokens), calls)
        except ImportError as error:
            results[name] = {"skipped": f"not installed: {error.name}"}
        except torch.OutOfMemoryError:
            results[name] = {"skipped": "out of memory"}
        except Exception as error:  # another library's kernels on this device
            results[name] = {"skipped": f"{type(error).__name__}: {error}"[:200]}
        states.grad = leaf.grad = None
        gc.collect()
        if states.is_cuda:
            torch.cuda.empty_cache()
    return results


def _figures(loss: Loss, operands: tuple[Tensor, Tensor, Tensor], calls: int) -> dict[str, Any]:
    cuda = operands[0].is_cuda
    seconds, value = [], torch.zeros(())
    for call in range(calls + 2):
        operands[0].grad = operands[1].grad = None
        if call == 2 and cuda:
            torch.cuda.reset_peak_memory_stats()
        clock = _events if cuda else _seconds
        elapsed, value = clock(lambda: _step(loss, operands))
        seconds.append(elapsed)
    peak = {"peak_gb": torch.cuda.max_memory_allocated() / 1e9} if cuda else {}
    return {"loss": value.item(), "seconds": statistics.median(seconds[2:]), "first_seconds": seconds[0]} | peak


def _step(loss: Loss, operands: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    value = loss(*operands)
    value.backward()
    return value.detach()


def _events(step: Callable[[], Tensor]) -> tuple[float, Tensor]:
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    value = step()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1e3, value


def _seconds(step: Callable[[], Tensor]) -> tuple[float, Tensor]:
    start = time.perf_counter()
    value = step()
    return time.perf_counter() - start, value
