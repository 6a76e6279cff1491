"""Mistakes that people make, each answered in a sentence that says what is wrong and what to do."""

import errno
import json
import math
import os
import shutil
from itertools import product

import pytest
import torch
from given_rewards import NUMBER
from offenders import for_each
from safetensors.torch import load_file, save_file
from tiny_commands import files, improve_settings, model, read_jsonl, reward_settings, sft_settings, write_jsonl
from transformers import AutoTokenizer

from tutelage.base import config
from tutelage.base.errors import TutelageError
from tutelage.commands import chat
from tutelage.commands.line import main
from tutelage.commands.table import find
from tutelage.train.run.folder import Run

evaluate = find("evaluate")
improve = find("improve")
pretrain = find("pretrain")
reward = find("reward")
sample = find("sample")
sft = find("sft")

COMMANDS = {
    "sft": (sft, sft_settings, "data"),
    "reward": (reward, reward_settings, "data"),
    "improve": (improve, improve_settings, "prompts"),
}


@pytest.fixture
def data(tmp_path):
    return files(tmp_path / "data")


@pytest.fixture
def base(tiny_model):
    return tiny_model("llama")


def refused(command, settings, told):
    with pytest.raises(TutelageError, match=told):
        command.main(settings)


@for_each(
    [
        (name, *file)
        for name, file in product(
            COMMANDS,
            [
                (None, "no file"),
                ("", "empty"),
                ("\n \n", "empty|no row"),
                ('{"prompt": "a", \n', "line 1"),
                ('{"a": 1}\n', "column"),
            ],
        )
    ]
)
def test_files_that_are_missing_empty_or_something_else(name, content, told, base, data, tmp_path):
    command, make, field = COMMANDS[name]
    file = tmp_path / "given.jsonl"
    if content is not None:
        file.write_text(content)
    refused(command, make(base, data, tmp_path / "run", **{field: str(file)}), rf"(?is)(?=.*given.jsonl).*({told})")
    assert not (tmp_path / "run").exists(), "nothing is begun before the data is known to be good"


def test_preferences_for_the_same_answer(base, data, tmp_path):
    rows = [{"prompt": "Why?", "chosen": "So.", "rejected": "So."}] * 3
    file = write_jsonl(tmp_path / "same.jsonl", rows)
    refused(reward, reward_settings(base, data, tmp_path / "run", data=file), "(?s)chosen.*rejected")


def test_preferences_that_are_the_same_once_they_are_cut(base, data, tmp_path):
    rows = [{"prompt": "Why?", "chosen": "word " * 90 + "a", "rejected": "word " * 90 + "b"}] * 3
    file = write_jsonl(tmp_path / "long.jsonl", rows)
    refused(reward, reward_settings(base, data, tmp_path / "run", data=file, held_out=0.0), "equal once cut")


@pytest.mark.parametrize("name", ["sft", "improve"])
def test_prompts_that_are_longer_than_the_context(base, data, tmp_path, name, capsys):
    long = {"prompt": "word " * 200, "completion": "Yes."}
    file = write_jsonl(tmp_path / "long.jsonl", [long, *read_jsonl(data["sft"])])
    command, make, field = COMMANDS[name]
    more = {"held_out": 0.0} if name == "sft" else {}
    assert command.main(make(base, data, tmp_path / "run", quiet=False, **{field: file}, **more)) == 0
    told = capsys.readouterr().err
    assert ("1 prompt shortened on the left" if name == "sft" else "1 prompt left out: longer than 88 tokens") in told


def test_only_prompts_that_are_longer_than_the_context(base, data, tmp_path):
    file = write_jsonl(tmp_path / "long.jsonl", [{"prompt": "word " * 200}])
    no_room = r"No prompt fits: the model has 96 pos.*longer context"  # which a smaller completion would not make
    refused(improve, improve_settings(base, data, tmp_path / "a", prompts=file), no_room)
    asked = sample.settings(model=model(base), prompts=file, out=tmp_path / "b", quiet=True)
    refused(sample, asked, r"positions, but the model has 96")


