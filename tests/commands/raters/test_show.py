"""`tutelage raters` from a file to the terminal and back to files."""

import csv
import re
import time
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from tiers import long_except

from bench.rater_designs import OrderedDesign
from tutelage.commands.line import main

HONEST, GUESSERS, LIARS = 8, 3, 1


def write_votes(path, items=400, per_item=3, seed=0):
    """Votes of 8 honest raters (.85), 3 guessers and 1 liar (.15) on yes-or-no items; the truth by item."""
    generator = np.random.default_rng(seed)
    accuracy = np.array([0.85] * HONEST + [0.5] * GUESSERS + [0.15] * LIARS)
    truth = {f"item {n}": generator.choice(["yes", "no"]) for n in range(items)}
    with open(path, "w", newline="") as opened:
        writer = csv.writer(opened)
        writer.writerow(["task", "worker", "answer", "truth"])
        for item, answer in truth.items():
            for r in generator.choice(len(accuracy), size=per_item, replace=False):
                told = answer if generator.random() < accuracy[r] else {"yes": "no", "no": "yes"}[answer]
                writer.writerow([item, f"worker {r}", told, answer])
    return truth


def run(path, *flags):
    return main(["raters", str(path), "--item", "task", "--rater", "worker", "--choice", "answer", *flags])


def table(path):
    with open(path, newline="") as opened:
        return list(csv.DictReader(opened))


@pytest.fixture
def votes(tmp_path):
    path = tmp_path / "votes.csv"
    return path, write_votes(path)


class Reported(NamedTuple):
    """A file of votes, its truth, and what one run made of both: its words and its files."""

    votes: Path
    truth: dict[str, str]
    out: str
    labels: list[dict[str, str]]
    raters: list[dict[str, str]]
    diagram: str


