"""Every command on tiny folders of five families, one after the other, as a person would call them."""

import json
import math

import pytest
import torch
from offenders import for_each
from tiers import long_except
from tiny_commands import files, improve_settings, model, read_jsonl, reward_settings, sft_settings, write_jsonl
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer

from tutelage.base import config
from tutelage.commands.line import main
from tutelage.commands.table import find
from tutelage.data.records import Prompt, user
from tutelage.models.backbone import load_backbone
from tutelage.models.heads import load_reward_model, new_reward_model
from tutelage.models.policy import Policy
from tutelage.rewards.model_reward import ModelReward
from tutelage.rewards.reward import Completions
from tutelage.rollout.inference.conversation import talk

evaluate = find("evaluate")
improve = find("improve")
pretrain = find("pretrain")
reward = find("reward")
sample = find("sample")
sft = find("sft")

pytestmark = pytest.mark.filterwarnings("error::FutureWarning")

WHOLE, ADAPTED = ("opt", "gpt2", "gemma3"), ("gpt2", "llama", "qwen3")
"""Families of which every weight or an adapter is trained here: both of the one whose matrices are transposed."""


def steps_of(run):
    return [row["step"] for row in read_jsonl(run / "metrics.jsonl")]


def loads(kind, run):
    """Every checkpoint and the final model load with plain transformers."""
    folders = [*(run / "checkpoints").iterdir(), run / "model"]
    assert len(folders) >= 2
    for folder in folders:
        extra = {"num_labels": 1} if kind is AutoModelForSequenceClassification else {}
        kind.from_pretrained(folder, **extra)
        AutoTokenizer.from_pretrained(folder)


@pytest.mark.parametrize(
    ("family", "rank"),
    long_except(
        [("gpt2", 0), ("qwen3", 2)], [*((family, 0) for family in WHOLE), *((family, 2) for family in ADAPTED)]
    ),
)
def test_from_demonstrations_to_an_evaluated_policy(tiny_model, tmp_path, family, rank):
    data, lora = files(tmp_path / "data"), config.Lora(rank=rank)
    a, b, c = tmp_path / "sft", tmp_path / "reward", tmp_path / "policy"

    assert sft.main(sft_settings(tiny_model(family), data, a, lora=lora)) == 0
    assert steps_of(a) == [0, 1, 2]
    loads(AutoModelForCausalLM, a)
    summary = json.loads((a / "summary.json").read_text())
    assert summary["held_out/perplexity"] == pytest.approx(math.exp(summary["held_out/loss"]))
    assert {"held_out/rougeL", "loss", "peak_rss_mb"} <= summary.keys()
    assert [row["step"] for row in read_jsonl(a / "samples.jsonl")] == [0, 2]

    assert reward.main(reward_settings(a / "model", data, b, lora=lora, centre=data["sft"])) == 0
    assert steps_of(b) == [1, 2]
    summary = json.loads((b / "summary.json").read_text())
    assert {"accuracy", "accuracy_interval", "held_out/loss", "centre/mean_before", "ece"} <= summary.keys()
    AutoModelForSequenceClassification.from_pretrained(b / "model")
    if not rank:
        loads(AutoModelForSequenceClassification, b)

    told = improve_settings(
        a / "model",
        data,
        c,
        lora=lora,
        reward=(str(b / "model"), "given_rewards:vowels=0.5"),
        watch=("gold/mean=given_rewards:length",),
        set=("update.minibatches=2",),
    )
    assert improve.main(told) == 0
    rows = read_jsonl(c / "metrics.jsonl")
    assert [row["step"] for row in rows] == [1, 2]
    assert rows[0]["kl/reference"] == pytest.approx(0.0, abs=1e-4)
    documented = {"score/mean", "score/std", "score/shaped", "gold/mean", "kl/reference", "kl/reference_k3", "kl/old"}
    documented |= {"penalty/coef", "entropy", "length/mean", "ended", "clip_fraction", "ratio/max", "advantage/std"}
    documented |= {"value/loss", "value/explained_variance", "policy/objective", "grad_norm", "lr"}
    assert documented | {"tokens_per_second", "seconds"} <= rows[0].keys()
    assert len(read_jsonl(c / "samples.jsonl")) == 8
    loads(AutoModelForCausalLM, c)

    asked = evaluate.settings(
        model=model(c / "model"),
        against=str(a / "model"),
        base=tiny_model(family),
        prompts=data["prompts"],
        references=data["sft"],
        out=tmp_path / "evaluate",
        reward=("given_rewards:length", f"rm={b / 'model'}"),
        sampling=config.Sampling(max_new_tokens=8),
        quiet=True,
    )
    assert evaluate.main(asked) == 0
    found = json.loads((tmp_path / "evaluate" / "summary.json").read_text())
    assert set(found["win_rate"]) == {"length", "rm"}
    assert {"kl", "perplexity", "rougeL", "distinct_2", "length_mean"} <= found["model"].keys()
    assert len(read_jsonl(tmp_path / "evaluate" / "answers.jsonl")) == 8

    wanted = sample.settings(
        model=model(c / "model"), prompts=data["prompts"], out=tmp_path / "sample", n=3, pairs=1, quiet=True
    )
    assert sample.main(wanted) == 0
    assert len(read_jsonl(tmp_path / "sample" / "completions.jsonl")) == 24
    assert 0 < len(read_jsonl(tmp_path / "sample" / "comparisons.jsonl")) <= 8


