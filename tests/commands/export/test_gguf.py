"""A trained policy as a GGUF file, and the file as a model again."""

import json

import pytest
import tiny
import torch
from gguf import GGUFReader

import tutelage as tt
from tutelage.base import config
from tutelage.base.errors import TutelageError
from tutelage.commands import line as cli
from tutelage.models.backbone import load_backbone
from tutelage.models.policy import Policy


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
