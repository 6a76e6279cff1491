"""Tasks of lm-evaluation-harness on a policy; runs where the package lm_eval is installed."""

import json
import math
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import tiny
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

pytest.importorskip("lm_eval")

import tutelage as tt
from tutelage.base import config
from tutelage.base.errors import TutelageError
from tutelage.commands.evaluate.harness import PolicyLM
from tutelage.models.backbone import load_backbone
from tutelage.models.policy import Policy

TASKS = Path(__file__).with_name("tasks")


@pytest.fixture(scope="module")
def model(tiny_model):
    return tiny_model("llama", words={"chat": True, "pad": tiny.PAD})


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder of the tasks, with the path of their data."""
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    shutil.copytree(TASKS, tmp_path / "tasks")
    for file in (tmp_path / "tasks").glob("*.yaml"):
        file.write_text(file.read_text().replace("DATA", str(TASKS / "sky.jsonl")))
    return str(tmp_path / "tasks")


def lm_of(model):
    return PolicyLM(Policy(load_backbone(config.Model(model, device="cpu"))))


def asked(*arguments):
    return [SimpleNamespace(args=one) for one in arguments]


def log_probability(network, context, continuation):
    """Σ log π of a continuation by transformers alone."""
    with torch.no_grad():
        logp = network(torch.tensor([context + continuation])).logits[0].log_softmax(-1)
    where = range(len(context) - 1, len(context) + len(continuation) - 1)
    found = [logp[at, token].item() for at, token in zip(where, continuation, strict=True)]
    likeliest = [logp[at].argmax().item() for at in where]
    return sum(found), likeliest == continuation


def test_the_harness_gets_the_log_probabilities_of_the_model(model):
    lm, tokenizer = lm_of(model), AutoTokenizer.from_pretrained(model)
    network = AutoModelForCausalLM.from_pretrained(model)
    pairs = [("Why is the sky", " blue?"), ("Plants turn light, ", "water"), ("", "rain"), ("x" * 300, " y")]
    found = lm.loglikelihood(asked(*pairs), disable_tqdm=True)
    for (context, continuation), (value, greedy) in zip(pairs, found, strict=True):
        whole = tokenizer(context + continuation)["input_ids"]
        before = tokenizer(context.rstrip())["input_ids"] or [tokenizer.eos_token_id]
        after = whole[len(before) :] if context else whole
        before = (before + after)[-tiny.CONTEXT :][: -len(after)]
        expected, likeliest = log_probability(network, before, after)
        assert value == pytest.approx(expected, abs=1e-4)
        assert greedy == likeliest
    first = tokenizer("Why is")["input_ids"]
    with torch.no_grad():
        best = network(torch.tensor([first])).logits[0, -1].argmax().item()
    ((value, greedy),) = lm._loglikelihood_tokens([(None, first, [best])])
    assert greedy


def test_a_text_longer_than_the_context_is_measured_in_windows_without_losing_a_token(model):
    lm = lm_of(model)
    short, long = "What is rain?", "".join(chr(97 + i * 7 % 26) for i in range(200))
    (one, many) = lm.loglikelihood_rolling(asked((short,), (long,)))
    network, ids = AutoModelForCausalLM.from_pretrained(model), lm.tok_encode(short)
    assert one == pytest.approx(log_probability(network, [lm.prefix_token_id], ids)[0], abs=1e-4)
    assert -len(lm.tok_encode(long)) * 20 < many < -len(lm.tok_encode(long))


def test_answers_are_greedy_and_end_before_the_stop_string(model):
    lm = lm_of(model)
    free, cut = lm.generate_until(
        asked(("Why?", {"until": [], "max_gen_toks": 10}), ("Why?", {"until": ["e"], "max_gen_toks": 10}))
    )
    tokens = torch.tensor([lm.tok_encode("Why?")])
    network = AutoModelForCausalLM.from_pretrained(model)
    ids = network.generate(tokens, max_new_tokens=10, do_sample=False)[0, tokens.shape[1] :]
    assert free == lm.tokenizer.decode(ids, skip_special_tokens=True)
    assert cut == free.partition("e")[0]


def test_an_evaluation_has_values_with_standard_errors_for_both_models(model, folder, tmp_path, capsys):
    result = tt.evaluate(
        model=model,
        against=tiny.save("llama", tmp_path / "other", seed=1, words={"chat": True, "pad": tiny.PAD}),
        tasks=["tiny_choices", "tiny_answers", "tiny_texts"],
        task_folder=folder,
        task_shots=1,
        out=tmp_path / "out",
    )
    accuracy, error = result.figures["tiny_choices/acc"], result.figures["tiny_choices/acc_error"]
    assert accuracy in (0, 0.25, 0.5, 0.75, 1)
    assert error == pytest.approx(math.sqrt(accuracy * (1 - accuracy) / 3))  # of a mean of four
    assert result.figures["tiny_texts/word_perplexity"] > 1
    assert set(result.against) >= set(result.figures) - {"kl"}
    rows = [json.loads(line) for line in (result.out / "tasks.jsonl").read_text().splitlines()]
    own = [row["acc"] for row in rows if row["task"] == "tiny_choices" and row["model"] == "model"]
    assert sum(own) / len(own) == accuracy
    assert {row["model"] for row in rows} == {"against", "model"}
    names = [row["name"] for row in result.summary["rows"]]
    assert names[0] == "tiny_choices acc"
    assert result.summary["tasks"]["versions"]["tiny_choices"] == 2.0
    assert not (result.out / "answers.jsonl").exists()


def test_tasks_and_prompts_go_together_and_chats_are_written_by_the_template(model, folder, tmp_path):
    (tmp_path / "prompts.jsonl").write_text('{"prompt": "Why?"}\n')
    common = {"model": model, "tasks": ["tiny_choices"], "task_folder": folder, "limit": 2}
    plain = tt.evaluate(**common, prompts=str(tmp_path / "prompts.jsonl"), out=tmp_path / "plain")
    chat = tt.evaluate(**common, task_chat=True, out=tmp_path / "chat")
    assert {"length/mean", "tiny_choices/acc"} <= set(plain.figures)
    assert (plain.out / "answers.jsonl").exists()
    answers = [
        [json.loads(line)["answers"] for line in (one.out / "tasks.jsonl").read_text().splitlines()]
        for one in (plain, chat)
    ]
    assert len(answers[0]) == 2
    assert answers[0] != answers[1]


def test_an_unknown_task_and_data_that_cannot_be_read_are_refused(model, folder, tmp_path):
    for tasks, more, sentence in (
        (["tiny_choice"], {}, "no task 'tiny_choice'; did you mean 'tiny_choices"),
        (["tiny_choices"], {"task_shots": -1}, "--task-shots is -1"),
    ):
        with pytest.raises(TutelageError, match=sentence):
            tt.evaluate(model=model, tasks=tasks, task_folder=folder, out=tmp_path / "out", **more)
    (Path(folder) / "choices.yaml").write_text(
        (TASKS / "choices.yaml").read_text().replace("DATA", str(tmp_path / "none.jsonl"))
    )
    with pytest.raises(TutelageError, match="The tasks tiny_choices could not be run: "):
        tt.evaluate(model=model, tasks=["tiny_choices"], task_folder=folder, out=tmp_path / "out")
