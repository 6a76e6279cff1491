"""Call verl's own estimators on fixed inputs, and freeze inputs, outputs and version for `test_verl.py`.

    python tests/peers/freeze_verl.py        # in an environment with verl 0.9: writes verl-0.9.1.json

Nothing of Tutelage is imported.
"""

import json
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from omegaconf import OmegaConf
from verl.trainer.ppo.core_algos import agg_loss, get_adv_estimator_fn, kl_penalty

LENGTHS = [3, 1, 4, 2, 4, 3, 2, 4]
ESTIMATORS = ("gae", "grpo", "rloo", "reinforce_plus_plus", "reinforce_plus_plus_baseline", "remax")
AGGREGATIONS = ("token-mean", "seq-mean-token-mean", "seq-mean-token-sum", "seq-mean-token-sum-norm")


def main() -> None:
    torch.manual_seed(0)
    mask = torch.tensor([[float(t < length) for t in range(4)] for length in LENGTHS])
    rewards, values = 0.1 * torch.randn(8, 4) * mask, torch.randn(8, 4) * mask
    for row, length in enumerate(LENGTHS):
        rewards[row, length - 1] += torch.randn(())
    logp, reference, losses = -torch.rand(8, 4), -torch.rand(8, 4), torch.randn(8, 4) * mask
    baselines = torch.randn(8)
    config = OmegaConf.create({"gamma": 0.9, "norm_adv_by_std_in_grpo": True})
    given = {
        "response_mask": mask,
        "index": np.repeat([0, 1], 4),
        "config": config,
        "values": values,
        "gamma": 0.9,
        "lam": 0.8,
        "reward_baselines": baselines,
    }
    takes = {
        "gae": ("values", "response_mask", "gamma", "lam"),
        "grpo": ("response_mask", "index"),
        "remax": ("reward_baselines", "response_mask"),
    }
    advantages = {}
    for name in ESTIMATORS:
        words = takes.get(name, ("response_mask", "index", "config"))
        if name == "reinforce_plus_plus":
            words = ("response_mask", "config")
        chosen = {word: given[word] for word in words}
        advantages[name] = get_adv_estimator_fn(name)(token_level_rewards=rewards.clone(), **chosen)[0].tolist()
    plain = get_adv_estimator_fn("grpo")(rewards.clone(), mask, given["index"], norm_adv_by_std_in_grpo=False)
    frozen = {
        "version": version("verl"),
        "mask": mask.tolist(),
        "rewards": rewards.tolist(),
        "values": values.tolist(),
        "baselines": baselines.tolist(),
        "advantages": advantages | {"grpo without std": plain[0].tolist()},
        "logp": logp.tolist(),
        "reference": reference.tolist(),
        "kl": {kind: kl_penalty(logp, reference, kind).tolist() for kind in ("kl", "abs", "mse", "low_var_kl")},
        "losses": losses.tolist(),
        "aggregated": {how: float(agg_loss(losses, mask, how)) for how in AGGREGATIONS},
    }
    file = Path(__file__).parent / f"verl-{version('verl')}.json"
    file.write_text(json.dumps(frozen, indent=1) + "\n")


if __name__ == "__main__":
    main()
