"""An engine on the card against the engine plain on the CPU in float32: small models of five families, full and LoRA.
The layers of one family are compiled, those of the others computed by the same functions without compilation.

Rows are in float32 without TF32 (log-probabilities, entropy, gradients, sampled tokens) and in bf16 (the same errors,
and the sampler against the trainer: first ratios and the divergence per token).
"""

import copy
import json
import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bench.gpu.random_models import FAMILIES, adapted, family_settings, policy, random_ids, random_model
from tutelage.base import config
from tutelage.core.batch import Rollout, Rows
from tutelage.engines.gpu.gpu_engine import GpuEngine
from tutelage.engines.gpu.transformer import EAGER
from tutelage.engines.interface import PromptTokens
from tutelage.models.backbone import load_backbone
from tutelage.models.policy import Policy

COMPILED = "qwen3"
"""The family whose layers are compiled: each family and precision costs half a minute of compilation."""
RANK = 4
PROMPTS, SAMPLES = (5, 17, 40), 4
NEAR = 0.02
"""Distance from 1 within which a first ratio of bf16 is counted."""


def measure(device: str, tiny: bool, subject: str) -> dict[str, float]:
    """The largest errors over all families, and each family's own under `<family>.<full|lora>.`."""
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.set_float32_matmul_precision("highest")
    figures: dict[str, float] = {}
    cases: list[dict[str, float]] = []
    for family in FAMILIES:
        for rank in (0, RANK):
            case = _case(family, rank, device, tiny, subject)
            cases.append(case)
            figures |= {f"{family}.{'lora' if rank else 'full'}.{name}": value for name, value in case.items()}
    smallest = ("float32_equal_tokens", "bf16_ratios_near_1")
    return {name: (min if name in smallest else max)(case[name] for case in cases) for name in cases[0]} | figures


def _case(family: str, rank: int, device: str, tiny: bool, subject: str) -> dict[str, float]:
    """The errors of one model, full or with an adapter."""
    model = random_model(family_settings(family, tiny), "cpu", torch.float32)
    if rank:
        model = adapted(model, rank)
        _move_adapter(model)
    expected = policy(copy.deepcopy(model), "plain", torch.float32, ends=True)
    prompts = _prompts(expected.vocabulary)
    sampling = config.Sampling(max_new_tokens=8 if tiny else 32)
    rollout = expected.generate(prompts, SAMPLES, sampling, seed=3)
    reference = _scores(expected, rollout)
    figures: dict[str, float] = {}
    for name, dtype in (("float32", torch.float32), ("bf16", torch.bfloat16)):
        own = policy(_placed(model, device, dtype if subject != "plain" else torch.float32), subject, dtype, ends=True)
        if isinstance(own.engine, GpuEngine) and family != COMPILED:
            own.engine.steps = EAGER
        logp, entropy, gradients = _scores(own, rollout.to(device))
        figures[f"{name}_logp"] = float((logp - reference[0]).abs().max())
        figures[f"{name}_entropy"] = float((entropy - reference[1]).abs().max())
        figures[f"{name}_gradient"] = _relative(gradients, reference[2])
        sampled = own.generate(prompts, SAMPLES, sampling, seed=3)
        if dtype == torch.float32:
            figures["float32_equal_tokens"] = _equal_tokens(sampled, rollout)
        else:
            figures |= _off_policy(own, sampled)
    return figures