@pytest.fixture(scope="module")
def reported(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reported")
    votes, labels, raters, diagram = (folder / n for n in ("votes.csv", "labels.csv", "raters.csv", "diagram.svg"))
    truth = write_votes(votes)
    options = ["--gold", "truth", "--show", "2", "--out", labels, "--raters-out", raters, "--diagram", diagram]
    with redirect_stdout(StringIO()) as out:
        assert run(votes, *map(str, options)) == 0
    return Reported(votes, truth, out.getvalue(), table(labels), table(raters), diagram.read_text())


def test_it_reports_what_the_file_says(reported):
    out = reported.out
    assert "1,200 votes on 400 items by 12 raters; choices: no, yes" in out
    figures = {
        line.split()[0]: float(line.split()[1])
        for line in out.splitlines()
        if line.split()[:1]
        and line.split()[0] in ("agreement", "alpha", "majority", "model")
        and "." in line.split()[1]
    }
    assert figures["model"] >= figures["majority"] + 0.03
    assert figures["alpha"] == pytest.approx(2 * figures["agreement"] - 1, abs=0.02)
    (liar,) = (line for line in out.splitlines() if line.startswith("worker 11"))
    assert "adversarial" in liar


def test_the_label_file_holds_every_item_with_its_posterior(reported):
    rows, truth = reported.labels, reported.truth
    assert {row["item"] for row in rows} == set(truth)
    for row in rows:
        p = {"yes": float(row["p_yes"]), "no": float(row["p_no"])}
        assert p["yes"] + p["no"] == pytest.approx(1, abs=2e-6)
        assert row["label"] == max(p, key=p.get)
        assert float(row["posterior"]) == max(p.values())
        assert row["votes"] == "3"
        assert row["gold"] == truth[row["item"]]
    accuracy = np.mean([row["label"] == truth[row["item"]] for row in rows])
    assert f"model     {accuracy:.3f}" in reported.out


def test_the_rater_file_holds_every_rater_with_interval_gold_and_flags(reported):
    rows = {row["rater"]: row for row in reported.raters}
    assert len(rows) == 12
    votes = table(reported.votes)
    for name, row in rows.items():
        mine = [vote for vote in votes if vote["worker"] == name]
        assert int(row["votes"]) == int(row["gold_asked"]) == len(mine)
        assert int(row["gold_right"]) == sum(vote["answer"] == vote["truth"] for vote in mine)
        assert float(row["low"]) < float(row["reliability"]) < float(row["high"])
    assert "adversarial" in rows["worker 11"]["flags"]
    assert sum(line.startswith("worker ") for line in reported.out.splitlines()) == 2
    assert "(2 of 12 raters" in reported.out


def test_using_gold_fixes_it_and_does_not_measure_against_it(votes, tmp_path, capsys):
    path, truth = votes
    run(path, "--gold", "truth", "--use-gold", "--out", str(tmp_path / "labels.csv"))
    assert all(row["label"] == truth[row["item"]] for row in table(tmp_path / "labels.csv"))
    assert "cannot measure it" in capsys.readouterr().out


def test_each_model_can_be_asked_for(votes, tmp_path, capsys):
    path, _ = votes
    found = set()
    for model in ("majority", "coin", "biased", "ordinal", "hierarchical", "matrix"):
        run(path, "--model", model, "--out", str(tmp_path / "labels.csv"))
        assert f"rater model: {model}\n" in capsys.readouterr().out
        found.add((tmp_path / "labels.csv").read_text())
    assert len(found) == 6


def test_the_default_says_which_model_it_chose_and_why(votes, tmp_path, capsys):
    path, _ = votes
    run(path, "--diagram", str(tmp_path / "diagram.svg"))
    assert (tmp_path / "diagram.svg").read_text().startswith("<svg")
    out = capsys.readouterr().out
    chosen = re.search(r"rater model: (\w+), the simplest within two standard errors", out)[1]
    assert chosen in ("coin", "biased", "ordinal"), "a liar and three guessers among the honest"
    assert "coin         log-likelihood of a vote -0.6" in out
    assert "expected calibration error of its predictions of these votes: 0.0" in out


def test_every_model_says_how_many_labels_differ_and_gold_comes_first(tmp_path, capsys):
    """Thresholds are narrow and no item is a tie, so the cluster "equal" of hierarchical is wrong; what gold prefers is
    said before what was chosen."""
    votes, truth = OrderedDesign(3, 4, 0.0, 0.5, 0.5, "half normal", 0.0, 2.5, 30, 150).simulate(0)
    name = ["worse", "equal", "better"]
    path = tmp_path / "votes.csv"
    rows = zip(votes.item, votes.rater, votes.choice, strict=True)
    lines = [f"i{i},r{r},{name[k]},{name[truth[i]]}" for i, r, k in rows]
    path.write_text("\n".join(["task,worker,answer,truth", *lines]))
    assert run(path, "--gold", "truth", "--out", str(tmp_path / "labels.csv")) == 0
    out = capsys.readouterr().out
    chosen = re.search(r"rater model: (\w+)", out)[1]
    assert chosen in ("coin", "biased", "ordinal")
    right = {}
    labels = {row["item"]: row["label"] for row in table(tmp_path / "labels.csv")}
    for model in ("majority", "coin", "biased", "ordinal", "hierarchical", "matrix"):
        run(path, "--gold", "truth", "--model", model, "--out", str(tmp_path / "other.csv"))
        others = table(tmp_path / "other.csv")
        leading = [[k for k in name if float(row[f"p_{k}"]) > float(row["posterior"]) - 1e-6] for row in others]
        right[model] = sum((row["gold"] in lead) / len(lead) for row, lead in zip(others, leading, strict=True))
        differing = sum(labels[row["item"]] not in lead for row, lead in zip(others, leading, strict=True))
        (line,) = (line for line in out.split("\n\n")[0].splitlines() if line.startswith(f"  {model} "))
        assert model == chosen or f"{differing} label" in line
        assert f"{right[model] / 150:.3f} right by the known answers" in line
        assert ("not selected" in line) == (model in ("hierarchical", "matrix"))
    preferred = max(right, key=lambda model: (round(right[model], 6), model == chosen))
    assert out.index(f"known answers prefer {preferred}") < out.index("rater model")


def test_an_order_that_is_needed_or_wrong_is_refused(tmp_path, capsys):
    path = tmp_path / "votes.csv"
    path.write_text("task,worker,answer\nx,r,low\nx,s,mid\ny,r,high\n")
    for flags in (["--level", "ordinal"], ["--model", "ordinal"]):
        assert run(path, *flags) == 2
        refusal = capsys.readouterr().err
        assert " ".join(flags) in refusal
        assert "--order" in refusal
        assert run(path, *flags, "--order", "low,mid,high") == 0
        capsys.readouterr()
    for order, named in (("low,mid", "high"), ("low,mid,top", "high"), ("low,mid,high,mid", "low,mid,high,mid")):
        assert run(path, "--order", order) == 2
        refusal = capsys.readouterr().err
        assert f"--order {order}" in refusal
        assert named in refusal


def test_the_reliability_diagram_is_drawn_or_says_what_it_lacks(reported, votes, tmp_path, capsys):
    """Without known answers it is drawn too where models are compared: see the default."""
    path, _ = votes
    assert reported.diagram.startswith("<svg")
    diagram = tmp_path / "diagram.svg"
    assert run(path, "--model", "coin", "--gold", "truth", "--diagram", str(diagram)) == 0
    assert diagram.read_text().startswith("<svg")
    diagram.unlink()
    capsys.readouterr()
    assert run(path, "--model", "coin", "--diagram", str(tmp_path / "diagram.svg")) == 2
    assert "Calibration needs known answers" in capsys.readouterr().err


def test_the_majority_shares_draws_and_says_so(tmp_path, capsys):
    path = tmp_path / "draw.csv"
    path.write_text("task,worker,answer,truth\nx,r,1,1\nx,s,2,1\ny,r,2,2\ny,s,2,2\n")
    run(path, "--gold", "truth")
    out = capsys.readouterr().out
    assert "majority  0.750" in out
    assert "a tie of n choices counts 1/n for the majority" in out


def test_items_judged_again_tell_how_consistent_a_rater_is(tmp_path, capsys):
    path = tmp_path / "again.csv"
    path.write_text("task,worker,answer\nx,r,1\ny,r,2\nx,s,1\ny,s,2\nx,r,1.0\ny,r,1\nx,r,2\n", encoding="utf-8")
    assert run(path, "--raters-out", str(tmp_path / "raters.csv")) == 0
    rows = {row["rater"]: row for row in table(tmp_path / "raters.csv")}
    assert (rows["r"]["repeats_same"], rows["r"]["repeats"]) == ("1", "3")
    assert (rows["s"]["repeats_same"], rows["s"]["repeats"]) == ("0", "0")
    assert "1/3" in capsys.readouterr().out


def test_no_overlap_is_said(tmp_path, capsys):
    path = tmp_path / "alone.csv"
    path.write_text("task,worker,answer\nx,r,1\ny,s,2\n")
    assert run(path) == 0
    out = capsys.readouterr().out
    assert "agreement n/a until an item has two raters" in out
    assert "assumptions" in out


def test_names_cannot_steer_the_terminal_or_its_markup(tmp_path, capsys):
    path = tmp_path / "votes.csv"
    path.write_text("task,worker,answer\nx,\x1b[31mred,1\nx,[bold]b[/bold],2\n")
    run(path)
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "[bold]b[/bold]" in out


def test_mistakes_are_told_in_a_sentence(tmp_path, capsys):
    path = tmp_path / "votes.csv"
    path.write_text("task,worker,answer\nx,r,1\ny,s,1\n")
    assert main(["raters", str(path)]) == 2
    assert "its columns are task, worker, answer" in capsys.readouterr().err
    assert run(path) == 2
    assert "at least two different choices" in capsys.readouterr().err


@pytest.mark.parametrize("votes", long_except([10_000], [10_000, 100_000]))
def test_a_hundred_thousand_votes_by_four_thousand_raters_take_under_ten_seconds_of_a_processor(tmp_path, votes):
    generator = np.random.default_rng(0)
    raters = votes // 25
    item, rater = generator.integers(3 * votes // 10, size=votes), generator.integers(raters, size=votes)
    wrong = generator.random(votes) > generator.beta(8, 3, size=raters)[rater]
    choice = (item % 3 + wrong * generator.integers(1, 3, size=votes)) % 3
    path = tmp_path / "many.csv"
    lines = [f"i{i},r{r},{c}" for i, r, c in zip(item, rater, choice, strict=True)]
    path.write_text("\n".join(["item,rater,choice", *lines]))
    began = time.process_time()
    assert main(["raters", str(path), "--out", str(tmp_path / "labels.csv")]) == 0
    assert time.process_time() - began < 2 + 8 * votes / 100_000
