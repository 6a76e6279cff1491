"""Every experiment in its smallest form: it runs, leaves its data and its page, and does nothing twice."""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from remarks import collected
from tiers import long_except

from tutelage.base.errors import TutelageError
from tutelage.demo.lab import recipes
from tutelage.demo.lab.policy_training import LabPlan
from tutelage.demo.lab.start import Start, find
from tutelage.demo.laboratory import SUBCOMMANDS

SHORT = {"steps": 3, "answers": 8, "tested": 8, "every": 1}
OWN = "tutelage.algorithms.grpo:GRPO"
CHANGES: dict[str, dict[str, Any]] = {
    "kl": {"coefs": (1.0,), "plan": LabPlan(**SHORT)},
    "estimators": {"shares": (1.0, 2.0), "answers": 64, "batches": 4, "plan": LabPlan(recipe="rloo", **SHORT)},
    "advantages": {"prompts": 3, "batches": 2, "cells": 2, "pool": 16, "epochs": 1},
    "recipes": {
        "seeds": 2, "names": ("reinforce", OWN), "plan": LabPlan(**SHORT | {"steps": 9, "lr": 3e-3}, tokens=400)
    },
    "overoptimisation": {
        "answers": 3, "ensemble": 2,
        "pairs": (16, 40), "epochs": (1.0, 1.0), "remedied": 16, "prompts": 3, "samples": 8, "test_pairs": 12,
        "coefs": (1.0,), "plan": LabPlan(set=("penalty=none",), **SHORT),
    },
    "rubrics": {
        "seeds": 2, "ensemble": 2, "answers": 40, "plan": LabPlan(recipe="grpo", set=("penalty=none",), **SHORT)
    },
    "credit": {"games": 4, "group": 2},
}  # fmt: skip


class Conducted(NamedTuple):
    folder: Path
    page: Any
    report: Path
    told: list[str]


def conduct(name: str, folder: Path, start: Start, told: list[str]) -> tuple[Any, Path]:
    experiment = import_module(f"tutelage.demo.lab.{name}").EXPERIMENT
    size = replace(experiment.size, **CHANGES[name])
    with collected(told):
        return experiment.conduct(folder, start, size, seed=0, quiet=True, command="tutelage lab")


@pytest.fixture(scope="module")
def conducted(tmp_path_factory: pytest.TempPathFactory, start: Start) -> Callable[[str], Conducted]:
    """`conducted(name)`: an experiment that has been conducted, once for all tests."""

    @cache
    def first(name: str) -> Conducted:
        folder, told = tmp_path_factory.mktemp("lab") / name, list[str]()
        return Conducted(folder, *conduct(name, folder, start, told), told)

    return first


@pytest.mark.parametrize("name", long_except(("kl", "credit"), SUBCOMMANDS))
def test_an_experiment_leaves_data_figures_findings_and_a_page_and_is_not_done_twice(
    name: str, conducted: Callable[[str], Conducted], start: Start
) -> None:
    folder, page, report, told = conducted(name)
    assert not any("done already" in line for line in told)
    html = report.read_text(encoding="utf-8")
    assert "http" not in html.replace("http://www.w3.org/2000/svg", "").replace("http-equiv", ""), "needs a network"
    assert page.findings
    assert all(finding and "nan" not in finding for finding in page.findings)
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["findings"] == list(page.findings)
    rows = [json.loads(line) for line in (folder / "data.jsonl").read_text().splitlines()]
    cells = {path.name for path in (folder / "cells").iterdir()}
    assert {row["cell"] for row in rows if row.get("final")} == cells
    drawn = sorted((folder / "figures").iterdir())
    assert len(drawn) == len(page.figures) > 0
    assert all("nothing to draw" not in file.read_text() for file in drawn)
    times = {path: path.stat().st_mtime_ns for path in (folder / "cells").rglob("*") if path.is_file()}
    again: list[str] = []
    page_again, _ = conduct(name, folder, start, again)
    assert [line for line in again if "done already" not in line] == []
    assert page_again == page
    for path, written in times.items():
        assert path.stat().st_mtime_ns == written or path.name.endswith(".lock"), path


def test_own_recipes_are_compared_with_those_of_the_package() -> None:
    settings = SUBCOMMANDS["recipes"](recipes=("grpo", OWN, "grpo"))
    assert settings.sized(recipes.EXPERIMENT.size).names == ("grpo", OWN)
    assert settings.own_flags == ("--recipes", "grpo", OWN, "grpo")
    with pytest.raises(TutelageError, match="no recipe named 'grpoo'"):
        SUBCOMMANDS["recipes"](recipes=("grpoo",)).sized(recipes.EXPERIMENT.size)


def test_a_cell_of_other_settings_or_another_start_is_refused(
    conducted: Callable[[str], Conducted], start: Start
) -> None:
    with pytest.raises(TutelageError, match="from another demonstration"):
        conduct("kl", conducted("kl").folder, replace(start, fingerprint="another"), [])


def test_without_a_reference_the_policy_learns_the_same(conducted: Callable[[str], Conducted]) -> None:
    """A reference that costs nothing is a spectator: the answers of every step are the same without it."""
    assert any("learnt exactly the same" in finding for finding in conducted("kl").page.findings)


@pytest.mark.parametrize(("stage", "status"), [("improve", "running"), ("reward", "failed")])
def test_an_unfinished_demonstration_is_refused(tmp_path: Path, demo: Path, stage: str, status: str) -> None:
    told = json.loads((demo / "round.json").read_text())
    for entry in told["stages"]:
        if entry["name"] == stage:
            entry["status"] = status
    (tmp_path / "round.json").write_text(json.dumps(told))
    with pytest.raises(TutelageError, match=f"has not finished {stage}"):
        find(tmp_path)


def test_a_demonstration_on_another_world_is_refused(tmp_path: Path, demo: Path) -> None:
    """The real world has no stages pretrain and sft."""
    told = json.loads((demo / "round.json").read_text())
    told["stages"] = [entry for entry in told["stages"] if entry["name"] not in ("pretrain", "sft")]
    (tmp_path / "round.json").write_text(json.dumps(told))
    with pytest.raises(TutelageError, match=r"has no stage pretrain, sft, .*on the tutoring world"):
        find(tmp_path)


def test_a_folder_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TutelageError, match="holds no demonstration"):
        find(tmp_path / "nowhere")
