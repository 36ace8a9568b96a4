"""Limits: a client that takes too much is refused or cut off, and costs no memory that the limits do not allow."""

from __future__ import annotations

import dataclasses
import socket
import struct
import threading
from collections.abc import Callable

import pytest

from rmqclient.broker.limits.counters import Counters, Refusal
from rmqclient.broker.limits.limits import Limits
from rmqclient.broker.request import Request
from rmqclient.broker.settings import TlsMode, TlsSettings
from rmqclient.remoting.codes import RequestCode, ResponseCode
from rmqclient.remoting.frame import Frame, encode
from tests.broker.net.loopback import PATIENCE_S, Loopback, caller, echo, loopback

ASK = RequestCode.GET_BROKER_CLUSTER_INFO
MIB = 1 << 20


def test_one_connection_more_than_allowed_is_refused_until_another_one_ends() -> None:
    with loopback(echo, Limits(connections=2)) as server, caller(server.address) as first:
        with caller(server.address) as second:
            first.ask(Frame(ASK))
            second.ask(Frame(ASK))
            with caller(server.address) as third:
                assert third.receive() is None
            assert server.refused(Refusal.CONNECTION) == 1
        server.until(lambda: server.opened.count == 1)
        with caller(server.address) as fourth:
            assert fourth.ask(Frame(ASK, body=b"in")).body == b"in"


def test_one_address_takes_only_its_part_of_the_connections() -> None:
    with loopback(echo, Limits(connections_per_address=1)) as server, caller(server.address) as first:
        first.ask(Frame(ASK))
        with caller(server.address) as second:
            assert second.receive() is None
        assert server.refused(Refusal.ADDRESS) == 1
        # Then a client of another address still comes in
        with socket.create_connection(server.address, PATIENCE_S, ("127.0.0.2", 0)) as elsewhere:
            elsewhere.sendall(encode(Frame(ASK)))
            assert elsewhere.recv(4)


@pytest.mark.guarantee("G108")
@pytest.mark.parametrize("mode", [TlsMode.DISABLED, TlsMode.PERMISSIVE])
def test_a_client_that_resets_its_connection_at_once_is_counted_no_more(mode: TlsMode) -> None:
    def reset() -> None:
        sock = socket.create_connection(server.address, PATIENCE_S)
        sock.sendall(b"\0")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        sock.close()

    with loopback(echo, Limits(connections_per_address=1), TlsSettings(mode)) as server:
        for _ in range(3):
            server.on_loop(reset)  # so that the server looks when the connection is gone
            server.until(lambda: server.opened.count == 0)
        with caller(server.address) as client:
            assert client.ask(Frame(ASK, body=b"in")).body == b"in"


@pytest.mark.guarantee("G49")
def test_requests_that_wait_are_counted_and_too_many_get_system_busy() -> None:
    held: list[Request] = []

    def hold(request: Request) -> None:
        held.append(request)

    limits = Limits(flight_bytes=10 * MIB)
    with loopback(hold, limits) as server, caller(server.address) as client:
        # Given a client whose requests wait until nothing more fits
        client.send(*(Frame(ASK, body=bytes(3 * MIB), opaque=number) for number in range(3)))
        # Then one more is refused as a stock broker refuses it
        client.send(Frame(ASK, body=bytes(3 * MIB), opaque=3))
        busy = client.receive()
        assert busy is not None
        assert (busy.opaque, busy.code) == (3, ResponseCode.SYSTEM_BUSY)
        assert busy.remark == "[REJECTREQUEST]system busy, start flow control for a while"
        # And one of another client, too, because the limit is that of all
        with caller(server.address) as other:
            assert other.ask(Frame(ASK, body=bytes(3 * MIB))).code == ResponseCode.SYSTEM_BUSY
        # When the room lets go of what it held
        server.on_loop(held.clear)
        # Then there is room again
        client.send(Frame(ASK, body=bytes(3 * MIB), opaque=4))
        server.until(lambda: [request.frame.opaque for request in held] == [4])
        # And what a room holds of a client that has gone is still counted, until it lets go
        client.sock.close()
        server.until(lambda: server.opened.count == 0)
        server.on_loop(server.opened.flight.settle)
        assert server.opened.flight.bytes > 3 * MIB
        server.on_loop(held.clear)
        server.on_loop(server.opened.flight.settle)
        assert server.opened.flight.bytes == 0
        assert server.refused(Refusal.BUSY) == 2


