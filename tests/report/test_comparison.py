"""Comparisons of runs: what is paired with what, and what cannot be compared."""

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import ttest_rel

from tutelage.base.errors import TutelageError
from tutelage.report.comparison import Comparison, compare_runs
from tutelage.report.comparison_page import render_comparison, write_comparison

from .fake_round import config, write, write_rows

SHIFT = {"ppo": 0.0, "grpo": 0.5}


def training(folder: Path, recipe: str, seed: int, *, finished: bool = True) -> Path:
    """A run of reinforcement learning of 20 steps."""
    path = folder / f"{recipe}-{seed}"
    settings = {"recipe": recipe, "seed": seed, "out": str(path), "engine": f"engine-{seed}", "lora": {"rank": 0}}
    write(path / "config.json", config("improve", **settings))
    rows = [
        {"step": step, "score/mean": step / 20 + SHIFT[recipe] + seed / 10, "kl/reference": step * 0.1}
        for step in range(1, 21)
    ]
    write_rows(path / "metrics.jsonl", rows)
    if finished:
        write(path / "summary.json", rows[-1] | {"seconds": 3.0})
    return path


def evaluation(folder: Path, name: str, scores: list[list[float | None]], prompts: list[str] | None = None) -> Path:
    """An evaluation with the scores of the completions of each prompt."""
    path = folder / name
    write(path / "config.json", {"model": {"path": f"runs/{name}/model"}, "prompts": "p.jsonl", "seed": 0})
    prompts = prompts or [f"prompt {i}" for i in range(len(scores))]
    rows = [
        {"prompt": prompt, "after": "text", "gold_after": score, "ended_after": True}
        for prompt, own in zip(prompts, scores, strict=True)
        for score in own
    ]
    write_rows(path / "answers.jsonl", rows)
    write(path / "summary.json", {"prompts": len(scores), "model": {"gold_mean": 0.0, "words/mean": 3.5}})
    return path


def figure(comparison: Comparison, name: str) -> list[float | None]:
    return [mean.value for one in comparison.figures if one.name == name for mean in one.values]


def test_runs_that_differ_in_the_seed_alone_are_one_variant(tmp_path: Path) -> None:
    folders = [training(tmp_path, recipe, seed) for recipe in ("ppo", "grpo") for seed in range(3)]
    comparison = compare_runs(folders)
    assert [(one.name, one.seeds) for one in comparison.variants] == [("ppo", (0, 1, 2)), ("grpo", (0, 1, 2))]
    assert [(row.name, row.values) for row in comparison.settings] == [("recipe", ("ppo", "grpo"))]
    assert figure(comparison, "score/mean") == pytest.approx([1.1, 1.6])
    test = next(one for one in comparison.tests if one.figure == "score/mean")
    assert (test.variant, test.against, test.over, test.difference.n) == ("grpo", "ppo", "seeds", 3)
    assert test.difference.value == pytest.approx(0.5)
    curves = next(one for one in comparison.curves if one.metric == "score/mean").curves
    assert all(low < mean < high for c in curves for low, mean, high in zip(c.low, c.mean, c.high, strict=True))
    assert all(math.isclose(high - low, 0.2) for c in curves for low, high in zip(c.low, c.high, strict=True))


def test_runs_on_different_data_are_different_variants(tmp_path: Path) -> None:
    """By the name of the file; by its rows if the file changed; and a repetition counts as no further seed."""
    folders = []
    for name, data, rows, seed in (
        *(("a", "a.jsonl", "24 rows, 5f", seed) for seed in (0, 1)),
        *(("b", "b.jsonl", "30 rows, 77", seed) for seed in (0, 1)),
        ("changed", "a.jsonl", "25 rows, 60", 0),
        ("again", "a.jsonl", "24 rows, 5f", 0),
    ):
        folder = training(tmp_path / name, "ppo", seed)
        write(folder / "config.json", config("sft", data=data, seed=seed, out=str(folder)) | {"data": rows})
        folders.append(folder)
    comparison = compare_runs(folders)
    assert [one.seeds for one in comparison.variants] == [(0, 1), (0, 1), (0,), (0,)]
    assert {row.name: row.values for row in comparison.settings} == {
        "data": ("a.jsonl", "b.jsonl", "a.jsonl", "a.jsonl"),
        "rows": ("24 rows, 5f", "30 rows, 77", "25 rows, 60", "24 rows, 5f"),
    }
    assert {test.difference.n for test in comparison.tests} == {2}


def test_the_order_of_the_seeds_changes_nothing(tmp_path: Path) -> None:
    folders = [training(tmp_path, recipe, seed) for recipe in ("ppo", "grpo") for seed in range(3)]
    first, other = compare_runs(folders), compare_runs([folders[i] for i in (1, 0, 2, 5, 4, 3)])
    assert replace(other, variants=first.variants) == first


def test_an_evaluation_against_its_copy_has_no_difference(tmp_path: Path) -> None:
    scores: list[list[float | None]] = [[0.0, 1.0], [0.5, 0.5], [1.0, 2.0], [3.0, -1.0]]
    comparison = compare_runs([evaluation(tmp_path, "a", scores), evaluation(tmp_path, "b", scores)])
    (test,) = comparison.tests
    assert (test.difference.value, test.difference.p, test.difference.n) == (0.0, 1.0, 4)
    assert test.difference.low is not None
    assert test.difference.high is not None
    assert test.difference.low <= 0.0 <= test.difference.high


