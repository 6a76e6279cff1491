"""A function of completions, from a flag: every command gives it the whole conversation and the row's own columns."""

import gzip
import inspect
import json

import pyarrow
import pytest
from offenders import for_each
from own_rewards import without_its_column, worth
from pyarrow import parquet
from served import choices, serving
from tiny_commands import improve_settings, model, read_jsonl, write_jsonl

from tutelage.base import config
from tutelage.commands.line import main
from tutelage.commands.table import find
from tutelage.data.formats import load_prompts

evaluate = find("evaluate")
improve = find("improve")
sample = find("sample")

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


@for_each([".jsonl", ".jsonl.gz", ".parquet"])
def test_improve_learns_from_a_function_of_the_whole_conversation(ending, tiny_model, tmp_path):
    out = tmp_path / "run"
    given = {"prompts": written(tmp_path, ending)}
    settings = improve_settings(tiny_model("llama"), given, out, reward=(REWARD,), recipe="grpo", set=("samples=2",))
    assert improve.main(settings) == 0
    rows = read_jsonl(out / "samples.jsonl")
    assert rows
    for row in rows:
        number = int(row["prompt"].removeprefix("Why ").removesuffix("?"))
        assert row["score"] == pytest.approx(expected(number, row["completion"]), rel=1e-6)


def test_improve_takes_it_from_the_command_line_with_a_weight_beside_one_of_texts(tiny_model, tmp_path):
    words = ["improve", "--model", str(tiny_model("llama")), "--model.device", "cpu", "--out", str(tmp_path / "run")]
    words += ["--prompts", written(tmp_path, ".jsonl"), "--reward", f"{REWARD}=2", "given_rewards:length=-1"]
    words += ["--steps", "1", "--batch-size", "4", "--sampling.max-new-tokens", "6", "--quiet"]
    assert main(words) == 0
    for row in read_jsonl(tmp_path / "run" / "samples.jsonl"):
        number = int(row["prompt"].removeprefix("Why ").removesuffix("?"))
        wanted = 2 * expected(number, row["completion"]) - len(row["completion"])
        assert row["score"] == pytest.approx(wanted, rel=1e-6)


