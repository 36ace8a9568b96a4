"""TLS: taken without verification or verified by a CA file, and refused with a typed error in bounded time."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from rmqclient.cluster.address.url import TlsOptions
from rmqclient.cluster.net import connection as connection_module
from rmqclient.cluster.net.connections import Connections
from rmqclient.cluster.net.dialing import Dialing
from rmqclient.cluster.net.tls import context_of
from rmqclient.errors import BrokerUnreachable, ConnectionLost, InvalidURL, QueueError, TlsFailed
from tests.cluster.net.conftest import closing, forget, ignore, question
from tests.support.cluster.certificates import Authority
from tests.support.cluster.raw_peer import Serve, echo, raw_peer, stay_silent

PATIENCE_S = 20.0


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


def with_tls(context: ssl.SSLContext, serve: Serve) -> Serve:
    def wrapped(accepted: socket.socket) -> None:
        with context.wrap_socket(accepted, server_side=True) as secured:
            serve(secured)

    return wrapped


def opened(options: TlsOptions) -> Connections:
    return Connections(context_of(options), 1.0, ignore, forget)


def test_without_a_ca_file_every_certificate_is_taken(authority: Authority) -> None:
    context = authority.certificate("any").server_context()
    with raw_peer(with_tls(context, echo)) as peer, closing(opened(TlsOptions())) as connections:
        assert connections.to(peer.address).ask(question(b"one"), 5).body == b"one"


def test_a_certificate_of_the_ca_file_is_taken_with_the_name_of_its_host(authority: Authority) -> None:
    context = authority.certificate("here").server_context()
    options = TlsOptions(ca_file=str(authority.ca_file), check_hostname=True)
    with raw_peer(with_tls(context, echo)) as peer, closing(opened(options)) as connections:
        assert connections.to(peer.address).ask(question(b"one"), 5).body == b"one"


@pytest.mark.parametrize("check_hostname", [True, False])
def test_a_certificate_for_another_host_is_refused_on_demand(authority: Authority, check_hostname: bool) -> None:
    context = authority.certificate("elsewhere", host="192.0.2.1").server_context()
    options = TlsOptions(ca_file=str(authority.ca_file), check_hostname=check_hostname)
    with raw_peer(with_tls(context, echo)) as peer, closing(opened(options)) as connections:
        if check_hostname:
            with pytest.raises(TlsFailed, match="IP address mismatch"):
                connections.to(peer.address).ask(question(), 5)
        else:
            assert connections.to(peer.address).ask(question(b"one"), 5).body == b"one"


def test_a_certificate_of_another_authority_is_refused(authority: Authority, tmp_path: Path) -> None:
    context = Authority(tmp_path, "another").certificate("stranger").server_context()
    options = TlsOptions(ca_file=str(authority.ca_file))
    with raw_peer(with_tls(context, echo)) as peer, closing(opened(options)) as connections:
        for _ in range(2):  # at first, and while the address is left alone
            with pytest.raises(TlsFailed, match="CERTIFICATE_VERIFY_FAILED") as raised:
                connections.to(peer.address).ask(question(), 5)
            assert not raised.value.retryable


def test_a_client_shows_its_certificate_to_a_server_that_asks_for_one(authority: Authority) -> None:
    context = authority.certificate("demanding").server_context(clients_of=authority.ca_file)
    own = authority.certificate("client")
    options = TlsOptions(cert_file=str(own.cert_file), key_file=str(own.key_file))
    with raw_peer(with_tls(context, echo)) as peer:
        with closing(opened(options)) as connections:
            assert connections.to(peer.address).ask(question(b"one"), 5).body == b"one"
        with closing(opened(TlsOptions())) as connections, pytest.raises(BrokerUnreachable, match="certificate"):
            connections.to(peer.address).ask(question(), 5)


@pytest.mark.parametrize("serve", [stay_silent, lambda accepted: accepted.recv(1 << 16), echo])
def test_a_peer_without_tls_is_refused_in_time(serve: Callable[[socket.socket], None]) -> None:
    with raw_peer(serve) as peer, closing(opened(TlsOptions())) as connections:
        begun = time.monotonic()
        with pytest.raises(TlsFailed, match=peer.address):
            connections.to(peer.address).ask(question(), 15)
        assert time.monotonic() - begun < 5


def test_a_peer_that_is_gone_before_the_handshake_is_known_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    # Given a socket that was connected, and whose peer is gone before the first byte
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.close()

    class Dialed(Dialing):
        def start(self) -> None:
            self._io.run_soon(partial(self._finish, ours))

    monkeypatch.setattr(connection_module, "Dialing", Dialed)
    with closing(Connections(context_of(TlsOptions()), 30.0, ignore, forget)) as connections:
        begun = time.monotonic()
        with pytest.raises(TlsFailed, match="Broken pipe"):
            connections.to("127.0.0.1:9").ask(question(), 5)
        assert time.monotonic() - begun < 4


def test_a_peer_that_wants_tls_is_lost_and_the_error_says_what_may_be_wrong(authority: Authority) -> None:
    context = authority.certificate("only-tls").server_context()
    with (
        raw_peer(with_tls(context, echo)) as peer,
        closing(Connections(None, 1.0, ignore, forget)) as connections,
        pytest.raises(ConnectionLost, match=r"TLS"),
    ):
        connections.to(peer.address).ask(question(), 15)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_threads_share_a_connection_with_tls_both_ways(authority: Authority, version: ssl.TLSVersion) -> None:
    context = authority.certificate("busy").server_context()
    context.minimum_version = context.maximum_version = version
    wrong: list[bytes] = []

    def ask(thread: int) -> None:
        for number in range(30):
            body = f"{thread}-{number}-".encode() * 20_000
            if connections.to(peer.address).ask(question(body), 15).body != body:
                wrong.append(body[:20])

    with raw_peer(with_tls(context, echo)) as peer, closing(opened(TlsOptions())) as connections:
        threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
        assert wrong == []
        assert len(peer.sockets) == 1


def test_a_connection_with_tls_that_ends_in_the_middle_is_lost(authority: Authority) -> None:
    context = authority.certificate("brief").server_context()

    def serve(accepted: socket.socket) -> None:
        accepted.recv(1 << 16)
        accepted.sendall(b"\x00\x00\x01")

    with (
        raw_peer(with_tls(context, serve)) as peer,
        closing(opened(TlsOptions())) as connections,
        pytest.raises(ConnectionLost),
    ):
        connections.to(peer.address).ask(question(), 15)


@pytest.mark.parametrize("options", [TlsOptions("empty.pem"), TlsOptions(cert_file="empty.pem")])
def test_a_file_without_certificates_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: TlsOptions
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty.pem").write_text("nothing", encoding="ascii")
    with pytest.raises(InvalidURL, match=r"empty\.pem"):
        context_of(options)


def test_closing_during_a_handshake_leaves_nothing() -> None:
    ended: list[object] = []
    with raw_peer(stay_silent) as peer:
        with closing(Connections(context_of(TlsOptions()), 30.0, ignore, forget)) as connections:
            connections.to(peer.address).submit(question(), ended.append, 30)
            while not peer.sockets:
                time.sleep(0.001)
        assert [isinstance(error, QueueError) for error in ended] == [True]
