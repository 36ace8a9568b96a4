"""Addresses in records and message ids: numbers, and the names that ``--advertise`` may give."""

from __future__ import annotations

import socket

import pytest

from rmqclient.broker.address import Address
from rmqclient.broker.sending import hosts

PORT = (9876).to_bytes(4, "big")
LOOPBACK = bytes((127, 0, 0, 1)) + PORT


class Names:
    """What the host knows of names, and how often it was asked."""

    def __init__(self) -> None:
        self.known: dict[str, str] = {}
        self.asked = 0

    def look_up(self, name: str) -> str:
        self.asked += 1
        if name not in self.known:
            raise socket.gaierror("planted")
        return self.known[name]


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Names:
    names = Names()
    monkeypatch.setattr(socket, "gethostbyname", names.look_up)
    return names


@pytest.mark.parametrize(
    ("host", "packed"),
    [
        ("10.1.2.3", bytes((10, 1, 2, 3))),
        ("::ffff:10.1.2.3", bytes((10, 1, 2, 3))),
        ("::1", bytes(15) + b"\x01"),
    ],
)
def test_a_number_is_packed_as_it_is(names: Names, host: str, packed: bytes) -> None:
    assert hosts.packed(Address(host, 9876)) == packed + PORT
    assert names.asked == 0


def test_a_name_is_looked_up_once(names: Names) -> None:
    names.known["known.example"] = "10.1.2.4"
    for _ in range(3):
        assert hosts.packed(Address("known.example", 9876)) == bytes((10, 1, 2, 4)) + PORT
    assert names.asked == 1


def test_a_name_that_nobody_knows_yet_is_looked_up_again_after_a_while(
    names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr(hosts, "monotonic", lambda: now)
    late = Address("late.example", 9876)
    # Given a name that cannot be looked up when the server starts
    assert [hosts.packed(late) for _ in range(3)] == [LOOPBACK] * 3
    assert names.asked == 1
    # When it is known, then messages have its address after a moment
    names.known["late.example"] = "10.1.2.5"
    now += hosts.AGAIN_S
    assert hosts.packed(late) == bytes((10, 1, 2, 5)) + PORT
    assert hosts.packed(late) == bytes((10, 1, 2, 5)) + PORT
    assert names.asked == 2