# Models -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", COMMANDS)
def test_model_folders_that_are_none(base, data, tmp_path, name):
    command, make, _ = COMMANDS[name]

    def begin(folder, told):
        refused(command, make(folder, data, tmp_path / f"run {told}"), told)

    begin(tmp_path / "nowhere", "no model folder")
    (tmp_path / "empty").mkdir()
    begin(tmp_path / "empty", "no config.json")
    shutil.copytree(base, tmp_path / "weightless", ignore=shutil.ignore_patterns("*.safetensors"))
    begin(tmp_path / "weightless", "no weights")
    shutil.copytree(base, tmp_path / "speechless", ignore=shutil.ignore_patterns("token*"))
    begin(tmp_path / "speechless", "(?i)tokenizer")
    shutil.copytree(base, tmp_path / "narrow")
    settings = json.loads((tmp_path / "narrow" / "config.json").read_text())
    (tmp_path / "narrow" / "config.json").write_text(json.dumps(settings | {"intermediate_size": 48}))
    begin(tmp_path / "narrow", r"has the shape \(16, 32\) instead of \(16, 48\)")
    shutil.copytree(base, tmp_path / "damaged")
    (tmp_path / "damaged" / "model.safetensors").write_bytes(b"not a tensor in sight")
    begin(tmp_path / "damaged", "could not be loaded as a")


def test_a_tokenizer_without_an_end_token(base, data, tmp_path):
    shutil.copytree(base, tmp_path / "endless")
    tokenizer = AutoTokenizer.from_pretrained(base)
    tokenizer.eos_token = None
    tokenizer.pad_token = None
    tokenizer.save_pretrained(tmp_path / "endless")
    for number, (command, make, _) in enumerate(COMMANDS.values()):
        refused(command, make(tmp_path / "endless", data, tmp_path / f"run{number}"), "no end token.*set eos_token")


def test_a_tokenizer_without_a_pad_token_is_fine(tiny_model, data, tmp_path):
    assert AutoTokenizer.from_pretrained(tiny_model("gpt2")).pad_token_id is None
    assert reward.main(reward_settings(tiny_model("gpt2"), data, tmp_path / "run")) == 0


def test_no_gpu(base, data, tmp_path):
    if torch.cuda.is_available():
        pytest.skip("there is one")
    gpu = config.Model(base, device="cuda")
    refused(sft, sft_settings(base, data, tmp_path / "run", model=gpu), r"'cuda' .*--model\.device cpu")
    odd = config.Model(base, device="quantum")
    refused(sft, sft_settings(base, data, tmp_path / "run2", model=odd), "no device called 'quantum'")


# Rewards ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reward_name", "told"),
    [
        ("given_rewards:raises", "given_rewards:raises raised KeyError: 'topic'"),
        ("given_rewards:nothing", "has no 'nothing'"),
        ("given_rewards:NUMBER", "is not a function"),
        ("no_such_module:f", "cannot be imported"),
        ("given_rewards:vowels=much", "is not a number"),
        ("given_rewards:vowels=nan", "finite"),
    ],
)
def test_rewards_that_are_none(base, data, tmp_path, reward_name, told):
    assert NUMBER == 3
    refused(improve, improve_settings(base, data, tmp_path / "run", reward=(reward_name,)), told)


def test_a_language_model_is_no_reward(base, data, tmp_path):
    refused(improve, improve_settings(base, data, tmp_path / "a", reward=(base,)), "is not a reward model")
    settings = sft_settings(base, data, tmp_path / "lora", lora=config.Lora(rank=2))
    assert sft.main(settings) == 0
    adapter = str(next((tmp_path / "lora" / "checkpoints").glob("step-*")))
    refused(improve, improve_settings(base, data, tmp_path / "d", reward=(adapter,)), "not for a reward model")
    with pytest.raises(TutelageError, match="--reward"):
        improve_settings(base, data, tmp_path / "b", reward=())
    refused(improve, improve_settings(base, data, tmp_path / "c", reward=(str(tmp_path / "x"),)), "no model folder")


# Output folders ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", COMMANDS)
def test_output_folders_of_others(base, data, tmp_path, name):
    command, make, _ = COMMANDS[name]
    out = tmp_path / "run"
    settings = make(base, data, out)
    with Run.open(out, settings) as run:
        refused(command, settings, rf"in use by another process \(pid {os.getpid()}\)")
        run.log(1, {"loss": 1.0})
    refused(command, settings, "unfinished run: add --resume")
    refused(command, make(base, data, out, seed=5, resume=True), r"other settings.*seed.*Choose another --out")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("")
    refused(command, make(base, data, tmp_path / "mine"), r"other things than a run \(thesis.tex\)")
    shutil.copytree(base, tmp_path / "base")
    refused(command, make(base, data, tmp_path / "base"), "base holds a model, not a run: choose another --out")
    (tmp_path / "file").write_text("")
    refused(command, make(base, data, tmp_path / "file"), "Cannot write to the output folder")