def conversation(number, answers):
    """Messages with so many answers, and the same as one row for each answer."""
    turns = [{"role": "system", "content": "Be kind."}]
    rows = []
    for turn in range(answers):
        turns = [*turns, {"role": "user", "content": f"What is {number}, part {turn}?"}]
        answer = {"role": "assistant", "content": f"Part {turn} of {number} is {answers}."}
        rows.append({"prompt": turns, "completion": [answer]})
        turns = [*turns, answer]
    return {"messages": turns}, rows


def test_every_answer_of_a_conversation_is_learnt_after_what_was_said_before(tiny_model, tmp_path, capsys):
    """The same weights, bit for bit, as from a file with one row for each answer; by default from the last alone."""
    talks = [conversation(number, 1 + number % 3) for number in range(6)]
    whole = write_jsonl(tmp_path / "whole.jsonl", [talk for talk, _ in talks])
    parts = write_jsonl(tmp_path / "parts.jsonl", [row for _, rows in talks for row in rows])
    last = write_jsonl(tmp_path / "last.jsonl", [rows[-1] for _, rows in talks])
    learnt = {}
    for name, data, more in (
        ("every", whole, {"answers": "every"}),
        ("parts", parts, {}),
        ("whole", whole, {}),
        ("last", last, {}),
    ):
        out, more = tmp_path / name, more | {"data": data, "held_out": 0.0, "quiet": False}
        assert sft.main(sft_settings(tiny_model("qwen3"), {"sft": data}, out, **more)) == 0
        learnt[name] = load_backbone(model(out / "model")).model.state_dict()
    told = capsys.readouterr().err
    assert "whole.jsonl: 6 rows, read as messages" in told
    assert "4 conversations have several answers, each of which is a record: 12 in all" in told
    for one, other in (("every", "parts"), ("whole", "last")):
        assert all(torch.equal(value, learnt[other][key]) for key, value in learnt[one].items())
    assert not all(torch.equal(value, learnt["every"][key]) for key, value in learnt["whole"].items())


def test_the_answers_of_one_conversation_are_on_one_side_of_the_held_out(tiny_model, tmp_path):
    talks = write_jsonl(tmp_path / "talks.jsonl", [conversation(number, 3)[0] for number in range(5)])
    for share, rows in ((0.1, 15), (0.3, 9)):  # 1.5 and 4.5 of 15 answers, 0 and 2 of 5 conversations
        out = tmp_path / str(share)
        settings = {"data": talks, "answers": "every", "held_out": share, "rouge": 0, "samples": 0}
        assert sft.main(sft_settings(tiny_model("qwen3"), {"sft": talks}, out, **settings)) == 0
        assert json.loads((out / "summary.json").read_text())["rows"] == rows


