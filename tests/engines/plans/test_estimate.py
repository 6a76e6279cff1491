"""The choice among settings, and what to change where none fits."""

from dataclasses import replace

import pytest

from tutelage.engines.plans.estimate import changes, devices_needed, plan, setting_flags, settings
from tutelage.engines.plans.rank_memory import PlanSetting, memory

from .sizes import SMALL, cluster, on_policy

LARGE = on_policy(model=replace(SMALL, parameters=400_000_000, matrices=390_000_000), half=True)


def test_nothing_is_chosen_or_advised_that_a_run_cannot_have():
    """A natural step, and inference, which trains nothing."""
    where = cluster(8, memory=7e9)
    natural = replace(LARGE, can_shard=False)
    assert plan(natural, where).choice is None
    assert all("shard" not in one.flags for one in changes(natural, where))
    assert devices_needed(natural, where) is None
    assert not PlanSetting("full").is_available(replace(LARGE, trains=False))
    choice = plan(LARGE, where).choice
    assert choice is not None
    assert choice.setting.sharding == "full"


def test_the_settings_of_a_cluster():
    assert {one.sharding for one in settings(cluster(1), None)} == {"none"}
    assert {one.sharding for one in settings(cluster(8), None)} == {"none", "full"}
    assert {one.sharding for one in settings(cluster(16), None)} == {"none", "full", "hybrid"}
    for uneven in (cluster(12), cluster(4, per_node=1)):
        assert {one.sharding for one in settings(uneven, None)} == {"none", "full"}


def test_the_choice_is_the_fastest_that_fits():
    found = plan(LARGE, cluster(8, memory=7e9))
    fitting = [one for one in found.estimates if one.fits]
    assert 0 < len(fitting) < len(found.estimates)
    assert found.choice is not None
    assert found.choice.seconds == min(one.seconds for one in fitting)
    assert found.choice.memory.peak <= 7e9


def test_without_a_fit_there_is_no_choice_but_changes_that_fit():
    where = cluster(1, memory=5e9)
    assert plan(LARGE, where).choice is None
    found = list(changes(LARGE, where))
    assert found
    assert all(change.peak <= where.device.memory for change in found)
    assert "--lora.rank 16" in found[0].flags


def test_the_least_intrusive_change_comes_first():
    work = replace(LARGE, has_reference=False)
    tight = memory(work, cluster(), PlanSetting(tokens=256)).peak
    found = [change.flags for change in changes(work, cluster(memory=tight + 1e6))]
    assert "lora" not in found[0]
    assert any("lora" in flags for flags in found)


def test_the_devices_needed_are_enough_and_half_are_not():
    small = cluster(1, memory=4e9)
    count = devices_needed(LARGE, small)
    assert count is not None
    assert plan(LARGE, replace(small, count=count)).choice is not None
    assert plan(LARGE, replace(small, count=count // 2)).choice is None
    assert devices_needed(LARGE, cluster(1, memory=1e6)) is None


def test_flags_name_what_is_not_the_default():
    assert setting_flags(PlanSetting()) == ""
    flags = setting_flags(PlanSetting("full", checkpointing=True, tokens=512))
    assert flags == "--shard full --activation-checkpointing --tokens-at-once 512"


def test_cost_and_tokens_follow_from_the_time():
    found = plan(on_policy(), cluster(4, memory=8e10), servers=cluster(2))
    best = found.choice
    assert best is not None
    assert found.devices == 6
    assert found.cost(best, 3.0) == pytest.approx(6 * 3.0 * best.seconds / 3600)
    assert found.tokens_per_day(best) == pytest.approx(128 * 150 * 86_400 / best.seconds)
