"""Connections: frames in, answers out in any order, requests to the client, and the end."""

from __future__ import annotations

import logging
import socket
import struct
import threading

import pytest

from rmqclient.broker.limits.counters import Refusal
from rmqclient.broker.limits.limits import Limits
from rmqclient.broker.request import Request
from rmqclient.remoting.codes import RequestCode, ResponseCode
from rmqclient.remoting.frame import MAX_FRAME_BYTES, RESPONSE, Frame, encode
from tests.broker.net.loopback import PATIENCE_S, caller, echo, loopback

ASK = RequestCode.GET_BROKER_CLUSTER_INFO


def test_many_requests_of_one_write_are_answered() -> None:
    with loopback(echo) as server, caller(server.address) as client:
        # When a client sends a hundred requests at once
        client.send(*(Frame(ASK, body=b"%d" % number, opaque=number) for number in range(100)))
        # Then each gets its own answer
        answers = [client.receive() for _ in range(100)]
    assert [(answer.opaque, answer.body) for answer in answers if answer] == [(n, b"%d" % n) for n in range(100)]


def test_a_frame_that_comes_byte_by_byte_is_answered() -> None:
    with loopback(echo) as server, caller(server.address) as client:
        for byte in encode(Frame(ASK, body=b"slow", opaque=7)):
            client.sock.sendall(bytes((byte,)))
        answer = client.receive()
    assert answer is not None
    assert (answer.opaque, answer.body) == (7, b"slow")


def test_a_later_request_may_be_answered_first() -> None:
    held: list[Request] = []

    def answering(request: Request) -> Frame | None:
        if request.body == b"hold":
            held.append(request)
            return None
        for waiting in held:
            waiting.answer(waiting.success(b"late"))
        held.clear()
        return request.success(b"now")

    with loopback(answering) as server, caller(server.address) as client:
        client.send(Frame(ASK, body=b"hold", opaque=1), Frame(ASK, opaque=2))
        answers = [client.receive(), client.receive()]
    assert sorted((answer.opaque, answer.body) for answer in answers if answer) == [(1, b"late"), (2, b"now")]


def test_nobody_is_answered_who_wants_no_answer() -> None:
    with loopback(echo) as server, caller(server.address) as client:
        client.send(Frame(ASK, opaque=1, flag=2), Frame(ASK, opaque=2))
        answer = client.receive()
    assert answer is not None
    assert answer.opaque == 2


def test_the_client_is_asked_and_its_answer_comes_back() -> None:
    answered: list[Frame | None] = []
    is_answered = threading.Event()

    def done(answer: Frame | None) -> None:
        answered.append(answer)
        is_answered.set()

    with loopback(echo) as server, caller(server.address) as client:
        client.ask(Frame(ASK))
        server.on_loop(lambda: server.made[0].call(Frame(RequestCode.GET_CONSUMER_RUNNING_INFO), PATIENCE_S, done))
        asked = client.receive()
        assert asked is not None
        client.send(Frame(0, opaque=asked.opaque, flag=RESPONSE, body=b"running"))
        assert is_answered.wait(PATIENCE_S)
    assert answered[0] is not None
    assert answered[0].body == b"running"


def test_what_is_sent_does_not_wait_until_the_client_has_acknowledged_what_was_sent_before() -> None:
    """Nagle's algorithm holds a small answer until then, and Linux acknowledges 40 ms late."""
    with loopback(echo) as server, caller(server.address) as client:
        client.ask(Frame(ASK))
        transport = server.made[0]._transport
        assert transport is not None
        accepted = transport.get_extra_info("socket")
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@pytest.mark.parametrize("ends", ["the time passes", "the client goes"])
def test_a_request_to_a_client_that_does_not_answer_ends(ends: str) -> None:
    is_answered = threading.Event()
    answered: list[Frame | None] = []

    def done(answer: Frame | None) -> None:
        answered.append(answer)
        is_answered.set()

    timeout_s = 0.01 if ends == "the time passes" else 1000.0
    with loopback(echo) as server, caller(server.address) as client:
        client.ask(Frame(ASK))
        server.on_loop(lambda: server.made[0].call(Frame(RequestCode.GET_CONSUMER_RUNNING_INFO), timeout_s, done))
        if ends == "the client goes":
            client.sock.close()
        assert is_answered.wait(PATIENCE_S)
    assert answered == [None]


