"""Runs of an earlier version whose final model is not the trained one: found by their files, mended by a checkpoint."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

import tutelage as tt
from tutelage.report import findings_in

TEXTS = [{"prompt": f"q{number}", "completion": f"answer {number}"} for number in range(6)]
TOKENS = torch.tensor([[40, 41, 42, 50, 60, 70]])


@pytest.fixture
def trained(tiny_model: Callable[..., str], tmp_path: Path) -> Callable[..., Path]:
    """`trained(family, targets)`: the folder of a run. With `wrong` its model/ is as an earlier version wrote it."""
    data = tmp_path / "data.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in TEXTS))

    def of(family: str, targets: str, *, wrong: bool = False, resume: bool = False, **shape: object) -> Path:
        base, out = tiny_model(family, **shape), tmp_path / f"{family}-{targets}"
        tt.sft(
            model=base, data=str(data), out=out, lora={"rank": 2, "targets": targets}, optimiser={"lr": 0.05},
            batch_size=3, held_out=0.0, samples=0, rouge=0, quiet=True, resume=resume,
        )  # fmt: skip
        if wrong:
            adapted = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), newest(out))
            adapted.merge_and_unload().save_pretrained(out / "model")
        return out

    return of


def newest(out: Path) -> Path:
    return max((out / "checkpoints").iterdir(), key=lambda path: int(path.name.removeprefix("step-")))


@torch.no_grad()
def logits(folder: Path) -> torch.Tensor:
    return AutoModelForCausalLM.from_pretrained(folder).eval()(input_ids=TOKENS).logits


@pytest.mark.parametrize(("family", "targets"), [("qwen3", "q_proj,lm_head"), ("gpt2", "wte")])
def test_a_wrong_model_is_found_and_written_anew_from_its_checkpoint(
    trained: Callable[..., Path], family: str, targets: str
) -> None:
    out = trained(family, targets, wrong=True)
    wrong = logits(out / "model")
    (finding,) = (one for one in findings_in(out) if one.subject == "Saved model")
    assert targets.split(",")[-1] in finding.sentence
    assert f"remove {out / 'summary.json'}" in finding.sentence
    assert "resume=True" in finding.sentence
    (out / "summary.json").unlink()
    trained(family, targets, resume=True)
    assert findings_in(out) == ()
    right = logits(out / "model")
    assert (right - wrong).abs().max() > 0.01
    torch.testing.assert_close(right, logits(newest(out)), rtol=1e-4, atol=1e-4)


def test_the_command_is_that_of_the_run_and_without_a_checkpoint_there_is_none(
    trained: Callable[..., Path],
) -> None:
    out = trained("gpt2", "lm_head", wrong=True)
    config = json.loads((out / "config.json").read_text())
    words = ["/usr/bin/tutelage", "sft", "--data", "my data.jsonl"]
    for resumed in ([], ["--resume"]):
        (out / "config.json").write_text(json.dumps(config | {"command": words + resumed}))
        (finding,) = findings_in(out)
        assert "`/usr/bin/tutelage sft --data 'my data.jsonl' --resume`" in finding.sentence
    (out / "checkpoints").rename(out / "gone")
    (finding,) = findings_in(out)
    assert finding.sentence.count("train it again") == 1


def test_right_models_are_passed_over(trained: Callable[..., Path]) -> None:
    for family, targets, shape in (
        ("gpt2", "c_attn,lm_head", {}),
        ("qwen3", "auto", {}),
        ("llama", "lm_head", {"tie_word_embeddings": False}),
    ):
        out = trained(family, targets, **shape)
        assert findings_in(out) == ()
        (out / "model" / "model.safetensors").write_bytes(b"\xff" * 20)
        assert findings_in(out) == (), "what cannot be read is no wrong model"
