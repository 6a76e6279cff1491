"""Recipes in the words of OpenRLHF."""

from dataclasses import replace
from pathlib import Path
from typing import get_args, get_type_hints

import pytest
from offenders import for_each

from tutelage.algorithms.override import override
from tutelage.algorithms.registry import RECIPES
from tutelage.base import config
from tutelage.base.errors import TutelageError
from tutelage.commands.export.openrlhf import openrlhf
from tutelage.commands.export.run import TRAINERS
from tutelage.commands.export.settings import ExportSettings
from tutelage.commands.export.translation import PromptSizes
from tutelage.commands.export.verl import verl

GIVEN = ExportSettings(
    model=config.Model("m"), prompts="p", reward=("r",), out=Path("o"), to="openrlhf", batch_size=24, gpus=16
)
SIZES = PromptSizes(240, 100)


def told(name, *changes, given=GIVEN, reward_model=None):
    return openrlhf(override(RECIPES[name], changes), given, SIZES, reward_model)


@for_each(
    [
        ("ppo", "gae"),
        ("reinforce_pp", "reinforce"),
        ("reinforce_pp_baseline", "reinforce_baseline"),
        ("grpo", "group_norm"),
        ("gspo", "group_norm"),
    ]
)
def test_each_recipe_has_its_estimator_and_as_many_optimiser_steps(name, estimator):
    settings = told(name).settings
    assert settings["algo.advantage.estimator"] == estimator
    samples, update = RECIPES[name].samples, RECIPES[name].update
    rollout = settings["rollout.batch_size"] * settings["rollout.n_samples_per_prompt"]
    assert rollout == 24 * samples
    assert rollout / settings["train.batch_size"] * settings["train.max_epochs"] == update.steps
    assert settings["train.num_episodes"] * 240 == GIVEN.steps * 24


@for_each(
    [
        ("trpo", (), "NaturalStep"),
        ("rloo", (), "reduce=sequence_sum"),
        ("dapo", (), "dynamic_sampling"),
        ("cispo", (), "Cispo"),
        ("ppo", ("penalty.controller=Adaptive",), "penalty.controller=Adaptive"),
        ("ppo", ("penalty.kind=abs",), "penalty.kind=abs"),
        ("grpo", ("penalty.kind=k3_ratio",), "penalty.kind=k3_ratio"),
        ("ppo", ("ptx=0.5",), "ptx"),
        ("ppo_kl_stop", (), "update.max_kl"),
        ("vapo", (), "advantage Gae"),
    ]
)
def test_what_it_does_not_have_is_refused_by_name(name, changes, what):
    with pytest.raises(TutelageError, match=rf"OpenRLHF has no counterpart of .*{what}.* recipe {name}"):
        told(name, *changes)


def test_minibatches_of_unequal_size_are_refused():
    with pytest.raises(TutelageError, match="--batch-size 25 cannot be divided into 2 minibatches"):
        told("grpo", given=replace(GIVEN, batch_size=25))


def test_a_penalty_in_the_reward_of_a_group_is_told():
    """OpenRLHF compares scores and takes the KL off afterwards."""
    changes = ("penalty.where=reward", "penalty.kind=k1")
    assert any("The KL is taken off after" in line for line in told("grpo", *changes).differences)
    assert not any("The KL is taken off after" in line for line in told("ppo").differences)


def test_machines_and_the_reward_model():
    settings = told("ppo", reward_model="/reward").settings
    assert (settings["actor.num_nodes"], settings["actor.num_gpus_per_node"]) == (2, 8)
    assert settings["reward.model_name_or_path"] == "/reward"
    assert "reward.remote_url" not in settings


@for_each(
    [
        ({}, "m"),
        ({"critic": "network"}, "runs/reward"),
        ({"critic": "network", "critic_from": "c"}, "c"),
        ({"critic": "network", "reward": ("rule:math",)}, "m"),
    ]
)
def test_a_critic_begins_as_in_improve(changes, begins):
    given = replace(GIVEN, **{"reward": ("rule:math", "runs/reward=2")} | changes)
    assert told("ppo", given=given).settings["critic.model_name_or_path"] == begins
    assert verl(RECIPES["ppo"], given, SIZES, None).settings["critic.model.path"] == begins


def test_every_trainer_of_the_settings_has_its_export():
    assert set(TRAINERS) == set(get_args(get_type_hints(ExportSettings)["to"]))
