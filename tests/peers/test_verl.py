"""What `tutelage export --to verl` relies on: under the names that it writes, verl computes what the recipe computes.

`freeze_verl.py` called verl's functions. Whitening divides by n − 1 there and by n here, and a group's
spread has 1e-6 added there and 1e-4 here.
"""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tutelage.algorithms.registry import RECIPES
from tutelage.base import config
from tutelage.commands.export.settings import ExportSettings
from tutelage.commands.export.translation import PromptSizes
from tutelage.commands.export.verl import KL, REDUCE, verl
from tutelage.core.kl import kl_estimate
from tutelage.core.pieces import Context, apply, init
from tutelage.core.reduce import token_weights

FROZEN = json.loads((Path(__file__).parent / "verl-0.9.1.json").read_text())
MASK = torch.tensor(FROZEN["mask"]).bool()
WHITENED = math.sqrt((int(MASK.sum()) - 1) / int(MASK.sum()))
"""verl's whitened values over ours."""


def tensor(name):
    return torch.tensor(FROZEN[name])


def exported(recipe):
    given = ExportSettings(model=config.Model("m"), prompts="p", reward=("r",), out=Path("o"), to="verl")
    return verl(recipe, given, PromptSizes(240, 100), None).settings


@pytest.mark.parametrize(
    ("name", "changes", "factor"),
    [
        ("ppo", {"lam": 0.8, "gamma": 0.9}, WHITENED),
        ("grpo", {}, 1.0),
        ("dr_grpo", {}, 1.0),
        ("rloo", {}, 1.0),
        ("reinforce_pp", {"gamma": 0.9}, WHITENED),
        ("reinforce_pp_baseline", {}, WHITENED),
        ("remax", {}, 1.0),
    ],
)
def test_the_advantage_of_a_recipe_is_that_of_its_estimator(name, changes, factor):
    advantage = replace(RECIPES[name].advantage, **changes)
    settings = exported(replace(RECIPES[name], advantage=advantage))
    estimator = settings["algorithm.adv_estimator"]
    if settings.get("algorithm.norm_adv_by_std_in_grpo") is False:
        estimator = "grpo without std"
    context = Context(greedy=tensor("baselines"))
    inputs = tensor("rewards"), MASK, tensor("values"), 4, context
    (psi, _), _ = apply(advantage, *inputs, state=init(advantage))
    theirs = torch.tensor(FROZEN["advantages"][estimator]) * MASK  # what stands behind an answer is never looked at
    columns = slice(0, 1) if name == "remax" else slice(None)  # it credits tokens with the rewards behind them alone
    torch.testing.assert_close(theirs[:, columns], (psi * factor)[:, columns], rtol=3e-4, atol=1e-5)


@pytest.mark.parametrize("kind", KL)
def test_the_estimators_of_the_kl_are_equal(kind):
    ours = kl_estimate(tensor("logp"), tensor("reference"), kind)
    torch.testing.assert_close(torch.tensor(FROZEN["kl"][KL[kind]]), ours)


@pytest.mark.parametrize("how", REDUCE)
def test_tokens_weigh_the_same(how):
    ours = (token_weights(MASK, how, max_length=MASK.shape[1]) * tensor("losses")).sum()
    assert FROZEN["aggregated"][REDUCE[how]] == pytest.approx(float(ours), rel=1e-5)