def test_everybody_is_told_that_a_client_has_gone_even_if_one_of_them_fails(caplog: pytest.LogCaptureFixture) -> None:
    told = threading.Event()

    def fail() -> None:
        raise RuntimeError("planted")

    with loopback(echo) as server:
        with caller(server.address) as client:
            client.ask(Frame(ASK))
            server.on_loop(lambda: server.made[0].when_closed(fail))
            server.on_loop(lambda: server.made[0].when_closed(told.set))
        assert told.wait(PATIENCE_S)
        # And what is sent afterwards goes nowhere
        server.on_loop(lambda: server.made[0].send(Frame(0, flag=RESPONSE)))
    assert "planted" in caplog.text


def test_the_look_at_the_connections_goes_on_after_one_that_fails(caplog: pytest.LogCaptureFixture) -> None:
    looked = threading.Event()

    class Failing:
        def look(self, now: float) -> None:
            raise RuntimeError(f"planted at {now}")

    class Looked:
        def look(self, now: float) -> None:
            del now
            looked.set()

    with loopback(echo, Limits(frame_s=0.05)) as server:
        server.on_loop(lambda: server.opened.watched.update((Failing(), Looked(), Failing())))
        for _ in range(3):
            assert looked.wait(PATIENCE_S)
            looked.clear()
        server.on_loop(server.opened.watched.clear)
    assert "planted" in caplog.text


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (struct.pack(">i", MAX_FRAME_BYTES), "16,777,216 bytes is announced"),
        (struct.pack(">i", -1), "-1 bytes is announced"),
        (struct.pack(">iI", 9 << 20, 2 << 20), "a header of 2,097,152 bytes is announced"),
        (b"GET / HTTP/1.1\r\n\r\n", "is announced"),
        (struct.pack(">iI", 8, 4) + b"[[[[", "not JSON"),
        (b"\x16\x03\x01\x02\x00\x01\x00", "speaks TLS"),
    ],
)
def test_what_is_no_frame_ends_the_connection_with_one_line(
    sent: bytes, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    with loopback(echo) as server, caller(server.address) as client:
        # Given a request in front of the damage
        client.sock.sendall(encode(Frame(ASK, opaque=5)) + sent)
        # Then that is answered, and the connection ends although the client would send on
        answer = client.receive()
        assert answer is not None
        assert answer.opaque == 5
        assert client.receive() is None
        assert server.refused(Refusal.FRAME) == 1
    server_says = (record for record in caplog.records if record.name.startswith("rmqclient.broker"))
    lines = [record.getMessage() for record in server_says if record.levelno >= logging.WARNING]
    assert len(lines) == 1
    assert why in lines[0]


def test_an_answer_that_is_too_long_becomes_one_that_says_so() -> None:
    with (
        loopback(lambda request: request.success(bytes(MAX_FRAME_BYTES))) as server,
        caller(server.address) as client,
    ):
        answer = client.ask(Frame(ASK, opaque=3))
        assert server.refused(Refusal.ANSWER) == 1
    assert (answer.opaque, answer.code) == (3, ResponseCode.SYSTEM_ERROR)
    assert "16,777,216" in (answer.remark or "")


def test_a_quiet_connection_ends_and_a_busy_one_does_not() -> None:
    with loopback(echo, Limits(idle_s=60)) as server, caller(server.address) as quiet, caller(server.address) as busy:
        quiet.ask(Frame(ASK))
        for _ in range(3):
            busy.ask(Frame(ASK))
            server.let_pass(40)
        assert quiet.receive() is None
        assert busy.ask(Frame(ASK, body=b"still here")).body == b"still here"
        assert server.refused(Refusal.IDLE) == 1
