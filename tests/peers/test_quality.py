"""Experiments on real models: what is computed from a run, and the page of those that were made."""

import json
import math
import random
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from bench.quality import chosen, helpful, parity, rates, reverse, rubrics, scores, sentiment, sentiment_page, steps
from bench.quality.best_of_n import expected_best, tied_kl
from bench.quality.experiment import Experiment, Line, Part, Place, append_line, read_lines
from bench.quality.page import write_page
from bench.quality.table import EXPERIMENTS
from tutelage.rollout.inference.best_of_n import best_of_n_kl

DOCS = Path(__file__).parents[2] / "docs"
RESULTS = Path(__file__).parents[2] / "bench" / "quality" / "results"


def line(part, seed=0, settings=None, **figures):
    """A finished part with these figures."""
    made = {"date": "2026-01-02", "machine": "p", "threads": 1, "seconds": 60.0, "processor_seconds": 90.0}
    settings = settings or {}
    return Line(part, seed, settings, f"{part}-{seed}", "m", "d", figures, **made)


def of_part(experiment: Experiment, name: str, seed=0, **figures):
    """A finished part of an experiment as it is defined now."""
    part = next(part for part in experiment.parts(seed) if part.name == name)
    return line(name, seed, part.settings, **figures)


def test_the_page_is_that_of_the_results(tmp_path):
    write_page(RESULTS, tmp_path, EXPERIMENTS)
    made = {path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()}
    kept = {path.relative_to(DOCS) for path in (DOCS / "results").glob("*.svg")}
    assert made == kept | ({Path("results.md")} if (DOCS / "results.md").exists() else set())
    for name in made:
        assert (DOCS / name).read_text() == (tmp_path / name).read_text(), "run python -m bench.quality --page"


def test_every_result_belongs_to_a_part_as_it_is_defined_now():
    for name, experiment in EXPERIMENTS.items():
        found = read_lines(RESULTS / f"{name}.jsonl")
        assert len(experiment.current(found)) == len(found), f"lines of other settings in {name}.jsonl"


def test_a_finished_part_is_known_by_its_settings_model_and_data():
    part = Part("a", {"lr": 1e-3}, 1)
    assert part.fingerprint("m", "d") == Part("a", {"lr": 1e-3}, 1).fingerprint("m", "d")
    others = [
        Part("b", {"lr": 1e-3}, 1).fingerprint("m", "d"),
        Part("a", {"lr": 2e-3}, 1).fingerprint("m", "d"),
        Part("a", {"lr": 1e-3}, 2).fingerprint("m", "d"),
        part.fingerprint("n", "d"),
        part.fingerprint("m", "e"),
    ]
    assert len({part.fingerprint("m", "d"), *others}) == 6


def test_lines_are_read_as_they_were_written_and_replaced_by_their_fingerprint(tmp_path):
    file = tmp_path / "results" / "x.jsonl"
    assert read_lines(file) == []
    first, second = line("a", score=[1.0]), line("b", score=[2.0])
    for one in (first, second, replace(first, seconds=1.0)):
        append_line(file, one)
    assert read_lines(file) == [second, replace(first, seconds=1.0)]


def test_a_line_of_other_settings_is_not_shown():
    part = chosen.EXPERIMENT.parts(0)[0]
    kept, stale = line(part.name, 0, part.settings), line(part.name, 0, {**part.settings, "pairs": 1})
    assert chosen.EXPERIMENT.current([stale, kept]) == [kept]


def test_an_interrupted_experiment_goes_on_with_what_is_missing(tmp_path, monkeypatch):
    from bench.quality import __main__ as runner

    asked = []

    def run(part, place):
        asked.append(part.name)
        if len(asked) == 2:
            raise KeyboardInterrupt
        return {"x": 1}

    def two_parts(seed):
        return [Part("one", {}, seed), Part("two", {}, seed)]

    experiment = Experiment("t", "", two_parts, run, lambda found: "## t", lambda found: {"t": "<svg/>"})
    monkeypatch.setattr(runner, "RESULTS", tmp_path)
    place = Place("m", "d", tmp_path / "runs")
    first, second = experiment.parts(0)
    runner._finish(experiment, first, place, "m", "d")
    with pytest.raises(KeyboardInterrupt):
        runner._finish(experiment, second, place, "m", "d")
    for part in (first, second):
        runner._finish(experiment, part, place, "m", "d")
    assert asked == ["one", "two", "two"]
    write_page(tmp_path, tmp_path / "docs", {"t": experiment})
    text = (tmp_path / "docs" / "results.md").read_text()
    assert "## t" in text
    assert "python -m bench.quality t --seeds 1" in text
    assert (tmp_path / "docs" / "results" / "t.svg").read_text() == "<svg/>"


