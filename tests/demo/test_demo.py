"""The whole loop on the embedded example, as a new user runs it, with a smaller model that learns less."""

import json
import resource
import time
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from docs.fences import ROOT, commands

from tutelage.base.config import Shape
from tutelage.commands.line import main
from tutelage.demo.rounds import tutoring

SMALL = replace(
    tutoring.TutoringScale(),
    corpus_tokens=60_000,
    shape=Shape(vocabulary=800, hidden=32, layers=2, heads=2, context=192),
    demonstrations=200,
    train_prompts=120,
    answers=2,
    pairs=1,
    overlap=2,
    raters=6,
    reward_epochs=2.0,
    ppo_steps=3,
    ppo_batch=16,
    answer_tokens=32,
    test_prompts=24,
)
"""A scale that takes a few seconds."""
STAGES = ("pretrain", "sft", "sample", "judge", "reward", "improve", "evaluate")


def words(out: Path) -> list[str]:
    return ["demo", "--out", str(out)]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """The folder of a finished round, and what it printed."""
    out, told = tmp_path_factory.mktemp("demo") / "round", StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tutoring, "TutoringScale", lambda: SMALL)
        with redirect_stdout(told):
            assert main(words(out)) == 0
        yield out, told.getvalue()


def test_the_summary_holds_the_figures_of_every_stage(finished) -> None:
    out, _ = finished
    summary = json.loads((out / "summary.json").read_text())
    for section, key in (
        ("sft", "gold_mean"),
        ("sft", "gold_std"),
        ("policy", "gold_mean"),
        ("policy", "win_rate"),
        ("policy", "kl_per_sequence"),
        ("reward_model", "accuracy"),
        ("reward_model", "ceiling"),
    ):
        assert isinstance(summary[section][key], float), (section, key)
    low, high = summary["policy"]["win_rate_ci"]
    assert 0 <= low <= summary["policy"]["win_rate"] <= high <= 1
    assert summary["reward_model"]["accuracy"] <= 1
    assert set(STAGES) <= set(summary["seconds"])
    assert 100 < summary["peak_rss_mb"] <= resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000


def test_the_figures_are_those_of_the_answers(finished) -> None:
    """The summary can be computed anew from the answers that stand in the folder, by the gold utility itself."""
    from tutelage.data.worlds import gold

    out, _ = finished
    summary = json.loads((out / "summary.json").read_text())
    rows = [json.loads(line) for line in (out / "evaluate" / "answers.jsonl").read_text().splitlines()]
    prompts = [row["prompt"] for row in rows]
    before, after = (gold(prompts, [row[side] for row in rows]) for side in ("before", "after"))
    assert summary["policy"]["gold_mean"] == pytest.approx(sum(after) / len(after), abs=1e-4)
    even = [b == pytest.approx(a, abs=1e-6) for a, b in zip(before, after, strict=True)]  # the sums round
    won = [0.5 if tied else float(b > a) for a, b, tied in zip(before, after, even, strict=True)]
    assert summary["policy"]["win_rate"] == pytest.approx(sum(won) / len(won), abs=1e-3)


def test_no_prompt_of_the_evaluation_was_judged_or_practised(finished) -> None:
    out, _ = finished
    sides = [
        {json.loads(line)["prompt"] for line in (out / "data" / name).read_text().splitlines()}
        for name in ("prompts_train.jsonl", "prompts_held_out.jsonl")
    ]
    assert not sides[0] & sides[1]
    judged = {json.loads(line)["prompt"] for line in (out / "judge" / "preferences.jsonl").read_text().splitlines()}
    assert judged <= sides[0]


def test_the_terminal_ends_with_the_table_the_answers_and_what_to_do_next(finished) -> None:
    _, told = finished
    for expected in ("win rate by gold", "Reward model:", "What to do next", "report.html", "tutelage chat"):
        assert expected in told


def test_the_models_load_with_plain_from_pretrained(finished) -> None:
    from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

    out, _ = finished
    for stage in ("pretrain", "sft", "improve"):
        AutoModelForCausalLM.from_pretrained(out / stage / "model")
    assert AutoModelForSequenceClassification.from_pretrained(out / "reward" / "model").config.num_labels == 1


def test_the_commands_of_the_tutorial_run_on_it(finished, tmp_path, monkeypatch) -> None:
    """Those that neither make the demonstration nor wait for people, in their order."""
    out, _ = finished
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "demo").symlink_to(out)
    monkeypatch.chdir(tmp_path)
    small = {
        "improve": "--steps 1 --batch-size 4 --sampling.max-new-tokens 8 --quiet",
        "dpo": "--epochs 0.05 --quiet",
        "evaluate": "--sampling.max-new-tokens 8 --quiet",
    }
    page = [command.words for command in commands(ROOT / "docs" / "rlhf_in_one_sitting.md")]
    run = [words for words in page if words[0] not in ("demo", "collect") and "--help" not in words]
    assert {words[0] for words in run} == {*small, "report", "recipes"}
    for words in run:
        assert main([*words, *small.get(words[0], "").split()]) == 0, words
    assert (tmp_path / "runs" / "dpo-evaluate" / "summary.json").is_file()


def test_a_second_run_skips_what_is_done_and_another_seed_is_refused(finished, capsys) -> None:
    out, _ = finished
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*.safetensors")}
    began = time.monotonic()
    assert main(words(out)) == 0
    assert capsys.readouterr().err.count("done already") == len(STAGES)
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*.safetensors")} == before
    assert time.monotonic() - began < 60
    assert main([*words(out), "--seed", "1"]) == 2
    assert "other settings" in capsys.readouterr().err
