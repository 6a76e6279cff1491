"""`tutelage watch`: waiting on a file and on a site, running a command, its status, signals, and refusals."""

import contextlib
import itertools
import shlex
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from forked import command
from offenders import for_each
from people.sites import serving
from people.worlds import asked, better, study_of

from tutelage.base.errors import TutelageError
from tutelage.commands import split_evidence, watch
from tutelage.commands.line import main
from tutelage.commands.split_evidence import weights_name
from tutelage.commands.watch import WatchSettings
from tutelage.data.records import user
from tutelage.people import Store, add_rater, open_store, open_study, submit
from tutelage.people.programs.study_progress import DatabaseSource, Progress
from tutelage.people.settings import NewToken
from tutelage.people.store.api_tokens import create_token
from tutelage.people.store.completions import ServedCompletion
from tutelage.people.user_feedback import keep_completion
from tutelage.people.web import create_app
from tutelage.stats.split_test import Trial

PYTHON = shlex.quote(sys.executable)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(tmp_path / "study.sqlite")
    study_of(opened, 4)
    yield opened
    opened.close()


def vote(store: Store, count: int) -> None:
    study = open_study(store)
    rater = add_rater(store, study.id, f"rater {store.now()}").id
    for _ in range(count):
        question = asked(store, rater)
        submit(store, question.id, better(question))


def script(folder: Path, text: str) -> str:
    path = folder / "script.py"
    path.write_text(text)
    return f"{PYTHON} {shlex.quote(str(path))}"


