"""Names of raters stay in their study: nothing that leaves it, and nothing that training makes of it, has them."""

import csv
import io
import json
import logging
import zipfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from people.web.conftest import World

from tutelage.commands.line import main
from tutelage.data.records import Comparison, CompletionRecord, Prompt, user
from tutelage.people import (
    Answer,
    Plan,
    Presentation,
    Rater,
    Store,
    add_items,
    add_rater,
    create_study,
    exclude,
    list_judgements,
    list_raters,
    list_votes,
    next_assignment,
    open_store,
    open_study,
    reserve_item,
    submit,
    write_note,
)
from tutelage.people.answers import Correction, Span
from tutelage.people.notification import InboxMessage, notice_row
from tutelage.people.settings import NewToken
from tutelage.people.store.api_tokens import create_token
from tutelage.people.store.inbox import list_notices
from tutelage.people.store.members import Identity, sign_in

MARK = "zaphkiel"
"""What every name, login and address of a person in the study has in it."""
PAIRS = 12
VOTES = "question,one,two,choice,evaluator\nWhy {n}?,Because {n}.,No {n}.,a,{name}\n"


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """A study with everything that is exported: votes, corrections, spans, ties, pairs found bad, exclusions, an
    adjudication, votes from a table, and a model judge. Every person bears the mark."""
    folder = tmp_path / "study"
    folder.mkdir()
    with closing(open_store(folder / "study.sqlite")) as store:
        shown = Presentation(corrections=True, spans=("fact",))
        made = create_study(store, "study", presentation=shown, plan=Plan(3, "finish_first", 0.0, 0.0))
        numbers = range(PAIRS)
        prompts = [Prompt(f"p{n}", user(f"What is thing {n}?")) for n in numbers]
        texts = {"a": "No idea {}.", "b": "A kind and clear word {}."}
        completions = [
            CompletionRecord(f"p{n}{side}", f"p{n}", text.format(n), side)
            for n in numbers
            for side, text in texts.items()
        ]
        add_items(
            store, made.id, prompts, completions, [Comparison(f"c{n}", f"p{n}", f"p{n}a", f"p{n}b") for n in numbers]
        )
        for name in ("Zaphkiel One", "zaphkiel.two@example.org", "ZAPHKIEL"):
            _work(store, add_rater(store, made.id, name, detail={"login": f"{MARK}-login"}))
        _work(store, add_rater(store, made.id, "judge", kind="llm"))
        person = Identity("https://id.test zaphkiel-9", "zaphkiel@example.org", "Zaphkiel Owner")
        owner, _ = sign_in(store, made.id, person, "owner", days=1, device="x")
        decided = reserve_item(store, owner.id, "c0")
        assert decided is not None
        submit(store, decided.id, Answer("left", 3))
        write_note(store, list_raters(store, made.id)[0].id, "May I look things up?")
        exclude(store, made.id, "rater", "ZAPHKIEL", "too fast", actor=owner.name)
        exclude(store, made.id, "judgement", str(list_votes(store, made.id)[0].id), "a slip", actor=owner.name)
    table = tmp_path / "votes.csv"
    table.write_text(VOTES.format(n=1, name="Zaphkiel Import"), encoding="utf-8")
    columns = ("--prompt", "question", "--a", "one", "--b", "two", "--choice-column", "choice")
    assert main(["collect", "import", str(folder), str(table), *columns]) == 0
    table.unlink()
    return folder


def _work(store: Store, rater: Rater) -> None:
    """Answer everything: a correction and a mark for each side that is chosen, one tie, and one pair found bad."""
    for number in range(PAIRS):
        question = next_assignment(store, rater.id)
        assert question is not None
        answer = Answer("left" if question.left.startswith("A kind") else "right", 2, reason="Clear.", flags=("other",))
        if number > 1:
            place = 0 if answer.choice == "left" else 1
            better = Correction(f"A kinder word about {question.item} by the {rater.kind} {rater.id}.", place)
            answer = replace(answer, correction=better, spans=(Span(1 - place, 0, 2, "fact"),))
        else:
            answer = replace(answer, choice=("tie", "both_bad")[number], strength=0)
        submit(store, question.id, answer)


def marked(folder: Path) -> list[str]:
    """The files in a folder, and in archives in it, that hold the mark; databases are the study itself."""
    return [name for name, content in _contents(folder) if MARK.encode() in content.lower() or MARK in name.lower()]


def _contents(folder: Path) -> Iterator[tuple[str, bytes]]:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and ".sqlite" not in path.name:
            yield str(path.relative_to(folder)), path.read_bytes()
            if zipfile.is_zipfile(path):
                with zipfile.ZipFile(path) as archive:
                    yield from ((f"{path.name}/{name}", archive.read(name)) for name in archive.namelist())


