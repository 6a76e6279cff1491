"""Settings as keyword arguments: the same settings as from the command line, and the same refusals."""

import inspect
from pathlib import Path

import pytest

import tutelage as tt
from tutelage.base.config.flags import settings_from as from_flags
from tutelage.commands.calls import importable_name, settings_from

SETTINGS = {name: getattr(tt, name) for name in tt.__all__ if name.endswith("Settings")}


def length(prompts, answers):
    """A reward at the top of a module."""
    return [float(len(answer)) for answer in answers]


@pytest.mark.parametrize(
    ("name", "flags", "keywords"),
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
    ],
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


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"modle": "m"}, "unknown setting 'modle': did you mean 'model'"),
        ({"model": "m", "data": "d", "out": "o", "lora": {"rnk": 4}}, r"'lora.rnk': did you mean 'rank'"),
        ({"model": "m", "data": "d", "out": "o", "epochs": "two"}, "epochs must be a number, not the text 'two'"),
        ({"model": "m", "out": "o"}, "data is required"),
        ({"data": "d", "out": "o"}, r"model.path is required"),
        ({"model": "m", "data": "d", "out": "o", "lora": {"alpha": 8.0}}, "lora.rank is 0"),
        ({"model": "m", "data": "d", "out": "o", "held_out": 1.0}, "a share must be at least 0 and below 1"),
    ],
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
    for unnamed in (lambda prompts, answers: [0.0], [].append):
        with pytest.raises(tt.TutelageError, match=r"give a module-level function.*train\.improve"):
            importable_name(unnamed)


def test_the_signature_of_a_workflow_is_that_of_its_settings():
    assert inspect.signature(tt.sft) == inspect.signature(tt.SftSettings)
    assert "Fine-tune a language model" in (inspect.getdoc(tt.sft) or "")
