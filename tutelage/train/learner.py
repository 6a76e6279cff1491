"""The optimiser: AdamW with a schedule, clipping, and the refusal to step on a number that is not finite."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tutelage.algorithms.recipe import RecipeState
from tutelage.base import config
from tutelage.base.errors import TutelageError
from tutelage.base.nouns import counted
from tutelage.core.batch import ScoredRollout
from tutelage.engines.ranks.ranks import ALONE, Ranks
from tutelage.engines.ranks.sharded_tensors import is_sharded, laid_out_as, load_shards, shard_of
from tutelage.models.budget import out_of_memory

SHARDS = "shards"
"""The folder of a checkpoint that has the tensors in shards."""


@dataclass(frozen=True)
class Step:
    """One item from a loop. An on-policy step has its rollout, and the state of its recipe to go on with."""

    index: int  # counts from 1
    metrics: dict[str, float]
    sample: ScoredRollout | None = None
    texts: tuple[tuple[str, str], ...] = ()  # (last message of the prompt, response), row by row of `sample`
    recipe: RecipeState | None = None


class NotFinite(TutelageError):
    """A loss or gradient that is not a number. Raised before the step, so that the weights are still good."""


class Learner:
    """Parameters in named groups, one optimiser, and the number of steps done.

    Everything a checkpoint needs to go on is in `state()`; the learning rate is a function of the step alone.
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
        """`norm` gives √ Σ g² of all gradients: a model's `total_norm`, which knows where its gradients are. `ranks`
        accumulate gradients of their own rows, which are summed before every step. `rates` gives a group a learning
        rate of its own."""
        self.settings, self.total, self.step, self.ranks = settings, total, 0, ranks
        self._norm = norm
        self.parameters = [p for group in groups.values() for p in group]
        if not self.parameters:
            raise ValueError("there is nothing to train: no parameter requires a gradient")
        self.optimiser = torch.optim.AdamW(
            [part for name, group in groups.items() for part in self._by_decay(name, group, rates)],
            lr=settings.peak,
            betas=settings.betas,
            eps=settings.eps,
            fused=True,
        )

    def _by_decay(
        self, name: str, group: Sequence[nn.Parameter], rates: Mapping[str, float]
    ) -> list[dict[str, Any]]:
        """Biases and norms (fewer than two axes) are left out of the weight decay.

        A fused step takes sharded or whole parameters, not both. A scalar head, which alone is whole beside shards, is
        the last of its model, so that the order of the parameters is that without shards.
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
        """The factor of the peak learning rate in the step with this number (counted from 0)."""
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
    def rate(self) -> float:
        """The learning rate of the next step."""
        return self.settings.peak * self.factor(self.step)

    def add_zeros(self) -> None:
        """Give every parameter that has no gradient one of 0: the optimiser passes over it otherwise, where with 0 its
        moments decay and carry the weights on."""
        for parameter in self.parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)

    def clear(self) -> None:
        """Clear the gradients that were accumulated."""
        self.optimiser.zero_grad(set_to_none=True)

    def sum_gradients(self) -> None:
        """Sum the gradients over the ranks; those in shards are sums already. A parameter that has a gradient on one
        rank has one on all afterwards."""
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
        """Sum the gradients over the ranks, clip them, take one optimiser step, clear them. Returns grad_norm (before
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
        self._step()
        self.clear()
        return {"grad_norm": float(norm), "lr": self.rate}

    def _step(self) -> None:
        """One step of the optimiser, which allocates its moments in the first, before it changes a weight."""
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
        """Multiply all gradients by a factor, as `clip_grads_with_norm_` does, shard by shard."""
        for parameter in self.parameters:
            if parameter.grad is not None:
                shard_of(parameter.grad).mul_(factor.to(parameter.device))

    def state(self) -> dict[str, Any]:
        """Parameters, optimiser and step, as tensors and plain values; None in the place of what `shards` has."""
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
        """The parameters and moments that lie in shards, by name."""
        tensors = {f"parameter.{number}": p.detach() for number, p in enumerate(self.parameters)}
        for number, each in self.optimiser.state_dict()["state"].items():
            tensors |= {f"{name}.{number}": value for name, value in each.items()}
        return {name: value for name, value in tensors.items() if is_sharded(value)}

    def load(self, file: Path) -> Mapping[str, Any]:
        """Continue from a file that holds `state()` under "learner", with `shards()` in the folder `SHARDS` beside it.
        Returns all that the file holds.

        A learner in shards reads no more than its own.
        """
        state: Mapping[str, Any] = torch.load(
            file, map_location="cpu", weights_only=True, mmap=self._in_shards
        )
        self._load_shards(state["learner"], file.parent / SHARDS)
        self.restore(state["learner"])
        return state

    def _load_shards(self, state: dict[str, Any], folder: Path) -> None:
        """Put the tensors of a folder in the places of `state` that are None, laid out as the parameters are."""
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
        """A tensor of a state as the learner keeps it: in shards as the parameter is."""
        if is_sharded(tensor):
            return tensor
        laid_out = laid_out_as(tensor, parameter)
        return laid_out.clone() if self._in_shards else laid_out

    @property
    def _in_shards(self) -> bool:
        return any(is_sharded(parameter) for parameter in self.parameters)

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from `state()`, bit for bit, in whatever shards the parameters lie."""
        with torch.no_grad():
            for own, saved in zip(self.parameters, state["parameters"], strict=True):
                shard_of(own).copy_(shard_of(saved if is_sharded(saved) else laid_out_as(saved, own)))
        optimiser = state["optimiser"]
        order = [p for group in self.optimiser.param_groups for p in group["params"]]
        moments = {
            number: {name: self._laid_out(value, order[number]) for name, value in each.items()}
            for number, each in optimiser["state"].items()
        }
        groups = self.optimiser.state_dict()  # its groups follow the settings, and where the parameters lie
        self.optimiser.load_state_dict(groups | {"state": moments})
        self.step = int(state["step"])


def _unless_sharded(tensor: Tensor) -> Tensor | None:
    """The tensor; None for one in shards."""
    return None if is_sharded(tensor) else tensor


_ADVICE = "Nothing was changed by it. A lower learning rate or --optimiser.max-norm is the usual cure."


class LossTerms:
    """The terms of the loss of every part of a batch, looked at once after the last part.

    A look at a number waits for all that the device was asked to compute before it.
    """

    def __init__(self, step: int) -> None:
        """`step` counts from 1."""
        self.step = step
        self._noted: list[tuple[str, str, Tensor]] = []

    def note(self, terms: Mapping[str, Tensor], rows: str) -> None:
        """Keep the terms of a part, and which `rows` it was computed from."""
        self._noted += [(name, rows, value.detach().float().sum()) for name, value in terms.items()]

    def totals(self) -> dict[str, Tensor]:
        """The sum over the parts of each term by its name. []"""
        sums: dict[str, Tensor] = {}
        for name, _, value in self._noted:
            sums[name] = sums[name] + value if name in sums else value
        return sums

    def refuse_not_finite(self) -> None:
        """Raise `NotFinite` naming the first term that is not a finite number, and its rows."""
        if not self._noted:
            return
        values = torch.stack([value for *_, value in self._noted]).tolist()
        for (name, rows, _), value in zip(self._noted, values, strict=True):
            if not math.isfinite(value):
                raise NotFinite(f"{name} became {value} in step {self.step} on rows {rows}. {_ADVICE}")


def seed_step(seed: int, step: int) -> None:
    """Make every random number of a step a function of (seed, step), so that nothing random needs to be saved."""
    number = (seed * 1_000_003 + step) % 2**63
    torch.default_generator.manual_seed(number)
    if torch.cuda.is_initialized():  # torch.manual_seed would queue the call, with its stack, step after step
        torch.cuda.manual_seed_all(number)