def test_seeds_are_counted_from_the_first(tmp_path, monkeypatch):
    from bench.quality import __main__ as runner

    experiment = Experiment(
        "t", "", lambda seed: [Part("one", {}, seed)], lambda part, place: {}, str, dict, world=True
    )
    monkeypatch.setattr(runner, "EXPERIMENTS", {"t": experiment})
    monkeypatch.setattr(runner, "_finish", lambda experiment, part, *_: seeds.append(part.seed))
    monkeypatch.setattr(runner, "write_page", lambda *_: None)
    monkeypatch.setattr("sys.argv", ["quality", "t", "--first-seed", "1", "--seeds", "2"])
    seeds = []
    runner.main()
    assert seeds == [1, 2]


def test_the_chosen_answers_of_all_losses():
    found = [
        of_part(
            chosen.EXPERIMENT, loss, pairs=10, change=[[-1.0, -3.0], [-2.0, -1.0]], curve=[[0, 0, 0], [1, -1.5, -2]]
        )
        for loss in chosen.LOSSES
    ]
    text = " ".join(chosen.section(found).split())
    assert "Here DPO, ORPO, IPO and SimPO lowered the chosen completions." in text
    row = "| DPO | -1.50 (-2.00 to -1.00) | -2.00 (-3.00 to -1.00) | 100% (34% to 100%) | 50% (0% to 100%) |"
    assert row in text
    assert chosen.figures(found)["chosen"].startswith("<svg")


def test_changes_are_means_over_the_held_out_pairs_of_all_seeds():
    found = [line("dpo", seed, {}, change=[[-2.0 + seed, -5.0], [-1.0 + seed, 1.0]], curve=[]) for seed in (0, 1)]
    change = chosen.changes(found)["dpo"]
    assert change.chosen.value == pytest.approx(-1.0)
    assert change.rejected.value == pytest.approx(-2.0)
    assert (change.share.value, change.ahead.value) == (0.75, 0.5)  # (-2, -1), (-1, 0) against (-5, 1) twice
    assert change.chosen.low < -1 < change.chosen.high < 0


def test_a_loss_on_a_tiny_model(tiny_model, tmp_path):
    """From a file of preferences to figures; the loss is measured before its first step and after its last."""
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
    train = {**chosen.SETTINGS["train"], "evaluate_every": 1, "max_length": 96}
    part = Part("dpo", {**chosen.SETTINGS, "train": train}, 0)
    place = Place(tiny_model("llama"), str(file), tmp_path / "runs")
    place.runs.mkdir()
    found = chosen.run(part, place)
    steps, *_ = zip(*found["curve"], strict=True)
    assert steps == (0, 1, 2)
    assert found["curve"][0][1:] == [0.0, 0.0]
    ours = [sum(column) / len(found["change"]) for column in zip(*found["change"], strict=True)]
    assert found["curve"][-1][1:] == pytest.approx(ours, abs=2e-3)
    assert chosen.run(part, place) == found, "a finished run is read"


def test_the_expected_best_of_n_is_the_mean_over_all_subsets():
    values = [0.3, -1.0, 0.3, 2.0, 0.0]
    for n in (1, 2, 3, 5):
        subsets = [max(some) for some in combinations(values, n)]
        assert expected_best(values, n) == pytest.approx(np.mean(subsets))


def test_the_kl_of_best_of_n_is_the_bound_without_ties_and_exact_with_them():
    for n in (1, 2, 4, 16):
        assert tied_kl([0.1, 0.5, 0.2, 0.9], n) == pytest.approx(best_of_n_kl(n))
        assert tied_kl([0.0] * 6, n) == pytest.approx(0.0)
    # two answers of probability ½ each: best of 2 is the better one with probability ¾
    exact = 0.75 * math.log(1.5) + 0.25 * math.log(0.5)
    assert tied_kl([0.0, 0.0, 1.0, 1.0], 2) == pytest.approx(exact)


def test_the_reward_of_reversed_text_is_a_share_of_common_blocks():
    prompts = ["Reverse the text:\nabcd"] * 3
    assert scores.reversed_text(prompts, ["dcba", "dxba ", "zzzz"]) == [1.0, 0.75, 0.0]


