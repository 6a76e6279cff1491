"""A rehearsal of the measurement on a GPU: every part with tiny shapes on a CPU, and what becomes of its lines."""

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tiers import long_except

from bench.gpu import lines
from bench.gpu.decoding_rates import Load, floor
from bench.gpu.parts import PARTS, Unit, flat, obstacle, units
from bench.gpu.random_models import random_model, settings_of
from bench.gpu.run import Processes, measure
from bench.gpu.side import outcome
from bench.gpu.updates import operations

SAME_CODE = "decoding-Qwen3-4B"
"""A part that another rehearses: its tiny twin is the same model."""
REHEARSED = [unit for unit in units() if unit.part.name != SAME_CODE or unit.subject == "plain"]
COMMON = {"torch": "2", "transformers": "5", "revision": "r"}
WHEELS = Path(__file__).parents[2] / "bench" / "gpu.txt"


class InPlace:
    """Units in this process; `failing` ones raise."""

    def __init__(self, failing: tuple[str, ...] = ()) -> None:
        self.failing, self.started, self.finished = failing, list[str](), list[str]()

    def start(self, unit: Unit) -> None:
        self.started.append(unit.part.name)

    def finish(self, unit: Unit, seconds: float) -> dict[str, Any]:
        self.finished.append(unit.part.name)
        if unit.part.name in self.failing:
            return {"card": "c", "error": "Traceback\nOutOfMemoryError: CUDA out of memory"}
        return {"card": "c", "figures": {"seconds_each": 1.0}}


FEW = [unit for unit in REHEARSED if unit.subject == "gpu" or unit.part.name == "card"]
"""Those of the subject that the bench is about, for `make test`."""


@pytest.mark.parametrize("unit", long_except(FEW, REHEARSED), ids=["-".join(unit.key) for unit in REHEARSED])
def test_every_part_gives_its_figures(unit: Unit) -> None:
    if reason := obstacle(unit):
        pytest.skip(reason)
    told = outcome(unit, "cpu", tiny=True)
    assert "error" not in told, told["error"]
    figures = told["figures"]
    own_weights_too = {"mfu_frozen"} if unit.part.name == "lora" else set()
    assert set(unit.part.columns) | own_weights_too <= set(figures)
    numbers = {name: value for name, value in figures.items() if isinstance(value, int | float)}
    assert all(math.isfinite(value) and value >= 0 for value in numbers.values()), numbers
    if unit.part.name == "equality":  # whose errors may be none
        assert numbers["float32_equal_tokens"] == 1.0
        assert max(numbers[f"float32_{name}"] for name in ("logp", "entropy", "gradient")) < 1e-4
        assert numbers["bf16_kl"] < 1e-3
    else:
        assert all(numbers[name] > 0 for name in unit.part.columns)


def some(*names: str) -> list[Unit]:
    """Units of parts that measure nothing and have no obstacle."""
    card = PARTS[0]
    return [Unit(replace(card, name=name), "card") for name in names]


def test_a_second_call_measures_what_failed_or_is_missing(tmp_path: Path) -> None:
    file = tmp_path / "gpu.jsonl"
    first, second, third = InPlace(failing=("b",)), InPlace(), InPlace()
    measure(some("a", "b"), file, COMMON, 60.0, first)
    measure(some("a", "b", "c"), file, COMMON, 60.0, second)
    measure(some("a", "b", "c"), file, COMMON, 60.0, third)
    assert first.finished == ["a", "b"]
    assert second.finished == ["b", "c"]
    assert third.started == third.finished == []
    assert {line["part"]: "figures" in line for line in lines.read(file)} == {"a": True, "b": True, "c": True}


def test_no_unit_is_measured_when_the_time_is_over(tmp_path: Path) -> None:
    work = InPlace()
    measure(some("a", "b"), tmp_path / "gpu.jsonl", COMMON, 1.0, work)
    assert work.finished == []