@pytest.mark.guarantee("G49")
@pytest.mark.parametrize(
    "asked",
    [
        Frame(ASK, {"unknown": "x" * 100_000}),
        Frame(ASK, {f"{number:x}": "" for number in range(8_000)}),
        Frame(ASK, remark="x" * 100_000),
    ],
    ids=["a long field", "many short fields", "a long remark"],
)
def test_what_a_waiting_request_has_in_its_header_counts_as_its_body_does(asked: Frame) -> None:
    held: list[Request] = []

    def hold(request: Request) -> None:
        held.append(request)

    # Given room for a few of such requests, and for a thousand without such headers
    with loopback(hold, Limits(flight_bytes=4 * MIB)) as server, caller(server.address) as client:
        client.send(*(dataclasses.replace(asked, opaque=number) for number in range(100)))
        # Then the next ones are refused, and each that waits is counted with what its header takes
        busy = client.receive()
        assert busy is not None
        assert busy.code == ResponseCode.SYSTEM_BUSY
        server.until(lambda: len(held) + server.refused(Refusal.BUSY) == 100)
        assert len(held) * 100_000 < 5 * MIB
        server.on_loop(held.clear)
        server.on_loop(server.opened.flight.settle)
        assert server.opened.flight.bytes == 0


def test_the_longest_properties_of_a_message_fit_into_a_header_in_whichever_letters() -> None:
    longest = Frame(ASK, {"properties": "\x01" * 32_767})
    with loopback(echo) as server, caller(server.address) as client:
        assert client.ask(longest).code == 0


def test_a_half_sent_frame_without_room_is_refused_and_its_bytes_are_dropped_as_they_come() -> None:
    limits = Limits(flight_bytes=MIB)
    with loopback(echo, limits) as server, caller(server.address) as client:
        client.send(Frame(ASK, body=bytes(8 * MIB), opaque=1), Frame(ASK, body=b"next", opaque=2))
        busy, answer = client.receive(), client.receive()
        assert busy is not None
        assert answer is not None
        assert (busy.opaque, busy.code) == (1, ResponseCode.SYSTEM_BUSY)
        assert (answer.opaque, answer.body) == (2, b"next")
        assert server.opened.flight.bytes < MIB
    assert server.refused(Refusal.BUSY) == 1


def test_a_sender_that_stops_within_a_frame_is_cut_off() -> None:
    with loopback(echo, Limits(frame_s=0.1)) as server, caller(server.address) as client:
        client.ask(Frame(ASK))
        client.sock.sendall(encode(Frame(ASK, body=b"never ends"))[:-1])
        assert client.receive() is None
        assert server.refused(Refusal.HALF_FRAME) == 1


def test_a_sender_that_trickles_is_cut_off() -> None:
    with loopback(echo, Limits(frame_s=0.1)) as server, caller(server.address) as client:
        client.ask(Frame(ASK))
        ended = threading.Event()
        server.on_loop(lambda: server.made[0].when_closed(ended.set))
        client.sock.sendall(encode(Frame(ASK, body=bytes(MIB)))[:100])
        while not ended.wait(0.01):
            client.sock.sendall(b"x")
        assert server.refused(Refusal.HALF_FRAME) == 1


def test_a_client_that_does_not_read_is_not_read_from_and_others_go_on() -> None:
    asked: list[int] = []

    def answering(request: Request) -> Frame:
        asked.append(request.frame.opaque)
        return request.success(bytes(MIB))

    with loopback(answering, Limits(unsent_bytes_paused=MIB)) as server, caller(server.address) as client:
        # Given a client that asks and asks, and never reads
        client.sock.settimeout(0.2)
        with pytest.raises(TimeoutError):
            while True:
                client.sock.sendall(encode(Frame(ASK, body=bytes(100_000))))
        # Then the server has taken only some of its requests, and answers others
        taken = len(asked)
        with caller(server.address) as other:
            assert len(other.ask(Frame(ASK)).body) == MIB
        assert server.opened.unsent_bytes < 64 * MIB
        assert taken < 64
        # When it reads, then it gets every answer to what was taken
        client.sock.settimeout(PATIENCE_S)
        for _ in range(taken):
            assert client.receive() is not None


def long_answers_to(asked: list[int]) -> Callable[[Request], Frame]:
    """Return what answers with 1 MiB, and notes what was asked."""

    def answering(request: Request) -> Frame:
        asked.append(request.frame.opaque)
        return request.success(bytes(MIB))

    return answering


def waiting_of(server: Loopback) -> int:
    """Return how many requests of the first client wait."""
    flight = server.made[0]._flight
    server.opened.flight.settle()
    return flight.requests


