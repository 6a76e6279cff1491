"""Tasks in an evaluation, where the harness that runs them is not installed: settings, files, what is said."""

import json
import sys
from types import SimpleNamespace

import pytest

import tutelage as tt
from tutelage.base.errors import TutelageError
from tutelage.commands import line as cli


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({}, "evaluate needs --prompts, --tasks, or both"),
        ({"tasks": ("arc",), "reward": ("rule:number",)}, "--reward has no effect without --prompts"),
        ({"tasks": ("arc",), "n": 2}, "--n has no effect without --prompts"),
        ({"tasks": ("arc",), "sampling": tt.Sampling(temperature=0.5)}, "--sampling has no effect without"),
        ({"prompts": "p", "task_chat": True}, "--task-chat has no effect without --tasks"),
        ({"prompts": "p", "task_shots": 0}, "--task-shots has no effect without --tasks"),
        ({"tasks": ("arc",), "task_shots": -1}, "--task-shots is -1"),
    ],
)
def test_settings_without_effect_are_refused(given, sentence, tmp_path):
    with pytest.raises(TutelageError, match=sentence):
        tt.EvaluateSettings(model=tt.Model("m"), out=tmp_path, **given)


def test_what_is_missing_is_said_before_a_model_is_loaded(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    monkeypatch.delitem(sys.modules, "tutelage.commands.evaluate.harness", raising=False)
    assert cli.main(["evaluate", "--model", "none", "--tasks", "arc", "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert "needs the library lm_eval, which is not installed here: pip install 'tutelage[lm-eval]'" in said
    assert not (tmp_path / "out").exists()


def test_figures_of_tasks_stand_in_the_files_and_the_table(tiny_model, tmp_path, monkeypatch, capsys):
    sample = {"task": "arc", "number": 0, "target": "a", "answers": ["b"], "acc": 0.0}
    found = SimpleNamespace(figures={"arc/acc": 0.25, "arc/acc_error": 0.125}, samples=(sample,), versions={"arc": 3})
    calls = []

    def run_tasks(policy, settings):
        calls.append((policy.vocabulary, settings.tasks, settings.task_shots))
        return found

    monkeypatch.setitem(sys.modules, "tutelage.commands.evaluate.harness", SimpleNamespace(run_tasks=run_tasks))
    (tmp_path / "prompts.jsonl").write_text('{"prompt": "Why?"}\n')
    model = tiny_model("llama")
    words = ["evaluate", "--model", model, "--against", model, "--prompts", str(tmp_path / "prompts.jsonl")]
    words += ["--tasks", "arc", "gsm8k", "--task-shots", "2", "--sampling.max-new-tokens", "4"]
    assert cli.main([*words, "--out", str(tmp_path / "out")]) == 0
    assert [call[1:] for call in calls] == [(("arc", "gsm8k"), 2)] * 2
    (line,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("arc acc"))
    assert line.split() == ["arc", "acc", "0.250", "0.250", "±", "0.125,", "±", "0.125"]
    summary = json.loads((tmp_path / "out/summary.json").read_text())
    assert summary["model"]["arc/acc_error"] == summary["against"]["arc/acc_error"] == 0.125
    assert {"length/mean", "kl"} <= set(summary["model"])
    rows = [json.loads(line) for line in (tmp_path / "out/tasks.jsonl").read_text().splitlines()]
    assert rows == [{"model": name, **sample} for name in ("against", "model")]
    assert (tmp_path / "out/answers.jsonl").exists()