def test_the_best_of_many_are_chosen_by_it_and_the_columns_are_written(tiny_model, tmp_path):
    source = written(tmp_path, ".jsonl")
    settings = sample.settings(
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
    settings = evaluate.settings(
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
    words = ["improve", "--model", str(tiny_model("llama")), "--model.device", "cpu", "--out", str(tmp_path / "run")]
    words += ["--prompts", written(tmp_path, ".jsonl"), "--reward", "own_rewards:three", "--quiet"]
    words += ["--sampling.max-new-tokens", "6"]
    assert main(words) == 2
    assert "own_rewards:three asks for prompts, answers, scores" in capsys.readouterr().err


def test_rules_are_rewards_and_a_missing_column_ends_the_run_before_it_begins(tiny_model, tmp_path, capsys):
    rows = [{"prompt": f"What is {number} + 1?", "answer": number + 1} for number in range(20)]
    prompts = write_jsonl(tmp_path / "sums.jsonl", rows)
    out = tmp_path / "run"
    words = f"improve --model {tiny_model('llama')} --prompts {prompts} --out {out} --recipe grpo --set samples=2"
    small = "--steps 1 --batch-size 2 --sampling.max-new-tokens 4 --device cpu --quiet"
    rules = ["rule:number", "rule:format=.1", "rule:length(limit=2, unit=tokens)=-1"]
    assert main([*words.split(), *small.split(), "--reward", *rules]) == 0
    (step,) = read_jsonl(out / "metrics.jsonl")
    parts = {name: step[f"score/{name}/mean"] for name in ("number", "format", "length")}
    assert step["score/mean"] == pytest.approx(parts["number"] + 0.1 * parts["format"] - parts["length"], abs=1e-6)
    del rows[16]["answer"]
    write_jsonl(tmp_path / "sums.jsonl", rows)
    missing = tmp_path / "missing"
    assert main([*words.replace(str(out), str(missing)).split(), *small.split(), "--reward", *rules]) == 2
    assert "rule:number reads the column 'answer', which line 17 of" in capsys.readouterr().err
    assert not missing.exists()


@pytest.fixture
def words(tiny_model, tmp_path):
    """`words(command, reward)`: a small call of a command that scores answers by a function."""
    small = ["--sampling.max-new-tokens", "6", "--device", "cpu", "--engine", "plain", "--quiet"]
    more = {
        "improve": ("--steps 1 --batch-size 4 --recipe grpo --set samples=2 --reward", ""),
        "sample": ("--n 1 --best-of 3 --reward", ""),
        "evaluate": ("--reward", "worth="),
        "rejection": ("--samples 3 --rounds 1 --prompts-per-round 4 --batch-size 2 --reward", ""),
    }

    def words(command, reward):
        flags, name = more[command]
        files = ["--prompts", written(tmp_path, ".jsonl"), "--out", str(tmp_path / command)]
        model = ["--model", str(tiny_model("llama"))]
        return [command, *model, *files, *small, *flags.split(), f"{name}own_rewards:{reward}"]

    return words


@pytest.mark.parametrize("command", ["improve", "sample", "evaluate", "rejection"])
def test_an_exception_keeps_the_file_and_line_of_the_user(words, capsys, command):
    line = inspect.getsourcelines(without_its_column)[1] + 2
    assert main(words(command, "without_its_column")) == 2
    said = capsys.readouterr().err
    assert f"own_rewards:without_its_column raised KeyError: 'topic' (own_rewards.py:{line})." in said
    assert "Traceback" not in said


@pytest.mark.parametrize("kind", ["tensor", "tensor_with_gradient", "numpy_booleans", "array_of_booleans"])
def test_tensors_and_booleans_of_numpy_are_scores(words, tmp_path, kind):
    assert main(words("improve", kind)) == 0
    rows = read_jsonl(tmp_path / "improve" / "samples.jsonl")
    assert rows
    assert [row["score"] for row in rows] == [float(len(row["completion"]) % 2 == 0) for row in rows]


def test_a_judge_trains_and_is_counted(tiny_model, tmp_path):
    """The judge prefers the longer answer, so that comparisons in both orders agree."""

    def longer(body, number):
        said = body["messages"][0]["content"]
        first, second = (
            said.partition(f"[Response {side}]\n")[2].partition(f"\n[End of response {side}]")[0] for side in "AB"
        )
        return choices("[[A]]" if len(first) > len(second) else "[[B]]" if len(second) > len(first) else "[[C]]")

    prompts = write_jsonl(tmp_path / "prompts.jsonl", [{"prompt": f"Why {number}?"} for number in range(4)])
    out = tmp_path / "run"
    with serving(longer) as served:
        judge = tmp_path / "judge.toml"
        judge.write_text(
            f'url = "{served.url}"\nmodel = "m"\nrubric = "Say much."\nby = "tournament"\nreplies = "kept.jsonl"\n'
            "price_read = 1.0\n"
        )
        words = f"improve --model {tiny_model('llama')} --prompts {prompts} --out {out} --recipe grpo --set samples=4"
        small = "--steps 2 --batch-size 2 --sampling.max-new-tokens 6 --device cpu --quiet"
        assert main([*words.split(), *small.split(), "--reward", f"judge:{judge}"]) == 0
    steps = read_jsonl(out / "metrics.jsonl")
    assert steps[-1]["judge/requests"] == len(served.asked) == len(read_jsonl(tmp_path / "kept.jsonl"))
    assert steps[-1]["judge/cost"] > steps[0]["judge/cost"] > 0
    assert 0 < steps[0]["score/mean"] < 1
