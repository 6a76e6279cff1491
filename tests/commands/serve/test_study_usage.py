"""Feedback from use, over HTTP: what is kept with consent, what is refused, which of two models answers, and that
nothing acknowledged is lost when the server is killed."""

import asyncio
import json
import logging
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import closing, contextmanager

import httpx
import pytest
import sqlalchemy as sa

import tutelage as tt
from tests.people.cluster import cluster, programs
from tests.people.conftest import fresh_database
from tutelage.base.errors import TutelageError
from tutelage.commands.split_evidence import weights_name
from tutelage.people import Unavailable, create_study, list_questions, list_votes, open_store, open_study
from tutelage.people.store import schema
from tutelage.people.user_feedback import user_pseudonym
from tutelage.people.validation import storable
from tutelage.rollout.serving.service import Results, Service
from tutelage.stats.split_test import Trial

ASKED = [{"role": "user", "content": "What is light?"}]


@pytest.fixture
def place(tmp_path):
    with closing(open_store(tmp_path / "study.sqlite")) as store:
        create_study(store, "use", kind="thumbs", secret="5a" * 32)
    return tmp_path


@contextmanager
def serving(model, place, **settings):
    options = {"port": 0, "name": "tiny", "max_new_tokens": 40, "feedback": str(place)}
    with (
        tt.serve(model=model, **(options | settings)) as server,
        httpx.Client(base_url=server.url, timeout=60) as client,
    ):
        yield server, client


def consent(client, language="en"):
    return client.get("/v1/feedback", headers={"accept-language": language}).json()["consent"]["sha256"]


def chat(client, user="zoe", **fields):
    body = {"messages": ASKED, "max_tokens": 6, "user": user, "store": True}
    body |= {"metadata": {"consent": consent(client)}} | fields
    return client.post("/v1/chat/completions", json=body)


def give(client, completion, user="zoe", **said):
    return client.post("/v1/feedback", json={"completion": completion, "user": user, **said})


def rows(place):
    with closing(open_store(place / "study.sqlite")) as store, store.read() as connection:
        return connection.execute(sa.select(schema.completion).order_by(schema.completion.c.id)).all()


def age(place, hours):
    """Make all completions but the last older."""
    table, past = schema.completion, hours * 3_600_000
    with closing(open_store(place / "study.sqlite")) as store, store.write() as connection:
        older = table.update().where(table.c.id < sa.select(sa.func.max(table.c.id)).scalar_subquery())
        connection.execute(older.values(created=table.c.created - past, said=table.c.said - past))


def questions(place):
    with closing(open_store(place / "study.sqlite")) as store:
        return list_questions(store, open_study(store).id)


def test_what_users_say_of_answers_becomes_questions(tiny_model, place):
    with serving(tiny_model("llama"), place) as (_, client):
        first, second = (chat(client, seed=seed).json() for seed in (1, 2))
        assert give(client, first["id"], thumb="down").status_code == 200
        assert give(client, first["id"], thumb="up", better="A wave.").status_code == 200
        assert give(client, first["id"], preferred=second["id"]).json() == {
            "object": "feedback",
            "completion": first["id"],
        }
    texts = [each["choices"][0]["message"]["content"] for each in (first, second)]
    single, better, pair = questions(place)
    assert single.texts == (texts[0],)
    assert [message.content for message in single.messages] == ["What is light?"]
    assert set(better.texts) == {texts[0], "A wave."}
    assert set(pair.texts) == set(texts)
    assert [row.outcome for row in rows(place)] == [0.0, None]  # what was said first


def test_a_stream_ends_with_what_was_kept(tiny_model, place):
    with serving(tiny_model("llama"), place) as (_, client):
        body = {"messages": ASKED, "max_tokens": 6, "user": "zoe", "stream": True, "store": True}
        body |= {"metadata": {"consent": consent(client, "de")}}
        with client.stream("POST", "/v1/chat/completions", json=body) as response:
            lines = [line.removeprefix("data: ") for line in response.iter_lines() if line]
        *chunks, last = map(json.loads, lines[:-1])
        assert lines[-1] == "[DONE]"
        assert last["choices"] == []
        assert last["feedback"]["until"] > last["created"]
        assert give(client, last["id"], thumb="up").status_code == 200
    (row,) = rows(place)
    assert row.text == "".join(each["choices"][0]["delta"].get("content", "") for each in chunks)


