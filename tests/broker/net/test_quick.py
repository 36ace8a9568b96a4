"""Frames that are answered before they are read, among others, however the bytes are split."""

from __future__ import annotations

from rmqclient.broker.address import Address
from rmqclient.broker.limits.limits import Limits
from rmqclient.broker.request import Request
from rmqclient.remoting.frame import Frame, encode
from tests.broker.net.loopback import Loopback, caller, echo, loopback

MARK = b"quick"


class Taking:
    """Answers frames whose body begins with a mark, and notes how often it was asked."""

    def __init__(self) -> None:
        self.asked = self.taken = 0
        self.clients: set[tuple[Address, Address]] = set()

    def take(self, data: bytes, at: int, remote: Address, local: Address) -> tuple[bytes, int]:
        answers = b""
        self.asked += 1
        self.clients.add((remote, local))
        while len(data) - at >= 8:
            end = at + 4 + int.from_bytes(data[at : at + 4], "big")
            body = at + 8 + (int.from_bytes(data[at + 4 : at + 8], "big") & 0xFFFFFF)
            if end > len(data) or not data[body:end].startswith(MARK):
                break
            self.taken += 1
            answers += encode(Frame(0, {}, data[body:end] + b" taken", flag=1))
            at = end
        return answers, at


def frames_of(count: int) -> list[Frame]:
    return [Frame(34, {}, (MARK if number % 3 else b"read") + b" %d" % number, number) for number in range(count)]


def expected_of(count: int) -> list[bytes]:
    return sorted(b"quick %d taken" % number if number % 3 else b"read %d" % number for number in range(count))


def bodies_of(running: Loopback, chunks: list[bytes], count: int) -> list[bytes]:
    with caller(running.address) as client:
        for chunk in chunks:
            client.sock.sendall(chunk)
        found = [client.receive() for _ in range(count)]
    return sorted(frame.body for frame in found if frame is not None)


def test_taken_frames_and_others_are_all_answered() -> None:
    taking = Taking()
    with loopback(echo, quick=taking.take) as running:
        data = b"".join(map(encode, frames_of(60)))
        assert bodies_of(running, [data], 60) == expected_of(60)
        assert taking.taken == 40
        ((remote, local),) = taking.clients
        assert (local, remote.host) == (running.address, "127.0.0.1")


def test_a_frame_that_is_read_was_offered_once() -> None:
    taking = Taking()
    with loopback(echo, quick=taking.take) as running:
        assert bodies_of(running, [encode(Frame(34, {}, b"read", 1))], 1) == [b"read"]
    assert taking.asked == 1


def test_frames_that_come_byte_by_byte_are_taken_once() -> None:
    taking = Taking()
    with loopback(echo, quick=taking.take) as running:
        data = b"".join(map(encode, frames_of(4)))
        assert bodies_of(running, [data[at : at + 1] for at in range(len(data))], 4) == expected_of(4)
        assert taking.taken == 2
        assert running.on_loop(lambda: running.opened.flight.bytes) == 0


def test_nothing_is_taken_where_no_request_may_wait() -> None:
    taking = Taking()
    held: list[Request] = []

    def hold(request: Request) -> Frame | None:
        held.append(request)
        return None

    with loopback(hold, Limits(flight_bytes_per_connection=5_000), quick=taking.take) as running:
        with caller(running.address) as client:
            client.send(Frame(34, {}, b"x" * 2_500, 1))
            running.until(lambda: len(held) == 1)
            client.send(Frame(34, {}, MARK, 2))
            answer = client.receive()
        assert answer is not None
        assert (answer.code, taking.taken) == (2, 0)
