"""Runs of `improve` written down for verl and OpenRLHF: the script says what the settings say, the reward scores."""

import importlib.util
import json
import subprocess

import pytest
import tiny
import torch
from gguf import GGUFReader

import tutelage as tt
from tutelage.base import config
from tutelage.base.errors import TutelageError
from tutelage.commands import line as cli
from tutelage.commands.export.run import export
from tutelage.data.records import Message, Prompt
from tutelage.models.backbone import load_backbone
from tutelage.models.policy import Policy
from tutelage.rewards.single_score import ExportedReward, prompt_text

ROWS = [
    {"prompt": "2 + 2?", "answer": "4"},
    {"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Of?"}], "answer": "Rome"},
]


@pytest.fixture
def given(tiny_model, tmp_path):
    file = tmp_path / "prompts.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    model = tiny_model("llama", words={"chat": True})
    return {
        "model": model,
        "prompts": str(file),
        "reward": "rule:exact=2",
        "recipe": "grpo",
        "out": tmp_path / "a folder",
    }


def words_of(launch, program):
    """The words that a launch script starts its program with."""
    script = launch.read_text().replace(f"python3 -m {program}", "printf '%s\\n'")
    done = subprocess.run(["bash", "-c", script, launch, "more=1"], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def module_of(file):
    spec = importlib.util.spec_from_file_location(file.stem, file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def lines_of(folder):
    return [json.loads(line) for line in (folder / "prompts.jsonl").read_text().splitlines()]


def test_verl_gets_every_setting_as_one_word_and_the_reward_of_the_run(given):
    result = export(**given, to="verl", set=("shaping.scale=0.5", "shaping.missing_end=none"))
    words = words_of(result.launch, "verl.trainer.main_ppo")
    assert words[-1] == "more=1", "words behind the script are settings too"
    settings = dict(word.split("=", 1) for word in words)
    assert settings["data.train_files"] == str(given["out"] / "prompts.jsonl")
    assert settings["actor_rollout_ref.actor.optim.betas"] == "[0.9,0.999]"
    assert settings["actor_rollout_ref.rollout.n"] == "8"
    reward = module_of(given["out"] / settings["reward.custom_reward_function.path"])
    first, second = lines_of(given["out"])
    assert first["prompt"] == [{"role": "user", "content": "2 + 2?"}]
    assert reward.compute_score("tutelage", "4", "", first["extra_info"]) == 0.5 * 2
    assert reward.compute_score("tutelage", "5", "", first["extra_info"]) == 0.0
    assert reward.compute_score("tutelage", "Rome", "", second["extra_info"]) == 0.5 * 2
    assert result.differences == ("The learning rate stays constant after its warm-up: verl has no linear decay.",)


def test_openrlhf_gets_flags_and_a_reward_that_finds_the_answer_in_the_text(given):
    result = export(**given, to="openrlhf")
    words = words_of(result.launch, "openrlhf.cli.train_ppo_ray")
    assert words[words.index("--data.prompt_dataset") + 1] == str(given["out"] / "prompts.jsonl")
    assert words[words.index("--actor.adam.betas") + 1 :][:2] == ["0.9", "0.999"]
    assert "--data.apply_chat_template" in words
    assert "True" not in words
    reward = module_of(given["out"] / "reward.py")
    (row, _) = lines_of(given["out"])
    prompt = "<|im_start|>user\n2 + 2?<|im_end|>\n<|im_start|>assistant\n"
    assert reward.reward_func([f"{prompt}4<|im_end|>"], [prompt], [row["label"]])["rewards"] == 2.0
    with pytest.raises(ValueError, match="does not hold its prompt"):
        reward.reward_func(["4"], [prompt], [row["label"]])


def test_a_reward_model_alone_is_the_trainers_own(given, tiny_model):
    folder = tiny_model("llama", words={"chat": True})
    export(**given | {"reward": folder}, to="verl")
    launch = (given["out"] / "launch.sh").read_text()
    assert f"reward.reward_model.model_path={folder}" in launch
    assert not (given["out"] / "reward.py").exists()
    export(**given | {"reward": folder}, to="verl", set=("shaping.clip=1",))
    assert (given["out"] / "reward.py").exists(), "the trainers would not clip its score"


def test_a_model_without_a_chat_template_is_refused(given, tiny_model):
    with pytest.raises(TutelageError, match="no chat template, which verl needs for prompts"):
        export(**given | {"model": tiny_model("llama")}, to="verl")


def test_an_exported_prompt_keeps_its_conversation_and_its_columns():
    prompt = Prompt("p", (Message("system", "Ü"), Message("user", "2 + 2?")), data={"answer": "4"})
    reward = ExportedReward(["rule:exact"], "unused", scale=3.0, clip=2.0)
    assert reward(prompt_text(prompt), "4") == 2.0


@pytest.fixture
def adapter(tiny_model, tmp_path):
    """The folder of an adapter as a run leaves it, with weights that change answers."""
    base = tiny_model("llama", words={"chat": True})
    policy = Policy(load_backbone(config.Model(base, device="cpu"), config.Lora(rank=2)))
    tiny.roughen(policy.model)
    policy.save(tmp_path / "runs/ppo/model")
    return str(tmp_path / "runs/ppo/model")


def answers_of(model, prompts, out):
    tt.sample(model=model, prompts=str(prompts), out=out, n=3, sampling={"max_new_tokens": 12}, seed=3, quiet=True)
    rows = map(json.loads, (out / "completions.jsonl").read_text().splitlines())
    return [(row["prompt_id"], row["text"], row["finished"]) for row in rows]


def test_the_exported_file_answers_as_the_run_does(adapter, tmp_path, capsys):
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"prompt": "Why is the sky blue?"}\n{"prompt": "What is rain?"}\n')
    file = tmp_path / "deep/policy.gguf"
    words = ["export", "--to", "gguf", "--model", adapter, "--out", str(file), "--weights", "f32"]
    assert cli.main(words) == 0
    said = capsys.readouterr().out
    count = sum(p.numel() for p in load_backbone(config.Model(adapter, device="cpu")).model.parameters())
    assert f"{file}: {count:,} weights as f32" in said
    assert GGUFReader(file).get_field("general.name").contents() == "ppo"
    before = answers_of(adapter, prompts, tmp_path / "before")
    assert answers_of(str(file), prompts, tmp_path / "after") == before
    assert len(set(before)) == 6


def test_an_adapter_is_merged_and_eight_bits_stay_near(adapter, tmp_path):
    result = tt.export_gguf(model=adapter, out=tmp_path / "policy.gguf", weights="q8_0", quiet=True)
    assert result.size == result.file.stat().st_size
    tokens = torch.arange(60)[None]
    with torch.no_grad():
        ours, file = (
            load_backbone(config.Model(path, device="cpu", engine="plain")).model(tokens).logits
            for path in (adapter, str(result.file))
        )
    torch.testing.assert_close(file, ours, rtol=0, atol=0.1)
    assert not torch.equal(file, ours)


def test_a_name_that_is_no_gguf_file_is_refused_before_anything_is_loaded(tmp_path):
    for out in (tmp_path / "model", tmp_path):
        with pytest.raises(TutelageError, match=r"is not the name of a \.gguf file, such as"):
            tt.export_gguf(model="nothing", out=out)


def test_a_value_of_to_chooses_the_flags(tmp_path, capsys):
    for words in (["--to", "gguf"], ["--to=gguf"]):
        with pytest.raises(SystemExit):
            cli.main(["export", *words, "--help"])
        assert "--weights {f32,f16,bf16,q8_0}" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        cli.main(["export", "--help"])
    said = capsys.readouterr().out
    assert "--to {verl,openrlhf}" in said
    assert "--weights {" not in said
