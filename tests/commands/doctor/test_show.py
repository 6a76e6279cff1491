"""`tutelage doctor`: the machine, a run, a study and a server."""

import json
from contextlib import closing

import pytest
from people.worlds import study_of
from served import choices, serving

from tutelage.commands.line import main
from tutelage.people import open_store


def metrics(folder, entropy):
    folder.mkdir()
    rows = [{"step": step, "entropy": entropy(step), "kl/reference": 0.0} for step in range(1, 41)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


@pytest.mark.parametrize("words", [(), ("--json",)])
def test_the_machine(words, capsys):
    assert main(["doctor", *words]) == 0
    printed = capsys.readouterr().out
    subjects = (
        {check["subject"] for check in json.loads(printed)["checks"]}
        if words
        else {line.split()[1] for line in printed.splitlines() if line.startswith(("ok", "warning"))}
    )
    assert {"engine", "memory", "disk"} <= subjects


def test_a_run_with_a_fault_has_status_1_and_a_sentence(tmp_path, capsys):
    folder = metrics(tmp_path / "improve", lambda step: 2 / step)
    assert main(["doctor", str(folder)]) == 1
    assert capsys.readouterr().out.startswith("improve · Entropy: Entropy fell from ")
    assert main(["doctor", str(folder), "--json"]) == 1
    (finding,) = json.loads(capsys.readouterr().out)["findings"]
    assert finding["subject"] == "Entropy"


def test_a_run_without_a_fault(tmp_path, capsys):
    assert main(["doctor", str(metrics(tmp_path / "improve", lambda step: 2.0))]) == 0
    assert "No known training problems" in capsys.readouterr().out


def test_a_folder_that_holds_no_run(tmp_path, capsys):
    assert main(["doctor", str(tmp_path)]) == 2
    assert "neither a run nor a round" in capsys.readouterr().err


def test_a_study_and_a_run_in_one_folder(tmp_path, capsys):
    folder = metrics(tmp_path / "improve", lambda step: 2 / step)
    with closing(open_store(folder / "study.sqlite")) as store:
        study_of(store, 1)
    assert main(["doctor", str(folder / "study.sqlite")]) == 0
    assert "ok      items " in capsys.readouterr().out
    assert main(["doctor", str(folder), "--json"]) == 1
    printed = json.loads(capsys.readouterr().out)
    assert [finding["subject"] for finding in printed["findings"]] == ["Entropy"]
    assert "items" in [check["subject"] for check in printed["checks"]]


def test_a_server_is_asked_in_place_of_the_machine(capsys):
    with serving(lambda body, number: {"data": [{"id": "m"}]} if number == 0 else choices("a")) as served:
        assert main(["doctor", "--endpoint", served.url, "--json"]) == 0
    checks = json.loads(capsys.readouterr().out)["checks"]
    assert [check["subject"] for check in checks] == ["models", "answer", "log-probs"]
    assert main(["doctor", "--endpoint", "nowhere"]) == 1
