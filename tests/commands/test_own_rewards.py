"""A function of completions, from a flag: every verb gives it the whole conversation and the row's own columns."""

import gzip
import json

import pyarrow
import pytest
from own_rewards import worth
from pyarrow import parquet
from tiny_verbs import improve_settings, model, read_jsonl, write_jsonl

from tutelage import config
from tutelage.cli import main
from tutelage.commands import evaluate, improve, sample
from tutelage.data.formats import load_prompts

REWARD = "own_rewards:talk"


def row(number):
    """A conversation whose system message, first turn and level are of another length in every row."""
    turns = ["Be" + "!" * number, "Hi" + "." * (2 * number), "Hello", f"Why {number}?"]
    roles = ["system", "user", "assistant", "user"]
    messages = [{"role": role, "content": text} for role, text in zip(roles, turns, strict=True)]
    return {"id": f"p{number}", "messages": messages, "level": number, "tags": [number]}


ROWS = [row(number) for number in range(4)]


def written(folder, ending):
    path = folder / f"prompts{ending}"
    if ending == ".parquet":
        parquet.write_table(pyarrow.Table.from_pylist(ROWS), path)
    elif ending == ".jsonl.gz":
        path.write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in ROWS).encode()))
    else:
        write_jsonl(path, ROWS)
    return str(path)


def expected(number, answer):
    return worth(ROWS[number], [turn["content"] for turn in ROWS[number]["messages"]], answer)


@pytest.mark.parametrize("ending", [".jsonl", ".jsonl.gz", ".parquet"])
def test_improve_learns_from_a_function_of_the_whole_conversation(tiny_model, tmp_path, ending):
    out = tmp_path / "run"
    given = {"prompts": written(tmp_path, ending)}
    settings = improve_settings(
        tiny_model("llama"), given, out, reward=(REWARD,), recipe="grpo", set=("samples=2",)
    )
    assert improve.main(settings) == 0
    rows = read_jsonl(out / "samples.jsonl")
    assert rows
    for row in rows:
        number = int(row["prompt"].removeprefix("Why ").removesuffix("?"))
        assert row["score"] == pytest.approx(expected(number, row["completion"]), rel=1e-6)


def test_improve_takes_it_from_the_command_line_with_a_weight_beside_one_of_texts(tiny_model, tmp_path):
    words = [
        "improve",
        "--model",
        str(tiny_model("llama")),
        "--model.device",
        "cpu",
        "--out",
        str(tmp_path / "run"),
    ]
    words += ["--prompts", written(tmp_path, ".jsonl"), "--reward", f"{REWARD}=2", "given_rewards:length=-1"]
    words += ["--steps", "1", "--batch-size", "4", "--sampling.max-new-tokens", "6", "--quiet"]
    assert main(words) == 0
    for row in read_jsonl(tmp_path / "run" / "samples.jsonl"):
        number = int(row["prompt"].removeprefix("Why ").removesuffix("?"))
        wanted = 2 * expected(number, row["completion"]) - len(row["completion"])
        assert row["score"] == pytest.approx(wanted, rel=1e-6)


def test_the_best_of_many_are_chosen_by_it_and_the_columns_are_written(tiny_model, tmp_path):
    source = written(tmp_path, ".jsonl")
    settings = sample.Settings(
        model=model(tiny_model("llama")),
        prompts=source,
        out=tmp_path / "out",
        n=2,
        best_of=4,
        reward=(REWARD,),
        sampling=config.Sampling(max_new_tokens=6),
        quiet=True,
    )
    assert sample.main(settings) == 0
    for row in read_jsonl(tmp_path / "out" / "completions.jsonl"):
        number = int(row["prompt_id"].removeprefix("p"))
        assert row["score"] == pytest.approx(expected(number, row["text"]), rel=1e-6)
    again = load_prompts(tmp_path / "out" / "prompts.jsonl").records
    assert again == load_prompts(source).records
    assert [prompt.data for prompt in again] == [{"level": n, "tags": [n]} for n in range(4)]


def test_evaluate_scores_by_it(tiny_model, tmp_path):
    settings = evaluate.Settings(
        model=model(tiny_model("llama")),
        prompts=written(tmp_path, ".jsonl"),
        out=tmp_path / "out",
        reward=(f"worth={REWARD}",),
        sampling=config.Sampling(max_new_tokens=6),
        quiet=True,
    )
    assert evaluate.main(settings) == 0
    for number, row in enumerate(read_jsonl(tmp_path / "out" / "answers.jsonl")):
        assert row["worth_after"] == pytest.approx(expected(number, row["after"]), rel=1e-6)


def test_a_function_of_three_arguments_is_refused_before_the_run_begins(tiny_model, tmp_path, capsys):
    words = [
        "improve",
        "--model",
        str(tiny_model("llama")),
        "--model.device",
        "cpu",
        "--out",
        str(tmp_path / "run"),
    ]
    words += ["--prompts", written(tmp_path, ".jsonl"), "--reward", "own_rewards:three", "--quiet"]
    words += ["--sampling.max-new-tokens", "6"]
    assert main(words) == 2
    assert "own_rewards:three asks for prompts, answers, scores" in capsys.readouterr().err