def test_without_agreement_nothing_is_kept(tiny_model, place):
    with serving(tiny_model("llama"), place) as (_, client):
        said = chat(client, store=False).json()
        assert "feedback" not in said
        assert give(client, said["id"], thumb="up").status_code == 404
        refused = {"user": {"user": ""}, "metadata.consent": {"metadata": {"consent": "another"}}, "n": {"n": 2}}
        for param, fields in refused.items():
            response = chat(client, **fields)
            assert (response.status_code, response.json()["error"]["param"]) == (400, param)
        assert chat(client, metadata=None).json()["error"]["code"] == "consent_outdated"
    assert rows(place) == []


def test_refusals_of_feedback_say_which_field(tiny_model, place):
    with serving(tiny_model("llama"), place) as (_, client):
        kept = chat(client).json()["id"]
        for said, status, param in (
            ({"thumb": "sideways"}, 400, "thumb"),
            ({"stars": 5}, 400, "stars"),
            ({}, 400, None),
            ({"user": "other", "thumb": "up"}, 404, "completion"),
        ):
            response = client.post("/v1/feedback", json={"completion": kept, "user": "zoe"} | said)
            assert (response.status_code, response.json()["error"]["param"]) == (status, param)
        assert client.request("DELETE", "/v1/feedback", json={"user": "nobody"}).status_code == 404
        assert client.request("DELETE", "/v1/feedback", json={"user": "zoe"}).json()["forgotten"]
        assert give(client, kept, thumb="up").status_code == 404


def test_a_share_is_kept_and_users_are_limited(tiny_model, place):
    with serving(tiny_model("llama"), place, share=0.5, per_minute=20) as (_, client):
        found = ["feedback" in chat(client, user=f"user {n}", max_tokens=1).json() for n in range(40)]
        kept = len(rows(place))
        assert kept == sum(found)
        assert 8 <= kept <= 32  # within 4 standard deviations
        statuses = [chat(client, max_tokens=1).status_code for _ in range(21)]
        assert statuses == [200] * 20 + [429]
        limited = give(client, "any", thumb="up")
        assert limited.status_code == 429
        assert int(limited.headers["retry-after"]) > 0


def test_no_route_and_no_name_avoids_the_limit(tiny_model, place):
    with serving(tiny_model("llama"), place, per_minute=3) as (_, client):
        paths = {"/v1/completions": {"prompt": "a", "max_tokens": 1}, "/v1/feedback/html": {"text": "a"}}
        for path, body in paths.items():
            for number in range(3):
                sent = body | {"user": path} | ({"seed": number} if "prompt" in body else {})
                assert client.post(path, json=sent).status_code == 200
            assert client.post(path, json=body | {"user": path}).status_code == 429
        for path, method in (("/v1/chat/completions", "POST"), ("/v1/feedback", "POST"), ("/v1/feedback", "DELETE")):
            body = {"user": "u" * 501, "messages": ASKED}
            assert client.request(method, path, json=body).json()["error"]["param"] == "user"
        for _ in range(4):  # the name of a user is not that of an address
            client.post("/v1/feedback/html", json={"text": "a", "user": "address 127.0.0.1"})
        assert client.post("/v1/feedback/html", json={"text": "a"}).status_code == 200


def test_the_model_answers_while_the_database_does_not(tiny_model, place, monkeypatch):
    model = tiny_model("llama")
    with serving(model, place, against=model) as (server, client):
        sha, known = consent(client), chat(client).json()["id"]

        def lost(*args, **more):
            raise Unavailable("the connection is lost")

        monkeypatch.setattr(server.usage.store, "read", lost)
        monkeypatch.setattr(server.usage.store, "write", lost)
        for kept in (True, False):
            body = {"messages": ASKED, "max_tokens": 1, "user": "zoe", "store": kept, "metadata": {"consent": sha}}
            response = client.post("/v1/chat/completions", json=body)
            assert response.status_code == 200
            assert "feedback" not in response.json()
        assert give(client, known, thumb="up").status_code == 503
        assert client.get("/v1/feedback").status_code == 503
    assert len(rows(place)) == 1


