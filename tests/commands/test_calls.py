"""Settings as keyword arguments: the same settings as from the command line, and the same refusals."""

import inspect
import json
from dataclasses import replace
from pathlib import Path

import pytest
from offenders import for_each

import tutelage as tt
from tutelage.algorithms.registry import recipe_named
from tutelage.base.config.flags import settings_from as from_flags
from tutelage.base.modules import function_named
from tutelage.commands.calls import importable_name, settings_from
from tutelage.rewards.composite import WeightedReward

SETTINGS = {name: getattr(tt, name) for name in tt.__all__ if name.endswith("Settings")}


def length(prompts, answers):
    """A reward at the top of a module."""
    return [float(len(answer)) for answer in answers]


@for_each(
    [
        (
            "SftSettings",
            "--model m --dtype bf16 --data d --out o --lora.rank 16 --optimiser.lr 1e-4",
            {"model": "m", "dtype": "bf16", "data": "d", "out": "o", "lora": {"rank": 16}, "optimiser.lr": 1e-4},
        ),
        (
            "SftSettings",
            "--model m --device cpu --data d --out o --lora.rank 8",
            {"model": tt.Model("m", device="cpu"), "data": Path("d"), "out": Path("o"), "lora": tt.Lora(rank=8)},
        ),
        (
            "PretrainSettings",
            "--model m --dtype bf16 --data d --out o",
            {"model": Path("m"), "dtype": "bf16", "data": "d", "out": "o"},
        ),
        (
            "ImproveSettings",
            "--model m --prompts p --reward folder=0.5 a:b --out o --set penalty.coef=0.1",
            {"model": "m", "prompts": "p", "reward": ["folder=0.5", "a:b"], "out": "o", "set": "penalty.coef=0.1"},
        ),
        (
            "ImproveSettings",
            "--model m --prompts p --reward folder=0.5 --out o --watch gold=a:b",
            {"model": "m", "prompts": "p", "reward": {Path("folder"): 0.5}, "out": "o", "watch": {"gold": "a:b"}},
        ),
    ]
)
def test_keywords_and_flags_give_the_same_settings(name, flags, keywords):
    cls = SETTINGS[name]
    assert settings_from(cls, keywords) == from_flags(cls, flags.split(), prog="test")


def test_rows_in_memory_are_data():
    rows = [{"prompt": "Why?", "completion": "So."}, {"prompt": "How?", "completion": "So."}]
    settings = settings_from(SETTINGS["SftSettings"], {"model": "m", "data": rows, "out": "o"})
    loaded = tt.load_demonstrations(settings.data)
    assert [(one.messages[0].content, one.response) for one in loaded.records] == [("Why?", "So."), ("How?", "So.")]
    assert settings == settings_from(SETTINGS["SftSettings"], {"model": "m", "data": list(rows), "out": "o"})


@for_each(
    [
        ({"modle": "m"}, "unknown setting 'modle'; did you mean 'model'"),
        ({"model": "m", "data": "d", "out": "o", "lora": {"rnk": 4}}, r"'lora.rnk'; did you mean 'rank'"),
        ({"model": "m", "data": "d", "out": "o", "epochs": "two"}, "epochs must be a number, not the text 'two'"),
        ({"model": "m", "out": "o"}, "data is required"),
        ({"data": "d", "out": "o"}, r"model.path is required"),
        ({"model": "m", "data": "d", "out": "o", "lora": {"alpha": 8.0}}, "lora.rank is 0"),
        ({"model": "m", "data": "d", "out": "o", "held_out": 1.0}, "a share must be at least 0 and below 1"),
    ]
)
def test_keywords_that_make_no_sense_are_refused_as_flags_are(keywords, message):
    with pytest.raises(tt.TutelageError, match=message):
        tt.sft(**keywords)


def test_settings_and_keywords_are_not_mixed(tmp_path):
    settings = tt.SftSettings(model=tt.Model("m"), data="d", out=tmp_path)
    for positional, keywords in (((settings,), {"epochs": 2.0}), ((settings, settings), {}), (("m",), {})):
        with pytest.raises(tt.TutelageError, match="either one SftSettings or its settings as keyword"):
            tt.sft(*positional, **keywords)


def test_a_function_is_named_by_its_module():
    keywords = {"model": "m", "prompts": "p", "out": "o"}
    assert settings_from(tt.ImproveSettings, keywords | {"reward": length}).reward == (f"{__name__}:length",)
    weighed = settings_from(tt.ImproveSettings, keywords | {"reward": {length: 0.5}})
    assert weighed.reward == (f"{__name__}:length=0.5",)


def test_objects_without_a_name_are_found_in_this_process():
    first, other, summed = (lambda texts: [1.0], lambda texts: [2.0], WeightedReward(((1.0, length),)))
    names = [importable_name(value) for value in (first, other, summed, first)]
    assert names == list(dict.fromkeys(names))[:3] + names[:1]
    assert [function_named(name) for name in names] == [first, other, summed, first]
    keywords = {"model": "m", "prompts": "p", "out": "o", "reward": {summed: 0.5, "rule:math": 1.0}}
    assert settings_from(tt.ImproveSettings, keywords).reward == (f"{names[2]}=0.5", "rule:math=1.0")


def test_a_result_is_no_name(tmp_path):
    keywords = {"prompts": "p", "out": "o", "reward": "rule:math"}
    with pytest.raises(tt.TutelageError, match="recipe must be a text, not a SftResult"):
        settings_from(tt.ImproveSettings, keywords | {"model": "m", "recipe": tt.SftResult(tmp_path, {})})


def test_a_recipe_is_a_value_or_its_name():
    keywords = {"model": "m", "prompts": "p", "out": "o", "reward": "rule:math"}
    own = replace(tt.RECIPES["grpo"], samples=3)
    for recipe, samples in ((tt.RECIPES["rloo"], tt.RECIPES["rloo"].samples), (own, 3)):
        name = settings_from(tt.ImproveSettings, keywords | {"recipe": recipe}).recipe
        assert recipe_named(name) is recipe
        assert recipe_named(name).samples == samples
    assert settings_from(tt.ImproveSettings, keywords | {"recipe": tt.RECIPES["rloo"]}).recipe == "rloo"


def test_a_policy_is_improved_by_values(tiny_model, tmp_path):
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"prompt": "Hi"}\n{"prompt": "Why?"}\n')
    result = tt.improve(
        model=tiny_model("llama"), device="cpu", prompts=prompts, quiet=True, steps=1, batch_size=2,
        out=tmp_path / "run", sampling={"max_new_tokens": 4}, recipe=replace(tt.RECIPES["grpo"], samples=2),
        reward=WeightedReward(((2.0, lambda answers: [0.25 for _ in answers]),)),
    )  # fmt: skip
    (row,) = map(json.loads, (tmp_path / "run" / "metrics.jsonl").read_text().splitlines())
    assert row["score/mean"] == 0.5
    assert result.model.exists()


def test_the_signature_of_a_workflow_is_that_of_its_settings():
    signature = inspect.signature(tt.sft)
    assert signature.parameters == inspect.signature(tt.SftSettings).parameters
    assert signature.return_annotation is tt.SftResult
    assert "Fine-tune a language model" in (inspect.getdoc(tt.sft) or "")