@pytest.mark.long
def test_a_process_writes_its_figures(tmp_path: Path) -> None:
    card = units(("card",))[0]
    processes = Processes(tmp_path, "cpu", True)
    processes.start(card)
    told = processes.finish(card, 120.0)
    assert told["card"]
    assert told["figures"]["copy_tb_s"] > 0
    processes.close()


def test_a_slow_process_is_ended(tmp_path: Path) -> None:
    card = units(("card",))[0]
    processes = Processes(tmp_path, "cpu", True)
    processes.start(card)
    told = processes.finish(card, 0.05)
    assert "took more than" in told["error"]
    processes.start(card)
    processes.close()


def test_a_line_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "gpu.jsonl"
    lines.append(file, {"part": "a", "subject": "plain", "figures": {"x": 1.0}})
    with file.open("a") as out:
        out.write('{"part": "b", "subj')
    assert [line["part"] for line in lines.read(file)] == ["a"]


def test_the_table_shows_figures_and_errors(tmp_path: Path) -> None:
    file = tmp_path / "gpu.jsonl"
    measure(some("a", "b"), file, COMMON, 60.0, InPlace(failing=("b",)))
    columns: dict[str, tuple[str, tuple[str, ...]]] = {name: (f"Part {name}", ("seconds_each",)) for name in "abc"}
    text = lines.markdown(lines.read(file), columns)
    assert "| card | 1 |" in text
    assert "| seconds each | 1 |" in lines.markdown(lines.read(file), {"a": ("Part a", ())})
    assert "CUDA out of memory" in text
    assert "Part c" not in text


def test_nested_figures_are_named_with_dots() -> None:
    assert flat({"a": 1.0, "b": {"c": 2.0, "d": {"e": 3.0}}}) == {"a": 1.0, "b.c": 2.0, "b.d.e": 3.0}


def test_parts_are_chosen_by_the_beginning_of_their_names() -> None:
    assert {unit.part.name for unit in units(("decoding",))} == {"decoding-Qwen3-0.6B", "decoding-Qwen3-4B"}
    assert "gpu" not in {unit.subject for unit in units(subjects=("plain",))}
    with pytest.raises(ValueError, match="nothing"):
        units(("nothing",))


def test_the_floor_reads_weights_shared_prompts_and_own_tokens() -> None:
    """With the weights read alone, every row more is free; a longer prompt costs what its keys and values weigh."""
    model = random_model(settings_of("Qwen3-0.6B", tiny=True), "cpu", torch.float32)
    weights = 2 * sum(parameter.numel() for parameter in model.parameters())
    shared = Load(prompts=2, samples=4, length=100)
    token = 2 * 2 * 2 * 2 * 16  # bytes, keys and values, layers, heads, width
    expected = 8 * 1e9 / (weights + token * (2 * 100 + 8 * 5.5))
    assert floor(model, shared, 10, 1e9) == pytest.approx(expected)
    assert floor(model, Load(8, 1, 100), 10, 1e9) < expected


def test_operations_are_six_for_each_weight_and_token_and_those_of_attention() -> None:
    model = random_model(settings_of("Qwen3-0.6B", tiny=True), "cpu", torch.float32)
    matrices = sum(parameter.numel() for parameter in model.parameters() if parameter.dim() == 2)
    attention = 6 * 2 * 4 * 16 * 32**2
    assert operations(model, 32, 32**2) == 6 * matrices * 32 + attention


def test_the_wheels_are_small_and_pinned() -> None:
    """Each line has a name, a version and the kilobytes of its wheel; together they can be carried."""
    listed = [line for line in WHEELS.read_text().splitlines() if line and not line.startswith("#")]
    found = [re.fullmatch(r"[\w-]+==[\w.]+ +# ([\d,]+) kB", line) for line in listed]
    assert all(found), listed
    assert sum(int(each[1].replace(",", "")) for each in found if each) <= 40_000