def test_a_client_that_leaves_counts_for_its_model_and_not_as_an_error(tiny_model, place, monkeypatch):
    """Before the response or its first piece, or in the middle of a stream: or the users who do not wait for a slow
    model would be missing from its side."""
    model, begun = tiny_model("llama"), threading.Event()
    submit = Service.submit

    def never_answered(service, reply):
        begun.set()
        return Results(reply)

    with serving(model, place, against=model, split=0.999, max_new_tokens=70) as (_, client):
        body = {"messages": ASKED, "max_tokens": 70, "user": "zoe", "store": True, "ignore_eos": True}
        body["metadata"] = {"consent": consent(client)}
        monkeypatch.setattr(Service, "submit", never_answered)
        for stream in (True, False):
            begun.clear()
            with socket.create_connection(("127.0.0.1", client.base_url.port)) as connection:
                content = json.dumps(body | {"stream": stream})
                headers = f"Host: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(content)}"
                connection.sendall(f"POST /v1/chat/completions HTTP/1.1\r\n{headers}\r\n\r\n{content}".encode())
                assert begun.wait(60)
        monkeypatch.setattr(Service, "submit", submit)
        with client.stream("POST", "/v1/chat/completions", json=body | {"stream": True}) as response:
            next(response.iter_lines())
        give_up = time.monotonic() + 60
        while len(rows(place)) < 3 and time.monotonic() < give_up:
            time.sleep(0.02)
    assert {(row.arm, row.failed) for row in rows(place)} == {("b", 0)}
    left = [row for row in rows(place) if row.text is None and row.messages is None]
    assert len(left) >= 2  # a loaded machine may have written the whole stream before it saw the client leave
    assert len(rows(place)) == 3


def test_a_stream_that_the_end_of_the_server_cuts_counts_for_its_model(tiny_model, place, monkeypatch):
    async def arrival(results):
        return

    model = tiny_model("llama")
    with serving(model, place, against=model, split=0.999) as (server, client):
        server._server.config.timeout_graceful_shutdown = 0.1
        monkeypatch.setattr(Results, "arrival", arrival)
        monkeypatch.setattr(Service, "submit", lambda service, reply: Results(reply))
        body = {"messages": ASKED, "user": "zoe", "store": True, "stream": True}
        body["metadata"] = {"consent": consent(client)}
        with client.stream("POST", "/v1/chat/completions", json=body) as response:
            assert response.status_code == 200
            server.close()
    assert [(row.arm, row.failed, row.text) for row in rows(place)] == [("b", 0, None)]


def test_what_is_kept_of_a_failure_without_a_split_test_is_nothing(tiny_model, place, monkeypatch):
    with serving(tiny_model("llama"), place) as (server, client):

        def fail(reply):
            raise RuntimeError("the model is broken")

        monkeypatch.setattr(server.service, "submit", fail)
        assert chat(client).status_code == 500
    assert rows(place) == []


def test_a_key_is_needed_for_all_but_the_page(tiny_model, place, monkeypatch):
    monkeypatch.setenv("TUTELAGE_SERVE_KEY", "secret")
    with serving(tiny_model("llama"), place) as (_, client):
        page = client.get("/")
        assert page.status_code == 200
        assert "default-src 'none'" in page.headers["content-security-policy"]
        assert client.get("/static/chat.js").headers["cache-control"] == "no-cache"
        assert client.get("/v1/feedback").status_code == 401
        assert give(client, "any", thumb="up").status_code == 401
        client.headers["authorization"] = "Bearer secret"
        assert client.get("/v1/feedback").status_code == 200
        assert client.get("/v1/nothing").json()["error"]["type"] == "not_found_error"


