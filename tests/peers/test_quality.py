"""Experiments on real models: what is computed from a run, and the page of those that were made."""

import json
import random
from pathlib import Path

import pytest

from bench.quality import chosen
from bench.quality.__main__ import EXPERIMENTS, RESULTS
from bench.quality.experiment import Place
from bench.quality.page import write_page

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_is_that_of_the_results(tmp_path):
    write_page(RESULTS, tmp_path, EXPERIMENTS)
    for name in ("results.md", *(f"results/{name}.svg" for name in EXPERIMENTS)):
        made, kept = tmp_path / name, DOCS / name
        assert made.exists() == kept.exists(), name
        if made.exists():
            assert kept.read_text() == made.read_text(), "run python -m bench.quality --page"


def test_a_page_has_a_section_for_each_result(tmp_path):
    (tmp_path / "results").mkdir()
    runs = [
        {"loss": loss, "seed": 0, "change": [[-1.0, -3.0], [-2.0, -1.0]], "curve": [[0, 0, 0], [1, -1.5, -2]]}
        for loss in chosen.LOSSES
    ]
    result = {"model": "m", "pairs": 10, "seeds": 1, "settings": chosen.SETTINGS, "runs": runs}
    made = {
        "command": "c",
        "date": "d",
        "machine": "p",
        "threads": 2,
        "seconds": 120,
        "processor_seconds": 180,
    }
    (tmp_path / "results" / "chosen.json").write_text(json.dumps(result | made))
    write_page(tmp_path / "results", tmp_path, EXPERIMENTS)
    text = " ".join((tmp_path / "results.md").read_text().split())
    assert "Here DPO, IPO, SimPO and ORPO lowered the chosen answers." in text
    assert (
        "| dpo | -1.50 (-2.00 to -1.00) | -2.00 (-3.00 to -1.00) | 100% (34% to 100%) | 50% (0% to 100%) |"
        in text
    )
    assert "`c`, d, p, 2 threads: 2 minutes, of which the processor worked 3." in text
    assert (tmp_path / "results" / "chosen.svg").read_text().startswith("<svg")


def test_changes_are_means_over_the_held_out_pairs_of_all_seeds():
    runs = [
        {"loss": loss, "seed": seed, "change": [[-2.0 + seed, -5.0], [-1.0 + seed, 1.0]], "curve": []}
        for loss in chosen.LOSSES
        for seed in (0, 1)
    ]
    change = chosen.changes({"runs": runs})["dpo"]
    assert change.chosen.value == pytest.approx(-1.0)
    assert change.rejected.value == pytest.approx(-2.0)
    assert (change.share.value, change.ahead.value) == (0.75, 0.5)  # (-2, -1), (-1, 0) against (-5, 1) twice
    assert change.chosen.low < -1 < change.chosen.high < 0


def test_an_experiment_on_a_tiny_model(tiny_model, tmp_path, monkeypatch):
    """From a file of preferences to a section; each loss is measured before its first step and after its last."""
    chance = random.Random(0)
    words = ["sun", "rain", "sky", "star", "air"]
    rows = [
        {
            "prompt": f"What is {i}?",
            "chosen": " ".join(chance.choices(words, k=3)),
            "rejected": f"No {i} {chance.choice(words)}",
        }
        for i in range(16)
    ]
    file = tmp_path / "pairs.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.setattr(chosen, "LOSSES", ("dpo", "orpo"))
    monkeypatch.setattr(chosen, "SETTINGS", {**chosen.SETTINGS, "evaluate_every": 1, "max_length": 96})
    result = chosen.run(Place(tiny_model("llama"), str(file), tmp_path / "runs"))
    assert [one["loss"] for one in result["runs"]] == list(chosen.LOSSES)
    for one in result["runs"]:
        steps, *_ = zip(*one["curve"], strict=True)
        assert steps == (0, 1, 2)
        assert one["curve"][0][1:] == [0.0, 0.0]
        ours = [sum(column) / len(one["change"]) for column in zip(*one["change"], strict=True)]
        assert one["curve"][-1][1:] == pytest.approx(ours, abs=2e-3)
    again = chosen.run(Place(tiny_model("llama"), str(file), tmp_path / "runs"))
    assert again["runs"] == result["runs"], "finished runs are read"
    kept = json.loads(json.dumps(result))
    assert "on 13 pairs of hh-rlhf" in chosen.section(kept).replace("\n", " ")
    assert chosen.figure(kept).startswith("<svg")
