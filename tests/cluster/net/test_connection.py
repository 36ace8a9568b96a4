"""A connection: requests and answers, in any order, from many threads, and their time."""

from __future__ import annotations

import os
import socket
import threading
import time
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from types import SimpleNamespace

import pytest

from rmqclient.cluster.net import connection as connection_module
from rmqclient.cluster.net import io_thread
from rmqclient.cluster.net.connections import CLOSE_WAIT_S, Connections
from rmqclient.errors import FrameError, QueueError, RequestTimedOut, StoreClosed
from rmqclient.remoting.frame import Frame, encode
from rmqclient.remoting.table import RequestCode
from tests.cluster.net.conftest import closing, question
from tests.support.cluster.raw_peer import echo, echoed, raw_peer, requests_of, stay_silent

PATIENCE_S = 20.0


class Collected:
    """Answers of submitted requests, as they come."""

    def __init__(self, count: int) -> None:
        self.answers: list[Frame | QueueError] = []
        self._count = count
        self._all = threading.Event()

    def __call__(self, answer: Frame | QueueError) -> None:
        self.answers.append(answer)
        if len(self.answers) == self._count:
            self._all.set()

    def wait(self) -> list[Frame | QueueError]:
        assert self._all.wait(PATIENCE_S), f"{len(self.answers)} of {self._count} came"
        return self.answers


def test_a_request_gets_its_answer(connections: Connections) -> None:
    with raw_peer(echo) as peer:
        assert connections.to(peer.address).ask(question(b"one"), 5).body == b"one"
        assert connections.to(peer.address).ask(question(b"two"), 5).body == b"two"
        assert len(peer.sockets) == 1


def test_a_name_is_resolved(connections: Connections) -> None:
    with raw_peer(echo) as peer:
        assert connections.to(f"localhost:{peer.port}").ask(question(b"one"), 5).body == b"one"


def test_answers_in_reverse_order_reach_their_requests(connections: Connections) -> None:
    count = 500

    def serve(accepted: socket.socket) -> None:
        asked = [frame for _, frame in zip(range(count), requests_of(accepted), strict=False)]
        for frame in reversed(asked):
            accepted.sendall(echoed(frame))

    with raw_peer(serve) as peer:
        connection = connections.to(peer.address)
        taken: dict[bytes, Frame | QueueError] = {}
        collected = Collected(count)
        for number in range(count):
            body = str(number).encode()

            def done(answer: Frame | QueueError, body: bytes = body) -> None:
                taken[body] = answer
                collected(answer)

            connection.submit(question(body), done, 10)
        collected.wait()
        assert all(isinstance(answer, Frame) and answer.body == body for body, answer in taken.items())
        assert next(iter(taken)) == str(count - 1).encode()


def test_ten_thousand_requests_are_under_way_at_once(connections: Connections) -> None:
    count = 10_000
    release = threading.Event()

    def serve(accepted: socket.socket) -> None:
        for number, frame in enumerate(requests_of(accepted)):
            if number == 0:
                assert release.wait(PATIENCE_S)
            accepted.sendall(echoed(frame))

    with raw_peer(serve) as peer:
        connection = connections.to(peer.address)
        collected = Collected(count)
        for number in range(count):
            connection.submit(question(str(number).encode()), collected, 15)
        release.set()
        bodies = {answer.body for answer in collected.wait() if isinstance(answer, Frame)}
        assert bodies == {str(number).encode() for number in range(count)}


