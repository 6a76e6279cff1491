"""`tutelage plan`, and `--dry-run`."""

import json
import subprocess
import sys

import pytest

from tutelage.commands.line import main

WORDS = ["--prompts", "no.jsonl", "--reward", "own:reward", "--recipe", "grpo", "--prompt-tokens", "30"]


def printed(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    assert main(list(words)) == code
    return capsys.readouterr().out


def test_a_dry_run_is_the_plan_of_the_same_flags(tiny_model, capsys):
    words = ["--model", tiny_model("llama"), *WORDS, "--gpu", "h100", "--gpus", "2", "--price", "3"]
    text = printed(capsys, "plan", "improve", *words)
    assert text == printed(capsys, "improve", *words, "--dry-run")
    assert text == printed(capsys, "improve", *words, "--dry-run", "--processes", "2")
    for part in ("weights", "moments", "kv cache", "decode", "It fits", "Cost:", "shard full"):
        assert part in text
    told = json.loads(printed(capsys, "improve", "--dry-run", *words, "--json"))
    assert told["devices"] == 2
    assert told["fits"]


def test_every_command_that_trains_has_a_plan(tiny_model, capsys):
    model = ["--model", tiny_model("gpt2"), "--prompt-tokens", "20", "--response-tokens", "10", "--gpu", "l4"]
    for command in ("sft", "reward", "dpo"):
        assert "It fits" in printed(capsys, "plan", command, *model, "--data", "no.jsonl")
    rounds = ["--prompts", "no.jsonl", "--reward", "own:reward"]
    assert "decode" in printed(capsys, "plan", "rejection", *model, *rounds)
    taught = ["--teacher", tiny_model("llama"), "--prompts", "no.jsonl"]
    assert "scoring" in printed(capsys, "plan", "distill", *model, *taught)
    assert "update" in printed(capsys, "plan", "pretrain", "--data", "no.txt", "--gpu", "l4")


def test_what_does_not_fit_ends_with_status_1_and_says_what_would(tmp_path, capsys):
    (tmp_path / "config.json").write_text(
        json.dumps(
            {
                "model_type": "llama",
                "hidden_size": 8192,
                "intermediate_size": 28_672,
                "num_hidden_layers": 80,
                "num_attention_heads": 64,
                "num_key_value_heads": 8,
                "vocab_size": 128_256,
            }
        )
    )
    words = ["plan", "improve", "--model", str(tmp_path), *WORDS, "--gpu", "h100"]
    text = printed(capsys, *words, code=1)
    assert "It does not fit" in text
    assert "such devices beside servers for the responses (--servers)" in text
    natural = printed(capsys, *words, "--recipe", "trpo", "--gpus", "8", code=1)
    assert "more such devices do not help: each would need the whole model" in natural
    assert "† computed for comparison" in natural


def test_the_help_of_plan_starts_no_torch():
    code = "import sys; from tutelage.commands.line import main; main(['plan']); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.rstrip().endswith("False")
