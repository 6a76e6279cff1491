"""Training: the two loops that are generators of steps, the optimiser, and the run directory.

    for step in tutelage.train.improve(policy, generator, prompts, reward, recipe, learner, settings): ...
    for step in tutelage.train.fit(learner, policy, batches, objective, budget=4096, seed=0): ...

`fit` and `improve` do not print, save or stop; the caller does. The names below are imported on first use.
"""

from tutelage.base.modules import lazy_names

_NAMES = {
    "core.rows": ("collate",),
    "data.chat_tokens": ("pad_token_id",),
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
_PLACES = {name: f"tutelage.{module}" for module, names in _NAMES.items() for name in names}

__all__ = sorted(_PLACES)

__getattr__, __dir__ = lazy_names(__name__, _PLACES)
