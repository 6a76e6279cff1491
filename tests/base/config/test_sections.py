"""The settings that commands share: those that mean nothing are refused."""

import math

import pytest
from offenders import for_each

from tutelage.base import config
from tutelage.base.config import Checkpoints, Lora, Model, Optimiser, Sampling, from_mapping
from tutelage.base.config.flags import settings_below, settings_from
from tutelage.base.config.sections import SearchSettings
from tutelage.base.errors import TutelageError
from tutelage.commands.completion import settings_by_command
from tutelage.commands.distill.settings import DistillSettings
from tutelage.commands.dpo.settings import DpoSettings
from tutelage.commands.improve.settings import ImproveSettings
from tutelage.commands.rejection.settings import RejectionSettings
from tutelage.commands.reward.settings import RewardSettings
from tutelage.commands.sft.settings import SftSettings


@for_each([(Checkpoints, "keep", 0, "--checkpoints.keep"), (SearchSettings, "width", 1, "--test-time.width")])
def test_a_refusal_names_the_flag_in_its_section(cls: type, name: str, value: int, flag: str) -> None:
    with pytest.raises(TutelageError, match=rf"{flag} is {value}"):
        from_mapping(cls, {name: value})
    commands = (settings for variants in settings_by_command().values() for settings in variants)
    assert any(flag in each.flags for settings in commands for each in settings_below(settings))


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


@for_each([(0.0, 100, 0), (0.1, 100, 10), (0.5, 3, 2), (1.0, 100, 1), (20.0, 100, 20), (20.0, 5, 5)])
def test_warmup_is_a_share_below_one_and_a_count_from_one(warmup: float, total: int, steps: int) -> None:
    assert Optimiser(warmup=warmup).warmup_steps(total) == steps


def test_a_checkpoint_is_due_every_so_many_steps() -> None:
    assert [step for step in range(1, 11) if Checkpoints(every=4).due(step)] == [4, 8]
    assert not any(Checkpoints(every=0).due(step) for step in range(1, 11))


REQUIRED = {
    SftSettings: {"data": "d"},
    RewardSettings: {"data": "d"},
    DpoSettings: {"data": "d"},
    RejectionSettings: {"prompts": "p", "reward": ["r"]},
    ImproveSettings: {"prompts": "p", "reward": ["r"]},
    DistillSettings: {"prompts": "p", "teacher": "t"},
}


def settled(cls, **given):
    return config.from_mapping(cls, {"model": {"path": "m"}, "out": "o"} | REQUIRED[cls] | given)


@pytest.mark.parametrize("cls", REQUIRED, ids=lambda cls: cls.__name__)
class TestRates:
    def test_all_weights_and_adapters_have_rates_of_their_own(self, cls):
        assert settled(cls).optimiser.lr == cls.RATES.all
        assert settled(cls, lora={"rank": 4}).optimiser.lr == cls.RATES.lora
        assert cls.RATES.lora > cls.RATES.all

    def test_a_rate_that_is_given_stays(self, cls):
        assert settled(cls, optimiser={"lr": 0.5}, lora={"rank": 4}).optimiser.lr == 0.5

    def test_other_settings_of_the_optimiser_keep_the_defaults_of_the_command(self, cls):
        usual, given = settled(cls).optimiser, settled(cls, optimiser={"max_norm": 2.0}).optimiser
        assert (given.lr, given.warmup, given.eps) == (usual.lr, usual.warmup, usual.eps)

    def test_what_a_run_writes_down_names_its_rate(self, cls):
        written = config.to_mapping(settled(cls, lora={"rank": 4}))
        assert written["optimiser"]["lr"] == cls.RATES.lora
        assert config.from_mapping(cls, written).optimiser.lr == cls.RATES.lora


def test_every_command_that_trains_adapters_has_rates():
    every = {cls for variants in settings_by_command().values() for cls in variants}
    trained = {cls for cls in every if any(one.key == "lora.rank" for one in settings_below(cls))}
    assert trained >= REQUIRED.keys()
    assert [cls for cls in trained if not isinstance(getattr(cls, "RATES", None), config.Rates)] == []


def test_help_tells_the_rates(capsys):
    with pytest.raises(SystemExit):
        settings_from(SftSettings, ["--help"], prog="tutelage sft")
    rates = SftSettings.RATES
    assert f"rate is {rates.all:g}, with LoRA {rates.lora:g}." in capsys.readouterr().out


def test_an_optimiser_without_a_rate_trains_nothing():
    with pytest.raises(ValueError, match="no learning rate"):
        _ = config.Optimiser().peak