def test_a_disk_that_fills_while_a_checkpoint_is_written(base, data, tmp_path, monkeypatch):
    settings = improve_settings(base, data, tmp_path / "run", steps=4, checkpoints=config.Checkpoints(every=1))
    original, calls = torch.save, iter(range(10))

    def full(*given, **named):
        if next(calls) == 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return original(*given, **named)

    with monkeypatch.context() as patch:
        patch.setattr(torch, "save", full)
        refused(improve, settings, r"checkpoint of step 3 could not be written.*that of step 2 is kept.*--resume")
    assert not list((tmp_path / "run" / "checkpoints").glob(".tmp*"))
    again = improve_settings(
        base, data, tmp_path / "run", steps=4, checkpoints=config.Checkpoints(every=1), resume=True
    )
    assert improve.main(again) == 0
    assert [row["step"] for row in read_jsonl(tmp_path / "run" / "metrics.jsonl")] == [1, 2, 3, 4]


# Settings that contradict each other ------------------------------------------------------------------------


@for_each(
    [
        ({"sampling": config.Sampling(top_k=5)}, "top_k, top_p or min_p would make the two differ"),
        ({"sampling": config.Sampling(temperature=0)}, "temperature 0 all completions"),
        ({"critic_from": "somewhere"}, "Use --critic network"),
        ({"lora": config.Lora(rank=2, dropout=0.1)}, "lora.dropout"),
        ({"ptx": "text.jsonl"}, "neither has an effect without the other"),
        ({"set": ("ptx=0.1",)}, "neither has an effect without the other"),
        ({"recipe": "grpo", "critic": "network"}, "has no critic"),
        ({"recipe": "grpo", "critic_lr": 1e-4}, "has no critic"),
        ({"recipe": "poo"}, "(?i)no recipe named 'poo'.*ppo"),
        ({"set": ("penalty.coeff=1",)}, "(?s)no penalty.coeff.*coef"),
        ({"set": ("penalty.kind=k9",)}, "k9.*k1"),
        ({"steps": 0}, "--steps is 0; it must be at least 1"),
        ({"batch_size": 0}, "--batch-size is 0; it must be at least 1"),
        ({"critic_lr": -1.0}, "--critic-lr is -1.0; it must be at least 0"),
        ({"set": ("advantage.gamma=2",)}, r"gamma must be in \[0, 1\], not 2.0"),
        ({"set": ("advantage.lam=-0.5",)}, r"lam must be in \[0, 1\], not -0.5"),
        ({"set": ("surrogate.low=-0.1",)}, r"low must be in \(0, ∞\], not -0.1"),
        ({"set": ("critic.clip=-0.1",)}, "clip must be above 0"),
        ({"set": ("shaping.missing_end=maybe",)}, "expected a finite number or auto or none"),
        ({"set": ("shaping.missing_end_penalty=1",)}, "Choose one"),
    ]
)
def test_contradictions_of_improve(changes, told, base, data, tmp_path):
    with pytest.raises(TutelageError, match=told):
        improve.main(improve_settings(base, data, tmp_path / "run", **changes))


@for_each(
    [
        (
            lambda: sample.settings(model=config.Model("m"), prompts="p", out="o", n=0),
            "--n is 0; it must be at least 1",
        ),
        (lambda: sample.settings(model=config.Model("m"), prompts="p", out="o", n=1, pairs=1), "needs two completions"),
        (
            lambda: sample.settings(
                model=config.Model("m"), prompts="p", out="o", n=2, sampling=config.Sampling(temperature=0)
            ),
            "the same",
        ),
        (lambda: pretrain.settings(data="d", out="o", model="m", shape=config.Shape(layers=2)), "Omit one of them"),
        (lambda: evaluate.settings(model=config.Model("m"), prompts="p", out="o", n=0), "--n is 0"),
        (lambda: sft.settings(model=config.Model("m"), data="d", out="o", held_out=1.0), "--held-out is 1.0; a share"),
        (
            lambda: sft.settings(model=config.Model("m"), data="d", out="o", epochs=0),
            "--epochs is 0; it must be above 0",
        ),
        (lambda: sft.settings(model=config.Model("m"), data="d", out="o", batch_size=0), "--batch-size is 0"),
        (
            lambda: reward.settings(model=config.Model("m"), data="d", out="o", max_length=1),
            "--max-length is 1; it must be at least 2",
        ),
        (lambda: chat.ChatSettings(model=config.Model("")), "model.path is empty"),
    ]
)
def test_contradictions_of_the_other_commands(make, told):
    with pytest.raises(TutelageError, match=told):
        make()