def test_a_model_is_no_better_and_no_further_than_itself(tiny_model, tmp_path):
    """Evaluated against itself: every answer ties, KL 0, the same figures on both sides."""
    data = files(tmp_path / "data")
    settings = evaluate.settings(
        model=model(tiny_model("llama")),
        against=tiny_model("llama"),
        prompts=data["prompts"],
        out=tmp_path / "evaluate",
        reward=("given_rewards:vowels",),
        n=2,
        limit=5,
        sampling=config.Sampling(max_new_tokens=6, temperature=0.8),
        quiet=True,
    )
    assert evaluate.main(settings) == 0
    found = json.loads((tmp_path / "evaluate" / "summary.json").read_text())
    told = found["win_rate"]["vowels"]
    assert (told["wins"], told["ties"], told["losses"], told["win_rate"]) == (0, 10, 0, 0.5)
    assert (told["n"], told["prompts"]) == (10, 5)
    assert found["model"]["kl"] == pytest.approx(0.0, abs=1e-4)
    assert {k: v for k, v in found["model"].items() if not k.startswith("kl")} == found["against"]


def test_answers_too_short_for_a_figure_leave_it_out(tiny_model, tmp_path, capsys):
    """One token is no pair of words: JSON has no NaN, and neither has the table."""
    asked = {"prompts": files(tmp_path / "data")["prompts"], "sampling": config.Sampling(max_new_tokens=1)}
    settings = evaluate.settings(model=model(tiny_model("llama")), out=tmp_path / "out", **asked)
    assert evaluate.main(settings) == 0
    found = json.loads((tmp_path / "out" / "summary.json").read_text(), parse_constant=pytest.fail)
    assert found["model"]["length/mean"] == 1.0
    assert not {"repetition", "distinct_2"} & found["model"].keys()
    assert "nan" not in capsys.readouterr().out


def test_a_model_from_nothing_learns_text(tmp_path):
    text = "\n\n".join(
        f"The {a} is {b}. The {b} {a} is far away." for a in ("sun", "star", "sky") for b in ("hot", "red")
    )
    (tmp_path / "text.txt").write_text("\n\n".join([text] * 8))
    settings = pretrain.settings(
        data=str(tmp_path / "text.txt"),
        out=tmp_path / "run",
        device="cpu",
        shape=config.Shape(vocabulary=300, hidden=32, layers=2, heads=2, context=48),
        batch_size=4,
        max_length=48,
        epochs=8,
        held_out=0.1,
        evaluate_every=5,
        quiet=True,
    )
    assert pretrain.main(settings) == 0
    rows = read_jsonl(tmp_path / "run" / "metrics.jsonl")
    assert rows[0]["loss"] == pytest.approx(math.log(300), rel=0.1), "a new model knows nothing"
    assert rows[-1]["loss"] < 0.7 * rows[0]["loss"]
    made = AutoModelForCausalLM.from_pretrained(tmp_path / "run" / "model")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "run" / "model")
    assert tokenizer.decode(tokenizer("The sun 42\n", add_special_tokens=False)["input_ids"]) == "The sun 42\n"
    assert made.config.max_position_embeddings == 48
    again = tmp_path / "again"
    more = pretrain.settings(
        data=settings.data, model=str(tmp_path / "run" / "model"), out=again, device="cpu", batch_size=4, quiet=True
    )
    assert pretrain.main(more) == 0
    assert read_jsonl(again / "metrics.jsonl")[0]["loss"] == pytest.approx(rows[-1]["loss"], rel=0.25)


def test_bfloat16_goes_all_the_way(tiny_model, tmp_path):
    data = files(tmp_path / "data")
    bf16 = config.Model(tiny_model("llama"), dtype="bf16", device="cpu")
    a, b, c = tmp_path / "sft", tmp_path / "reward", tmp_path / "policy"
    assert sft.main(sft_settings("replaced", data, a, model=bf16)) == 0
    assert reward.main(reward_settings("replaced", data, b, model=bf16, lora=config.Lora(rank=2))) == 0
    told = improve_settings("replaced", data, c, model=bf16, reward=(str(b / "model"),), critic="network")
    assert improve.main(told) == 0
    assert AutoModelForCausalLM.from_pretrained(c / "model").dtype == torch.float32
    loads(AutoModelForCausalLM, c)
    AutoModelForSequenceClassification.from_pretrained(c / "checkpoints" / "step-2" / "critic")
    rows = read_jsonl(c / "metrics.jsonl")
    assert all(math.isfinite(row["sampler/mismatch"]) and row["sampler/mismatch"] < 0.1 for row in rows)


