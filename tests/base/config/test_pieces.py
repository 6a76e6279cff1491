"""The settings that verbs share: those that mean nothing are refused."""

import math

import pytest
from offenders import for_each

from tutelage.base.config import Checkpoints, Lora, Model, Optimiser, Sampling, from_mapping
from tutelage.base.errors import TutelageError


@for_each(
    [
        (Model, {"path": ""}),
        (Lora, {"rank": -1}),
        (Lora, {"rank": 4, "dropout": 1.0}),
        (Lora, {"rank": 4, "alpha": 0.0}),
        (Lora, {"alpha": 16.0}),  # inert without a rank
        (Sampling, {"temperature": -0.1}),
        (Sampling, {"temperature": math.nan}),
        (Sampling, {"top_k": -1}),
        (Sampling, {"top_p": 0.0}),
        (Sampling, {"top_p": 1.1}),
        (Sampling, {"min_p": 1.5}),
        (Sampling, {"max_new_tokens": 0}),
        (Sampling, {"temperature": 0.0, "top_k": 5}),  # inert when greedy
        (Optimiser, {"lr": 0.0}),
        (Optimiser, {"lr": math.nan}),
        (Optimiser, {"betas": [0.9, 1.0]}),
        (Optimiser, {"weight_decay": -1.0}),
        (Optimiser, {"warmup": -0.1}),
        (Optimiser, {"warmup": 10.5}),
        (Optimiser, {"max_norm": 0.0}),
        (Checkpoints, {"every": -1}),
        (Checkpoints, {"keep": 0}),
    ]
)
def test_settings_that_mean_nothing_are_refused(cls: type, mapping: dict[str, object]) -> None:
    with pytest.raises(TutelageError, match=r"\.$"):
        from_mapping(cls, mapping)


@pytest.mark.parametrize(
    ("warmup", "total", "steps"),
    [(0.0, 100, 0), (0.1, 100, 10), (0.5, 3, 2), (1.0, 100, 1), (20.0, 100, 20), (20.0, 5, 5)],
)
def test_warmup_is_a_share_below_one_and_a_count_from_one(warmup: float, total: int, steps: int) -> None:
    assert Optimiser(warmup=warmup).warmup_steps(total) == steps


def test_a_checkpoint_is_due_every_so_many_steps() -> None:
    assert [step for step in range(1, 11) if Checkpoints(every=4).due(step)] == [4, 8]
    assert not any(Checkpoints(every=0).due(step) for step in range(1, 11))
