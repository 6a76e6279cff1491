"""The application as a process: without torch, quick to start, honest about where its data are, and safe to kill."""

import contextlib
import csv
import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from email.message import EmailMessage
from pathlib import Path

import httpx
import pytest
from offenders import for_each
from tiers import long_except

from tutelage.base.errors import TutelageError
from tutelage.commands.collect.settings import SUBCOMMANDS
from tutelage.commands.line import main
from tutelage.people import (
    Answer,
    Plan,
    Store,
    add_rater,
    create_study,
    list_events,
    list_questions,
    list_raters,
    list_votes,
    open_store,
    open_study,
    start_session,
)
from tutelage.people.kinds import KINDS
from tutelage.people.web.auth import csrf_token
from tutelage.people.web.client import RaterClient
from tutelage.people.web.site import cookie_name
from tutelage.rollout.serving.asgi_server import listen

Captured = pytest.CaptureFixture[str]
PAIRS = [{"prompt": f"Question {n}?", "chosen": f"good {n}", "rejected": f"bad {n}"} for n in range(12)]


@pytest.fixture
def pairs(folder: Path) -> Path:
    path = folder / "pairs.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in PAIRS))
    return path


@pytest.fixture
def made(folder: Path, pairs: Path) -> Path:
    """The folder of a study with twelve pairs."""
    assert main(["collect", "init", str(folder / "tutoring"), "--from-pairs", str(pairs)]) == 0
    return folder / "tutoring"


