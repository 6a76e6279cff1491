"""The names of rewards."""

import pytest

from tutelage.rewards.names import names_model, reward_models, split_fold, split_weight


@pytest.mark.parametrize(
    ("given", "name", "weight"),
    [
        ("runs/reward/model", "runs/reward/model", None),
        ("runs/a:b/model=0.5", "runs/a:b/model", "0.5"),
        ("rule:format(tag=think)=2", "rule:format(tag=think)", "2"),
        ("module:function=-1", "module:function", "-1"),
        ("a.module:function(workers=8, timeout=2.5)=-1", "a.module:function(workers=8, timeout=2.5)", "-1"),
        ("module:function(workers=8)", "module:function(workers=8)", None),
        ("runs/a:b(2)/model=0.5", "runs/a:b(2)/model", "0.5"),
    ],
)
def test_the_weight_follows_the_name(given, name, weight):
    assert split_weight(given) == (name, weight)
    assert given.startswith(name)


def test_a_fold_of_steps_stands_before_the_folder():
    assert split_weight("min:runs/a:b/model=0.5") == ("min:runs/a:b/model", "0.5")
    assert names_model("product:model")
    assert split_fold("product:model") == ("model", "product")
    assert split_fold("runs/a:b/model") == ("runs/a:b/model", "")
    assert reward_models(["last:model=2", "median:model"]) == ["model"]


def test_only_folders_are_models():
    given = ["rule:math", "runs/a:b/model=0.5", "judge:rubric.toml", "my_module:score", "runs/reward/model"]
    assert reward_models(given) == ["runs/a:b/model", "runs/reward/model"]
    assert not names_model("rule:math")