def test_accuracies_count_equal_lengths_half_and_compare_on_the_same_pairs():
    same = {"prompts": [0, 1, 2, 2], "length": [3, -1, 0, 5], "pairs": 8, "loss": [0.7, 0.6]}
    found = [
        of_part(helpful.EXPERIMENT, "ours", differences=[1.0, 0.5, -1.0, 1.0], **same),
        of_part(helpful.EXPERIMENT, "trl", differences=[1.0, -0.5, -1.0, 1.0], **same),
    ]
    seen = helpful.accuracies(found)
    assert (seen["ours"].value, seen["trl"].value, seen["length"].value) == (0.75, 0.5, 0.625)
    assert seen["difference"].value == 0.25
    assert "| the longer completion, in characters | 62%" in helpful.section(found)


def test_residuals_are_looked_at_by_their_mean():
    sides = {"ours": [1.0, 2.0, 3.0], "trl": [1.1, 1.9, 3.0]}
    found = of_part(parity.EXPERIMENT, "grpo", **{"gradient norm": sides, "score": sides})
    mean, largest, size = parity.residuals(found)["score"]
    assert (mean.value, largest, size) == (pytest.approx(0.0), pytest.approx(0.1), 2.0)
    norm = of_part(parity.EXPERIMENT, "norm", double=1.5, ours=1.5, torch=1.25)
    assert "Every mean residual is below 0.001 of its metric's size; of the intervals, all contain 0." in " ".join(
        parity.section([found, norm]).split()
    )
    shifted = {"score": {"ours": [1.0, 2.0, 3.0], "trl": [0.9, 1.9, 2.8]}, "gradient norm": sides}
    text = " ".join(parity.section([of_part(parity.EXPERIMENT, "grpo", **shifted)]).split())
    assert "Not every mean residual is below 0.001" in text
    assert "of the intervals, those of GRPO's score exclude 0" in text


def raised(own, more, kl):
    """Scores that are higher, at a divergence of so many nats."""
    return {"scores": [score + more for score in own["scores"]], "drift": [kl] * len(own["drift"])}


def sentiment_lines():
    """The model as it was, two methods and best-of-n on three prompts with two answers each."""
    own = {"scores": [0.0, 0.2, 0.4, 0.6, 0.5, 0.1], "drift": [0.0] * 6}
    curve = [[kl, 0.1 + math.sqrt(kl)] for kl in (0.01, 0.09, 0.25, 1.0)]
    of = sentiment.EXPERIMENT
    return [
        of_part(of, "base", **own),
        of_part(of, "grpo", **raised(own, 0.2, 4.0), curve=curve),
        of_part(of, "trl", **raised(own, 0.1, 1.0), curve=[[None, score - 0.5] for _, score in curve]),
        of_part(of, "best-of-n", table=[[float(i) for i in range(16)]] * 3),
    ]


def test_score_against_kl():
    found = sentiment_lines()
    score, kl = sentiment_page.measured(found)["grpo"]
    assert (score.value, kl.value) == (pytest.approx(0.5), 4.0)
    assert sentiment_page.linear(found) == pytest.approx((0.3, 0.1, 1.0)), "0.3, 0.4 and 0.5 at 0, 1 and 4 nats"
    assert sentiment_page.residual(found).value == pytest.approx(0.5)
    assert sentiment_page.best(found)[0][2] == pytest.approx(best_of_n_kl(2))
    text = sentiment_page.section(found)
    assert "| GRPO, β 0.04 | 0.50" in text
    assert "score = 0.30 + 0.10 √KL (R² 1.00)" in " ".join(text.split())
    drawn = sentiment_page.figures(found)
    assert all(svg.startswith("<svg") and f"results/{name}.svg" in text for name, svg in drawn.items())


def test_two_trainers_differ_by_what_their_seeds_do_not():
    """Steps of one run are no independent samples: the interval is Student's over the means of the seeds."""
    curve = [[None, 0.2], [None, 0.4]]
    found = []
    for seed, shift in enumerate((-0.1, 0.0, 0.1)):
        ours = of_part(sentiment.EXPERIMENT, "grpo", curve=[[None, 0.2 + shift], [None, 0.4 + shift]])
        found += [replace(ours, seed=seed)]
        found += [replace(of_part(sentiment.EXPERIMENT, "trl", curve=curve), seed=seed)]
    rest = sentiment_page.residual(found)
    assert (rest.value, rest.high) == (
        pytest.approx(0, abs=1e-9),
        pytest.approx(4.30265 * 0.1 / math.sqrt(3), abs=1e-5),
    )
    assert sentiment_page.residual(found[:2]).low is None


