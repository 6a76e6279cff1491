"""Models beside people and rounds, as commands: `collect judge`, `collect next`, `iterate`."""

import json
import re
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
import tiny
from offenders import for_each
from starlette.testclient import TestClient
from tiny_commands import read_jsonl, write_jsonl

from tutelage.commands.line import main
from tutelage.people import (
    Answer,
    add_rater,
    label_study,
    list_questions,
    list_votes,
    next_assignment,
    open_store,
    open_study,
    start_session,
    submit,
    survey,
)
from tutelage.people.selection import Selection
from tutelage.people.web import create_app
from tutelage.people.web.site import cookie_name

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Ten pairs of a good and a bad response, and a module with what one may value."""
    rows = [{"prompt": f"Question {n}?", "chosen": f"good {n}", "rejected": f"bad {n}"} for n in range(10)]
    pairs = write_jsonl(tmp_path / "pairs.jsonl", rows)
    (tmp_path / "values.py").write_text(
        "def good(prompts, texts):\n    return [2.0 * t.startswith('good') for t in texts]\n"
        "def close(prompts, texts):\n    return [(1 + int(t.split()[1])) * t.startswith('good') for t in texts]\n"
        "def none(prompts, texts):\n    return [0.0 for t in texts]\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert main(["collect", "init", str(tmp_path / "s"), "--from-pairs", pairs, "--overlap", "1"]) == 0
    return tmp_path / "s"


class Endpoint(BaseHTTPRequestHandler):
    """An OpenAI-compatible endpoint that prefers what is good, or whatever stands first."""

    asked: ClassVar[list[dict[str, Any]]] = []

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        Endpoint.asked.append(body | {"path": self.path, "key": self.headers["Authorization"]})
        first = body["messages"][0]["content"].partition("[Response A]\n")[2]
        verdict = "A" if body["model"] == "biased" or first.startswith("good") else "B"
        said = {"choices": [{"message": {"content": f"Kinder. [[{verdict}]]"}}]}
        content = json.dumps(said).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    Endpoint.asked = []
    monkeypatch.setenv("TUTELAGE_ENDPOINT_KEY", "hush")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()
    thread.join()
    server.server_close()


def run(capsys: Captured, *words: object) -> tuple[int, str, str]:
    capsys.readouterr()
    status = main(list(map(str, words)))
    out, err = capsys.readouterr()
    return status, out, err


def test_a_judge_behind_an_endpoint_rates_apart_from_people(study: Path, endpoint: str, capsys: Captured) -> None:
    judge = ["collect", "judge", study, "--endpoint", endpoint, "--model"]
    status, out, _ = run(capsys, *judge, "careful", "--limit", 4)
    assert (status, out.splitlines()[-1].split(".")[0]) == (
        0,
        "careful: 4 questions answered, 4 in all, 0 of them equal or inconsistent",
    )
    assert "6 questions answered, 10 in all, 0 of them" in run(capsys, *judge, "careful")[1]
    assert "10 questions answered, 10 in all, 10 of them" in run(capsys, *judge, "biased")[1]
    assert len(Endpoint.asked) == 40  # both orders of ten pairs, by two judges
    assert {each["key"] for each in Endpoint.asked} == {"Bearer hush"}
    store = open_store(study / "study.sqlite")
    votes = list_votes(store, 1)
    texts = {q.key: q.texts for q in list_questions(store, 1)}
    for vote in votes:
        if vote.rater == "careful":
            assert texts[vote.item]["ab".index(vote.verdict)].startswith("good")
    assert label_study(store, 1, Selection()).fates == {"other_kind": 20}
    assert all(question.answered == 0 for question in list_questions(store, 1))
    store.close()
    assert b"hush" not in (study / "study.sqlite").read_bytes()


def test_another_prompt_is_another_judge(study: Path, endpoint: str, tmp_path: Path, capsys: Captured) -> None:
    judge = ["collect", "judge", study, "--endpoint", endpoint, "--model", "careful"]
    prompt = tmp_path / "prompt.txt"
    prompt.write_text("{conversation} [Response A]\n{first} [Response B]\n{second}")
    assert run(capsys, *judge, "--limit", 1)[0] == 0
    status, _, err = run(capsys, *judge, "--template", prompt)
    assert status == 2
    assert "is taken by a rater" in err
    assert run(capsys, *judge, "--template", prompt, "--rater", "other")[0] == 0
    prompt.write_text("{first} or {conversation}?")
    status, _, err = run(capsys, *judge, "--template", prompt, "--rater", "third")
    assert (status, "lacks {second}" in err) == (2, True)


def test_a_reward_rates_with_its_strength(study: Path, capsys: Captured) -> None:
    judge = ["collect", "judge", study, "--reward", "values:close", "--step", "4", "--tie", "1"]
    assert run(capsys, *judge)[0] == 0
    store = open_store(study / "study.sqlite")
    texts = {q.key: q.texts for q in list_questions(store, 1)}
    for vote in list_votes(store, 1):
        number = int(texts[vote.item][0].split()[1])
        strength = min(3, 1 + number // 4) if number else 0
        expected = "ab"[texts[vote.item][1].startswith("good")] if number else "tie"
        assert (vote.verdict, vote.strength) == (expected, strength)
    store.close()


@for_each(
    [
        (("judge",), "--judge"),
        (("judge", "--judge", "j.toml", "--endpoint", "http://x"), "--judge"),
        (("judge", "--judge", "j.toml", "--model", "m"), "--model"),
        (("judge", "--judge", "missing.toml"), "missing.toml"),
        (("judge", "--endpoint", "http://x", "--reward", "values:good"), "either a model"),
        (("judge", "--endpoint", "http://127.0.0.1:9"), "--model"),
        (("judge", "--endpoint", "http://127.0.0.1:9", "--model", "m"), "did not answer"),
        (("judge", "--reward", "values:nothing"), "has no 'nothing'"),
        (("next", "--by", "uncertainty"), "needs --reward"),
        (("next", "--by", "random", "--new", "x"), "need --by models"),
        (("next", "--by", "models"), "name it with --new"),
        (("next", "--by", "models", "--new", "x"), "No new question is between x"),
    ]
)
def test_mistakes_are_told(
    words: tuple[str, ...], message: str, study: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tutelage.data.transport.time.sleep", lambda seconds: None)  # between attempts
    status, _, err = run(capsys, "collect", words[0], study, *words[1:])
    assert status == 2
    assert message in err


def asked_first(study: Path, count: int) -> list[int]:
    """The numbers of the pairs that a fresh rater is asked, and whether by priority."""
    store = open_store(study / "study.sqlite")
    rater = add_rater(store, 1, f"rater {count}")
    numbers = []
    for _ in range(count):
        question = next_assignment(store, rater.id)
        assert question is not None
        numbers.append(int(question.texts[0].split()[1]))
        submit(store, question.id, Answer("left", 1))
    by = Counter(vote.chosen_by for vote in list_votes(store, 1))
    assert set(by) <= {"priority", "random"}
    store.close()
    return numbers


def test_what_a_reward_model_cannot_tell_apart_is_asked_first(study: Path, capsys: Captured) -> None:
    """`close` scores pair n by a lead of n + 1: the smaller the less sure. 30 % are drawn at random."""
    status, out, _ = run(capsys, "collect", "next", study, "--by", "uncertainty", "--reward", "values:close")
    assert status == 0
    assert "10 new questions" in out
    store = open_store(study / "study.sqlite")
    worth = {q.texts[0].split()[1]: q.item.priority for q in list_questions(store, 1)}
    assert [worth[str(n)] for n in range(10)] == sorted(worth.values(), reverse=True)
    assert worth["0"] == pytest.approx(4 * 0.7310585786 * 0.2689414214)
    store.close()
    asked = asked_first(study, 6)
    assert sum(number in range(6) for number in asked) >= 4
    assert run(capsys, "collect", "next", study, "--by", "random")[0] == 0
    store = open_store(study / "study.sqlite")
    assert open_study(store).plan.policy == "random"
    store.close()


def test_what_reward_models_disagree_about_is_asked_first(study: Path, capsys: Captured) -> None:
    """Against one that knows nothing, the surer the other is the more they disagree."""
    words = ["--by", "uncertainty", "--reward", "values:close", "values:none"]
    assert run(capsys, "collect", "next", study, *words)[0] == 0
    store = open_store(study / "study.sqlite")
    worth = {q.texts[0].split()[1]: q.item.priority for q in list_questions(store, 1)}
    assert [worth[str(n)] for n in range(10)] == sorted(worth.values())
    assert worth["0"] == pytest.approx((0.7310585786 - 0.5) / 2)
    store.close()


def test_a_second_round_starts_from_the_new_policy_with_its_lineage(tmp_path: Path, capsys: Captured) -> None:
    """Sample, judge, train a reward model, and open the next round about another policy beside the first."""
    old = tiny.save("llama", tmp_path / "old")
    run_folder = tmp_path / "run"
    run_folder.mkdir()
    new = tiny.save("llama", run_folder / "model", seed=1)
    prompts = write_jsonl(tmp_path / "prompts.jsonl", [{"prompt": f"What is thing {n}?"} for n in range(6)])
    study = tmp_path / "s"
    short = ["--sampling.max-new-tokens", "6"]
    first = ["collect", "init", study, "--prompts", prompts, "--model", old, "--pairs", "2", *short]
    assert run(capsys, *first)[0] == 0
    store = open_store(study / "study.sqlite")
    (told,) = survey(store, 1).rounds
    assert told.lineage["policy"] == told.policy == old
    rater = add_rater(store, 1, "anna")
    while (question := next_assignment(store, rater.id)) is not None:
        submit(store, question.id, Answer("left" if question.left > question.right else "right", 2))
    reward = tmp_path / "rm"
    trained = ["reward", "--model", old, "--data", study, "--out", reward, "--max-length", "64", "--quiet"]
    assert main([*map(str, trained), "--device", "cpu"]) == 0
    settings = {"model": {"path": old}, "reward": [str(reward / "model")]}
    (run_folder / "config.json").write_text(json.dumps({"format": "tutelage-run/1", "settings": settings}))
    status, out, err = run(capsys, "iterate", study, "--policy", new, "--prompts", prompts, *short)
    assert (status, err) == (0, "")
    assert f"Round 2 of s: {new} against {old}" in out
    assert "tutelage reward --model" in out
    first_round, second = survey(store, 1).rounds
    assert (second.policy, second.lineage["against"], second.lineage["after_round"]) == (new, old, 1)
    assert second.lineage["trained_from"] == old
    assert second.lineage["study"] == "s"
    judged = len(list_votes(store, 1))
    assert second.lineage["judgements_until"] == judged
    assert second.lineage["fingerprint"] != first_round.lineage["fingerprint"]
    assert set(second.samplers) == {old, new}
    assert (second.won, second.lost) == (0, 0)
    assert run(capsys, "collect", "next", study, "--by", "models")[0] == 0
    samplers = {q.key: [c.sampler for c in q.completions] for q in list_questions(store, 1)}
    while (question := next_assignment(store, rater.id)) is not None:
        shown = [samplers[question.item][place] for place in question.order]
        submit(store, question.id, Answer("left" if shown[0] == new else "right", 1))
    _, second = survey(store, 1).rounds
    votes = [vote for vote in list_votes(store, 1) if new in samplers[vote.item] and not vote.repeat]
    assert second.won == len(votes) > 0
    assert second.lost == 0
    assert second.win_rate == 1.0
    status, out, _ = run(capsys, "collect", "status", study)
    assert "wins 100%" in out
    owner = add_rater(store, 1, "boss", role="owner")
    cookie = f"{cookie_name(store, secure=False)}={start_session(store, owner.id)}"
    page = TestClient(create_app(store), "http://site.test").get("/owner", headers={"cookie": cookie}).text
    assert "Policy wins" in page
    (row,) = re.findall(r'<tr><th scope="row">2</th>.*?</tr>', page, re.S)
    assert re.search(r'<td class="figure">100\s*%</td>', row)
    assert f"policy {new}" in row
    store.close()


def test_a_round_that_would_ask_nothing_is_refused(tmp_path: Path, capsys: Captured) -> None:
    old = tiny.save("llama", tmp_path / "old")
    same = tiny.save("llama", tmp_path / "same")
    prompts = write_jsonl(tmp_path / "prompts.jsonl", [{"prompt": "What is it?"}])
    study = tmp_path / "s"
    words = ["--prompts", prompts, "--sampling.max-new-tokens", "6"]
    assert run(capsys, "collect", "init", study, "--model", old, *words)[0] == 0
    status, _, err = run(capsys, "iterate", study, "--policy", same, *words)
    assert (status, "only equal responses" in err) == (2, True)
    status, _, err = run(capsys, "iterate", study, "--policy", old, *words)
    assert (status, "name it with --against" in err) == (2, True)
    assert run(capsys, "iterate", study, "--policy", old, "--against", "none", *words, "--seed", "3")[0] == 0
    store = open_store(study / "study.sqlite")
    assert [each.number for each in survey(store, 1).rounds] == [1, 2]
    assert "against" not in survey(store, 1).rounds[1].lineage
    store.close()


def test_the_next_round_asks_about_episodes(tmp_path: Path, capsys: Captured) -> None:
    """What the environment says first is in the prompt, and turns are the steps of both responses."""
    old, new = (tiny.save("qwen3", tmp_path / name, seed=seed) for seed, name in enumerate(("old", "new")))
    prompts = write_jsonl(tmp_path / "prompts.jsonl", [{"prompt": f"What is thing {n}?"} for n in range(3)])
    study, short = tmp_path / "s", ["--sampling.max-new-tokens", "6"]
    first = ["collect", "init", study, "--prompts", prompts, "--model", old, *short]
    assert run(capsys, *first)[0] == 0
    acting = ["--environment", "given_environments:talk", "--turns", "2"]
    assert run(capsys, "iterate", study, "--policy", new, "--prompts", prompts, *short, *acting)[::2] == (0, "")
    assert main(["collect", "export", str(study), "--out", str(tmp_path / "out")]) == 0
    rows = [row for row in read_jsonl(tmp_path / "out" / "items.jsonl") if row["item"]["round"] == 2]
    assert len(rows) == 3
    for row in rows:
        assert [each["content"] for each in row["prompt"]["messages"]][1:] == ["Well?"]
        assert {each["sampler"] for each in row["completions"]} == {old, new}
        assert all(each["steps"] for each in row["completions"])
    status, _, err = run(capsys, "iterate", study, "--policy", new, "--prompts", prompts, "--turns", "3")
    assert (status, "--turns" in err) == (2, True)