def test_evaluations_are_compared_prompt_by_prompt(tmp_path: Path) -> None:
    """Against the paired t-test of scipy on the prompts to which the reward applies."""
    dice = np.random.default_rng(0)
    a, b = dice.normal(size=(30, 2)), dice.normal(0.4, size=(30, 1))
    one: list[list[float | None]] = [list(map(float, row)) for row in a]
    two: list[list[float | None]] = [list(map(float, row)) for row in b]
    two[7] = [None]
    comparison = compare_runs([evaluation(tmp_path, "a", one), evaluation(tmp_path, "b", two)])
    kept = np.arange(30) != 7
    expected = ttest_rel(b[kept, 0], a[kept].mean(1))
    (test,) = comparison.tests
    assert test.difference.p == pytest.approx(expected.pvalue)
    assert (test.difference.low, test.difference.high) == pytest.approx(tuple(expected.confidence_interval()))
    assert test.difference.n == 29
    assert figure(comparison, "gold") == pytest.approx([a.mean(), b[kept].mean()])
    assert [row.name for row in comparison.settings] == ["model.path"]


def test_the_sign_changes_with_the_first_run(tmp_path: Path) -> None:
    folders = [evaluation(tmp_path, "a", [[0.0], [1.0], [5.0]]), evaluation(tmp_path, "b", [[1.0], [3.0], [4.0]])]
    (one,), (other,) = compare_runs(folders).tests, compare_runs(folders[::-1]).tests
    ends = (one.difference.low, one.difference.value, one.difference.high)
    assert [-end for end in ends if end is not None] == pytest.approx(
        [other.difference.high, other.difference.value, other.difference.low]
    )


def test_what_cannot_be_compared(tmp_path: Path) -> None:
    run, scores = training(tmp_path, "ppo", 0), [[0.0], [1.0]]
    first = evaluation(tmp_path, "a", scores)  # type: ignore[arg-type]
    write(tmp_path / "round" / "round.json", {"stages": [{"name": "sft"}]})
    sft = tmp_path / "sft"
    write(sft / "config.json", config("sft", data="d.jsonl", out="sft"))
    cases = {
        "two or more": [run],
        "ppo-0 is given twice": [run, tmp_path / "a" / ".." / "ppo-0"],
        "no folder": [run, tmp_path / "nothing"],
        "neither a run nor a round": [run, tmp_path],
        "round of several runs.*sft": [run, tmp_path / "round"],
        "different commands": [run, sft],
        "different commands.*evaluations": [run, first],
        "'prompt 1' and 'other'": [first, evaluation(tmp_path, "b", scores, ["prompt 0", "other"])],  # type: ignore[arg-type]
        "2 prompts and 3": [first, evaluation(tmp_path, "c", [[0.0], [1.0], [2.0]])],
    }
    for words, folders in cases.items():
        with pytest.raises(TutelageError, match=words):
            compare_runs(folders)


def test_conversations_with_one_last_message_are_different_prompts(tmp_path: Path) -> None:
    """Two conversations that end with "Go on.", and the same words as a whole prompt."""

    def conversations(name: str, scores: Sequence[float], ids: Sequence[str]) -> Path:
        path = evaluation(tmp_path, name, [[0.0]])
        rows: list[dict[str, object]] = [
            {"prompt": "Go on.", "after": "text", "gold_after": score, **({"prompt_id": key} if key else {})}
            for score, key in zip(scores, ids, strict=True)
        ]
        write_rows(path / "answers.jsonl", rows)
        return path

    one, two = conversations("a", (0.0, 4.0, 1.0), ("p", "q", "")), conversations("b", (1.0, 7.0, 6.0), ("p", "q", ""))
    (test,) = compare_runs([one, two]).tests
    assert (test.difference.n, test.difference.value) == (3, pytest.approx(3.0))
    with pytest.raises(TutelageError, match=r"prompt 2.*different conversations"):
        compare_runs([one, conversations("c", (1.0, 7.0, 6.0), ("p", "r", ""))])


def test_the_page_and_json_show_the_same_value(tmp_path: Path) -> None:
    folders = [training(tmp_path, recipe, seed) for recipe in ("ppo", "grpo") for seed in range(2)]
    folders.append(training(tmp_path, "grpo", 2, finished=False))
    comparison = compare_runs(folders)
    html, values = render_comparison(comparison), json.loads(comparison.json())
    assert write_comparison(comparison, tmp_path / "new" / "page.html").read_text(encoding="utf-8") == html
    assert [one["unfinished"] for one in values["variants"]] == [0, 1]
    assert "1 unfinished" in html
    assert values["tests"][0]["difference"]["n"] == 2
    assert html.count("<svg") >= len([one for one in values["curves"] if one["main"]])
    assert "<script" not in html


def test_a_value_that_is_not_finite_is_null_in_json(tmp_path: Path) -> None:
    folders = [training(tmp_path, "ppo", seed) for seed in range(2)]
    rows = (folders[1] / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    write_rows(folders[1] / "metrics.jsonl", [json.loads(row) | {"score/mean": math.nan} for row in rows])
    comparison = compare_runs(folders)
    assert "null" in comparison.json()
    assert render_comparison(comparison)
