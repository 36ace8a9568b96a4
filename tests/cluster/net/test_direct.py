"""A direct connection: one thread asks a broker and waits for its answers, each wait for a limited time."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from rmqclient.cluster.address.url import ClusterURL, TlsOptions
from rmqclient.cluster.net.direct import DirectConnection
from rmqclient.errors import BrokerUnreachable, ConnectionLost, QueueError, RequestTimedOut, TlsFailed
from rmqclient.remoting.frame import Frame, encode
from tests.cluster.net.conftest import question
from tests.cluster.net.test_tls import with_tls
from tests.support.cluster.certificates import Authority
from tests.support.cluster.raw_peer import RawPeer, Serve, answer_with, echo, raw_peer, requests_of, stay_silent

URL = ClusterURL(("127.0.0.1:1",), timeout_s=20)
SECURED = replace(URL, tls=TlsOptions())


@contextmanager
def opened(peer: RawPeer, url: ClusterURL = URL) -> Iterator[DirectConnection]:
    connection = DirectConnection(url, peer.address)
    try:
        yield connection
    finally:
        connection.close()


def ask(connection: DirectConnection, asked: list[Frame]) -> None:
    for each in asked:
        each.opaque = connection.opaque()
    connection.send(b"".join(map(encode, asked)))


def answers(connection: DirectConnection, count: int) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    while len(found) < count:
        found |= {frame.opaque: bytes(body) for frame, body in connection.receive()[1]}
    return found


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


def test_each_request_gets_its_answer() -> None:
    asked = [question(b"%d" % number * 5_000) for number in range(100)]
    with raw_peer(echo) as peer, opened(peer) as connection:
        ask(connection, asked)
        assert answers(connection, 100) == {each.opaque: each.body for each in asked}


def test_it_speaks_tls(authority: Authority) -> None:
    serve = with_tls(authority.certificate("any").server_context(), echo)
    asked = [question(b"%d" % number * 5_000) for number in range(20)]
    with raw_peer(serve) as peer, opened(peer, SECURED) as connection:
        ask(connection, asked)
        assert answers(connection, 20) == {each.opaque: each.body for each in asked}
        assert not connection.comes_in(0)


def test_answers_that_found_messages_are_told_from_others() -> None:
    found = Frame(0, {"nextBeginOffset": "32"}, b"records", opaque=7, flag=1)
    with raw_peer(answer_with(encode(found) + encode(Frame(19, opaque=8, flag=1)))) as peer, opened(peer) as connection:
        ask(connection, [question()])
        ((opaque, following, records),), ((other, _),) = connection.receive()
        assert (opaque, following, bytes(records)) == (7, 32, b"records")
        assert (other.code, other.opaque) == (19, 8)


def test_what_a_broker_asks_is_no_answer() -> None:
    with raw_peer(answer_with(encode(Frame(40)) + encode(Frame(0, flag=1)))) as peer, opened(peer) as connection:
        ask(connection, [question()])
        assert [frame.code for frame, _ in connection.receive()[1]] == [0]


def hang_up(accepted: socket.socket) -> None:
    next(requests_of(accepted))


@pytest.mark.parametrize(
    ("serve", "kind", "told"),
    [
        (stay_silent, RequestTimedOut, "nothing came in 0.3 s"),
        (hang_up, ConnectionLost, "the peer closed the connection"),
        (answer_with(b"\xff" * 20), ConnectionLost, "is announced"),
    ],
)
@pytest.mark.parametrize("has_tls", [False, True])
def test_bad_weather_ends_a_wait(
    authority: Authority, serve: Serve, kind: type[QueueError], told: str, has_tls: bool
) -> None:
    serving = with_tls(authority.certificate("any").server_context(), serve) if has_tls else serve
    with raw_peer(serving) as peer, opened(peer, SECURED if has_tls else URL) as connection:
        ask(connection, [question()])
        if serve is stay_silent:  # making it had all the time
            connection._timeout_s = 0.3
            connection._limit_waits()
        begun = time.monotonic()
        with pytest.raises(kind, match=told):
            connection.receive()
        assert time.monotonic() - begun < 5


def test_a_peer_that_is_gone_takes_no_request() -> None:
    with raw_peer(hang_up) as peer, opened(peer) as connection:
        ask(connection, [question()])
        with pytest.raises(ConnectionLost):
            connection.receive()
        with pytest.raises(ConnectionLost):
            while True:
                ask(connection, [question()])


def test_nobody_there_and_a_peer_without_tls_are_told() -> None:
    with pytest.raises(BrokerUnreachable, match=r"127\.0\.0\.1:1: .*refused"):
        DirectConnection(URL, "127.0.0.1:1")
    with raw_peer(stay_silent) as peer, pytest.raises(TlsFailed, match="the TLS handshake failed"):
        DirectConnection(replace(SECURED, timeout_s=0.3), peer.address)


def test_who_waits_for_a_moment_is_told_whether_something_came() -> None:
    with raw_peer(echo) as peer, opened(peer) as connection:
        assert not connection.comes_in(0.01)
        ask(connection, [question()])
        assert connection.comes_in(5)
        assert len(connection.receive()[1]) == 1