def test_users_are_split_by_the_stable_hash_and_their_outcomes_are_those_of_the_test(tiny_model, place, tmp_path):
    run = tmp_path / "candidate"
    run.mkdir()
    (run / "model").symlink_to(tiny_model("gpt2"), target_is_directory=True)
    with closing(open_store(place / "study.sqlite")) as store:
        study = open_study(store)
    users = [f"user {n}" for n in range(12)]
    model = tiny_model("llama")
    trial = Trial(weights_name(str(run / "model")), weights_name(model), 0.5)
    arms = {user: trial.arm(user_pseudonym(study, user)) for user in users}
    assert set(arms.values()) == {"a", "b"}
    larger = max("ab", key=list(arms.values()).count)
    users.sort(key=lambda user: arms[user] == larger)  # `age` leaves out the last, who may not be alone in an arm
    with serving(model, place, against=str(run / "model"), split=0.5) as (_, client):
        for user in users:
            completion = chat(client, user=user, max_tokens=2).json()["id"]
            assert give(client, completion, user=user, thumb="up" if arms[user] == "b" else "down").status_code == 200
    for row in rows(place):
        assert row.sampler == (str(run / "model") if row.arm == "b" else model)
        assert (row.trial, row.failed) == (trial.name, 0)
    (run / "summary.json").write_text("{}")
    age(place, 48)
    test = tt.promote(run=run, outcomes=str(place), split=0.5).test
    count = sum(arm == "b" for arm in arms.values())
    assert test.assigned == (len(users) - count, count)
    assert test.means == (0.0, 1.0)
    assert test.pending <= 1  # the last one
    (tmp_path / "other" / "model").mkdir(parents=True)
    (tmp_path / "other" / "summary.json").write_text("{}")
    with pytest.raises(TutelageError, match="candidate"):
        tt.promote(run=tmp_path / "other", outcomes=str(place))

    # another split, and other weights in the folder, are other tests: no user is in both arms, no evidence is mixed
    with serving(model, place, against=str(run / "model"), split=0.9) as (_, client):
        for user in users:
            chat(client, user=user, max_tokens=1)
    assert tt.promote(run=run, outcomes=str(place), split=0.5).test.assigned == test.assigned
    assert sum(tt.promote(run=run, outcomes=str(place), split=0.9).test.assigned) == len(users)
    (run / "model").unlink()
    (run / "model").symlink_to(tiny_model("llama"), target_is_directory=True)
    with pytest.raises(TutelageError, match="other weights"):
        tt.promote(run=run, outcomes=str(place), split=0.5)


def test_where_the_candidate_fails_the_present_model_answers_and_it_counts_as_its_error(tiny_model, place, monkeypatch):
    model = tiny_model("llama")
    with serving(model, place, against=tiny_model("gpt2"), split=0.999) as (server, client):

        def fail(reply):
            raise RuntimeError("the candidate is broken")

        monkeypatch.setattr(server.candidate, "submit", fail)
        assert chat(client).status_code == 200
        body = {"messages": ASKED, "max_tokens": 4, "user": "zoe", "store": True, "stream": True}
        body["metadata"] = {"consent": consent(client)}
        assert "[DONE]" in client.post("/v1/chat/completions", json=body).text
        assert [(row.arm, row.failed, row.sampler) for row in rows(place)] == [("b", 1, model)] * 2
        monkeypatch.setattr(server.service, "submit", fail)
        assert chat(client).status_code == 500
    assert [(row.arm, row.failed, row.text, row.messages) for row in rows(place)][2:] == [("b", 1, None, None)]


def test_a_candidate_that_hangs_is_not_waited_for(tiny_model, place, monkeypatch):
    model = tiny_model("llama")
    with serving(model, place, against=tiny_model("gpt2"), split=0.999, against_timeout=0.05) as (server, client):
        submit = server.candidate.submit

        def hang(reply):
            results = submit(reply)
            monkeypatch.setattr(results, "arrival", lambda: asyncio.sleep(60))
            monkeypatch.setattr(results, "body", lambda: asyncio.sleep(60))
            return results

        monkeypatch.setattr(server.candidate, "submit", hang)
        begun = time.monotonic()
        assert chat(client).status_code == 200
        body = {"messages": ASKED, "max_tokens": 4, "user": "zoe", "store": True, "stream": True}
        body["metadata"] = {"consent": consent(client)}
        assert "[DONE]" in client.post("/v1/chat/completions", json=body).text
        assert time.monotonic() - begun < 30
    assert [(row.arm, row.failed, row.sampler) for row in rows(place)] == [("b", 1, model)] * 2


def test_a_request_that_neither_model_takes_is_no_failure_of_the_candidate(tiny_model, place, caplog):
    model = tiny_model("llama")
    with serving(model, place, against=tiny_model("gpt2"), split=0.999) as (_, client):
        assert chat(client, temperature=-1).status_code == 400
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
    assert rows(place) == []


def test_outside_of_the_share_a_split_test_has_no_texts(tiny_model, place):
    model = tiny_model("llama")
    with serving(model, place, against=model, share=0.5) as (_, client):
        found = ["feedback" in chat(client, user=f"user {n}", max_tokens=1).json() for n in range(16)]
    assert [(row.text is not None, row.messages is not None) for row in rows(place)] == [(one, one) for one in found]
    assert set(found) == {True, False}