def test_the_status_of_the_command_is_that_of_the_wait(store: Store, tmp_path: Path) -> None:
    vote(store, 4)
    study = str(tmp_path)
    assert main(["watch", study, "--votes", "4"]) == 0
    for status in (0, 3):
        then = script(tmp_path, f"raise SystemExit({status})")
        assert main(["watch", study, "--votes", "4", "--then", then]) == status
    killed = script(tmp_path, "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    assert main(["watch", study, "--votes", "1", "--then", killed]) == 128 + signal.SIGKILL
    assert main(["watch", study, "--votes", "1", "--then", "tutelage --version"]) == 0


@pytest.fixture
def votes_after(store: Store, monkeypatch: pytest.MonkeyPatch) -> Callable[[int, int], None]:
    """Let so many votes be given after the look of this number."""

    def plan(number: int, count: int) -> None:
        looks, real = itertools.count(1), DatabaseSource.look

        def look(source: DatabaseSource, *, agreement: bool) -> Progress:
            found = real(source, agreement=agreement)
            if next(looks) == number:
                vote(store, count)
            return found

        monkeypatch.setattr(DatabaseSource, "look", look)

    return plan


def test_nothing_runs_before_the_condition_holds(
    store: Store, tmp_path: Path, capfd: pytest.CaptureFixture[str], votes_after: Callable[[int, int], None]
) -> None:
    then = script(tmp_path, "print('it ran')")
    votes_after(1, 2)
    assert main(["watch", str(tmp_path), "--votes", "2", "--every", "0.1", "--then", then]) == 0
    told = capfd.readouterr()
    assert told.out == "it ran\n"
    assert told.err.splitlines() == ["0 of 2 votes", "2 of 2 votes", f"running {then}"]


def test_a_command_runs_again_after_every_so_many_votes_until_it_fails(
    store: Store, tmp_path: Path, capfd: pytest.CaptureFixture[str], votes_after: Callable[[int, int], None]
) -> None:
    log = tmp_path / "log"
    then = script(
        tmp_path,
        f"from pathlib import Path\nlog = Path({str(log)!r})\n"
        "runs = len(log.read_text()) if log.exists() else 0\n"
        "log.write_text('x' * (runs + 1))\nraise SystemExit(5 if runs else 0)\n",
    )
    vote(store, 3)
    votes_after(2, 2)
    words = ["watch", str(tmp_path), "--votes", "2", "--every", "0.1", "--no-once", "--then", then]
    assert main(words) == 5
    assert log.read_text() == "xx"
    told = [line for line in capfd.readouterr().err.splitlines() if not line.startswith("running")]
    assert told == ["3 of 2 votes", "3 of 5 votes", "5 of 5 votes"]


def test_each_round_has_its_number_and_a_new_watch_goes_on_with_the_next(
    store: Store, tmp_path: Path, capfd: pytest.CaptureFixture[str], votes_after: Callable[[int, int], None]
) -> None:
    then = script(
        tmp_path,
        "import sys\nfrom pathlib import Path\nrun = Path(sys.argv[1])\n(run / 'model').mkdir(parents=True)\n"
        "(run / 'summary.json').touch()\nraise SystemExit(run.name == 'ppo-2')\n",
    )
    run = f"{tmp_path}/ppo-{{round}}"
    words = ["watch", str(tmp_path), "--votes", "2", "--every", "0.1", "--then", f"{then} {run}", "--offer", run]
    vote(store, 2)
    votes_after(2, 2)
    assert main([*words, "--no-once"]) == 1  # the second round fails
    assert [path.name for path in sorted(tmp_path.glob("ppo-*"))] == ["ppo-1", "ppo-2"]
    assert f"tutelage promote {tmp_path}/ppo-1 --outcomes" in capfd.readouterr().out
    assert main(words) == 0
    assert f"tutelage promote {tmp_path}/ppo-3 --outcomes" in capfd.readouterr().out


def test_it_works_through_the_api_of_a_site(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    vote(store, 4)
    vote(store, 4)
    token = create_token(store, open_study(store).id, NewToken("watch", ("read",))).secret
    with serving(create_app(store)) as url:
        words = ["watch", url, "--items-done", "all", "--agreement", "0.9"]
        monkeypatch.delenv("TUTELAGE_TOKEN", raising=False)
        assert main(words) == 2
        assert "TUTELAGE_TOKEN" in capsys.readouterr().err
        monkeypatch.setenv("TUTELAGE_TOKEN", "nonsense")
        assert main(words) == 2
        assert "unknown" in capsys.readouterr().err
        monkeypatch.setenv("TUTELAGE_TOKEN", token)
        assert main(words) == 0
        assert "4 of 4 items done; agreement 100.0%, waiting for 90.0%" in capsys.readouterr().err


@pytest.mark.parametrize("runs", [False, True], ids=["while it waits", "while the command runs"])
def test_an_interrupt_ends_it_without_a_traceback(store: Store, tmp_path: Path, runs: bool) -> None:
    vote(store, 1)
    then = script(
        tmp_path,
        "import sys, time\ntry:\n    print('ready', flush=True)\n    time.sleep(60)\n"
        "except KeyboardInterrupt:\n    sys.exit(7)\n",
    )
    child = command(["watch", str(tmp_path), "--votes", "1" if runs else "9", "--then", then])
    with contextlib.closing(child.stdout), contextlib.closing(child.stderr):
        ready = child.stdout.readline() if runs else child.stderr.readline()
        assert ready == ("ready\n" if runs else "1 of 9 votes\n")
        child.send_signal(signal.SIGINT)
        assert child.wait(60) == (7 if runs else 130)
        assert "Traceback" not in child.stderr.read()


@for_each(
    [
        ({}, "condition to wait for"),
        ({"votes": 0}, "at least one"),
        ({"items_done": "some"}, "or all"),
        ({"agreement": 2.0}, "share"),
        ({"votes": 1, "every": 0.0}, "at least 0.1 seconds"),
        ({"votes": 1, "once": False}, "--no-once needs"),
        ({"items_done": "all", "once": False, "then": ("true",)}, "--no-once needs"),
        ({"votes": 1, "then": ("no-such-program-here",)}, "no such program"),
        ({"votes": 1, "then": ("echo 'x",)}, "quotation marks"),
        ({"votes": 1, "then": (" ",)}, "empty"),
        ({"votes": 1, "study": "https://x", "db": "postgresql://x"}, "omit --db"),
    ]
)
def test_settings_that_make_no_sense_are_refused_before_anything_is_waited_for(
    words: dict[str, object], complaint: str
) -> None:
    with pytest.raises(TutelageError, match=complaint):
        WatchSettings(**{"study": "runs/study"} | words)  # type: ignore[arg-type]


def test_a_study_that_is_not_there_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["watch", str(tmp_path / "nothing"), "--votes", "1"]) == 2
    assert "There is no database" in capsys.readouterr().err


def test_commands_run_one_after_the_other_until_one_fails(
    store: Store, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    vote(store, 1)
    then = [f"{PYTHON} -c {shlex.quote(text)}" for text in ("print(1)", "print(2); raise SystemExit(5)", "print(3)")]
    words = ["watch", str(tmp_path), "--votes", "1", *(word for each in then for word in ("--then", each))]
    assert main([*words, "--offer", "runs/ppo"]) == 5
    assert capfd.readouterr().out.split() == ["1", "2"]


def test_a_promotion_is_offered_with_its_evidence_and_not_made(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    candidate, study = tmp_path / "ppo", open_study(store)
    (candidate / "model").mkdir(parents=True)
    vote(store, 1)
    trial = Trial(weights_name(str(candidate / "model")), "m", 0.1)
    words = ["watch", str(tmp_path), "--votes", "1", "--offer", str(candidate), "--split", "0.1"]
    assert main(words) == 0
    assert f"--against {candidate}/model" in capsys.readouterr().out  # nobody has had it
    for arm in "ab":
        served = ServedCompletion(arm, user("?"), "text", "m", True, 0.1, trial.name, arm)
        keep_completion(store, study.id, add_rater(store, study.id, arm).id, served)
    assert main(words) == 0
    *told, last = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in told] == ["better", "assignment", "errors", "latency"]
    assert f"tutelage promote {candidate} --outcomes {tmp_path} --split 0.1" in last
    assert not (candidate / "promotions.json").exists()


def test_an_offer_shows_no_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def nobody(settings: object) -> None:
        raise split_evidence.NoResponses("nobody")

    monkeypatch.setattr(split_evidence, "evidence_of", nobody)
    watch.offer(WatchSettings(study="tutoring", db="postgresql://me:SECRET@host/db", votes=1), tmp_path)
    told = capsys.readouterr().out
    assert "SECRET" not in told
    assert "--study tutoring" in told
