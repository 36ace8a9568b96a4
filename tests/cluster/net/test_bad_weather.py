"""Peers that are gone, slow, silent, stopped or mad: typed errors in bounded time, and bounded memory."""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from typing import Any

import pytest

from rmqclient.cluster.net import connections as connections_module
from rmqclient.cluster.net import wire
from rmqclient.cluster.net.connections import Connections
from rmqclient.errors import (
    BrokerUnreachable,
    ConnectionFull,
    ConnectionLost,
    QueueError,
    RequestTimedOut,
)
from rmqclient.remoting.frame import Frame, FrameReader, encode
from tests.cluster.net.conftest import closing, forget, ignore, question
from tests.support.cluster.raw_peer import answer_with, echo, echoed, raw_peer, requests_of, stay_silent
from tests.support.host.ports import address_of, nobody_listens

PATIENCE_S = 20.0


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    begun = time.monotonic()
    yield
    assert time.monotonic() - begun < seconds


def test_a_port_where_nobody_listens_is_refused_at_once(connections: Connections) -> None:
    with nobody_listens() as nobody, at_most(10), pytest.raises(BrokerUnreachable, match="refused") as raised:
        connections.to(address_of(nobody)).ask(question(), 15)
    assert not raised.value.stored
    assert raised.value.retryable


def test_a_name_that_nobody_knows_is_refused(connections: Connections) -> None:
    with at_most(5), pytest.raises(BrokerUnreachable, match=r"nowhere\.invalid"):
        connections.to("nowhere.invalid:9876").ask(question(), 15)


def test_a_host_to_which_there_is_no_way_is_refused_at_once(connections: Connections) -> None:
    # Given an address of a group of hosts, to which the kernel makes no connection
    with at_most(5), pytest.raises(BrokerUnreachable, match="unreachable") as raised:
        connections.to("224.0.0.1:9876").ask(question(), 15)
    assert not raised.value.stored


