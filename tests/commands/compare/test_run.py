"""The command that compares runs, and trainings with several seeds."""

import json
from pathlib import Path

import pytest
from offenders import for_each
from tiny_commands import files, write_jsonl

import tutelage as tt
from tutelage.base.errors import TutelageError
from tutelage.commands.line import main


@pytest.fixture
def evaluations(tmp_path: Path) -> list[str]:
    for name, shift in (("a", 0.0), ("b", 1.0)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps({"model": name}))
        (tmp_path / name / "summary.json").write_text(json.dumps({"model": {"words/mean": 3.0}}))
        rows = [{"prompt": str(i), "after": "", "gold_after": i % 3 + shift * (i % 2)} for i in range(12)]
        write_jsonl(tmp_path / name / "answers.jsonl", rows)
    return [str(tmp_path / "a"), str(tmp_path / "b")]


def test_tables_json_and_python_have_one_value(evaluations, tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["compare", *evaluations]) == 0
    assert "0.5 (0.168 to 0.832)" in capsys.readouterr().out
    assert (tmp_path / "compare.html").exists()
    assert main(["compare", *evaluations, "--json", "--out", "other.html"]) == 0
    value = json.loads(capsys.readouterr().out)
    assert (tmp_path / "other.html").read_text() == (tmp_path / "compare.html").read_text()
    comparison = tt.compare(runs=evaluations)
    assert json.loads(comparison.json()) == value
    assert comparison.tests[0].difference.value == 0.5


def test_names_and_values_are_no_markup(evaluations, tmp_path, capsys, monkeypatch) -> None:
    """Neither of rich nor of HTML."""
    monkeypatch.chdir(tmp_path)
    Path("a").rename("a[b]:bug:<b>")
    config, reward = tmp_path / "a[b]:bug:<b>" / "config.json", "rule:regex(pattern='[a-z]+[/b]')"
    config.write_text(json.dumps({"model": reward}))
    assert main(["compare", str(config.parent), "b"]) == 0
    printed = "".join(capsys.readouterr().out.split())
    assert reward in printed
    assert "a[b]:bug:<b>" in printed
    assert "<b>" not in (tmp_path / "compare.html").read_text().split("<h1>")[1].split("</h1>")[0]


@for_each([[], ["a"], ["a", "a"], ["a", "missing"]])
def test_what_is_refused_ends_with_status_2(words, evaluations, capsys) -> None:
    folder = Path(evaluations[0]).parent
    assert main(["compare", *(str(folder / word) for word in words)]) == 2
    assert "error: " in capsys.readouterr().err


def test_a_page_that_cannot_be_written(evaluations, tmp_path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TutelageError, match=r"file/page\.html"):
        tt.compare(runs=evaluations, out=tmp_path / "file" / "page.html")


def test_a_training_with_seeds_is_as_many_runs(tiny_model, tmp_path, capsys) -> None:
    """Each is the run of its seed, bit for bit; a second time, all are finished."""
    data = files(tmp_path / "data")
    common = ["sft", "--model", tiny_model("llama"), "--device", "cpu", "--data", str(data["sft"])]
    words = [*common, "--epochs", "1", "--quiet", "--seed", "3"]
    assert main([*words, "--out", str(tmp_path / "many"), "--seeds", "2"]) == 0
    assert "loss" in capsys.readouterr().out
    assert main([*words, "--out", str(tmp_path / "one")]) == 0

    def losses(folder: Path) -> list[float | None]:
        return [json.loads(row).get("loss") for row in (folder / "metrics.jsonl").read_text().splitlines()]

    assert losses(tmp_path / "many" / "seed-3") == losses(tmp_path / "one")
    assert losses(tmp_path / "many" / "seed-4") != losses(tmp_path / "one")
    assert (tmp_path / "many" / "compare.html").exists()
    assert main([*words, "--out", str(tmp_path / "many"), "--seeds", "2"]) == 0
    capsys.readouterr()
    assert main([*words, "--out", str(tmp_path / "planned"), "--seeds", "2", "--dry-run"]) == 0
    assert "thread" in capsys.readouterr().out
    assert not (tmp_path / "planned").exists()


def test_seeds_are_a_number(capsys) -> None:
    assert main(["sft", "--seeds", "none"]) == 2
    assert "--seeds is 'none'" in capsys.readouterr().err
