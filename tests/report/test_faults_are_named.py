"""Training with a fault made on purpose: the findings of the run name that fault, and none of a run without one."""

import json
import shutil

import pytest
from tiers import long_except

import tutelage as tt
from tutelage.data.text_counts import words
from tutelage.report.stage_figures import findings_in

ENDS = tuple(range(100, 170))
"""So many end tokens that a random model ends most of its answers soon."""
THINGS = ["rain", "sun", "star", "light", "water", "air", "fire", "ice"]
NEVER = "Completions that end by themselves"


def letters(completions):
    """The share of the letter e: a reward that any policy can follow."""
    return [each.answer.count("e") / max(1, len(each.answer)) for each in completions]


def constant(completions):
    return [0.3 for _ in completions]


def length(completions):
    return [float(len(words(each.answer))) for each in completions]


def unbounded(completions):
    return [1000.0 * each.answer.count("e") for each in completions]


def one_in_eight(completions):
    """Only the answers to one of the prompts differ in what they score."""
    return [float(len(each.answer)) if "rain" in each.messages[-1].content else 0.0 for each in completions]


@pytest.fixture
def subjects(tiny_model, tmp_path, monkeypatch):
    """`subjects(reward, ends, **settings)`: the subjects of the findings of a short run."""

    def of_run(reward, *, ends=ENDS, model="", out=None, **settings):
        monkeypatch.setattr("tutelage.models.policy.end_ids_of", lambda backbone: ends)
        prompts = tmp_path / "prompts.jsonl"
        prompts.write_text("".join(json.dumps({"prompt": f"What is {thing}?"}) + "\n" for thing in THINGS))
        usual = {"recipe": "grpo", "steps": 12, "batch_size": 8, "sampling": {"max_new_tokens": 8}}
        tt.improve(
            model=model or tiny_model("llama"),
            prompts=str(prompts),
            reward=f"{__name__}:{reward.__name__}",
            sample_every=1,
            out=out or tmp_path / "run",
            **usual | settings,
        )
        return {finding.subject for finding in findings_in(out or tmp_path / "run")}

    return of_run


def test_a_run_without_a_fault_has_no_findings(subjects):
    assert subjects(letters, optimiser={"lr": 1e-3}) == set()


FAULTS = [
    ("Score", constant, {"steps": 4}),
    ("Dead groups", one_in_eight, {"ends": (), "steps": 8}),
    (NEVER, letters, {"ends": (), "steps": 8}),
    ("Distance from the reference (KL)", letters, {"optimiser": {"lr": 0.3}, "steps": 6}),
    ("Score over length", length, {"optimiser": {"lr": 1e-4}, "steps": 16}),
    ("Entropy", letters, {"optimiser": {"lr": 3e-2}, "ends": (), "steps": 16}),
    ("Value loss", unbounded, {"optimiser": {"lr": 3e-2}, "recipe": "ppo", "ends": ()}),
]


@pytest.mark.parametrize(
    ("fault", "reward", "settings"),
    long_except(FAULTS[:4], FAULTS),
    ids=lambda part: part if isinstance(part, str) else "",
)
def test_the_fault_is_named(subjects, fault, reward, settings):
    assert fault in subjects(reward, **settings)


def test_a_policy_with_another_chat_template_than_its_source_is_named(subjects, tiny_model, tmp_path):
    source, stage = tiny_model("qwen3"), tmp_path / "sft"
    shutil.copytree(source, stage / "model")
    (stage / "config.json").write_text(
        json.dumps({"format": "tutelage-run/1", "settings": {"model": {"path": source}}})
    )
    calm = {"optimiser": {"lr": 1e-3}, "model": str(stage / "model"), "steps": 1}
    assert "Chat template" not in subjects(letters, **calm, out=tmp_path / "same")
    template = stage / "model" / "chat_template.jinja"
    template.write_text(template.read_text().replace("assistant", "model"))
    assert "Chat template" in subjects(letters, **calm, out=tmp_path / "other")