def test_the_next_address_of_a_name_is_tried_when_there_is_no_way_to_the_first(
    connections: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = socket.getaddrinfo

    def resolved(host: str, port: int, **options: Any) -> list[Any]:
        if host != "two.example":
            return known(host, port, **options)
        if options.get("flags"):
            raise socket.gaierror("not a number")
        return [*known("224.0.0.1", port, **options), *known("127.0.0.1", port, **options)]

    with raw_peer(echo) as peer:
        monkeypatch.setattr(socket, "getaddrinfo", resolved)
        assert connections.to(f"two.example:{peer.port}").ask(question(b"one"), 5).body == b"one"


def test_a_host_that_does_not_answer_is_given_up(hasty: Connections) -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        waiting = [socket.socket() for _ in range(4)]
        for each in waiting:
            each.setblocking(False)
            each.connect_ex(
                full.getsockname()
            )  # the queue of the listener is full, and the kernel drops who else comes
        with at_most(10), pytest.raises(BrokerUnreachable, match="not connected in 1 s"):
            hasty.to(f"127.0.0.1:{full.getsockname()[1]}").ask(question(), 15)
        for each in waiting:
            each.close()


def test_an_address_that_failed_is_left_alone_for_a_while_and_then_found_again(
    connections: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections_module, "FIRST_PAUSE_S", 60.0)
    monkeypatch.setattr(connections_module, "LONGEST_PAUSE_S", 60.0)
    with nobody_listens() as listener:
        address = address_of(listener)
        for _ in range(6):
            with suppress(BrokerUnreachable):
                connections.to(address).ask(question(), 5)
        with pytest.raises(BrokerUnreachable, match=r"refused; it is tried again in [5-9]\d\.\d\d s"):
            connections.to(address)
        listener.listen()
        listener.settimeout(PATIENCE_S)
        later = SimpleNamespace(monotonic=lambda: time.monotonic() + 100)
        monkeypatch.setattr(connections_module, "time", later)
        connections.to(address).tell(question(b"here you are"))
        accepted, _ = listener.accept()
        with accepted:
            accepted.settimeout(PATIENCE_S)
            assert next(requests_of(accepted)).body == b"here you are"


MAD_BYTES = {
    "text": b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n",
    "zeros": bytes(64),
    "a frame of 16 MiB and one byte": struct.pack(">i", (16 << 20) + 1 - 4) + b"x" * 64,
    "a negative length": struct.pack(">i", -1) + b"x" * 64,
    "a header longer than its frame": struct.pack(">ii", 16, 1 << 16) + b"x" * 64,
    "a header that is not JSON": struct.pack(">ii", 12, 8) + b"{{{{{{{{",
    "a serialization that nobody has": struct.pack(">ii", 12, 9 << 24 | 8) + b"x" * 64,
    "a TLS alert": b"\x15\x03\x03\x00\x02\x02\x46" + bytes(32),
}


@pytest.mark.parametrize("data", MAD_BYTES.values(), ids=MAD_BYTES)
def test_bytes_that_are_no_frame_end_the_connection(connections: Connections, data: bytes) -> None:
    with raw_peer(answer_with(data)) as peer, at_most(5), pytest.raises(ConnectionLost, match=peer.address) as raised:
        connections.to(peer.address).ask(question(), 15)
    assert raised.value.stored


def test_answers_before_the_damage_still_count(connections: Connections) -> None:
    def serve(accepted: socket.socket) -> None:
        for frame in requests_of(accepted):
            accepted.sendall(echoed(frame) + b"\xff" * 64)

    with raw_peer(serve) as peer:
        assert connections.to(peer.address).ask(question(b"one"), 5).body == b"one"


def test_a_connection_that_ends_in_the_middle_of_an_answer_is_lost(connections: Connections) -> None:
    def serve(accepted: socket.socket) -> None:
        answer = echoed(next(requests_of(accepted)))
        accepted.sendall(answer[: len(answer) // 2])

    with raw_peer(serve) as peer, at_most(5), pytest.raises(ConnectionLost, match="closed the connection"):
        connections.to(peer.address).ask(question(b"x" * 1000), 15)


def test_half_a_header_and_then_nothing_times_out(connections: Connections) -> None:
    with raw_peer(answer_with(b"\x00\x00")) as peer, at_most(5), pytest.raises(RequestTimedOut):
        connections.to(peer.address).ask(question(), 0.5)


def test_after_a_loss_the_next_request_gets_a_new_connection(connections: Connections) -> None:
    def serve(accepted: socket.socket) -> None:
        for frame in requests_of(accepted):
            if frame.body == b"hang up":
                return
            accepted.sendall(echoed(frame))

    with raw_peer(serve) as peer:
        for _ in range(5):
            assert connections.to(peer.address).ask(question(b"one"), 5).body == b"one"
            with pytest.raises(ConnectionLost):
                connections.to(peer.address).ask(question(b"hang up"), 5)
        assert len(peer.sockets) == 5


def test_all_requests_of_a_lost_connection_hear_of_it(connections: Connections) -> None:
    hang_up = threading.Event()

    def serve(accepted: socket.socket) -> None:
        assert hang_up.wait(PATIENCE_S)

    with raw_peer(serve) as peer:
        connection = connections.to(peer.address)
        ended: list[Frame | QueueError] = []
        all_ended = threading.Event()

        def done(answer: Frame | QueueError) -> None:
            ended.append(answer)
            if len(ended) == 1000:
                all_ended.set()

        for _ in range(1000):
            connection.submit(question(), done, 15)
        hang_up.set()
        assert all_ended.wait(5)
        assert {type(error) for error in ended} == {ConnectionLost}
        assert len(set(map(id, ended))) == 1000


def test_a_request_that_times_out_while_the_connection_ends_disturbs_no_other(
    connections: Connections, caplog: pytest.LogCaptureFixture
) -> None:
    class Racing(dict[int, object]):
        """A table from which the thread that asked takes its request just after somebody has looked for one."""

        def __bool__(self) -> bool:
            found = len(self) > 0
            self.clear()
            return found

    with raw_peer(stay_silent) as peer:
        connection = connections.to(peer.address)
        connection._waiting = Racing()  # type: ignore[assignment]
        connection.submit(question(), lambda _: None, 15)
        connection.end(ConnectionLost("the peer closed the connection"))
        ended = threading.Event()
        connections.io().run_soon(ended.set)
        assert ended.wait(PATIENCE_S)
    assert "KeyError" not in caplog.text


def test_a_silent_peer_is_asked_and_then_cut_off(hasty: Connections) -> None:
    ended: list[Frame | QueueError] = []
    cut_off = threading.Event()

    def done(answer: Frame | QueueError) -> None:
        ended.append(answer)
        cut_off.set()

    with raw_peer(stay_silent) as peer:
        connection = hasty.to(peer.address)
        connection.submit(question(b"a held pull"), done, 30)
        while not connection._wire.was_open:
            time.sleep(0.001)
        with at_most(10):  # the request's time, that of the question, which is 1 s here, and some
            with pytest.raises(RequestTimedOut):
                connection.ask(question(), 0.3)
            assert cut_off.wait(PATIENCE_S)
        assert isinstance(ended[0], ConnectionLost)
        assert "silent" in str(ended[0])
        assert not connection.is_usable


def test_a_slow_peer_that_answers_something_is_not_cut_off(connections: Connections) -> None:
    def serve(accepted: socket.socket) -> None:
        for frame in requests_of(accepted):
            if frame.body != b"slow":
                accepted.sendall(echoed(frame))

    with raw_peer(serve) as peer:
        connection = connections.to(peer.address)
        for _ in range(3):
            with pytest.raises(RequestTimedOut):
                connection.ask(question(b"slow"), 0.4)
        assert connection.ask(question(b"quick"), 5).body == b"quick"
        assert connections.to(peer.address) is connection


STOPPED_PEER = """
import socket
from tests.support.cluster.raw_peer import echo, raw_peer
import sys
with raw_peer(echo) as peer:
    print(peer.port, flush=True)
    sys.stdin.read()
"""


def test_a_peer_that_is_stopped_costs_no_more_than_its_time(hasty: Connections) -> None:
    command = [sys.executable, "-c", STOPPED_PEER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdin is not None
        address = f"127.0.0.1:{int(child.stdout.readline())}"
        assert hasty.to(address).ask(question(b"one"), 5).body == b"one"
        os.kill(child.pid, signal.SIGSTOP)
        os.waitpid(child.pid, os.WUNTRACED)  # all of its threads stand still now
        try:
            stopped = hasty.to(address)
            lost = threading.Event()
            stopped.submit(question(), lambda _: lost.set(), 60)
            with at_most(10):
                with pytest.raises(RequestTimedOut):
                    stopped.ask(question(), 0.3)
                assert lost.wait(PATIENCE_S)
        finally:
            os.kill(child.pid, signal.SIGCONT)
        assert ask_patiently(hasty, address) == b"again"
        child.stdin.close()


def ask_patiently(connections: Connections, address: str) -> bytes:
    """Return the body of an answer, however often the address is still left alone."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return connections.to(address).ask(question(b"again"), 5).body
        except BrokerUnreachable:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_a_peer_that_does_not_read_costs_no_more_memory_than_the_limit(
    connections: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "MOST_UNSENT_BYTES", 4 << 20)
    read = threading.Event()
    bodies: list[int] = []

    def serve(accepted: socket.socket) -> None:
        assert read.wait(PATIENCE_S)
        reader = FrameReader()
        while data := accepted.recv(1 << 16):
            for frame in reader.feed(data):
                bodies.append(int(frame.body[:8]))
                if frame.body.endswith(b"last"):
                    accepted.sendall(encode(Frame(0, opaque=frame.opaque, flag=1)))

    with raw_peer(serve) as peer:
        connection = connections.to(peer.address)
        told = 0
        with pytest.raises(ConnectionFull, match="reads too slowly"):
            while told < 1000:
                connection.tell(question(f"{told:08}".encode() + b"x" * (100 << 10)))
                told += 1
        assert told * (100 << 10) < 30 << 20  # the limit, and what the kernel keeps of it
        read.set()
        while True:
            with suppress(ConnectionFull):
                connection.ask(question(f"{told:08}last".encode()), 15)
                break
        assert bodies == list(range(told + 1))


def test_a_peer_that_accepts_and_closes_is_not_asked_without_end(connections: Connections) -> None:
    def serve(accepted: socket.socket) -> None:
        del accepted

    with raw_peer(serve) as peer:
        deadline = time.monotonic() + 1
        while time.monotonic() < deadline:
            with suppress(BrokerUnreachable):
                connections.to(peer.address).ask(question(), 5)
        assert 1 <= len(peer.sockets) < 12


def test_a_connection_that_is_being_made_can_be_closed() -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        waiting = [socket.socket() for _ in range(4)]
        for each in waiting:
            each.setblocking(False)
            each.connect_ex(full.getsockname())
        raised: list[QueueError] = []
        with closing(Connections(None, 30.0, ignore, forget)) as opened:
            opened.to(f"127.0.0.1:{full.getsockname()[1]}").submit(
                question(), lambda answer: raised.append(answer) if isinstance(answer, QueueError) else None, 30
            )
        assert [str(error) for error in raised] == ["the test is over"]
        for each in waiting:
            each.close()