def test_text_beside_the_objective(tiny_model, tmp_path):
    data = files(tmp_path / "data")
    told = improve_settings(tiny_model("gpt2"), data, tmp_path / "run", ptx=data["sft"], set=("ptx=0.5",))
    assert improve.main(told) == 0
    assert all(row["ptx/loss"] > 0 for row in read_jsonl(tmp_path / "run" / "metrics.jsonl"))


# From the command line --------------------------------------------------------------------------------------


def test_settings_from_a_file_and_from_a_run(tiny_model, tmp_path, capsys):
    data = files(tmp_path / "data")
    (tmp_path / "sft.toml").write_text(
        f'data = "{data["sft"]}"\nquiet = true\nbatch_size = 9\nrouge = 0\nsamples = 0\nheld_out = 0.0\n'
        f'[model]\npath = "{tiny_model("llama")}"\ndevice = "cpu"\n[optimiser]\nlr = 1e-3\n[lora]\nrank = 2\n'
    )
    first, second = tmp_path / "first", tmp_path / "second"
    assert main(["sft", "--config", str(tmp_path / "sft.toml"), "--out", str(first)]) == 0
    assert main(["sft", "--config", str(first / "config.json"), "--out", str(second)]) == 0
    one, other = (json.loads((run / "config.json").read_text()) for run in (first, second))
    assert one["settings"] | {"out": ""} == other["settings"] | {"out": ""}
    assert one["settings"]["lora"]["rank"] == 2
    assert (first / "model" / "model.safetensors").read_bytes() == (second / "model" / "model.safetensors").read_bytes()
    assert main(["sft", "--config", str(first / "config.json"), "--seed", "1"]) == 2
    assert "seed" in capsys.readouterr().err
    (tmp_path / "sft.toml").write_text("leaning_rate = 3\n")
    assert main(["sft", "--config", str(tmp_path / "sft.toml"), "--out", str(tmp_path / "x")]) == 2
    assert "leaning_rate" in capsys.readouterr().err


def test_a_finished_run_is_left_alone(tiny_runs, tmp_path):
    chain = tiny_runs.copy(tmp_path)
    for name, command in (("sft", sft), ("reward", reward), ("improve", improve), ("dpo", find("dpo"))):
        model = tmp_path / name / "model"
        before = {file: file.stat().st_mtime_ns for file in model.iterdir()}
        assert command.main(getattr(chain, name)) == 0
        assert {file: file.stat().st_mtime_ns for file in model.iterdir()} == before, name


# Chat -------------------------------------------------------------------------------------------------------


def talking(models, lines, **settings):
    """What a conversation of these lines writes."""
    written, left = [], iter(lines)

    def read():
        try:
            return next(left)
        except StopIteration:
            raise EOFError from None

    usual = {"system": "", "seed": 0, "sampling": config.Sampling(temperature=0.8, max_new_tokens=12)}
    talk(models, **usual | settings, read=read, write=written.append)
    return "".join(written)


def load(folder):
    return Policy(load_backbone(model(folder)))


def test_a_conversation(tiny_model, monkeypatch):
    from tutelage.rollout.inference import conversation

    policy, asked = load(tiny_model("qwen3")), []
    original = conversation.encode

    def record(messages, response, tokenizer):
        asked.append([(m.role, m.content) for m in messages])
        return original(messages, response, tokenizer)

    monkeypatch.setattr(conversation, "encode", record)
    lines = ["", "Hello", "/help", "And then?", "/undo", "Or?", "/new", "Again", "/quit", "never read"]
    text = talking({"a": policy}, lines, system="Be kind.")
    assert "/undo takes back" in text
    first, second, third, fourth = asked
    assert first == [("system", "Be kind."), ("user", "Hello")]
    assert second[:2] == first
    assert second[2][0] == "assistant"
    assert second[3] == ("user", "And then?")
    assert third == [*second[:3], ("user", "Or?")]
    assert fourth == [("system", "Be kind."), ("user", "Again")]
    assert second[2][1] in text, "what is remembered is what was shown"