def test_many_threads_share_a_connection(connections: Connections) -> None:
    wrong: list[bytes] = []

    def ask(thread: int) -> None:
        for number in range(100):
            body = f"{thread}-{number}-".encode() * 200
            if connections.to(peer.address).ask(question(body), 15).body != body:
                wrong.append(body)

    with raw_peer(echo) as peer:
        threads = [threading.Thread(target=ask, args=(number,)) for number in range(32)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
        assert wrong == []
        assert len(peer.sockets) == 1


@pytest.mark.parametrize("size", [1, 1 << 16, (1 << 18) + 1, 8 << 20, (16 << 20) - 300])
def test_bodies_of_every_size_arrive(connections: Connections, size: int) -> None:
    with raw_peer(echo) as peer:
        body = b"x" * size
        assert connections.to(peer.address).ask(question(body), 15).body == body


def test_a_request_that_is_too_long_is_refused_and_the_connection_goes_on(connections: Connections) -> None:
    with raw_peer(echo) as peer:
        connection = connections.to(peer.address)
        with pytest.raises(FrameError, match="16,777,216"):
            connection.ask(question(b"x" * (16 << 20)), 5)
        assert connection.ask(question(b"one"), 5).body == b"one"


def test_an_answer_that_nobody_waits_for_is_dropped(connections: Connections) -> None:
    def serve(accepted: socket.socket) -> None:
        for frame in requests_of(accepted):
            accepted.sendall(encode(Frame(0, opaque=-7, flag=1, body=b"whose?")) * 3)
            accepted.sendall(echoed(frame))

    with raw_peer(serve) as peer:
        assert connections.to(peer.address).ask(question(b"one"), 5).body == b"one"


def test_a_request_times_out_on_time_and_alone(connections: Connections) -> None:
    def serve(accepted: socket.socket) -> None:
        for frame in requests_of(accepted):
            if frame.body != b"held":
                accepted.sendall(echoed(frame))

    with raw_peer(serve) as peer:
        connection = connections.to(peer.address)
        begun = time.monotonic()
        with pytest.raises(RequestTimedOut, match=r"GET_MAX_OFFSET in 0\.3 s"):
            connection.ask(question(b"held"), 0.3)
        assert 0.3 <= time.monotonic() - begun < 5
        assert connection.ask(question(b"one"), 5).body == b"one"
        assert connections.to(peer.address) is connection


def test_submitted_requests_time_out_in_the_order_of_their_time(
    connections: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = SimpleQueue[tuple[float, Frame | QueueError]]()

    def done(timeout_s: float, answer: Frame | QueueError) -> None:
        ended.put((timeout_s, answer))

    with raw_peer(stay_silent) as peer:
        # Given three requests of one moment
        connection = connections.to(peer.address)
        now = begun = time.monotonic()
        clock = SimpleNamespace(monotonic=lambda: now)
        for module in (connection_module, io_thread):
            monkeypatch.setattr(module, "time", clock)
        for timeout_s in (0.5, 0.1, 0.3):
            connection.submit(question(), partial(done, timeout_s), timeout_s)

        # When the time of one is up, then that one ends, and no other
        for timeout_s in (0.1, 0.3, 0.5):
            now = begun + timeout_s
            late, answer = ended.get(timeout=PATIENCE_S)
            assert (late, type(answer)) == (timeout_s, RequestTimedOut)
            assert ended.empty()


def test_a_late_answer_does_no_harm(connections: Connections) -> None:
    late = threading.Event()

    def serve(accepted: socket.socket) -> None:
        for frame in requests_of(accepted):
            if frame.body == b"late":
                assert late.wait(PATIENCE_S)
            accepted.sendall(echoed(frame))

    with raw_peer(serve) as peer:
        connection = connections.to(peer.address)
        with pytest.raises(RequestTimedOut):
            connection.ask(question(b"late"), 0.2)
        late.set()
        assert connection.ask(question(b"next"), 5).body == b"next"


def test_a_callback_that_raises_does_not_end_the_thread_of_all(
    connections: Connections, caplog: pytest.LogCaptureFixture
) -> None:
    def done(answer: Frame | QueueError) -> None:
        raise RuntimeError("a fault of the application")

    with raw_peer(echo) as peer:
        connection = connections.to(peer.address)
        connection.submit(question(), done, 5)
        assert connection.ask(question(b"one"), 5).body == b"one"
    assert "a fault of the application" in caplog.text


def test_closing_ends_requests_that_wait(connections: Connections) -> None:
    raised: list[QueueError] = []

    def ask() -> None:
        try:
            connections.to(peer.address).ask(question(), 15)
        except QueueError as error:
            raised.append(error)

    with raw_peer(stay_silent) as peer:
        threads = [threading.Thread(target=ask) for _ in range(8)]
        for thread in threads:
            thread.start()
        while not peer.sockets:
            time.sleep(0.001)
        begun = time.monotonic()
        connections.close(StoreClosed("closed while requests wait"))
        for thread in threads:
            thread.join(PATIENCE_S)
        assert time.monotonic() - begun < CLOSE_WAIT_S
        assert [type(error) for error in raised] == [StoreClosed] * 8
        with pytest.raises(StoreClosed):
            connections.to(peer.address)


def test_a_call_for_a_thread_that_has_ended_writes_into_no_file_of_somebody_else(tmp_path: Path) -> None:
    # Given a file that has got the descriptor of the thread's bell
    thread = io_thread.IoThread()
    bell = thread._bell
    thread.end()
    path = tmp_path / "file"
    taken = [os.open(path, os.O_RDWR | os.O_CREAT)]
    while taken[-1] < bell:
        taken.append(os.dup(taken[0]))

    # When somebody is late
    thread.run_soon(lambda: None)
    thread.check_at(time.monotonic())

    # Then the file is as it was
    assert path.read_bytes() == b""
    for descriptor in taken:
        os.close(descriptor)


def test_two_users_share_one_thread_and_the_last_one_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    # Given a process in which nobody uses the thread, whatever other tests have left
    monkeypatch.setattr(io_thread, "_shared", None)
    before = set(threading.enumerate())

    def names() -> list[str]:
        return [thread.name for thread in set(threading.enumerate()) - before if thread.name == "rmq-cluster-io"]

    connections = Connections(None, 1.0, lambda *_: None, lambda _: None)

    with raw_peer(echo) as peer:
        connections.to(peer.address).ask(question(), 5)
        with closing(Connections(None, 1.0, lambda *_: None, lambda _: None)) as others:
            others.to(peer.address).ask(question(), 5)
            assert names() == ["rmq-cluster-io"]
        assert names() == ["rmq-cluster-io"]
        assert connections.to(peer.address).ask(question(b"still"), 5).body == b"still"
        connections.close(StoreClosed("over"))
        assert names() == []


def test_a_oneway_request_says_so(connections: Connections) -> None:
    came: list[Frame] = []

    def serve(accepted: socket.socket) -> None:
        for frame in requests_of(accepted):
            came.append(frame)
            if not frame.is_oneway:
                accepted.sendall(echoed(frame))

    with raw_peer(serve) as peer:
        connections.to(peer.address).tell(question(b"told"))
        connections.to(peer.address).ask(question(b"asked"), 5)
    assert [(frame.body, frame.is_oneway) for frame in came] == [(b"told", True), (b"asked", False)]
    assert came[0].code == RequestCode.GET_MAX_OFFSET