def trained(device: str, tiny: bool, subject: str) -> dict[str, float]:
    """Sampler against trainer in bf16 on the trained model of `model_folder`: its distributions are far from uniform.

    The trainer's log-probabilities are also compared with those of plain in float32 on the CPU.
    """
    folder = model_folder()
    figures: dict[str, float] = {}
    texts = json.loads((folder / "prompts.json").read_text())[: 2 if tiny else None]
    for rank in (0, RANK):
        own = Policy(load_backbone(config.Model(str(folder), "bf16", device, subject), config.Lora(rank=rank)))  # type: ignore[arg-type]
        tokens = tuple(tuple(own.tokenizer.encode(text)) for text in texts)
        prompts = PromptTokens(tokens, tuple(f"p{number}" for number in range(len(tokens))))
        rollout = own.generate(prompts, SAMPLES, config.Sampling(max_new_tokens=8 if tiny else 64), seed=3)
        exact = Policy(load_backbone(config.Model(str(folder), "float32", "cpu", "plain"), config.Lora()))
        with torch.no_grad():
            apart = own.scores(rollout).logp.cpu() - exact.scores(rollout.to("cpu")).logp
        case = _off_policy(own, rollout) | {"bf16_logp": float(apart.abs().max())}
        case |= {"tokens": float(rollout.mask.sum()), "mean_length": float(rollout.mask.sum(1).float().mean())}
        figures |= {f"{'lora' if rank else 'full'}_{name}": value for name, value in case.items()}
    return figures


def model_folder() -> Path:
    """The folder of a trained model with prompts.json, a list of texts: `TUTELAGE_GPU_MODEL`, by default `.trained`."""
    return Path(os.environ.get("TUTELAGE_GPU_MODEL", ".trained"))


def _prompts(vocabulary: int) -> PromptTokens:
    tokens = tuple(tuple(random_ids(vocabulary, length, seed=length).tolist()) for length in PROMPTS)
    return PromptTokens(tokens, tuple(f"p{length}" for length in PROMPTS))


def _placed(model: Any, device: str, frozen: torch.dtype) -> Any:
    """A copy on the device; frozen weights get a dtype. The engine plain keeps them in float32."""
    copied = copy.deepcopy(model).to(device)
    for parameter in copied.parameters():
        if not parameter.requires_grad:
            parameter.data = parameter.data.to(frozen)
    return copied


@torch.no_grad()
def _move_adapter(model: Any) -> None:
    """Give an adapter an effect: new ones have none."""
    numbers = torch.Generator().manual_seed(7)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            parameter.copy_(0.05 * torch.randn(parameter.shape, generator=numbers))


def _scores(own: Policy, rows: Rows) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Log-probabilities, entropies and the gradient of their mean, in float32 on the CPU."""
    scores = own.scores(rows, entropy=True)
    assert scores.entropy is not None
    count = rows.mask.sum()
    own.backward(-(scores.logp.sum() + 0.1 * scores.entropy.sum()) / count)
    gradients = [
        p.grad.detach().float().cpu() if p.grad is not None else torch.zeros(p.shape) for p in own.parameters()
    ]
    for parameter in own.parameters():
        parameter.grad = None
    return scores.logp.detach().float().cpu(), scores.entropy.detach().float().cpu(), gradients


def _relative(own: list[Tensor], expected: list[Tensor]) -> float:
    """‖g − g₀‖ / ‖g₀‖ over all parameters."""
    apart = sum(float((a - b).double().square().sum()) for a, b in zip(own, expected, strict=True))
    whole = sum(float(b.double().square().sum()) for b in expected)
    return float((apart / whole) ** 0.5)


def _equal_tokens(own: Rollout, expected: Rollout) -> float:
    """Share of rows whose tokens are all the same."""
    a, b = own.to("cpu"), expected.to("cpu")
    same = [x[m].tolist() == y[n].tolist() for x, m, y, n in zip(a.response, a.mask, b.response, b.mask, strict=True)]
    return sum(same) / len(same)


@torch.no_grad()
def _off_policy(own: Policy, rollout: Rollout) -> dict[str, float]:
    """Trainer against sampler on the sampler's rows, r = π_trainer / π_sampler: the mean of r − 1 − log r, and r."""
    apart = (own.scores(rollout).logp - rollout.logp)[rollout.mask].double()
    ratio = apart.exp()
    return {
        "bf16_kl": float((ratio - 1 - apart).mean().clamp(min=0.0)),
        "bf16_ratios_near_1": float(((ratio - 1).abs() <= NEAR).double().mean()),
        "bf16_largest_ratio": float(torch.maximum(ratio, 1 / ratio).max()),
    }
