"""Reports are written about the folders of an earlier release, and nothing in these is overlooked."""

import html
import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from tutelage.report import folders

from .archives import INTERRUPTED, read_json, read_jsonl, run_command

FINISHED = ("sft", "sft-lora", "reward", *(f"{name}-whole" for name in INTERRUPTED))


def page_of(folder: str) -> str:
    run_command("report", folder)
    return html.unescape(Path(folder, "report.html").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", [*FINISHED, *INTERRUPTED])
def test_a_run_has_a_report(place: Callable[..., Path], name: str) -> None:
    """It reads every step, and tells the model, the prompts of the samples, and whether the run came to its end."""
    place(name.removesuffix("-whole"))
    (stage,) = folders.read(Path(name)).stages
    metrics = read_jsonl(Path(name, "metrics.jsonl"))
    assert list(stage.run.metrics) == metrics
    assert stage.run.troubles == ()
    page = page_of(name)
    assert "pretrained/model" in page
    state = "finished" if name in FINISHED else f"interrupted at step {metrics[-1]['step']}"
    assert state in page
    samples = read_jsonl(Path(name, "samples.jsonl"))
    assert not samples or any(row["prompt"] in page for row in samples)


def test_a_round_has_a_report(place: Callable[..., Path]) -> None:
    place("round")
    page = page_of("round")
    assert folders.read(Path("round")).troubles == ()
    for stage in read_json(Path("round/round.json"))["stages"]:
        assert stage["title"] in page
    assert page.count("finished") == 7


def test_a_finished_round_is_not_made_again(place: Callable[..., Path], caplog: pytest.LogCaptureFixture) -> None:
    """Of a finished round nothing is done again: its stages are recognised by their settings."""
    from make import ROUND, ROUND_SHAPE

    from tutelage.base import config
    from tutelage.demo.rounds.round import RoundPlace, Story, run_stages
    from tutelage.demo.rounds.tutoring import TutoringScale, tutoring

    place("round")
    whole = tutoring(RoundPlace(Path("round"), 0, True), TutoringScale(shape=config.Shape(**ROUND_SHAPE), **ROUND))
    caplog.set_level(logging.INFO, logger="tutelage")
    run_stages(Path("round"), Story("A small round", "All stages.", "make.py"), whole.stages())
    titles = [stage.title for stage in whole.stages()]
    assert caplog.messages == [f"{title}: done already" for title in titles]
