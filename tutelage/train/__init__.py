"""Training: the two loops that are generators of steps, what moves the weights, and the run directory.

    for step in tutelage.train.improve(policy, generator, prompts, reward, recipe, learner, settings): ...
    for step in tutelage.train.fit(learner, policy, batches, objective, budget=4096, seed=0): ...

`fit` and `improve` neither print, save nor stop by themselves; their caller does. The names below are imported when
they are first used.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tutelage.core.rows import collate as collate
    from tutelage.data.chat import pad_token_id as pad_token_id
    from tutelage.models.budget import Budget as Budget
    from tutelage.rollout.generator import encode_prompts as encode_prompts
    from tutelage.rollout.local import LocalGenerator as LocalGenerator
    from tutelage.train.learner import Learner as Learner
    from tutelage.train.learner import Step as Step
    from tutelage.train.rl.critic import make_critic as make_critic
    from tutelage.train.rl.improve import improve as improve
    from tutelage.train.rl.setup import RolloutSettings as RolloutSettings
    from tutelage.train.run.folder import Run as Run
    from tutelage.train.run.loop import Loop as Loop
    from tutelage.train.run.loop import Training as Training
    from tutelage.train.supervised.batches import Order as Order
    from tutelage.train.supervised.batches import encode_demonstrations as encode_demonstrations
    from tutelage.train.supervised.fit import WeightedRows as WeightedRows
    from tutelage.train.supervised.fit import fit as fit
    from tutelage.train.supervised.fit import imitate as imitate

_NAMES = {
    "core.rows": ("collate",),
    "data.chat": ("pad_token_id",),
    "models.budget": ("Budget",),
    "rollout.local": ("LocalGenerator",),
    "rollout.generator": ("encode_prompts",),
    "train.learner": ("Learner", "Step"),
    "train.rl.critic": ("make_critic",),
    "train.rl.improve": ("improve",),
    "train.rl.setup": ("RolloutSettings",),
    "train.run.loop": ("Loop", "Training"),
    "train.run.folder": ("Run",),
    "train.supervised.batches": ("Order", "encode_demonstrations"),
    "train.supervised.fit": ("WeightedRows", "fit", "imitate"),
}
_PLACES = {name: module for module, names in _NAMES.items() for name in names}

__all__ = sorted(_PLACES)


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'tutelage.train' has no attribute {name!r}")
    return getattr(importlib.import_module(f"tutelage.{_PLACES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
