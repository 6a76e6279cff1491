"""Training steps through the package's own policy and learner: SFT (A), LoRA (B) and DPO (D).

    MFU = (6 · N · tokens + 6 · layers · heads · width · Σ length²) / seconds / 989 TFLOP/s

N are the weights of all matrices, the tied head once. A causal product of queries and keys, and one with values, take
4 · length² / 2 · heads · width operations a layer forwards, and twice as many backwards. With frozen weights their
gradients are not computed, so `mfu_frozen` has 4 · N instead of 6 · N.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from bench.gpu.random_models import adapted, policy, random_model, random_rows, settings_of
from bench.gpu.stopwatch import forget_peak, middle, once, peak_gib
from tutelage.base import config
from tutelage.core.batch import Pairs, Rows
from tutelage.core.preferences import dpo
from tutelage.engines.network import checkpointed, inner
from tutelage.models.policy import Policy
from tutelage.train.learner import Learner

PEAK = 989e12
"""Products of an H100 in bf16, by its data sheet."""
PROMPT = 1
"""Tokens of the prompt of a document: its first token is predicted from nothing."""


def learner_of(own: Policy) -> Learner:
    """The optimiser of training, at a constant rate."""
    settings = config.Optimiser(lr=1e-5, schedule="constant")
    return Learner({"policy": own.parameters()}, settings, 1_000, own.total_norm)


def sft(device: str, tiny: bool, subject: str) -> dict[str, float]:
    """Full SFT of Qwen3-0.6B on one document of 8,192 tokens, in bf16 over float32 masters."""
    model = random_model(settings_of("Qwen3-0.6B", tiny), device, torch.float32)
    own = policy(model, subject)
    return _documents(own, 1, 32 if tiny else 8_192, device)


def lora(device: str, tiny: bool, subject: str) -> dict[str, float]:
    """LoRA of rank 16 on all linear layers of Qwen3-4B, one document of 16,384 tokens.

    Layers are recomputed in the backward pass. The engine plain keeps frozen weights in float32, as `load_backbone`
    does; others get them in bf16.
    """
    frozen = torch.float32 if subject == "plain" else torch.bfloat16
    model = random_model(settings_of("Qwen3-4B", tiny), device, frozen)
    own = _recomputed(policy(adapted(model, 4 if tiny else 16), subject))
    return _documents(own, 1, 32 if tiny else 16_384, device)


def _recomputed(own: Policy) -> Policy:
    """The policy with activation checkpointing."""
    return Policy(checkpointed(own.backbone))


def _documents(own: Policy, count: int, length: int, device: str) -> dict[str, float]:
    """Tokens a second, MFU and peak memory of a step on whole documents."""
    rows = random_rows(own.vocabulary, count, PROMPT, length - PROMPT, device)
    learner = learner_of(own)

    def step() -> None:
        backwards(own, rows, count * length, lambda part: -own.scores(part).logp.sum() / rows.mask.sum())
        learner.update()

    forget_peak(device)
    first = once(step, device)
    seconds = middle(step, device, runs=3)
    tokens = count * length
    figures = {
        "first_seconds": first,
        "step_seconds": seconds,
        "tokens_per_second": tokens / seconds,
        "mfu": operations(own.model, tokens, count * length**2) / seconds / PEAK,
        "peak_gib": peak_gib(device),
    }
    if len(own.parameters()) < len(list(own.model.parameters())):
        figures["mfu_frozen"] = operations(own.model, tokens, count * length**2, each=4) / seconds / PEAK
    return figures


def backwards(own: Policy, rows: Rows, tokens: int, loss: Callable[[Any], Tensor]) -> None:
    """Add the gradients of a loss that is a sum over rows, part by part."""
    for index in own.split(rows, tokens):
        own.backward(loss(rows.rows(index)))


def operations(model: Any, tokens: float, squares: float, each: int = 6) -> float:
    """Operations of a training step, see above; `squares` is Σ length²."""
    settings = inner(model).config.get_text_config()
    weights = sum(p.numel() for name, p in model.named_parameters() if p.dim() == 2 and "lora_" not in name)
    width = getattr(settings, "head_dim", None) or settings.hidden_size // settings.num_attention_heads
    attention = 6 * settings.num_hidden_layers * settings.num_attention_heads * width * squares
    return float(each * weights * tokens + attention)


def preferences(device: str, tiny: bool, subject: str) -> dict[str, float]:
    """Full DPO of Qwen2.5-0.5B on 8 pairs of completions of 512 tokens to prompts of 512 tokens.

    The reference is the policy before its first step; it scores the pairs first, and no copy of it is kept. Parts have
    at most 4,096 tokens, and layers are recomputed in the backward pass.
    """
    count, length, tokens = (2, 8, 64) if tiny else (8, 512, 4_096)
    model = random_model(settings_of("Qwen2.5-0.5B", tiny), device, torch.float32)
    own = _recomputed(policy(model, subject))
    both = random_rows(own.vocabulary, 2 * count, length, length, device, of_each=2)
    side = torch.arange(0, 2 * count, 2, device=device)
    ones = torch.ones(count, device=device)
    pairs = Pairs(
        chosen=both.rows(side), rejected=both.rows(side + 1), p_chosen=ones, weight=ones, margin=torch.zeros_like(ones)
    )
    reference = torch.zeros(count, device=device)

    def refer() -> None:
        with torch.no_grad():
            for index in own.split(pairs, tokens):
                reference[index.to(device)] = _margins(own, pairs.rows(index))

    learner = learner_of(own)

    def step() -> None:
        for index in own.split(pairs, tokens):
            ahead = _margins(own, pairs.rows(index))
            own.backward(dpo(ahead, reference[index.to(device)], beta=0.1).sum() / count)
        learner.update()

    forget_peak(device)
    referring = middle(refer, device, runs=1)
    first = once(step, device)
    return {
        "reference_seconds": referring,
        "first_seconds": first,
        "step_seconds": middle(step, device, runs=3),
        "peak_gib": peak_gib(device),
    }


def _margins(own: Policy, pairs: Pairs) -> Tensor:
    """log π(chosen) − log π(rejected). Float[B]"""
    chosen, rejected = own.scores(pairs.both()).logp.sum(1).chunk(2)
    return chosen - rejected
