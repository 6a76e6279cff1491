"""A round of the demonstration: what its seed decides, wherever it lies."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import tiny

from tutelage.commands.sample.run import sample
from tutelage.demo.rounds import round as rounds
from tutelage.demo.rounds.round import DemoRound, RoundPlace
from tutelage.demo.rounds.stages import Stage
from tutelage.demo.rounds.tutoring import QUICK, tutoring

FILES = (
    "sample/completions.jsonl",
    "sample/comparisons.jsonl",
    "judge/preferences.jsonl",
    "judge/test_votes.jsonl",
)


def judged(folder: Path) -> dict[str, str]:
    """The content of the files of a round that was sampled and judged, with a tiny random model after SFT."""
    made = a_round(folder)
    made.write()
    for name in ("sample", "judge"):
        stage(made, name).run()
    return {name: (folder / name).read_text(encoding="utf-8") for name in FILES}


def a_round(folder: Path) -> DemoRound:
    tiny.save("llama", folder / "sft" / "model", words={"chat": True, "pad": tiny.PAD})
    scale = replace(
        QUICK, corpus_tokens=100, demonstrations=5, train_prompts=20, answers=4, pairs=2, answer_tokens=8
    )
    return tutoring(RoundPlace(folder, 0, quiet=True), scale)


def stage(made: DemoRound, name: str) -> Stage:
    return next(stage for stage in made.stages() if stage.name == name)


def test_a_seed_has_the_same_pairs_and_votes_in_every_folder(tmp_path: Path) -> None:
    """Which pairs are asked, in which order and on which sides follows from the ids of answers."""
    first, second = judged(tmp_path / "first"), judged(tmp_path / "another place" / "second")
    assert len(first["sample/comparisons.jsonl"].splitlines()) == 40
    assert first["judge/preferences.jsonl"]
    assert first == second


def test_the_answers_are_named_by_their_model_within_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model that lies elsewhere keeps the name by which it was given."""
    asked: list[str] = []
    monkeypatch.setattr(rounds, "sample", lambda settings: asked.append(settings.name))
    made = a_round(tmp_path / "round")
    model = replace(made.sampling.model, path="./smollm2")
    for sampling in (made.sampling, replace(made.sampling, model=model)):
        made = replace(made, sampling=sampling)
        stage(made, "sample").run()
    assert asked == ["sft/model", "./smollm2"]


def test_the_name_of_the_answers_is_no_part_of_the_stage(tmp_path: Path) -> None:
    """The fingerprint of the stage is that of its settings, in which no name is given."""
    made = a_round(tmp_path / "round")
    assert stage(made, "sample").settings == (made.sampling,)
    assert made.sampling.name == ""


def test_a_name_gives_answers_their_ids_wherever_the_model_lies(tmp_path: Path) -> None:
    found = {}
    for place in ("one", "two"):
        made = a_round(tmp_path / place)
        made.write()
        for name in ("", "tutor"):
            result = sample(replace(made.sampling, name=name, out=tmp_path / place / f"sample-{name}"))
            lines = result.completions.read_text(encoding="utf-8").splitlines()
            found[place, name] = [json.loads(line) for line in lines]
    assert found["one", "tutor"] == found["two", "tutor"]
    assert {row["sampler"] for row in found["one", "tutor"]} == {"tutor"}
    assert {row["sampler"] for row in found["one", ""]} == {str(tmp_path / "one" / "sft" / "model")}
    texts = [[row["text"] for row in found["one", name]] for name in ("", "tutor")]
    assert texts[0] == texts[1], "the name changes no answer"
    ids = [{row["id"] for row in found[key]} for key in (("one", ""), ("two", ""), ("one", "tutor"))]
    assert not ids[0] & (ids[1] | ids[2]), "without a name, ids follow from the path"
