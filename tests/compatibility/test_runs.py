"""An interrupted run of an earlier release goes on, and ends as the same run did that was never interrupted.

The run that was not interrupted was made by that release on another machine, so its numbers are not expected to
the last bit. Processors and kernels differ by a few units in the last place (1e-7); the four to nine steps that are
left amplify that to below 1e-4, where a moment, a random stream, a controller or a running mean that is not restored
shows in the second digit of the next step.
"""

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import tutelage as tt
from tutelage.base.config import from_mapping, identity
from tutelage.commands import line as cli

from .archives import INTERRUPTED, Row, read_json, read_jsonl, run_command

OF_THE_MACHINE = {"seconds", "tokens_per_second", "tokens_at_once", "peak_rss_mb"}
"""Figures that say how fast and in how much memory a step ran."""


def assert_close(found: object, stored: object, where: str) -> None:
    """Numbers are close, texts and booleans are equal, and an object has all that the stored one has."""
    if isinstance(stored, dict):
        assert isinstance(found, dict), where
        assert stored.keys() - OF_THE_MACHINE <= found.keys(), where
        for name in stored.keys() - OF_THE_MACHINE:
            assert_close(found[name], stored[name], f"{where}: {name}")
    elif isinstance(stored, list):
        assert isinstance(found, list), where
        assert len(found) == len(stored), where
        for number, pair in enumerate(zip(found, stored, strict=True)):
            assert_close(*pair, f"{where}[{number}]")
    elif isinstance(stored, float) and math.isfinite(stored):
        assert found == pytest.approx(stored, rel=1e-3, abs=1e-5), where
    else:
        assert found == stored or found is stored, where


def rows_of(folder: str, file: str) -> list[Row]:
    path = Path(folder, file)
    return read_jsonl(path) if path.exists() else []


def command_of(name: str) -> str:
    """The command that made a run, as its folder keeps it."""
    return str(read_json(Path(name, "config.json"))["command"][1])


@pytest.mark.parametrize("name", INTERRUPTED)
def test_an_interrupted_run_goes_on_as_if_nothing_had_happened(place: Callable[..., Path], name: str) -> None:
    place("start", "reward", name)
    before = max(int(folder.name.removeprefix("step-")) for folder in Path(name, "checkpoints").glob("step-*"))
    kept = [row for row in rows_of(name, "metrics.jsonl") if row["step"] <= before]
    run_command(command_of(name), "--config", f"{name}/config.json", "--resume")
    whole = f"{name}-whole"
    assert 0 < len(kept) < len(rows_of(whole, "metrics.jsonl"))
    assert rows_of(name, "metrics.jsonl")[: len(kept)] == kept
    for file in ("metrics.jsonl", "samples.jsonl"):
        assert_close(rows_of(name, file), rows_of(whole, file), file)
    found, stored = (read_json(Path(run, "summary.json")) for run in (name, whole))
    assert_close({**found, "recipe": ""}, {**stored, "recipe": ""}, "summary")  # a later recipe may have more settings
    found, stored = (load_file(Path(run, "model", "model.safetensors")) for run in (name, whole))
    torch.testing.assert_close(found, stored, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("name", INTERRUPTED)
def test_a_run_that_is_unfinished_is_not_begun_again(
    place: Callable[..., Path], name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    place("start", "reward", name)
    assert cli.main((command_of(name), "--config", f"{name}/config.json")) == 2
    assert "add --resume" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["sft", "sft-lora"])
def test_the_fingerprint_of_settings_stays_as_it_was(place: Callable[..., Path], name: str) -> None:
    """Rounds compare fingerprints, which settings that were renamed or added since must not change."""
    place(name)
    stored = read_json(Path(name, "config.json"))["settings"]
    assert identity(from_mapping(tt.SftSettings, stored)) == stored


@pytest.mark.parametrize("name", ["sft", "sft-lora", "reward"])
def test_a_finished_run_stays_as_it_is(place: Callable[..., Path], name: str) -> None:
    """Its command, called again, trains nothing and writes nothing anew."""
    place("start", name)
    before = {file: file.read_bytes() for file in Path(name).rglob("*") if file.is_file() and file.name != ".lock"}
    run_command(command_of(name), "--config", f"{name}/config.json")
    assert {file: file.read_bytes() for file in before} == before