def test_no_way_out_of_a_study_says_a_name(
    study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """The command line with every selection, the web page, the API, webhooks, and a study that was restored."""
    out = tmp_path / "out"
    capsys.readouterr()
    caplog.set_level(logging.DEBUG)
    everything = ("--kinds", "human", "llm", "simulated", "--ties", "keep", "--weights", "--margins", "--redact")
    for name, flags in (("plain", ()), ("everything", everything)):
        assert main(["collect", "export", str(study), "--out", str(out / name), *flags]) == 0
    with closing(open_store(study / "study.sqlite")) as store:
        world = World(store, open_study(store))
        owner = next(rater for rater in list_raters(store, world.study.id) if rater.role == "owner")
        (out / "page.zip").write_bytes(world.browser_of(owner).form("/owner/export", {}).content)
        token = create_token(store, world.study.id, NewToken("trainer", ("read", "export"))).secret
        asks = {"headers": {"authorization": f"Bearer {token}"}}
        for part in ("votes", "preferences", "items", "overview", "openapi.json"):
            reply = world.client.get(f"/api/v1/{part}", **asks)
            assert reply.status_code == 200, part
            (out / part).write_bytes(reply.content)
        told = world.client.get("/api/v1/raters", **asks).json()["raters"]
        notices = list_notices(store, world.study.id)
        message = InboxMessage("study", notices, {}, "")
        assert MARK in message.text().lower(), "mail to the team says who"
        sent = [message.text(names=False), *map(notice_row, notices)]
        (out / "webhooks.json").write_text(json.dumps(sent), encoding="utf-8")
    written = {path.name for path in (out / "plain").iterdir()}
    assert {"preferences.jsonl", "demonstrations.jsonl", "corrections.jsonl", "spans.jsonl"} <= written
    assert marked(out) == []
    assert MARK not in (capsys.readouterr().out + caplog.text).lower()
    known = {each["rater"]: each["name"] for each in told}  # the API about raters tells who is who
    assert {each["rater"] for each in _rows(out / "votes")} - known.keys() == {owner.pseudonym}
    assert sum(MARK in name.lower() for name in known.values()) == 4
    assert main(["collect", "import", str(tmp_path / "again.sqlite"), str(out / "plain")]) == 0
    assert main(["collect", "export", str(tmp_path / "again.sqlite"), "--out", str(out / "again")]) == 0
    assert marked(out) == []


def test_one_number_stands_for_a_rater_in_every_file_and_export(study: Path, tmp_path: Path) -> None:
    """And the file about raters says whose it is, where that is asked for."""
    first, second = tmp_path / "first", tmp_path / "second"
    assert main(["collect", "export", str(study), "--out", str(first)]) == 0
    assert main(["collect", "export", str(study), "--out", str(second), "--names"]) == 0
    with closing(open_store(study / "study.sqlite")) as store:
        made = open_study(store).id
        raters, judgements = list_raters(store, made), list_judgements(store, made)
    names = {f"rater-{rater.id}" if rater.kind == "human" else rater.name: rater.name for rater in raters}
    assert {row["rater"]: row["name"] for row in _rows(second / "raters.jsonl")} == names
    assert marked(second) == ["raters.jsonl"]
    assert {row["rater"] for row in _rows(first / "raters.jsonl")} == set(names)
    for name in ("votes.jsonl", "demonstrations.jsonl", "corrections.jsonl", "spans.jsonl"):
        rows = _rows(first / name)
        assert rows == _rows(second / name)
        assert len({row["rater"] for row in rows} & set(names)) > 1, name
        assert {row["rater"] for row in rows} <= set(names), name
    table = csv.DictReader(io.StringIO((first / "votes.csv").read_text(encoding="utf-8")))
    assert {row["rater"] for row in table} <= set(names)
    manifest = json.loads((first / "manifest.json").read_text(encoding="utf-8"))
    assert {each.rater for each in judgements} <= set(names)
    assert manifest["reliability"].keys() <= names.keys()
    assert [names[rater] for rater in manifest["excluded"]["rater"]] == ["ZAPHKIEL"]


@pytest.mark.slow
def test_training_on_a_study_and_on_its_export_says_no_name(
    study: Path, tmp_path: Path, tiny_model: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """Runs, model cards, reports and the statistics of raters."""
    out = tmp_path / "out"
    assert main(["collect", "export", str(study), "--out", str(out / "labels")]) == 0
    capsys.readouterr()
    tiny = ("--model", tiny_model("llama"), "--model.device", "cpu", "--epochs", "1", "--batch-size", "8")
    tiny = (*tiny, "--max-length", "64", "--quiet")
    labels = out / "labels"
    for command, data in (
        ("sft", labels / "demonstrations.jsonl"),
        ("reward", study),
        ("dpo", labels / "corrections.jsonl"),
    ):
        run = out / f"{command}-{data.name}"
        assert main([command, "--data", str(data), "--out", str(run), *tiny]) == 0, command
        assert main(["report", str(run)]) == 0
    tables = ("--raters-out", str(out / "raters.csv"), "--out", str(out / "labels.csv"))
    assert main(["raters", str(labels / "votes.csv"), *tables]) == 0
    assert (out / "reward-study" / "study.json").is_file()
    assert marked(out) == []
    assert MARK not in capsys.readouterr().out.lower()


def _rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
