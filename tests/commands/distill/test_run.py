"""Distillation as a workflow: what a student learns, from which answers, and what is refused."""

import logging
from pathlib import Path

import pytest
import tiny
import torch
from offenders import for_each
from tiers import long_except
from tiny_commands import TOPICS, model, read_jsonl, write_jsonl

import tutelage as tt
from tutelage.base import config
from tutelage.base.errors import TutelageError
from tutelage.commands.distill.run import prepare_distill
from tutelage.commands.line import main
from tutelage.core.kl import exact_divergence
from tutelage.core.rows import EncodedRow, collate
from tutelage.data.chat_tokens import pad_token_id
from tutelage.models.policy import Policy
from tutelage.rollout.generator import encode_prompts, prompt_tokens
from tutelage.train.rl.offline import drawn_prompts
from tutelage.train.supervised.batches import encode_demonstrations

LIMIT = 8


@pytest.fixture(scope="module")
def teacher(tmp_path_factory):
    """Another random model of the student's family."""
    return tiny.save("llama", tmp_path_factory.mktemp("teacher"), seed=1)


@pytest.fixture
def prompts(tmp_path):
    return write_jsonl(tmp_path / "prompts.jsonl", [{"prompt": f"What is {topic}?"} for topic in TOPICS])


@pytest.fixture
def demonstrations(tmp_path):
    rows = [{"prompt": f"What is {topic}?", "completion": f"It is {i}{'!' * i}"} for i, topic in enumerate(TOPICS)]
    return write_jsonl(tmp_path / "sft.jsonl", [*rows, {"prompt": "What is rain?", "completion": "Water."}])


def settings(base, teacher, out, **changes):
    usual = {
        "model": model(base),
        "teacher": teacher,
        "out": out,
        "steps": 2,
        "batch_size": 10,
        "sampling": config.Sampling(temperature=1.0, max_new_tokens=LIMIT),
        "optimiser": config.Optimiser(lr=1e-2, schedule="constant"),
    }
    return tt.DistillSettings(**usual | changes)


def metrics(out):
    return read_jsonl(out / "metrics.jsonl")


def kl_to(teacher: str, student: Policy, prompts: str) -> float:
    """KL(student‖teacher) in nats per token at the states of the student's own answers, by whole distributions."""
    student.refer_to(tt.load_policy(teacher, device="cpu"))
    asked = encode_prompts(tt.load_prompts(prompts).records, student.tokenizer)
    rows = student.generate(prompt_tokens(asked), 4, config.Sampling(max_new_tokens=LIMIT), seed=99)
    with torch.no_grad():
        found = student.scores(rows, divergence=1.0).divergence
    return float(found.sum() / rows.mask.sum())


@pytest.mark.parametrize(
    ("recipe", "rank", "rate", "left"),
    long_except([("gkd", 0, 1e-2, 0.7)], [("gkd", 0, 1e-2, 0.7), ("gkd", 4, 3e-2, 0.9), ("reverse_kl", 0, 1e-2, 0.9)]),
)
def test_a_student_comes_near_its_teacher(tiny_model, teacher, prompts, tmp_path, recipe, rank, rate, left):
    base = tiny_model("llama")
    before = kl_to(teacher, tt.load_policy(base, device="cpu"), prompts)
    result = tt.distill(
        settings(
            base,
            teacher,
            tmp_path / "run",
            prompts=prompts,
            recipe=recipe,
            steps=20,
            lora=config.Lora(rank=rank),
            optimiser=config.Optimiser(lr=rate),
        )
    )
    after = kl_to(teacher, result.load(device="cpu"), prompts)
    assert after < left * before
    first, *_, last = metrics(tmp_path / "run")
    name = "divergence" if recipe == "gkd" else "kl/reference"
    assert last[name] < first[name]
    assert (result.divergence, result.kl) == (last.get("divergence"), last.get("kl/reference"))
    assert not [name for name in last if name.startswith(("score/", "groups/"))]


def test_of_given_answers_a_step_learns_the_divergence_there(tiny_model, teacher, demonstrations, tmp_path):
    """With λ = 0 nothing is sampled: the first step's divergence is that of the demonstrations, as they stand."""
    base = tiny_model("llama")
    given = {"data": demonstrations, "on_policy": 0.0, "set": ("penalty.mixture=0",), "batch_size": 11}
    tt.distill(settings(base, teacher, tmp_path / "run", **given, steps=1))
    student, its_teacher = (tt.load_policy(path, device="cpu") for path in (base, teacher))
    records = tt.load_demonstrations(demonstrations).records
    rows, _ = encode_demonstrations(records, student.tokenizer, 96)
    rows = [EncodedRow(row.prompt, row.response[:LIMIT]) for row in rows]
    batch = collate(rows, pad_token_id(student.tokenizer), student.device)
    with torch.no_grad():
        expected = exact_divergence(student.logits(batch), its_teacher.logits(batch), 0.0).mean()
    (step,) = metrics(tmp_path / "run")
    assert step["divergence"] == pytest.approx(float(expected), rel=1e-4)
    assert step["length/mean"] == pytest.approx(sum(len(row.response) for row in rows) / 11)
    ended = [row.response[-1] in student.end_ids for row in rows]
    assert step["ended"] == pytest.approx(sum(ended) / 11)


