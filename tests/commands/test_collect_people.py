"""People of a study on the command line: recruiting and paying them, their languages, what they say of themselves."""

import json
from contextlib import closing
from pathlib import Path

import pytest

from tutelage.commands.line import main
from tutelage.data.records import Comparison, CompletionRecord, Prompt, user
from tutelage.people import (
    Answer,
    Plan,
    add_items,
    add_rater,
    create_study,
    next_assignment,
    open_store,
    open_study,
    submit,
)
from tutelage.people.store.raters import list_raters


@pytest.fixture
def study(tmp_path: Path) -> str:
    store = open_store(tmp_path / "study.sqlite")
    made = create_study(store, "tutoring", plan=Plan(overlap=2, gold_rate=0, repeat_rate=0))
    numbers = range(30)
    add_items(
        store,
        made.id,
        [Prompt(f"p{n}", user(f"Question {n}?")) for n in numbers],
        [CompletionRecord(f"p{n}{side}", f"p{n}", f"{side} {n}", "model") for n in numbers for side in "ab"],
        [Comparison(f"c{n}", f"p{n}", f"p{n}a", f"p{n}b") for n in numbers],
    )
    store.close()
    return str(tmp_path)


def test_recruiting_is_set_in_parts_and_tells_link_and_cost(
    study: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    recruit = ["collect", "recruit", study]
    assert main(recruit) == 2
    assert "--platform" in capsys.readouterr().err
    assert main([*recruit, "--platform", "prolific", "--code", "A"]) == 2
    assert "screen-out" in capsys.readouterr().err
    codes = ["--code", "A", "--screened-code", "B", "--answers", "20"]
    assert main([*recruit, "--platform", "prolific", *codes]) == 0
    assert "/enter/" in capsys.readouterr().out
    assert main([*recruit, "--pay", "12", "--fee", "0.25", "--seconds", "60", "--currency", "GBP"]) == 0
    told = capsys.readouterr().out
    assert "60 answers in 3 visits, 1.0 hours: 12.00 pay + 3.00 fee = 15.00 GBP" in told
    assert main(["collect", "payments", study, "--out", str(tmp_path / "pay.csv")]) == 0
    assert (tmp_path / "pay.csv").read_text().startswith("rater,platform,worker,")
    assert main(["collect", "payments", study, "--out", str(tmp_path / "pay.csv")]) == 2


def test_consent_and_forgetting(study: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    text = tmp_path / "consent.md"
    text.write_text("# Yours\n\nYou may go at any time.")
    assert main(["collect", "consent", study, "--text", str(text), "--votes", "erase"]) == 0
    assert "version 1; votes of who is forgotten: erase" in capsys.readouterr().out
    assert main(["collect", "consent", study, "--retention-days", "30"]) == 0
    assert "version 2" in capsys.readouterr().out
    with closing(open_store(tmp_path / "study.sqlite")) as store:
        add_rater(store, open_study(store).id, "Anna")
    assert main(["collect", "forget", study]) == 2
    assert main(["collect", "forget", study, "Berta"]) == 2
    kept, gone = tmp_path / "elsewhere" / "one.backup", tmp_path / "two.backup"
    for path in (kept, gone):
        assert main(["collect", "backup", study, "--out", str(path)]) == 0
    gone.unlink()
    capsys.readouterr()
    assert main(["collect", "forget", study, "anna"]) == 0
    told = capsys.readouterr().out
    assert "votes" in told
    assert f"still contains the rater: {kept}" in told  # a file that has gone holds nobody any more
    assert str(gone) not in told
    assert main(["collect", "forget", study, "--due"]) == 0
    assert "No rater is due" in capsys.readouterr().out


def test_runs_that_learnt_from_a_forgotten_rater_are_listed(
    study: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """From the study itself, from an export, and from another such run; not those of the time before, of other studies
    or without either."""
    runs = tmp_path / "runs"

    def trained(name: str, record: dict[str, object] | None = None, **settings: object) -> None:
        (runs / name).mkdir(parents=True)
        (runs / name / "config.json").write_text(json.dumps({"settings": {"out": f"runs/{name}", **settings}}))
        if record is not None:
            (runs / name / "study.json").write_text(json.dumps(record))

    with closing(open_store(tmp_path / "study.sqlite")) as store:
        made = open_study(store)
        for name in ("Anna", "Berta"):
            rater = add_rater(store, made.id, name)
            question = next_assignment(store, rater.id)
            assert question is not None
            submit(store, question.id, Answer("left", 1))
        here = {"database": store.address, "study": made.name}
    trained("before", here | {"snapshot": {"last_judgement": 1}})
    trained("reward", here | {"snapshot": {"last_judgement": 2}})
    trained("other study", {**here, "study": "another", "snapshot": {"last_judgement": 9}})
    trained("ppo", model={"path": "path/to/model"}, reward=[f"{runs}/reward/model=0.5"])
    trained("again", model={"path": f"{runs}/ppo/model"})
    trained("unrelated", model={"path": "path/to/model"})
    assert main(["collect", "export", study, "--out", str(tmp_path / "out")]) == 0
    trained("exported", data=str(tmp_path / "out" / "preferences.jsonl"))
    capsys.readouterr()
    assert main(["collect", "forget", study, "Berta", "--runs", str(runs)]) == 0
    told = capsys.readouterr().out
    names = [line.split(" (through")[0].strip().rpartition("/")[2] for line in told.splitlines() if "(through" in line]
    assert sorted(names) == ["again", "exported", "ppo", "reward"]
    assert ": 4" in told
    assert main(["collect", "forget", study, "Anna", "--runs", str(tmp_path / "nowhere")]) == 0
    assert "nowhere" in capsys.readouterr().out


def test_languages_and_personal_data_at_the_command_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    pairs, study = tmp_path / "pairs.jsonl", str(tmp_path / "talks")
    pairs.write_text('{"prompt": "Why?", "chosen": "Because.", "rejected": "No."}\n')
    init = ["collect", "init", study, "--from-pairs", str(pairs)]
    assert main([*init, "--language", "tlh"]) == 2
    assert "no language 'tlh'" in capsys.readouterr().err
    assert main([*init, "--language", "ar", "en"]) == 0
    with closing(open_store(tmp_path / "talks" / "study.sqlite")) as store:
        made = open_study(store)
        assert made.languages == ("ar", "en")
        assert made.presentation.question == "Which response is better?"  # raters read it in their language
        rater = add_rater(store, made.id, "Ada Lovelace")
        question = next_assignment(store, rater.id)
        assert question is not None
        submit(store, question.id, Answer("left", 1, reason="Write to ada@example.org."))
    assert main([*init, "--language", "de"]) == 0
    capsys.readouterr()
    for more, told in (
        ((), "seem to hold personal data: 1 e-mail address.\n  email in a reason about "),
        (("--redact",), "Replaced in texts of people: 1 e-mail address."),
    ):
        out = tmp_path / f"out{len(more)}"
        assert main(["collect", "export", study, "--out", str(out), *more]) == 0
        assert told in capsys.readouterr().out
        assert ("ada@example.org" in (out / "votes.csv").read_text()) is (not more)
    with closing(open_store(tmp_path / "talks" / "study.sqlite")) as store:
        assert open_study(store).languages == ("de",)


def test_simulated_raters_answer_prompts_of_ones_own_without_gold(
    study: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["collect", "simulate", study, "--raters", "3", "--answers", "2"]) == 0
    told = capsys.readouterr()
    assert "tutelage.data.worlds:clarity" in told.err
    assert "6 answers" in told.out


def test_a_utility_that_fails_is_refused_before_there_are_raters(
    study: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["collect", "simulate", study, "--gold", "tutelage.data.worlds:gold"]) == 2
    told = capsys.readouterr().err
    assert "tutelage.data.worlds:gold" in told
    assert "Question 0?" in told
    store = open_store(f"{study}/study.sqlite")
    with closing(store):
        assert list_raters(store, open_study(store, "tutoring").id) == ()
