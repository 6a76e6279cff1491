"""Optimiser: AdamW with a schedule and gradient clipping. Steps with non-finite losses or gradients are refused."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tutelage.algorithms.recipe_state import RecipeState
from tutelage.base import config
from tutelage.base.errors import TutelageError
from tutelage.base.nouns import counted
from tutelage.core.batch import ScoredRollout
from tutelage.engines.ranks.ranks import ALONE, Ranks
from tutelage.engines.ranks.sharded_tensors import is_sharded, laid_out_as, load_shards, shard_of
from tutelage.models.budget import out_of_memory

SHARDS = "shards"
"""Folder of a checkpoint with the sharded tensors."""


@dataclass(frozen=True)
class Step:
    """Item yielded by a training loop. On-policy steps include their rollout and the state of their recipe."""

    index: int  # counts from 1
    metrics: dict[str, float]
    sample: ScoredRollout | None = None
    texts: tuple[tuple[str, str], ...] = ()  # (last message of the prompt, response), row by row of `sample`
    recipe: RecipeState | None = None


class NotFinite(TutelageError):
    """Raised before the optimiser step if a loss or gradient is not finite. The weights are unchanged."""


class Learner:
    """Optimiser of named parameter groups, and the number of completed steps.

    `state()` is the complete state for a checkpoint; the learning rate is a function of the step alone.
    """

    def __init__(
        self,
        groups: Mapping[str, Sequence[nn.Parameter]],
        settings: config.Optimiser,
        total: int,
        norm: Callable[[Iterable[Tensor]], Tensor] = nn.utils.get_total_norm,
        *,
        ranks: Ranks = ALONE,
        **rates: float,
    ) -> None:
        """`norm` returns √ Σ g² over all gradients (a model's `total_norm`). Gradients are summed over `ranks`
        before every step. `rates` sets learning rates per group."""
        self.settings, self.total, self.step, self.ranks = settings, total, 0, ranks
        self._norm, self._updates = norm, 0
        self.parameters = [p for group in groups.values() for p in group]
        if not self.parameters:
            raise ValueError("no parameter requires a gradient")
        self.optimiser = torch.optim.AdamW(
            [part for name, group in groups.items() for part in self._by_decay(name, group, rates)],
            lr=settings.peak,
            betas=settings.betas,
            eps=settings.eps,
            fused=True,
        )

    def _by_decay(self, name: str, group: Sequence[nn.Parameter], rates: Mapping[str, float]) -> list[dict[str, Any]]:
        """Exclude biases and norms (fewer than two axes) from weight decay.

        A fused step takes sharded or whole parameters, not both. A scalar head, the only whole parameter beside
        shards, is the last of its model, so the order of the parameters does not depend on sharding.
        """
        lr = rates.get(name, self.settings.peak)
        wide, narrow = [p for p in group if p.dim() >= 2], [p for p in group if p.dim() < 2]
        parts = [
            ([p for p in part if is_sharded(p) == sharded], decay)
            for part, decay in ((wide, self.settings.weight_decay), (narrow, 0.0))
            for sharded in (True, False)
        ]
        return [{"params": p, "peak": lr, "name": name, "weight_decay": decay} for p, decay in parts if p]

    def factor(self, step: int) -> float:
        """Learning-rate factor of a step (counted from 0), relative to the peak."""
        warmup = self.settings.warmup_steps(self.total)
        if step < warmup:
            return (step + 1) / (warmup + 1)
        done = (step - warmup) / max(1, self.total - warmup)
        match self.settings.schedule:
            case "linear":
                return 1.0 - done
            case "cosine":
                return 0.5 * (1.0 + math.cos(math.pi * done))
            case "constant":
                return 1.0

    @property
    def version(self) -> int:
        """A number that changes with the weights: optimiser steps, of which torch's fused one counts no writes, and the
        writes of other operations."""
        return self._updates + sum(parameter._version for parameter in self.parameters)

    @property
    def rate(self) -> float:
        """Learning rate of the next step."""
        return self.settings.peak * self.factor(self.step)

    def add_zeros(self) -> None:
        """Set missing gradients to 0, so that AdamW still decays the moments and applies them."""
        for parameter in self.parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)

    def clear(self) -> None:
        """Clear accumulated gradients."""
        self.optimiser.zero_grad(set_to_none=True)

    def sum_gradients(self) -> None:
        """Sum unsharded gradients over the ranks; sharded ones are already summed. Afterwards, a parameter with a
        gradient on one rank has one on all ranks."""
        own = [p for p in self.parameters if not is_sharded(p)]
        if self.ranks.size == 1 or not own:
            return
        has = torch.tensor([p.grad is not None for p in own], dtype=torch.uint8)
        self.ranks.sum_([has])
        reached = [p for p, count in zip(own, has.tolist(), strict=True) if count]
        for parameter in reached:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        self.ranks.sum_([p.grad for p in reached if p.grad is not None])

    def update(self) -> dict[str, float]:
        """Sum gradients over the ranks, clip, take one optimiser step and clear gradients. Returns grad_norm (before
        clipping) and lr."""
        self.sum_gradients()
        norm = self._norm(p.grad for p in self.parameters if p.grad is not None)
        if not torch.isfinite(norm):
            self.clear()
            raise NotFinite(f"The gradient of step {self.step + 1} is not finite. {_ADVICE}")
        if norm > self.settings.max_norm:
            self._scale(self.settings.max_norm / (norm + 1e-6))
        for group in self.optimiser.param_groups:
            group["lr"] = group["peak"] * self.factor(self.step)
        self._updates += 1
        self._step()
        self.clear()
        return {"grad_norm": float(norm), "lr": self.rate}

    def _step(self) -> None:
        """Take one optimiser step. The first one allocates the moments before it changes a weight."""
        try:
            self.optimiser.step()
        except (RuntimeError, MemoryError) as error:
            if not out_of_memory(error):
                raise
            trained = sum(shard_of(p).numel() for p in self.parameters)
            raise TutelageError(
                f"Memory ran out in the optimiser's step {self.step + 1}: its moments take 8 bytes for each of "
                f"{counted(trained, 'weight')}, {trained * 8 / 1e9:.1f} GB. Train an adapter (--lora.rank 8), share "
                "them among processes (--shard full), lower --tokens-at-once, or begin with a smaller model."
            ) from error

    def _scale(self, factor: Tensor) -> None:
        """Multiply all gradients by a factor, shard by shard, as `clip_grads_with_norm_` does."""
        for parameter in self.parameters:
            if parameter.grad is not None:
                shard_of(parameter.grad).mul_(factor.to(parameter.device))

    def state(self) -> dict[str, Any]:
        """Parameters, optimiser state and step, as tensors and plain values; None for tensors in `shards()`."""
        moments = self.optimiser.state_dict()
        return {
            "step": self.step,
            "parameters": [_unless_sharded(p.detach()) for p in self.parameters],
            "optimiser": moments
            | {
                "state": {
                    number: {name: _unless_sharded(value) for name, value in each.items()}
                    for number, each in moments["state"].items()
                }
            },
        }

    def shards(self) -> dict[str, Tensor]:
        """Sharded parameters and moments by name."""
        tensors = {f"parameter.{number}": p.detach() for number, p in enumerate(self.parameters)}
        for number, each in self.optimiser.state_dict()["state"].items():
            tensors |= {f"{name}.{number}": value for name, value in each.items()}
        return {name: value for name, value in tensors.items() if is_sharded(value)}

    def load(self, file: Path) -> Mapping[str, Any]:
        """Load a checkpoint: `state()` under the key "learner" of `file`, and `shards()` from the folder `SHARDS` next
        to it. Returns the full content of `file`.

        Each rank reads only its own shards.
        """
        state: Mapping[str, Any] = torch.load(file, map_location="cpu", weights_only=True, mmap=self._in_shards)
        self._load_shards(state["learner"], file.parent / SHARDS)
        self.restore(state["learner"])
        return state

    def _load_shards(self, state: dict[str, Any], folder: Path) -> None:
        """Fill the None entries of `state` from a folder, sharded like the parameters."""
        missing: dict[str, Tensor] = {}
        for number, saved in enumerate(state["parameters"]):
            if saved is None:
                own = self.parameters[number].detach()
                state["parameters"][number] = missing[f"parameter.{number}"] = own
        order = [p for group in self.optimiser.param_groups for p in group["params"]]
        for number, each in state["optimiser"]["state"].items():
            for name in [name for name, value in each.items() if value is None]:
                each[name] = missing[f"{name}.{number}"] = torch.empty_like(order[number].detach())
        if missing:
            load_shards(missing, folder)

    def _laid_out(self, tensor: Tensor, parameter: Tensor) -> Tensor:
        """The tensor, sharded like its parameter."""
        if is_sharded(tensor):
            return tensor
        laid_out = laid_out_as(tensor, parameter)
        return laid_out.clone() if self._in_shards else laid_out

    @property
    def _in_shards(self) -> bool:
        return any(is_sharded(parameter) for parameter in self.parameters)

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore `state()` bit for bit, under any sharding."""
        with torch.no_grad():
            for own, saved in zip(self.parameters, state["parameters"], strict=True):
                shard_of(own).copy_(shard_of(saved if is_sharded(saved) else laid_out_as(saved, own)))
        optimiser = state["optimiser"]
        order = [p for group in self.optimiser.param_groups for p in group["params"]]
        moments = {
            number: {name: self._laid_out(value, order[number]) for name, value in each.items()}
            for number, each in optimiser["state"].items()
        }
        groups = self.optimiser.state_dict()  # groups depend on the settings and the sharding
        self.optimiser.load_state_dict(groups | {"state": moments})
        self.step = int(state["step"])


def _unless_sharded(tensor: Tensor) -> Tensor | None:
    """The tensor, or None if it is sharded."""
    return None if is_sharded(tensor) else tensor


_ADVICE = "No weights were changed. A lower learning rate or --optimiser.max-norm usually helps."


class LossTerms:
    """Loss terms of the parts of a batch, read once after the last part.

    Reading a value synchronises with the device.
    """

    def __init__(self, step: int) -> None:
        """`step` counts from 1."""
        self.step = step
        self._noted: list[tuple[str, str, Tensor]] = []

    def note(self, terms: Mapping[str, Tensor], rows: str) -> None:
        """Record the terms of a part, and the `rows` it was computed from."""
        self._noted += [(name, rows, value.detach().float().sum()) for name, value in terms.items()]

    def totals(self) -> dict[str, Tensor]:
        """Sum of each term over the parts, by name. []"""
        sums: dict[str, Tensor] = {}
        for name, _, value in self._noted:
            sums[name] = sums[name] + value if name in sums else value
        return sums

    def refuse_not_finite(self) -> None:
        """Raise `NotFinite` with the first non-finite term and its rows."""
        if not self._noted:
            return
        values = torch.stack([value for *_, value in self._noted]).tolist()
        for (name, rows, _), value in zip(self._noted, values, strict=True):
            if not math.isfinite(value):
                raise NotFinite(f"{name} became {value} in step {self.step} on rows {rows}. {_ADVICE}")


def seed_step(seed: int, step: int) -> None:
    """Seed all random numbers of a step by (seed, step), so that no random state needs to be saved."""
    number = (seed * 1_000_003 + step) % 2**63
    torch.default_generator.manual_seed(number)
    if torch.cuda.is_initialized():  # torch.manual_seed would queue a call, with its stack, in every step
        torch.cuda.manual_seed_all(number)
