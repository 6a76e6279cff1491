"""How often the host waits for the device in a micro-batch. On a GPU each wait stops the stream of kernels."""

import sys
from collections import Counter

import pytest
import torch
from simple_goal import low_tokens
from tiny_training import World, learner_of, policy_of, some_rows
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from tutelage.algorithms.override import override
from tutelage.algorithms.registry import RECIPES
from tutelage.core.rows import collate
from tutelage.models.budget import Budget
from tutelage.train.rl import update
from tutelage.train.supervised.fit import WeightedRows, fit, imitate

READING = {"item", "tolist", "cpu", "numpy", "__bool__", "__int__", "__float__", "__index__", "nonzero"}
"""Methods of tensors for which the host waits, since it needs the numbers or how many they are."""
COUNTING = {"_local_scalar_dense", "is_nonzero", "equal", "masked_select", "_unique2", "unique_dim", "nonzero"}
"""Operations of the same kind."""
OTHERS = {"transformers.masking_utils"}
"""Modules of others: this one looks whether a mask is full, in order to leave it out."""


class Waits(TorchFunctionMode):
    """Counts them, by name; those below a method that is counted already are not counted again."""

    def __init__(self, on_host=()):
        """Tensors `on_host`, and views of them, are no reason to wait."""
        super().__init__()
        self.on_host, self.counts, self.depth = on_host, Counter(), 0
        self.below = _Operations(self)

    def __torch_function__(self, function, types, args=(), kwargs=None):
        name = getattr(function, "__name__", "")
        waits = name in READING or (name == "__getitem__" and _is_mask(args[1]))
        if waits and sys._getframe(1).f_globals["__name__"] not in OTHERS:
            self.counts[name] += not any(_shares(args[0], one) for one in self.on_host)
        self.depth += waits
        try:
            return function(*args, **(kwargs or {}))
        finally:
            self.depth -= waits

    def __enter__(self):
        self.below.__enter__()
        return super().__enter__()

    def __exit__(self, *of_error):
        super().__exit__(*of_error)
        self.below.__exit__(*of_error)


class _Operations(TorchDispatchMode):
    """The operations of the backward pass too, which no method shows."""

    def __init__(self, waits):
        super().__init__()
        self.waits = waits

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        name = operation.__name__.partition(".")[0]
        masked = name in ("index", "index_put", "index_put_", "_index_put_impl_") and any(
            part is not None and part.dtype == torch.bool for part in args[1]
        )
        if (name in COUNTING or masked) and not self.waits.depth:
            self.waits.counts[name] += 1
        return operation(*args, **(kwargs or {}))


def _shares(tensor, other):
    """Whether both are the same memory, on the host."""
    return tensor.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()


def _is_mask(index):
    parts = index if isinstance(index, tuple) else (index,)
    return any(isinstance(part, torch.Tensor) and part.dtype == torch.bool for part in parts)


def test_what_is_counted():
    x = torch.arange(3.0)
    with Waits() as waits:
        (float(x.sum()), x.tolist(), x[x > 1], bool(x[0] == 0), x.nonzero(), x * 2, x[torch.tensor([0])], x.cpu())
    assert sum(waits.counts.values()) == 6


def of_one_part(counts):
    """What a part costs: a step in three parts less the same step in one, halved."""
    one, three = counts
    return {name: (three[name] - one[name]) / 2 for name in one | three if three[name] != one[name]}


WAITS = {"tolist": 1, "nonzero": 1}
"""The columns that are padding in all rows of a part, and the places of its response tokens."""


PACKED = WAITS | {"tolist": 2, "__bool__": 1, "__int__": 1, "__getitem__": 5, "unique_dim": 1}
"""With the lengths of the rows, which prompts are equal, and the layout of the packed sequence."""
ALIGNED = WAITS | {"__int__": 1}
"""With the length of the longest row."""
engines = pytest.mark.parametrize(("engine", "expected"), [("plain", ALIGNED), ("gpu", PACKED)])


@engines
def test_a_part_of_a_supervised_step(tiny_model, engine, expected):
    policy = policy_of(tiny_model("llama"), engine=engine)
    learner = learner_of({"policy": policy.parameters()}, steps=2)
    batch = WeightedRows.of(collate(some_rows(6), 0, policy.device))
    policy.scores(batch)  # tries whether the engine computes the model
    counts = []
    for count in (1, 3):
        budget, parts = Budget(100), torch.arange(6).chunk(count)
        budget.parts = lambda split, batch, at_end, parts=parts: iter(parts)
        with Waits(parts) as waits:
            learner.step = 0
            next(fit(learner, policy, lambda step: batch, lambda part: imitate(policy, part), budget=budget, seed=0))
        counts.append(waits.counts)
    assert of_one_part(counts) == expected


@engines
@pytest.mark.parametrize("name", ["grpo", "ppo"])
def test_a_part_of_an_update(tiny_model, monkeypatch, name, engine, expected):
    policy = policy_of(tiny_model("llama"), engine=engine)
    recipe = override(RECIPES[name], ["samples=2", "update.minibatches=1", "update.epochs=1"])
    world = World(policy, recipe, steps=2, reward=low_tokens, tokens=6, batch=3)
    inner, counts = update.minibatch_step, []

    def counted(setup, rows, state, first):
        for count in (1, 3):
            parts = torch.arange(len(rows)).chunk(count)
            with pytest.MonkeyPatch.context() as patch, Waits(parts) as waits:
                patch.setattr(setup.settings.budget, "parts", lambda split, used, at_end, parts=parts: iter(parts))
                patch.setattr(setup.learner, "update", dict)
                result = inner(setup, rows, state, False)
            counts.append(waits.counts)
        return result

    monkeypatch.setattr(update, "minibatch_step", counted)
    monkeypatch.setattr(
        update, "zero_gradient_rows", lambda recipe, rows, state: torch.zeros(len(rows), dtype=torch.bool)
    )
    next(iter(world.train()))
    assert of_one_part(counts[:2]) == expected
