"""Decoding: 8 prompts × 8 completions and 64 distinct prompts, against the floor of what must be read in every step.

bytes of step t = weights + keys and values of (distinct prompts · prompt + rows · t) tokens
floor = rows / mean over t of (bytes of step t / copy rate)
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from bench.gpu.random_models import policy, random_model, random_prompts, settings_of
from bench.gpu.stopwatch import copy_rate, forget_peak, middle, once, peak_gib
from tutelage.base import config
from tutelage.engines.interface import PromptTokens

STEPS = {"plain": 33, "generate": 65, "continuous": 65, "gpu": 256}
"""Tokens that a subject decodes; the time of 256 is extrapolated from fewer by the time of a step."""
LIMIT = 256
TINY_CACHE = {"num_blocks": 64, "max_batch_tokens": 64, "block_size": 32}
"""Settings of continuous batching for a rehearsal: by itself it takes most of the memory."""


@dataclass(frozen=True)
class Load:
    """Prompts with completions to each."""

    prompts: int
    samples: int
    length: int

    @property
    def rows(self) -> int:
        return self.prompts * self.samples


def measure(name: str, device: str, tiny: bool, subject: str) -> dict[str, float]:
    """Tokens a second of both loads, from the prompts on and of decoding alone, and the share of the floor."""
    settings = settings_of(name, tiny)
    model = random_model(settings, device, torch.bfloat16)
    rate = copy_rate(device, 2**20 if tiny else 2**30)
    steps, limit = (4, 6) if tiny else (STEPS[subject], LIMIT)
    figures: dict[str, float] = {"steps": float(steps), "copy_tb_s": rate / 1e12}
    for label, load in _loads(tiny).items():
        prompts = random_prompts(settings.vocab_size, load.prompts, load.length)
        work = _work(model, subject, prompts, load, TINY_CACHE if tiny else {})
        forget_peak(device)
        own = _rates(work, load.rows, steps, limit, device, runs=3 if subject == "gpu" else 1)
        own["floor"] = floor(model, load, limit, rate)
        own["share_of_floor"] = own["decoding"] / own["floor"]
        own["peak_gib"] = peak_gib(device)
        figures |= {f"{label}_{key}": value for key, value in own.items()}
    return figures


def _loads(tiny: bool) -> dict[str, Load]:
    if tiny:
        return {"shared": Load(2, 2, 16), "distinct": Load(4, 1, 16)}
    return {"shared": Load(8, 8, 512), "distinct": Load(64, 1, 512)}


def floor(model: Any, load: Load, limit: int, rate: float) -> float:
    """Tokens a second if each step only reads what it must, in bf16, at the card's own copy rate."""
    settings = model.config
    weights = 2 * sum(parameter.numel() for parameter in model.parameters())
    token = 2 * 2 * settings.num_hidden_layers * settings.num_key_value_heads * _width(settings)
    read = weights + token * (load.prompts * load.length + load.rows * (limit + 1) / 2)
    return load.rows * rate / read


def _width(settings: Any) -> int:
    return int(getattr(settings, "head_dim", None) or settings.hidden_size // settings.num_attention_heads)


def _rates(
    work: Callable[[int], object], rows: int, steps: int, limit: int, device: str, runs: int
) -> dict[str, float]:
    """Rates from the times of one token and of `steps` tokens to each row."""
    first = once(partial(work, steps), device)
    prefill = middle(partial(work, 1), device, runs)
    step = max((middle(partial(work, steps), device, runs, warm=0) - prefill) / (steps - 1), 1e-9)
    return {
        "first_seconds": first,
        "prefill_seconds": prefill,
        "step_ms": 1e3 * step,
        "decoding": rows / step,
        "end_to_end": rows * limit / (prefill + step * (limit - 1)),
    }


def _work(
    model: Any, subject: str, prompts: PromptTokens, load: Load, cache: Mapping[str, Any]
) -> Callable[[int], object]:
    """The function that decodes a number of tokens for each row."""
    if subject == "generate":
        return partial(_generate, model, prompts, load)
    if subject == "continuous":
        return partial(_generate_continuously, model, prompts, load, cache)
    own = policy(model, subject)

    def decode(tokens: int) -> object:
        sampling = config.Sampling(max_new_tokens=tokens)
        return own.generate(prompts, load.samples, sampling, seed=tokens, rows_at_once=load.rows)

    return decode


def _generate(model: Any, prompts: PromptTokens, load: Load, tokens: int) -> None:
    """A static batch of transformers, with its dynamic cache."""
    ids = torch.tensor(prompts.tokens, device=model.device)
    output = model.generate(
        input_ids=ids,
        attention_mask=torch.ones_like(ids),
        num_return_sequences=load.samples,
        generation_config=_sampling(tokens),
    )
    assert output.shape == (load.rows, load.length + tokens)


def _generate_continuously(
    model: Any, prompts: PromptTokens, load: Load, cache: Mapping[str, Any], tokens: int
) -> None:
    """Continuous batching of transformers; each row is a request. Its manager, with its graphs and with the keys and
    values of prompts that it has read before, stays."""
    from transformers import ContinuousBatchingConfig

    inputs = [list(each) for each in prompts.tokens for _ in range(load.samples)]
    outputs = model.generate_batch(
        inputs,
        generation_config=_sampling(tokens),
        continuous_batching_config=ContinuousBatchingConfig(**cache),
        progress_bar=False,
        persistent_manager=True,
    )
    written = [len(output.generated_tokens) for output in outputs.values()]
    if written != [tokens] * load.rows:
        errors = {output.error for output in outputs.values()}
        raise RuntimeError(f"generate_batch wrote {sum(written)} tokens instead of {tokens * load.rows}: {errors}")


def _sampling(tokens: int) -> Any:
    from transformers import GenerationConfig

    return GenerationConfig(
        max_new_tokens=tokens, do_sample=True, temperature=1.0, top_k=0, top_p=1.0, eos_token_id=-1, pad_token_id=1
    )