def test_a_share_of_the_answers_is_the_students_own(tiny_model, teacher, demonstrations, tmp_path, caplog):
    given = {"data": demonstrations, "on_policy": 0.25, "batch_size": 11, "sample_every": 1, "steps": 4}
    with caplog.at_level(logging.INFO, logger="tutelage"):
        tt.distill(settings(tiny_model("llama"), teacher, tmp_path / "run", **given))
    assert "offline completions cut at 8 tokens" in caplog.text
    texts = {row["completion"] for row in read_jsonl(demonstrations)}
    assert all("score" not in row for row in read_jsonl(tmp_path / "run" / "samples.jsonl"))
    own = [row["completion"] not in texts for row in read_jsonl(tmp_path / "run" / "samples.jsonl")]
    assert own == [True, True, False, False] + ([True, True, True, False] * 3)  # 2, 3, 3, 3 of 11


def test_the_share_is_met_over_the_steps() -> None:
    for share in (0.0, 0.1, 0.3, 0.5, 1.0):
        counts = [drawn_prompts(share, 10, step) for step in range(20)]
        assert sum(counts) == round(share * 200)
        assert max(counts) - min(counts) <= 1
    assert [drawn_prompts(0.5, 3, step) for step in range(4)] == [1, 2, 1, 2]


def test_answers_with_weights_are_refused(tiny_model, teacher, tmp_path):
    data = write_jsonl(tmp_path / "d.jsonl", [{"prompt": "Why?", "completion": "So.", "weight": 2.0}])
    with pytest.raises(TutelageError, match=r"a weight of 2, but distill weights all completions equally"):
        tt.distill(settings(tiny_model("llama"), teacher, tmp_path / "run", data=data, on_policy=0.5))


def test_the_teacher_of_another_vocabulary_is_refused(tiny_model, prompts, tmp_path):
    other = tiny_model("qwen3")
    with pytest.raises(TutelageError, match=r"(?s)vocabulary of the teacher.*differs.*the same model family"):
        tt.distill(settings(tiny_model("llama"), other, tmp_path / "run", prompts=prompts))


def test_a_teacher_with_more_rows_is_compared_by_tokens_alone(tiny_model, prompts, tmp_path):
    """As in families whose embeddings are padded to another size."""
    wider = tiny.save("llama", tmp_path, seed=1, vocab_size=320)
    with pytest.raises(TutelageError, match=r"(?s)320 tokens.*--recipe reverse_kl"):
        tt.distill(settings(tiny_model("llama"), wider, tmp_path / "run", prompts=prompts))
    result = tt.distill(settings(tiny_model("llama"), wider, tmp_path / "other", prompts=prompts, recipe="reverse_kl"))
    assert result.kl is not None


@for_each(
    [
        ({"teacher": ""}, r"distill needs a --teacher.*tutelage rejection"),
        ({"teacher": "base"}, "give another teacher"),
        ({"prompts": ""}, "needs --prompts"),
        ({"on_policy": 0.5}, "name it with --data"),
        ({"on_policy": 0.5, "data": "a.jsonl"}, "omit --prompts"),
        ({"data": "a.jsonl"}, "the student writes all of them"),
        ({"on_policy": 1.5}, "from 0 to 1"),
        ({"on_policy": 0.0, "data": "a", "prompts": "", "rollouts": "http://a"}, "nothing is sampled"),
        ({"sampling": config.Sampling(top_k=5)}, "top_k, top_p or min_p"),
        ({"sampling": config.Sampling(temperature=0.0)}, "temperature 0"),
        (
            {"teacher": "http://a", "sampling": config.Sampling(temperature=0.7)},
            "at temperature 1, but --sampling.temperature is 0.7",
        ),
        ({"lora": config.Lora(rank=2, dropout=0.1)}, "omit it"),
    ]
)
def test_settings_that_contradict_each_other(changes, told):
    with pytest.raises(TutelageError, match=rf"(?s){told}"):
        settings("base", **{"teacher": "teacher", "out": Path("x"), "prompts": "p"} | changes)


@for_each(
    [
        ({"recipe": "dapo"}, "has no penalty"),
        ({"recipe": "ppo"}, r"uses one \(critic\). Set critic=none"),
        ({"recipe": "grpo"}, r"Set shaping.missing_end=none"),
        ({"recipe": "reverse_kl", "set": ("ptx=1",)}, "Set ptx=none or 0"),
        ({"teacher": "http://a"}, "a server returns probabilities of single tokens: use --recipe reverse_kl"),
        (
            {"on_policy": 0.5, "data": "d", "prompts": "", "recipe": "reverse_kl"},
            "some completions are not sampled from the student",
        ),
        (
            {"on_policy": 0.5, "data": "d", "prompts": "", "set": ("samples=2",)},
            "one completion per prompt: use --recipe gkd",
        ),
        ({"set": ("penalty.mixture=2",)}, "must be from 0"),
        ({"recipe": "reverse_kl", "set": ("penalty.mixture=0.5",)}, "penalty.kind=exact, but penalty.kind is k1"),
    ]
)
def test_recipes_that_a_teacher_has_no_use_for(changes, told):
    given = settings("base", **{"teacher": "teacher", "out": Path("x"), "prompts": "p"} | changes)
    with pytest.raises(TutelageError, match=told), prepare_distill(given):
        pass


def test_without_a_teacher_the_command_that_learns_from_a_reward_is_named(capsys):
    assert main(["distill", "--model", "m", "--prompts", "p", "--out", "o"]) == 2
    assert "tutelage rejection" in capsys.readouterr().err