MANY = [Frame(ASK, opaque=number) for number in range(200)]
"""They come by one read, and their answers take more than may wait for a client."""


def test_a_client_that_reads_gets_every_answer_to_many_requests_of_one_write() -> None:
    asked: list[int] = []
    with loopback(long_answers_to(asked)) as server, caller(server.address) as client:
        client.send(*MANY)
        answers = [client.receive() for _ in MANY]
        assert server.refused(Refusal.SLOW_READER) == 0
    assert [answer.opaque for answer in answers if answer] == asked == list(range(len(MANY)))


@pytest.mark.guarantee("G49")
def test_requests_of_one_write_wait_until_the_client_has_read_the_answers_before_them() -> None:
    asked: list[int] = []
    with loopback(long_answers_to(asked)) as server, caller(server.address) as client:
        # When a client asks much at once and does not read
        client.send(*MANY)
        server.until(lambda: server.opened.unsent_bytes > 0)
        # Then few of its requests have been answered, the others are counted, and others go on
        assert len(asked) < len(MANY) / 2
        assert server.opened.unsent_bytes < 4 * MIB
        assert server.on_loop(lambda: len(asked) + waiting_of(server)) == len(MANY)
        with caller(server.address) as other:
            assert len(other.ask(Frame(ASK)).body) == MIB
        # And when it reads, then it gets all, and can ask again
        answers = [client.receive() for _ in MANY]
        assert [answer.opaque for answer in answers if answer] == list(range(len(MANY)))
        assert client.ask(Frame(ASK, opaque=1_000)).opaque == 1_000
        server.until(lambda: server.made[0].is_idle)
        assert server.opened.flight.bytes == 0


def test_requests_that_wait_are_forgotten_with_their_client() -> None:
    asked: list[int] = []
    with loopback(long_answers_to(asked)) as server:
        with caller(server.address) as client:
            client.send(*MANY)
            server.until(lambda: server.opened.unsent_bytes > 0)
        server.until(lambda: server.opened.count == 0)
        server.until(lambda: server.made[0].is_idle)
        assert server.opened.flight.bytes == 0
        assert len(asked) < len(MANY) / 2


@pytest.mark.guarantee("G49")
def test_a_client_for_which_too_much_waits_is_cut_off() -> None:
    with loopback(echo, Limits(unsent_bytes_per_connection=4 * MIB)) as server, caller(server.address) as client:
        client.ask(Frame(ASK))
        ended = threading.Event()
        server.on_loop(lambda: server.made[0].when_closed(ended.set))
        # When the server itself has more and more for a client that does not read
        while not ended.wait(0.001):
            server.on_loop(lambda: server.made[0].send(Frame(0, flag=1, body=bytes(MIB))))
        assert server.refused(Refusal.SLOW_READER) == 1
        server.until(lambda: server.opened.count == 0)
        assert server.opened.unsent_bytes == 0


def test_a_client_that_stops_reading_for_too_long_is_cut_off() -> None:
    with loopback(echo, Limits(idle_s=60)) as server, caller(server.address) as client:
        client.ask(Frame(ASK))
        ended = threading.Event()
        server.on_loop(lambda: server.made[0].when_closed(ended.set))
        server.on_loop(lambda: server.made[0].send(Frame(0, flag=1, body=bytes(15 * MIB))))
        for _ in range(2):  # from the first look on it is quiet
            server.let_pass(60)
        assert ended.wait(PATIENCE_S)
        assert server.refused(Refusal.SLOW_READER) == 1


def test_the_log_has_at_most_one_line_a_second_for_each_kind(caplog: pytest.LogCaptureFixture) -> None:
    now = 100.0
    counters = Counters(lambda: now)
    for number in range(50):
        counters.refuse(Refusal.BUSY, f"busy {number}")
    counters.refuse(Refusal.FRAME, "no frame")
    now += 1.5
    counters.refuse(Refusal.BUSY, "busy again")
    assert [record.getMessage() for record in caplog.records if record.name.startswith("rmqclient.broker")] == [
        "busy 0",
        "no frame",
        "busy again (and 49 more requests over the bytes in flight before)",
    ]
    assert counters.table()["busy"] == 51


@pytest.mark.parametrize("setting", ["connections", "idle_s", "flight_bytes"])
def test_a_limit_of_nothing_is_refused(setting: str) -> None:
    with pytest.raises(ValueError, match=setting):
        Limits(**{setting: 0})


def test_no_limit_allows_longer_frames_than_the_protocol() -> None:
    with pytest.raises(ValueError, match="protocol"):
        Limits(frame_bytes=1 << 30)