def test_a_section_waits_for_its_parts():
    base, *_, table = sentiment_lines()
    assert not sentiment_page.enough([base, table])
    assert sentiment_page.enough(sentiment_lines()[:2])


def test_the_gain_over_the_rate():
    falls = of_part(rates.EXPERIMENT, "sft lora 0.0001", **{"held_out/loss": [2.0, 1.5]})
    rises = of_part(rates.EXPERIMENT, "grpo lora 0.0001", score=[0.0] * 4 + [0.5] * 4, kl=[0.0] * 8)
    learnt = of_part(rates.EXPERIMENT, "reward lora 0.0001", **{"held_out/loss": [0.6]})
    assert rates.outcome(falls) == (2.0, 1.5)
    assert rates.outcome(learnt) == (pytest.approx(math.log(2)), 0.6), "of a pair it knew nothing"
    assert rates.outcome(rises) == (0.0, 0.5)
    assert "| SFT | LoRA, rank 16 | 0.0001 |" in rates.section([falls, rises])
    assert rates.figures([falls, rises])["rates"].startswith("<svg")


def test_reversed_words_before_and_after():
    measured = {stage: [0.25, 1.0] for stage in reverse.STAGES}
    found = [of_part(reverse.EXPERIMENT, "reverse", words=[4, 9], scores=measured, curve=[0.1, 0.2, 0.3])]
    assert "| after GRPO | 0.62" in reverse.section(found)
    assert reverse.figures(found)["reverse"].startswith("<svg")


def test_rubrics_wait_for_all_ways_and_show_differences_within_seeds():
    ends = {"judge": 0.3, "dropout": 0.25, "ensemble": 0.5, "gold": 0.8}
    judges = of_part(rubrics.EXPERIMENT, "judges", right=[0.8], correlation=[0.5, 0.75])
    found = [judges]
    for seed in (0, 1):
        for way, gold in ends.items():
            curve = [0.3] * 20
            final = {"gold": gold + 0.1 * seed, "proxy": 0.9, "kl": 4.0, "length": 40.0}
            found.append(of_part(rubrics.EXPERIMENT, way, seed, proxy=curve, gold=curve, kl=curve, final=final))
    text = rubrics.section(found)
    assert "| ensemble of judges | 0.90 | 0.55 | +0.20, +0.20 to +0.20 |" in text
    assert "| rubric dropout | 0.90 | 0.30 | \N{MINUS SIGN}0.05" in text
    assert "correlate with gold at 0.50 to 0.75" in " ".join(text.split())
    assert all(f"results/{name}.svg" in text for name in rubrics.figures(found))
    assert rubrics.EXPERIMENT.enough(found)
    assert not rubrics.EXPERIMENT.enough(found[:4])
    assert [part.name for part in rubrics.EXPERIMENT.parts(0)] == ["judges", *ends]
    assert rubrics.EXPERIMENT.parts(3) == []


def test_rewards_of_steps_and_outcomes_are_compared_world_by_world():
    """Seeds of one world share its model and votes, so a world counts once."""

    def world(seed, gain):
        solved = {"step votes": [0.8 + gain, 0.9 + gain], "outcome votes": [0.8, 0.9], "solution": [0.9, 1.0]}
        curve = [0.2, 0.75 + seed / 10, 0.9]
        curves = {name: {"mean": curve, "low": curve, "high": curve} for name in solved}
        raters = [{"truth": 0.9, "interval": [0.85, 0.95]}, {"truth": 0.6, "interval": [0.7, 0.8]}]
        judged = {"votes": 3000, "raters": raters, "step_reward": {"accuracy": 0.95}}
        return of_part(steps.EXPERIMENT, "tools", seed, before=0.2, solved=solved, curves=curves, **judged)

    found = [world(0, 0.0), world(1, 0.1), world(2, 0.05)]
    text = " ".join(steps.section(found).split())
    half = 4.303 * 0.05 / math.sqrt(3)  # Student's quantile with two degrees of freedom
    assert f"solved +0.05 ({0.05 - half:+.2f} to {0.05 + half:+.2f}) more" in text
    assert "| the solution itself | 0.95 (0.95 to 0.95) | 0.95, 0.95, 0.95 | 3, 2, 2 |" in text
    assert "3 of the 6 intervals" in text
    assert "| the solution itself | 0.95 (0.31 to 1.59) | 0.90, 1.00 |" in steps.section(found[:1])  # over its seeds
    assert steps.figures(found)["steps"].startswith("<svg")