def test_two_models_side_by_side_and_the_same_conversation_again(tiny_model):
    models = {"a": load(tiny_model("llama")), "b": load(tiny_model("gpt2"))}
    text = talking(models, ["Hello", "Why?"])
    assert text.count("\na: ") == text.count("\nb: ") == 2
    assert talking(models, ["Hello", "Why?"]) == text
    assert talking(models, ["Hello", "Why?"], seed=1) != text


def test_a_long_conversation_forgets_its_beginning(tiny_model):
    models = {"a": load(tiny_model("llama"))}
    talking(models, [f"Tell me more about number {i}." for i in range(12)], system="Be kind.")


def test_a_question_too_long_for_the_context_is_said_and_the_conversation_goes_on(tiny_model):
    models = {"a": load(tiny_model("llama"))}
    text = talking(models, ["word " * 80, "Hello"], system="Be kind.")
    assert "96" in text
    assert text.count("model: ") == 2


def test_chat_from_the_command_line(tiny_model, monkeypatch, capsys):
    said = iter(["Hello", "/quit"])
    monkeypatch.setattr("builtins.input", lambda prompt: next(said))
    words = ["chat", "--model", tiny_model("llama"), "--device", "cpu", "--sampling.max-new-tokens", "5"]
    assert main(words) == 0
    assert "Talking to" in capsys.readouterr().out


def test_prompts_come_from_any_format(tiny_model, tmp_path):
    pairs = write_jsonl(tmp_path / "p.jsonl", [{"prompt": "Why?", "chosen": "a", "rejected": "b"}])
    settings = sample.settings(model=model(tiny_model("gpt2")), prompts=pairs, out=tmp_path / "out", n=2, quiet=True)
    assert sample.main(settings) == 0
    assert [row["prompt"] for row in read_jsonl(tmp_path / "out" / "prompts.jsonl")] == ["Why?"]


# Evaluation of what cannot be compared ----------------------------------------------------------------------


def figures(folder, **settings):
    """What `evaluate` writes."""
    asked = evaluate.settings(out=folder, quiet=False, **settings)
    assert evaluate.main(asked) == 0
    return json.loads((folder / "summary.json").read_text())


def test_models_with_other_vocabularies_are_compared_by_their_texts(tiny_model, tmp_path, capsys):
    """No divergence between numbers that mean different tokens; and a reward model reads what was said, not its ids."""
    data = files(tmp_path / "data")
    new_reward_model(model(tiny_model("llama")), config.Lora(), seed=1).save(tmp_path / "reward")
    found = figures(
        tmp_path / "out",
        model=model(tiny_model("llama")),
        against=tiny_model("qwen3"),
        base=tiny_model("qwen3"),
        prompts=data["prompts"],
        reward=(f"rm={tmp_path / 'reward'}",),
        sampling=config.Sampling(max_new_tokens=6),
    )
    assert "kl" not in found["model"]
    assert "perplexity" not in found["model"]
    assert found["against"]["perplexity"] > 1
    assert "different vocabularies" in capsys.readouterr().err
    reward = ModelReward(load_reward_model(model(tmp_path / "reward")), same_tokens=False)
    rows = read_jsonl(tmp_path / "out" / "answers.jsonl")
    prompts = [Prompt(str(i), user(row["prompt"])) for i, row in enumerate(rows)]
    by_text = reward(Completions(prompts, [row["before"] for row in rows]))
    assert [row["rm_before"] for row in rows] == pytest.approx(by_text.tolist(), abs=1e-4)


@for_each([{"temperature": 0.0}, {"top_k": 3}, {"top_p": 0.9}, {"min_p": 0.1}])
def test_a_divergence_needs_answers_from_the_whole_distribution(sampling, tiny_model, tmp_path, capsys):
    data = files(tmp_path / "data")
    base = tiny_model("llama")
    asked = config.Sampling(max_new_tokens=4, **sampling)
    found = figures(tmp_path / "out", model=model(base), against=base, prompts=data["prompts"], sampling=asked)
    assert "kl" not in found["model"], "with itself it would not be 0"
    assert "needs completions from the whole distribution" in capsys.readouterr().err