@contextlib.contextmanager
def serving(
    study: Path, module: str = "tutelage", folder: Path | None = None, options: tuple[str, ...] = ()
) -> Iterator[tuple[subprocess.Popen[str], str, str]]:
    """A server in a process of its own, a module run in a folder: the process, its address, and all it printed."""
    words = [sys.executable, "-m", module, "collect", "serve", str(study), "--port", "0", *options]
    process = subprocess.Popen(words, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        told = "".join(_until(process, "ctrl-C"))
        yield process, re.findall(r"address +(\S+)", told)[0], told
    finally:
        process.kill()
        process.wait()


def _until(process: subprocess.Popen[str], word: str) -> Iterator[str]:
    assert process.stdout is not None
    for line in process.stdout:
        yield line
        if word in line:
            return


def test_it_imports_no_torch_and_little_else() -> None:
    code = (
        "import sys, resource; import tutelage.people.web; from tutelage.commands.collect import server;"
        "heavy = {'torch', 'transformers', 'peft', 'datasets', 'pyarrow', 'scipy', 'pandas'} & set(sys.modules);"
        "used = resource.getrusage(resource.RUSAGE_SELF);"
        "print(sorted(heavy), used.ru_utime + used.ru_stime)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy, seconds = done.stdout.rsplit(" ", 1)
    assert heavy == "[]"
    assert float(seconds) < 3  # of a slow processor


def test_it_tells_where_it_is_where_the_data_are_and_lets_the_owner_in(made: Path) -> None:
    with serving(made) as (process, url, told):
        used = _cpu_seconds(process.pid)
        assert str(made / "study.sqlite") in told
        assert "12 questions, 0 judgements, 0 raters" in told
        link = re.findall(r"owner's link +(\S+)", told)[0]
        assert link.startswith(f"{url}/return/")
        with httpx.Client(timeout=60) as client:
            assert client.get(link).status_code == 200
            assert client.post(link, headers={"origin": url}).headers["location"] == "/owner"
            assert client.get(f"{url}/owner").status_code == 200
            assert client.post(link, headers={"origin": url}).status_code == 404
        assert _heavy_libraries(process.pid) == []
        assert used < 3  # of a slow processor, from the start to the first answer
        process.send_signal(signal.SIGINT)
        assert process.wait(60) in (0, 130)


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _heavy_libraries(pid: int) -> list[str]:
    """What a running server has loaded of the things that it must do without."""
    maps = Path(f"/proc/{pid}/maps").read_text()
    return [name for name in ("torch", "transformers", "safetensors", "tokenizers", "pyarrow") if f"/{name}/" in maps]


def test_an_acknowledged_answer_survives_a_kill(made: Path) -> None:
    """Killed in the middle of many answers: every one that was acknowledged is there, once, as it was given."""
    store = open_store(made / "study.sqlite")
    study = open_study(store)
    acknowledged: dict[str, str] = {}
    with serving(made) as (process, url, _):
        clients = []
        for number in range(4):
            rater = add_rater(store, study.id, f"r{number}", kind="simulated")
            session = start_session(store, rater.id)
            clients.append(RaterClient(url, session, cookie_name(store, secure=False)))

        def work(client: RaterClient) -> None:
            with contextlib.suppress(TutelageError):  # raised when the server is gone
                while (question := client.next()[0]) is not None:
                    answer = Answer("left", 2, reason=str(question.id))
                    client.answer(question.id, answer)
                    acknowledged[answer.key] = str(question.id)

        threads = [threading.Thread(target=work, args=(client,)) for client in clients]
        for thread in threads:
            thread.start()
        while len(acknowledged) < 8:
            time.sleep(0.005)
        process.kill()
        for thread in threads:
            thread.join()
    kept = {vote.key: vote.reason for vote in list_votes(store, study.id, every_revision=True)}
    assert acknowledged.items() <= kept.items()
    assert len(kept) <= len(acknowledged) + len(clients)
    store.close()


def test_a_port_that_is_taken_is_told(made: Path, capsys: Captured) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(TutelageError, match=f"{port}.*127.0.0.1"):
            listen("127.0.0.1", port)
        assert main(["collect", "serve", str(made), "--port", str(port)]) == 2
    assert "--port" in capsys.readouterr().err


def run(capsys: Captured, *words: object) -> tuple[int, str, str]:
    capsys.readouterr()
    status = main(["collect", *map(str, words)])
    out, err = capsys.readouterr()
    return status, out, err


def test_simulated_raters_answer_everything_over_http(made: Path, folder: Path, capsys: Captured) -> None:
    """Each pair gets exactly its two raters, and those who know the truth mostly say it."""
    (folder / "likes_good.py").write_text(
        "def value(prompts, completions):\n    return [3.0 if c.startswith('good') else -3.0 for c in completions]\n"
    )
    asked = ["simulate", str(made), "--gold", "likes_good:value", "--raters", "5"]
    simulated = subprocess.run(
        [sys.executable, "-m", "tutelage", "collect", *asked],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(folder), *filter(None, sys.path)])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert simulated.returncode == 0
    assert all(line.startswith("answers") for line in simulated.stderr.splitlines()), "nothing but its progress"
    assert "24 answers" in simulated.stdout
    store = open_store(made / "study.sqlite")
    study = open_study(store)
    votes = list_votes(store, study.id)
    assert len(votes) == 24
    assert all(sum(vote.item == item for vote in votes) == 2 for item in {vote.item for vote in votes})
    assert {rater.kind for rater in list_raters(store, study.id)} == {"simulated"}
    store.close()
    status, out, _ = run(capsys, "status", made)
    assert status == 0
    assert "12 of 12 have all their answers (24 of 24)" in out
    assert "hh-rlhf 63 %" in out
    status, out, _ = run(capsys, "export", made, "--out", folder / "people")
    assert (status, "24 judgements = 24 other_kind" in out) == (0, True)
    assert (folder / "people" / "preferences.jsonl").read_text() == ""
    kinds = ("--kinds", "simulated")
    status, out, _ = run(capsys, "export", made, "--out", folder / "out", *kinds)
    assert status == 0
    assert "24 judgements = " in out
    numbers = [int(n) for n in re.findall(r"(\d+) [a-z_]+(?: \+|$)", out.splitlines()[1].split(" = ")[1], re.M)]
    assert sum(numbers) == 24
    status, out, _ = run(capsys, "import", folder / "copy", folder / "out")
    assert status == 0
    copy = open_store(folder / "copy" / "study.sqlite")
    assert len(list_votes(copy, open_study(copy).id)) == 24
    copy.close()


def test_making_a_study_again_adds_what_is_new(folder: Path, pairs: Path, made: Path, capsys: Captured) -> None:
    more = folder / "more.jsonl"
    more.write_text(pairs.read_text() + json.dumps({"prompt": "New?", "chosen": "x", "rejected": "y"}) + "\n")
    status, out, _ = run(capsys, "init", made, "--from-pairs", more)
    assert status == 0
    assert "1 new question, 12 already present" in out
    assert "26 answers" in out  # two raters a question
    twice = folder / "twice.jsonl"
    rows = [{"prompt": f"{n}?", "chosen": "x", "rejected": "x" if n == 1 else "y"} for n in (1, 2, 2, 3, 4)]
    twice.write_text("\n".join(map(json.dumps, rows)))
    status, out, _ = run(capsys, "init", folder / "limited", "--from-pairs", twice, "--limit", "2")
    assert status == 0
    assert "2 new questions, 0 already present" in out
    assert "4 answers" in out


def test_the_labels_of_ready_pairs_cannot_be_guessed(made: Path) -> None:
    store = open_store(made / "study.sqlite")
    sides = [question.texts[0].startswith("good") for question in list_questions(store, open_study(store).id)]
    assert 1 <= sum(sides) <= len(sides) - 1
    store.close()


def test_golds_and_practice_come_with_their_explanations(folder: Path, pairs: Path, capsys: Captured) -> None:
    known = folder / "known.jsonl"
    known.write_text(json.dumps({"prompt": "2+2?", "chosen": "4", "rejected": "5", "explanation": "Count."}) + "\n")
    guidelines = folder / "rules.md"
    guidelines.write_text("# Rules")
    status, _, err = run(
        capsys, "init", folder / "s.sqlite", "--from-pairs", pairs, "--golds", known, "--training", known,
        "--criteria", "clear", "true", "--scale", "2", "--guidelines", guidelines,
        "--question", "Which?", "--overlap", "4",
    )  # fmt: skip
    assert (status, err) == (0, "")
    store = open_store(folder / "s.sqlite")
    study = open_study(store)
    shown = study.presentation
    assert (shown.question, shown.criteria, shown.scale, shown.guidelines) == (
        "Which?",
        ("clear", "true"),
        2,
        "# Rules",
    )
    assert (study.name, study.plan) == ("s", Plan(overlap=4))
    pools = {q.item.pool: q for q in list_questions(store, study.id)}
    for pool in ("gold", "training"):
        question = pools[pool]
        assert question.texts["ab".index(question.item.gold or "")] == "4"
        assert question.item.explanation == "Count."
    store.close()


def test_what_sample_wrote_can_be_asked(folder: Path, capsys: Captured) -> None:
    from tutelage.data.record_files import to_row, write_jsonl

    from ..worlds import records

    prompts, completions, comparisons = records(5)
    asked = folder / "sampled"
    asked.mkdir()
    status, _, err = run(capsys, "init", folder / "study", "--from-sample", asked)
    assert status == 2
    assert "prompts.jsonl" in err
    for name, rows in (("prompts", prompts), ("completions", completions), ("comparisons", comparisons)):
        write_jsonl(asked / f"{name}.jsonl", map(to_row, rows))
    status, out, _ = run(capsys, "init", folder / "study", "--from-sample", asked, "--limit", "3")
    assert status == 0
    assert "3 new questions" in out


OF_PAIRS = [name for name, kind in KINDS.items() if not (kind.traits.steps or kind.traits.rubrics)]
"""Kinds whose questions can be made of pairs alone."""


@pytest.mark.parametrize("kind", long_except(OF_PAIRS[:2], OF_PAIRS))
def test_every_kind_goes_from_questions_to_preferences_and_back(
    folder: Path, pairs: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Simulated raters who value "good" answer over HTTP, five of seven beyond doubt; that comes out of the export.
    The module is named as no other test's is: this process imports it once."""
    (folder / "sure_of_good.py").write_text(
        "def value(prompts, completions):\n    return [9.0 if c.startswith('good') else -9.0 for c in completions]\n"
    )
    monkeypatch.syspath_prepend(str(folder))
    made = folder / "study"
    words = ("--kind", kind, "--from-pairs", pairs, "--criteria", "clear", "correct", "--overlap", "7")
    assert run(capsys, "init", made, *words, "--limit", "8")[0] == 0
    status, out, _ = run(capsys, "simulate", made, "--gold", "sure_of_good:value", "--raters", "7")
    assert status == 0
    assert "56 answers" in out
    status, out, _ = run(capsys, "status", made)
    assert status == 0
    assert "8 of 8 have all their answers (56 of 56)" in out
    kinds = ("--kinds", "simulated")
    status, out, _ = run(capsys, "export", made, "--out", folder / "out", *kinds)
    assert status == 0
    rows = [json.loads(line) for line in (folder / "out" / "preferences.jsonl").read_text().splitlines()]
    assert [row["chosen"].partition(" ")[0] for row in rows] == ["good"] * 8
    assert run(capsys, "import", folder / "copy", folder / "out")[0] == 0
    copies = [open_store(folder / name / "study.sqlite") for name in ("study", "copy")]
    first, second = (list_votes(store, open_study(store).id) for store in copies)
    assert [(vote.canonical, vote.displayed) for vote in first] == [(vote.canonical, vote.displayed) for vote in second]
    assert [open_study(store).kind for store in copies] == [KINDS[kind]] * 2
    for store in copies:
        store.close()


def test_answers_to_be_put_in_order(folder: Path, capsys: Captured) -> None:
    from tutelage.data.record_files import to_row, write_jsonl
    from tutelage.data.records import Comparison, CompletionRecord

    from ..worlds import records

    prompts, _, _ = records(3)
    completions = [
        CompletionRecord(f"{prompt.id}-{n}", prompt.id, f"answer {n % (3 + place)}", "m", "s")
        for place, prompt in enumerate(prompts)  # 3, 4 and 5 different answers
        for n in range(6)
    ]
    asked = folder / "sampled"
    asked.mkdir()
    for name, rows in (("prompts", prompts), ("completions", completions)):
        write_jsonl(asked / f"{name}.jsonl", map(to_row, rows))
    status, out, _ = run(
        capsys, "init", folder / "study", "--from-sample", asked, "--kind", "ranking", "--answers", "4"
    )
    assert status == 0
    assert "2 sets of 4 responses to be put in order" in out
    store = open_store(folder / "study" / "study.sqlite")
    study = open_study(store)
    assert study.kind.name == "ranking"
    assert [len(set(question.texts)) for question in list_questions(store, study.id)] == [4, 4]
    store.close()
    status, _, err = run(
        capsys, "init", folder / "other", "--from-sample", asked, "--kind", "ranking", "--answers", "6"
    )
    assert status == 2
    assert "6 different" in err
    pair = Comparison("c", prompts[0].id, completions[0].id, completions[1].id, "random")
    write_jsonl(asked / "comparisons.jsonl", [to_row(pair)])
    status, _, err = run(capsys, "init", folder / "study", "--from-sample", asked)
    assert status == 2
    assert "--kind ranking" in err


def test_votes_of_others_are_taken_in(folder: Path, capsys: Captured) -> None:
    table = folder / "votes.csv"
    table.write_text(
        "prompt,completion_a,completion_b,preference,evaluator\nQ,one,two,a-is-better,eva\nQ,one,two,huh,eva\n"
    )
    status, out, _ = run(capsys, "import", folder / "theirs", table, "--partial")
    assert status == 0
    assert "1 new vote by 1 new rater on 1 new question" in out
    assert "left out 1: the choice 'huh' is not known" in out


def test_the_status_tells_of_quotas_that_the_items_cannot_fill(made: Path, capsys: Captured) -> None:
    assert "quotas" not in run(capsys, "status", made)[1]
    store = open_store(made / "study.sqlite")
    add_rater(store, open_study(store).id, "anna", quota=20)
    store.close()
    assert re.search(r"quotas +ask for 1\d more answers, and the items take 12", run(capsys, "status", made)[1])


def test_links_for_raters_owners_and_those_who_come_back(made: Path, capsys: Captured) -> None:
    status, out, _ = run(capsys, "invite", made, "--url", "https://rate.example.org/", "--uses", "3", "--note", "class")
    assert status == 0
    assert out.startswith("https://rate.example.org/join/")
    store = open_store(made / "study.sqlite")
    add_rater(store, open_study(store).id, "anna")
    status, out, _ = run(capsys, "invite", made, "--rater", "anna")
    assert out.startswith("http://127.0.0.1:8000/return/")
    status, _, err = run(capsys, "invite", made, "--rater", "otto")
    assert status == 2
    assert "'otto'" in err
    assert len(list_events(store, open_study(store).id, action="invite_created")) == 1
    (made / "names.txt").write_text("ANNA\n\nZoë\n")
    status, out, _ = run(capsys, "invite", made, "--names", made / "names.txt", "--url", "https://x.org/")
    assert status == 0
    assert re.fullmatch(r"name,link\nanna,https://x\.org/return/[\w-]{43}\nZoë,https://x\.org/return/[\w-]{43}\n", out)
    assert run(capsys, "invite", made, "--names", made / "nothing.txt")[0] == 2
    store.close()


def test_a_server_with_a_sender_mails_links_from_the_page_of_a_rater(
    made: Path, mailbox: tuple[str, list[EmailMessage]]
) -> None:
    url, came = mailbox
    store = open_store(made / "study.sqlite")
    study = open_study(store).id
    rater, owner = (add_rater(store, study, name, role=role) for name, role in (("zoë", "rater"), ("boss", "owner")))
    session = start_session(store, owner.id)
    cookie = f"{cookie_name(store, secure=False)}={session}"
    store.close()
    with serving(made, options=("--smtp", url, "--mail-from", "study@x.org")) as (_, address, told):
        assert url not in told
        fields = {"csrf": csrf_token(session), "email": "zoe@x.org"}
        sent = httpx.post(
            f"{address}/owner/raters/{rater.id}/mail", data=fields, headers={"cookie": cookie, "origin": address}
        )
    assert "A link was mailed to zoe@x.org" in sent.text
    (letter,) = came
    assert (letter["From"], letter["To"]) == ("study@x.org", "zoe@x.org")
    assert f"{address}/return/" in letter.get_content()


def test_links_are_mailed_to_a_list_and_one_that_fails_keeps_up_no_other(
    made: Path, capsys: Captured, mailbox: tuple[str, list[EmailMessage]]
) -> None:
    url, came = mailbox
    names, mail = made / "names.csv", ("--smtp", url, "--mail-from", "study@x.org", "--url", "https://x.org")
    names.write_text("email,name\nanna@x.org,Anna\nbert@gone.example,Bert\nzoe@x.org,Zoë\n")
    status, out, _ = run(capsys, "invite", made, "--names", names)
    assert (status, came) == (0, [])
    assert out.startswith("name,email,link\nAnna,anna@x.org,http")
    names.write_text('Email;Name\nanna@x.org;"Anna"\nbert@gone.example;Bert\nzoe@x.org;Zoë\n')  # by a spreadsheet
    assert run(capsys, "invite", made, "--names", names)[1].startswith("name,email,link\nAnna,anna@x.org,http")
    status, out, err = run(capsys, "invite", made, "--names", names, *mail)
    assert status == 2
    assert "1 of 3" in err
    told = list(csv.reader(io.StringIO(out)))
    assert told[:2] == [["name", "email", "mail"], ["Anna", "anna@x.org", "sent"]]
    assert "550 no such user" in told[2][2]
    assert told[3] == ["Zoë", "zoe@x.org", "sent"]
    assert [letter["To"] for letter in came] == ["anna@x.org", "zoe@x.org"]
    assert "https://x.org/return/" in came[0].get_content()
    assert "/return/" not in out + err
    status, out, _ = run(capsys, "invite", made, "--rater", "anna", "--email", "anna@y.org", *mail)
    assert (status, came[2]["To"], "/return/" in out) == (0, "anna@y.org", False)
    for rows in ("name,email\nAnna,\n", "name,email\nAnna,a@x.org\nanna,b@x.org\n", "Anna\n", "name,email\nA,a\n"):
        names.write_text(rows)
        assert run(capsys, "invite", made, "--names", names, *mail)[0] == 2
    assert run(capsys, "invite", made, "--names", names, *mail[:2])[0] == 2
    assert len(came) == 3


@for_each(
    [
        ("serve nowhere", "There is no database"),
        ("status nowhere", "There is no database"),
        ("serve x --smtp smtp://y", "Mail needs --smtp, the server, and --mail-to"),
        ("serve x --mail-from a@b", "Mail needs --smtp, the server, and --mail-to"),
        ("invite x --email a@b --smtp smtp://y --mail-from c@d", "--email is the address of --rater"),
        ("invite x --rater anna --email a@b", "mailed with --smtp and --mail-from"),
        ("invite x --names n.csv --smtp smtp://y", "mailed with --smtp and --mail-from"),
        ("invite x --names n.csv --rater anna", "give one of them"),
        ("init x --from-pairs a.jsonl --prompts b.jsonl", "Questions come from one place"),
        ("init x --prompts b.jsonl", "both --prompts and --model"),
        ("init x --model m", "both --prompts and --model"),
        ("init x --against m", "--against needs --model"),
        (
            "init x --from-pairs a.jsonl --kind ranking --answers 4",
            "ready pairs, --golds and --training have two answers each",
        ),
        ("init x --prompts b.jsonl --model m --kind ranking --answers 7", "shows 2 to 6 answers at a time"),
        ("init x --from-pairs a.jsonl --kind guess", "no kind of question “guess”; a study is of kind pair, ranking"),
        ("init x --prompts b.jsonl --model m --answers 3", "a study that compares pairs shows 2 answers"),
        ("init x --from-pairs nowhere.jsonl", "nowhere.jsonl"),
        ("simulate nowhere --gold x", "There is no database"),
        ("srve x", "did you mean 'serve'?"),
        ("export x", "--out"),
    ]
)
def test_mistakes_are_told_in_a_sentence(
    words: str, message: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.chdir(folder)
    try:
        status = main(["collect", *words.split()])
    except SystemExit as stop:
        status = int(stop.code or 0)
    err = capsys.readouterr().err
    assert status == 2
    assert message in err
    assert "Traceback" not in err
    assert [path for path in folder.iterdir() if path.suffix == ".sqlite"] == []


def test_a_database_of_several_studies_wants_a_name(folder: Path, capsys: Captured) -> None:
    store: Store = open_store(folder / "both.sqlite")
    for name in ("one", "two"):
        create_study(store, name)
    store.close()
    status, _, err = run(capsys, "status", folder / "both.sqlite")
    assert status == 2
    assert "one, two" in err
    assert run(capsys, "status", folder / "both.sqlite", "--name", "two")[0] == 0


def test_the_overview_lists_every_command(capsys: Captured) -> None:
    status, out, _ = run(capsys, "--help")
    assert status == 0
    assert all(f"  {name}" in out for name in SUBCOMMANDS)
    assert run(capsys)[1] == out


def test_an_import_is_previewed_with_usual_columns_and_nothing_is_stored(
    folder: Path, made: Path, capsys: Captured
) -> None:
    votes = folder / "votes.csv"
    rows = "Add,3,12,1,Anna,APPROVED\nAdd,3,12,2,bert,APPROVED\nSay,hi,hallo,1,Cy,REJECTED\n"
    votes.write_text(f"question,response_1,response_2,winner,worker,status\n{rows}")
    status, out, _ = run(capsys, "import", made, votes, "--choice", "1=a", "--preview")
    assert status == 0
    for said in ("prompt=question", "a=response_1", "1 vote by 1 rater (1 of them new)", "choice 2: 1 vote, unknown"):
        assert said in out
    for left_out in ("line 3", "line 4"):
        assert left_out in out
    with contextlib.closing(open_store(made / "study.sqlite")) as store:
        assert list_votes(store, open_study(store).id) == ()
    status, out, _ = run(capsys, "import", made, votes, "--choice", "1=a", "--choice", "2=b", "--keep-rejected")
    assert (status, "3 new votes by 3 new raters" in out) == (0, True)


def test_a_table_of_votes_is_imported_as_the_command_line_says_or_not_at_all(folder: Path, capsys: Captured) -> None:
    votes, made = folder / "votes.csv", folder / "imported"
    votes.write_text(
        "instruction,input,output_1,output_2,label,annotator\n"
        "Add,1 and 2,3,12,1,Anna\nAdd,1 and 2,3,12,2,bert\nSay,hello,hi,hallo,0,ANNA\n"
    )
    columns = ("--prompt", "instruction", "input", "--a", "output_1", "--b", "output_2", "--rater", "annotator")
    words = ("--choice", "1=a", "--choice", "2=b")
    status, _, err = run(capsys, "import", made, votes, *columns, "--choice-column", "label", *words)
    assert status == 2
    assert "the choice '0' is not known (1: line 4)" in err
    assert not made.exists()
    more = (*words, "--choice", "0=tie")
    columns = (*columns, "--choice-column", "label")
    status, _, err = run(capsys, "import", made, votes, *columns, *more, "--preview")
    assert (status, made.exists()) == (2, False)
    for _ in range(2):
        status, out, _ = run(capsys, "import", made, votes, *columns, *more)
        assert status == 0
    assert "0 new votes by 0 new raters on 0 new questions; 0 replaced an earlier one, 3 were known" in out
    store = open_store(made / "study.sqlite")
    said = sorted((vote.rater, vote.verdict) for vote in list_votes(store, open_study(store).id))
    store.close()
    assert [rater for rater, _ in said] == ["Anna", "Anna", "bert"]
    assert ("Anna", "tie") in said
    for unclear in ("1=z", "label"):
        assert run(capsys, "import", folder / "none", votes, *columns, "--choice", unclear)[0] == 2
