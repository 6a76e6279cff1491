"""Connections that send no whole request, against a server that answers while they are open."""

import asyncio
import logging
import socket
import threading
import time
from contextlib import contextmanager

import httpx
import pytest

from tutelage.rollout.serving import http_connections as connections
from tutelage.rollout.serving.asgi_server import listen, server
from tutelage.rollout.serving.http_connections import PatientProtocol

PARTS = (
    b"",
    b"GET / HT",
    b"GET / HTTP/1.1\r\nHost: here\r\n",
    b"POST / HTTP/1.1\r\nHost: here\r\nContent-Length: 9\r\n\r\n1",
)


async def application(scope, receive, send):
    """Answers with the length of the body; slowly, in two pieces, to /slow."""
    length, more = 0, True
    while more:
        message = await receive()
        length, more = length + len(message.get("body", b"")), message.get("more_body", False)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    if scope["path"] == "/slow":
        await send({"type": "http.response.body", "body": b"begun ", "more_body": True})
        await asyncio.sleep(3 * connections.PATIENCE)
    await send({"type": "http.response.body", "body": str(length).encode()})


@contextmanager
def running():
    """The address of a server of `application`, and the protocol of its connections."""
    listening = listen("127.0.0.1", 0)
    serving = server(application)
    thread = threading.Thread(target=serving.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        while not serving.started:
            time.sleep(0.01)
        yield listening.getsockname(), serving.config.http
    finally:
        serving.should_exit = True
        thread.join()
        listening.close()


def opened(address, part):
    """A connection over which a part of a request was sent."""
    connection = socket.create_connection(address, timeout=20)
    connection.sendall(part)
    return connection


def was_closed(connection):
    """Whether the server closes a connection without a word."""
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


@pytest.fixture
def impatient(monkeypatch):
    """Waits half a second for a request."""
    monkeypatch.setattr(connections, "PATIENCE", 0.5)


@pytest.mark.parametrize("part", PARTS)
def test_a_connection_without_a_whole_request_is_closed_after_a_while(impatient, part):
    with running() as (address, _), opened(address, part) as connection:
        began = time.monotonic()
        assert was_closed(connection)
        assert time.monotonic() - began > 0.3


def test_whole_requests_are_answered_however_long_the_answer_takes(impatient):
    with running() as ((host, port), protocol), httpx.Client(timeout=20) as client:
        assert client.post(f"http://{host}:{port}/slow", content=b"12345").text == "begun 5"
        assert client.get(f"http://{host}:{port}/").text == "0"
        assert not protocol.waiting


def test_a_body_may_come_in_pieces_as_long_as_none_is_late(monkeypatch):
    monkeypatch.setattr(connections, "PATIENCE", 1.0)
    with running() as ((host, port), _):

        def pieces():
            for _ in range(6):
                time.sleep(0.2)
                yield b"12"

        assert httpx.post(f"http://{host}:{port}/", content=pieces(), timeout=20).text == "12"


def test_beyond_the_limit_whoever_owes_a_request_longest_is_closed(monkeypatch, caplog):
    with running() as (address, protocol), caplog.at_level(logging.INFO):
        monkeypatch.setattr(protocol, "most", 6)
        silent = [opened(address, PARTS[number % len(PARTS)]) for number in range(20)]
        answers = [httpx.get("http://{}:{}/".format(*address), timeout=20).text for _ in range(3)]
        assert answers == ["0"] * 3
        assert all(was_closed(connection) for connection in silent[:12])
        assert len(protocol.waiting) <= 6
        for connection in silent:
            connection.close()
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_no_server_closes_connections_of_another(monkeypatch):
    """Each runs in an event loop of its own, which no other thread may call."""
    with running() as (address, _), running() as (other_address, other):
        monkeypatch.setattr(other, "most", 6)
        kept = [opened(address, b"GET / HT") for _ in range(3)]
        assert httpx.get("http://{}:{}/".format(*address), timeout=20).text == "0"  # they were taken before
        closed = [opened(other_address, b"") for _ in range(10)]
        assert was_closed(closed[0])
        for connection in kept:
            connection.sendall(b"TP/1.1\r\nHost: here\r\n\r\n")
            assert connection.recv(12) == b"HTTP/1.1 200"
        for connection in (*kept, *closed):
            connection.close()


def test_small_answers_are_sent_at_once(monkeypatch):
    """Nagle's algorithm and delayed acknowledgements would hold every second small answer for 40 ms."""
    seen = []
    made = PatientProtocol.connection_made

    def noted(self, transport):
        made(self, transport)
        seen.append(transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))

    monkeypatch.setattr(PatientProtocol, "connection_made", noted)
    with running() as ((host, port), _):
        httpx.get(f"http://{host}:{port}/")
    assert seen == [1]