@pytest.mark.parametrize("seed", [-1, 2**32, 2**70])
def test_seeds_that_no_generator_takes(base, data, tmp_path, seed):
    for make in (sft_settings, reward_settings, improve_settings):
        with pytest.raises(TutelageError, match=rf"--seed is {seed}; it must be from 0 to 4294967295"):
            make(base, data, tmp_path / "run", seed=seed)
    words = ["--model", base, "--model.device", "cpu", "--prompts", data["prompts"], "--out", str(tmp_path / "out")]
    assert main(["sample", *words, "--seed", str(seed)]) == 2
    assert main(["evaluate", *words, "--seed", str(seed)]) == 2
    assert main(["chat", "--model", base, "--seed", str(seed)]) == 2
    assert main(["demo", "--out", str(tmp_path / "demo"), "--seed", str(seed)]) == 2


def test_the_largest_seed_is_one(base, data, tmp_path):
    settings = {"seed": 2**32 - 1, "steps": 1}
    assert improve.main(improve_settings(base, data, tmp_path / "run", **settings)) == 0


@for_each(["lr", "eps", "weight_decay"])
def test_rates_without_end(name):
    with pytest.raises(TutelageError, match=rf"optimiser's {name} is inf"):
        config.Optimiser(**{name: math.inf})
    assert config.Optimiser(max_norm=math.inf).max_norm == math.inf


def test_a_learning_rate_that_breaks_the_weights_saves_none(base, data, tmp_path):
    """Its last step leaves weights that are infinite, and no later one could notice."""
    settings = {"optimiser": config.Optimiser(lr=3e38), "epochs": 0.1, "held_out": 0.0}
    refused(
        sft, sft_settings(base, data, tmp_path / "run", **settings), r"was not saved to .*not finite.*learning rate"
    )
    assert not (tmp_path / "run" / "model").exists()
    assert not (tmp_path / "run" / "summary.json").exists()


def test_a_model_whose_weights_are_no_numbers(base, data, tmp_path):
    file = shutil.copytree(base, tmp_path / "spoilt") / "model.safetensors"
    save_file({k: v / 0 for k, v in load_file(file).items()}, file, metadata={"format": "pt"})
    asked = {"model": model(tmp_path / "spoilt"), "prompts": data["prompts"], "quiet": True}
    refused(sample, sample.settings(**asked, out=tmp_path / "a"), "cannot be used: weights of .* are not finite")
    refused(evaluate, evaluate.settings(**asked, out=tmp_path / "b"), "cannot be used")
    refused(sft, sft_settings(tmp_path / "spoilt", data, tmp_path / "c"), "cannot be used")


def test_almost_everything_held_out(base, data, tmp_path):
    held = {"held_out": 0.999}
    refused(sft, sft_settings(base, data, tmp_path / "run", **held), "--held-out 0.999 of 20 rows leaves none")


def test_margins_below_zero(base, data, tmp_path):
    rows = [{"prompt": f"Why {n}?", "chosen": "So.", "rejected": "No.", "margin": -1} for n in range(9)]
    file = write_jsonl(tmp_path / "odd.jsonl", rows)
    for loss in ("margin", "scaled", "soft"):
        refused(reward, reward_settings(base, data, tmp_path / "run", data=file, loss=loss), "margin is below 0")


def test_two_rewards_of_one_name(base, data, tmp_path):
    asked = evaluate.settings(
        model=model(base),
        prompts=data["prompts"],
        out=tmp_path / "run",
        reward=("given_rewards:vowels", "given_rewards:vowels"),
        quiet=True,
    )
    refused(evaluate, asked, "Two rewards are called 'vowels'")


def test_mistakes_end_with_status_2_and_one_sentence(base, data, tmp_path, capsys):
    words = ["improve", "--model", base, "--prompts", "nowhere.jsonl", "--reward", "a:b", "--out", str(tmp_path / "x")]
    assert main(words) == 2
    told = capsys.readouterr().err
    assert told.startswith("error: ")
    assert "nowhere.jsonl" in told
    assert "Traceback" not in told


def test_a_loss_that_is_no_number_keeps_the_last_good_checkpoint(base, data, tmp_path, monkeypatch):
    from tutelage.train.rl import update

    original, calls = update.objective, iter(range(100))

    def spoilt(*given, **more):
        value = original(*given, **more)
        return value * math.nan if next(calls) == 8 else value

    settings = improve_settings(
        base, data, tmp_path / "run", steps=4, checkpoints=config.Checkpoints(every=1), set=("update.epochs=4",)
    )
    monkeypatch.setattr(update, "objective", spoilt)
    refused(improve, settings, r"policy/objective became nan in step 3 on rows .*No weights were changed")
    kept = sorted(folder.name for folder in (tmp_path / "run" / "checkpoints").iterdir())
    assert kept == ["step-1", "step-2"]
    assert [row["step"] for row in read_jsonl(tmp_path / "run" / "metrics.jsonl")] == [1, 2]