def test_a_study_of_pairs_alone_is_refused(tiny_model, tmp_path):
    with closing(open_store(tmp_path / "study.sqlite")) as store:
        create_study(store, "pairs")
    with pytest.raises(TutelageError, match="pairs"):
        tt.serve(model=tiny_model("llama"), port=0, feedback=str(tmp_path))
    for settings in ({"against": "b"}, {"share": 0.5}, {"split": 0.1}, {"feedback": "x", "share": 0.0}):
        with pytest.raises(TutelageError, match=list(settings)[-1]):
            tt.serve(model="m", **settings)


# Killing the server --------------------------------------------------------------------------------------------------


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.long)])
def database(request, tmp_path):
    """The address of a study that takes feedback."""
    if request.param == "sqlite":
        url = str(tmp_path / "study.sqlite")
        yield from made(url)
        return
    pytest.importorskip("psycopg", reason="PostgreSQL's driver psycopg is not installed here")
    found = programs()
    if found is None:
        pytest.skip("PostgreSQL's initdb and postgres are not installed here")
    with cluster(found) as folder:
        yield from made(fresh_database(folder))


def made(url):
    with closing(open_store(url)) as store:
        create_study(store, "use", kind="thumbs")
    yield url


class Crowd:
    """Users who chat and say what they think, each at its own pace, and remember what was acknowledged."""

    def __init__(self, url, users):
        self.url, self.users = url, users
        self.served, self.acknowledged = {}, {}
        self.enough = threading.Event()

    def use(self, number, sha):
        rng, user = random.Random(number), f"user {number}"
        with httpx.Client(base_url=self.url, timeout=60) as client:
            while True:
                try:
                    said = chat(client, user=user, max_tokens=1, metadata={"consent": sha}).json()
                    self.served[said["id"]] = said["choices"][0]["message"]["content"]
                    thumb = rng.choice(("up", "down"))
                    assert give(client, said["id"], user=user, thumb=thumb).status_code == 200
                except httpx.TransportError:  # the server is gone
                    return
                self.acknowledged[said["id"]] = thumb
                if len(self.acknowledged) >= 2 * self.users:
                    self.enough.set()


def killed_among(model, database, users):
    """Serve so many users at once, kill the server in the middle, and return them."""
    words = ["serve", "--model", model, "--feedback", database, "--port", "0", "--per-minute", "100000"]
    process = subprocess.Popen(
        [sys.executable, "-m", "tutelage", *words], stdout=subprocess.PIPE, text=True, env=os.environ
    )
    try:
        url = next(line.split()[1] for line in process.stdout if line.strip().startswith("address"))
        crowd = Crowd(url.removesuffix("/v1"), users)
        with httpx.Client(base_url=crowd.url, timeout=60) as client:
            sha = consent(client)
        threads = [threading.Thread(target=crowd.use, args=(number, sha)) for number in range(users)]
        for thread in threads:
            thread.start()
        assert crowd.enough.wait(120)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    for thread in threads:
        thread.join(60)
    return crowd


def lost(database, crowd):
    """What was acknowledged and is not in the study, and completions that users got and cannot refer to."""
    with closing(open_store(database)) as store:
        votes = list_votes(store, open_study(store).id)
        with store.read() as connection:
            kept = dict(connection.execute(sa.select(schema.completion.c.key, schema.completion.c.text)).all())
    assert {key: text for key, text in crowd.served.items() if kept.get(key) != storable(text)} == {}
    stored = {vote.item.removeprefix("use-"): {"a": "up", "b": "down"}[vote.verdict] for vote in votes}
    return {key: thumb for key, thumb in crowd.acknowledged.items() if stored.get(key) != thumb}


def test_nothing_acknowledged_is_lost_when_the_server_is_killed(tiny_model, database):
    crowd = killed_among(tiny_model("llama"), database, 8)
    assert len(crowd.acknowledged) >= 16
    assert lost(database, crowd) == {}


@pytest.mark.long
def test_nothing_acknowledged_is_lost_among_fifty_users(tiny_model, database):
    model = tiny_model("llama")
    for _ in range(2):  # the second time, on what the first one left
        crowd = killed_among(model, database, 50)
        assert len(crowd.acknowledged) >= 100
        assert lost(database, crowd) == {}
