"""Live conversations on the command line: made, talked in by simulated raters, exported, and changed."""

import json
from pathlib import Path
from typing import Any

import pytest
from offenders import for_each
from served import serving

from tutelage.commands.line import main
from tutelage.people import list_questions, open_store, open_study
from tutelage.people.store.conversations import find_live_models

Captured = pytest.CaptureFixture[str]


def run(capsys: Captured, *words: object) -> tuple[int, str, str]:
    try:
        status = main(["collect", *map(str, words)])
    except SystemExit as stop:
        status = int(stop.code or 0)
    said = capsys.readouterr()
    return status, said.out, said.err


def answer(body: dict[str, Any], number: int) -> str:
    """An endpoint with two models, of which the one named good is good."""
    text = f"{body['model']} on {body['messages'][-1]['content']}"
    chunk = {"choices": [{"delta": {"content": text}, "finish_reason": "stop"}]}
    return f"data: {json.dumps(chunk)}\n\n"


def test_simulated_raters_talk_and_every_turn_is_exported(
    tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "fond_of_good.py").write_text(
        "def value(prompts, completions):\n    return [9.0 if c.startswith('good') else -9.0 for c in completions]\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    openings = tmp_path / "openings.jsonl"
    openings.write_text('{"prompt": "Why is the sky blue?"}\n{"prompt": "What is rain?"}\n')
    study, out = tmp_path / "study", tmp_path / "out"
    with serving(answer) as served:
        models = ("--model", f"{served.url}#good", "--against", f"{served.url}#bad")
        more = ("--prompts", openings, "--turns", "2", "--sampling.temperature", "0.7", "--sampling.stop", "END")
        status, told, err = run(capsys, "init", study, "--live", *models, *more)
        assert (status, err) == (0, "")
        assert f"raters talk to {served.url}#good and {served.url}#bad, for 2 turns at most" in told
        assert "as before" in run(capsys, "init", study, "--live", *models, *more)[1]
        status, _, err = run(capsys, "simulate", study, "--gold", "fond_of_good:value", "--raters", "2")
        assert status == 2
        assert "Live conversations never end by themselves" in err
        work = ("--gold", "fond_of_good:value", "--raters", "3", "--answers", "3")
        status, told, err = run(capsys, "simulate", study, *work)
        assert status == 0
        assert all(line.startswith("answers") for line in err.splitlines()), "nothing but its progress"
        assert "9 answers" in told
    asked = [body for body in served.asked if "messages" in body]
    assert {body["temperature"] for body in asked} == {0.7}
    assert {body["max_tokens"] for body in asked} == {64}
    assert all(body["stop"] == ["END"] and "top_k" not in body for body in asked)
    assert {body["messages"][0]["content"] for body in asked} <= {"Why is the sky blue?", "What is rain?"}
    assert run(capsys, "export", study, "--out", out, "--kinds", "simulated")[0] == 0
    rows = [json.loads(line) for line in (out / "preferences.jsonl").read_text().splitlines()]
    assert len(rows) >= 6  # one or the other may have been asked about twice, or found equal
    for row in rows:
        said = [text if isinstance(text, str) else text[0]["content"] for text in (row["chosen"], row["rejected"])]
        names = [row[name].partition("#")[2] for name in ("chosen_model", "rejected_model")]
        assert [text.split()[0] for text in said] == names
    shown = [json.loads(line) for line in (out / "demonstrations.jsonl").read_text().splitlines()]
    assert len(shown) == sum(row["p_chosen"] > 0.5 for row in rows)  # turns found equal show nothing
    assert run(capsys, "import", tmp_path / "copy", out)[0] == 0
    with_copy = open_store(tmp_path / "copy" / "study.sqlite")
    assert len(list_questions(with_copy, open_study(with_copy).id)) >= 6
    with_copy.close()


def test_one_model_may_talk_on_both_sides(tmp_path: Path, capsys: Captured) -> None:
    study = tmp_path / "study"
    assert run(capsys, "init", study, "--live", "--model", "http://host/v1#m", "--round", "3")[0] == 0
    store = open_store(study / "study.sqlite")
    made = open_study(store)
    live = find_live_models(store, made.id)
    store.close()
    assert live is not None
    assert (live.names, live.turns, live.round) == (("http://host/v1#m", "http://host/v1#m"), 4, 3)
    assert made.plan.overlap == 1


@for_each(
    [
        ("init x --live", "--live needs --model"),
        ("init x --live --model m --from-pairs a.jsonl", "--from-pairs cannot be used with --live"),
        ("init x --live --model m --kind ranking", "--kind cannot be used with --live"),
        ("init x --live --model m --pairs 2", "--pairs cannot be used with --live"),
        ("init x --live --model m --turns 0", "turns is 0"),
        ("init x --live --model m --prompts talks.jsonl", "has 3 messages; a suggestion"),
        ("init x --from-pairs a.jsonl --turns 3", "--turns applies to live conversations"),
    ]
)
def test_mistakes_are_told_and_make_nothing(
    words: str, message: str, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    turns = [{"role": role, "content": "text"} for role in ("user", "assistant", "user")]
    Path("talks.jsonl").write_text(json.dumps({"messages": turns}) + "\n")
    status, _, err = run(capsys, *words.split())
    assert status == 2
    assert message in err
    assert not Path("x").exists()
