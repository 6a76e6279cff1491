"""Workflows that train: silent, typed, the same run as the command's, and open to whoever iterates over the steps."""

import json
import logging

import pytest
import torch
from huggingface_hub import ModelCard
from safetensors.torch import load_file, save_file
from tiny_commands import files, improve_settings, read_jsonl, reward_settings, sft_settings

import tutelage as tt
from tutelage.commands import runs
from tutelage.commands.table import find
from tutelage.data.formats import load_demonstrations
from tutelage.models import backbone
from tutelage.models import model_files as saving
from tutelage.models.policy import Policy
from tutelage.train.learner import Learner
from tutelage.train.supervised.batches import encode_demonstrations
from tutelage.train.supervised.language import divide, mean_loss

command = find("sft")


@pytest.fixture
def data(tmp_path):
    return files(tmp_path / "data")


def weights(out):
    return load_file(out / "model" / "model.safetensors")


def equal(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def steps(out):
    timed = ("seconds", "tokens_per_second")
    return [{k: v for k, v in row.items() if k not in timed} for row in read_jsonl(out / "metrics.jsonl")]


def test_the_command_the_workflow_and_its_steps_one_by_one_are_the_same_run(tiny_model, tmp_path, data, monkeypatch):
    """Bit for bit, and the steps that are yielded are the lines of metrics.jsonl."""
    base, typed, kept = tiny_model("llama"), tmp_path / "typed", tmp_path / "kept"
    settings = sft_settings(base, data, typed, epochs=2.0)
    result = tt.sft(settings)
    with monkeypatch.context() as patch:
        patch.setattr(Learner, "update", lambda self: pytest.fail("a finished run took a step"))
        assert tt.sft(settings) == result, "a finished run returns its result"
    assert command.main(sft_settings(base, data, tmp_path / "command", epochs=2.0)) == 0
    keywords = {k: v for k, v in vars(settings).items() if k != "out"}
    with tt.prepare_sft(tt.SftSettings(**keywords, out=kept)) as training:
        assert training.loop is not None
        seen = list(training)
        assert [step.index for step in seen] == list(range(1, training.loop.total + 1))
        assert not (kept / "summary.json").exists()
        assert training.finish().rows == result.rows == 18
    assert equal(weights(typed), weights(kept))
    assert equal(weights(typed), weights(tmp_path / "command"))
    assert steps(typed) == steps(kept) == steps(tmp_path / "command")
    lines = {row["step"]: row for row in read_jsonl(kept / "metrics.jsonl")}
    for step in seen:
        assert step.metrics.items() <= lines[step.index].items()


def test_a_workflow_prints_nothing_and_logs_its_remarks_even_that_its_card_could_not_be_written(
    tiny_model, tmp_path, data, capfd, caplog, monkeypatch
):
    def failing(folder):
        raise OSError("no space left")

    monkeypatch.setattr(runs, "write_model_card", failing)
    with caplog.at_level(logging.INFO, logger="tutelage"):
        tuned = tt.sft(sft_settings(tiny_model("llama"), data, tmp_path / "run", quiet=False))
    assert capfd.readouterr() == ("", "")
    assert "sft.jsonl: 20 of 20 rows" in caplog.text
    assert "--tokens-at-once" in caplog.text
    assert "no space left" in caplog.text
    assert tuned.load(device="cpu")


def test_the_results_say_what_the_folder_says(tiny_runs, tmp_path):
    chain = tiny_runs.copy(tmp_path)
    tuned, judged, improved = tt.sft(chain.sft), tt.reward(chain.reward), tt.improve(chain.improve)
    last = read_jsonl(tmp_path / "sft" / "metrics.jsonl")[-1]
    assert tuned.loss == last["held_out/loss"]
    assert tuned.perplexity == pytest.approx(2.718281828459045**tuned.loss)
    assert tuned.dropped == 0
    assert set(tuned.rouge) == {"rouge1", "rouge2", "rougeL"}
    assert judged.accuracy == json.loads((tmp_path / "reward" / "summary.json").read_text())["accuracy"]
    assert judged.accuracy_interval is not None
    assert judged.accuracy_interval[0] <= judged.accuracy <= judged.accuracy_interval[1]
    assert improved.score == read_jsonl(tmp_path / "improve" / "metrics.jsonl")[-1]["score/mean"]
    card = ModelCard.load(improved.model / "README.md").text
    stages = [line.split(". ")[1] for line in card.splitlines() if line.startswith("### ")]
    assert stages == ["sft: sft", "reward: reward", "improve: improve"]
    policy = improved.load(device="cpu")
    assert isinstance(policy, Policy)
    saved = weights(tmp_path / "improve")
    assert equal(saved, {name: policy.model.state_dict()[name] for name in saved})
    assert judged.load(device="cpu").parameters()


def test_rows_that_do_not_fit_are_counted_in_the_result(tiny_model, tmp_path, data):
    long = [{"prompt": f"{n} " + "word " * 200} for n in range(2)]
    file = tmp_path / "long.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in [*long, *read_jsonl(data["prompts"])]))
    result = tt.improve(improve_settings(tiny_model("llama"), data, tmp_path / "run", prompts=str(file)))
    assert result.dropped == 2


def test_the_steps_of_a_finished_run_are_none(tiny_runs, tmp_path):
    settings = tiny_runs.copy(tmp_path).sft
    with tt.prepare_sft(settings) as training:
        assert training.loop is None
        assert list(training) == []
        result = training.finish()
    assert result == tt.sft(settings)


def test_a_run_whose_reader_stops_goes_on_from_its_checkpoint(tiny_model, tmp_path, data):
    """Leaving the loop early loses nothing that was saved: the rest, taken later, gives the run that was not left."""
    base = tiny_model("llama")
    whole = {"epochs": 3.0, "checkpoints": tt.Checkpoints(every=2)}
    tt.sft(sft_settings(base, data, tmp_path / "whole", **whole))
    with tt.prepare_sft(sft_settings(base, data, tmp_path / "left", **whole)) as training:
        for step in training:
            if step.index == 3:
                break
    assert not (tmp_path / "left" / "summary.json").exists()
    tt.sft(sft_settings(base, data, tmp_path / "left", resume=True, **whole))
    assert equal(weights(tmp_path / "whole"), weights(tmp_path / "left"))
    assert steps(tmp_path / "whole") == steps(tmp_path / "left")


def test_evaluations_read_a_bounded_part_of_the_held_out_rows_and_training_is_the_same(tiny_model, tmp_path, data):
    """Evaluated rows are evenly spaced over the held-out ones; the others stay held out."""
    base, held = tiny_model("llama"), {"held_out": 0.4, "epochs": 2.0}
    for most in (0, 3, 100):
        tt.sft(sft_settings(base, data, tmp_path / str(most), evaluate_rows=most, **held))
    assert equal(weights(tmp_path / "0"), weights(tmp_path / "3"))
    losses = [
        [row["held_out/loss"] for row in steps(tmp_path / str(most)) if "held_out/loss" in row] for most in (0, 3)
    ]
    assert losses[0] != losses[1]
    assert steps(tmp_path / "0") == steps(tmp_path / "100")
    policy = Policy(backbone.load_backbone(tt.Model(str(base), device="cpu")))
    rows = load_demonstrations(data["sft"]).records
    aside = [rows[i] for i in divide(len(rows), 0.4, 0)[1]]
    spaced = encode_demonstrations([aside[0], aside[2], aside[5]], policy.tokenizer, 64)[0]
    assert len(aside) == 8
    assert losses[1][0] == pytest.approx(mean_loss(policy, spaced, 100), rel=1e-5)


@pytest.mark.parametrize("command", ["sft", "reward"])
def test_a_run_whose_saved_model_is_not_the_trained_one_stays_unfinished(
    tiny_model, tmp_path, data, monkeypatch, command
):
    """And ends well once that is mended, with the model that it would have had."""
    run, make = {"sft": (tt.sft, sft_settings), "reward": (tt.reward, reward_settings)}[command]
    base, out = tiny_model("gpt2"), tmp_path / "run"

    def save_files(model, tokenizer, folder, **more):
        saving.save_files(model, tokenizer, folder, **more)
        if folder.name == ".model":
            tensors = load_file(folder / "model.safetensors")
            tensors["transformer.wpe.weight"][:9] *= 2
            save_file(tensors, folder / "model.safetensors", {"format": "pt"})

    with monkeypatch.context() as patch:
        patch.setattr(backbone, "save_files", save_files)
        with pytest.raises(tt.TutelageError, match=r"not the one that was trained.*checkpoints/step-\d+\.$"):
            run(make(base, data, out))
    assert not {"summary.json", "model", ".model"} & {file.name for file in out.iterdir()}
    run(make(base, data, out, resume=True))
    run(make(base, data, tmp_path / "undisturbed"))
    assert equal(weights(out), weights(tmp_path / "undisturbed"))
