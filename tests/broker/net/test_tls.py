"""TLS on the port of plain connections: told apart by the first byte, required or not, with certificates or without."""

from __future__ import annotations

import ssl
from asyncio import sslproto
from pathlib import Path
from typing import Any

import pytest

from rmqclient.broker.limits.counters import Refusal
from rmqclient.broker.limits.limits import Limits
from rmqclient.broker.net.tls import Tls, keep_buffers_small
from rmqclient.broker.settings import TlsMode, TlsSettings
from rmqclient.errors import TlsUnusable
from rmqclient.remoting.codes import RequestCode
from rmqclient.remoting.frame import Frame
from tests.broker.net.loopback import Caller, Loopback, caller, echo, loopback
from tests.support.cluster.certificates import Authority

ASK = Frame(RequestCode.GET_BROKER_CLUSTER_INFO, body=b"asked")


def tls_caller(server: Loopback, context: ssl.SSLContext | None = None) -> Caller:
    """Connect with TLS; every certificate is taken unless a context says otherwise."""
    if context is None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    client = caller(server.address)
    client.sock = context.wrap_socket(client.sock, server_hostname="127.0.0.1")
    return client


def test_one_port_takes_both_kinds() -> None:
    with loopback(echo, tls=TlsSettings()) as server, caller(server.address) as plain, tls_caller(server) as secret:
        for client in (plain, secret, plain, secret):
            assert client.ask(ASK).body == b"asked"


def test_long_answers_pass_through_tls() -> None:
    long = Frame(RequestCode.GET_BROKER_CLUSTER_INFO, body=bytes(range(256)) * 40_000)
    with loopback(echo, tls=TlsSettings()) as server, tls_caller(server) as client:
        assert client.ask(long).body == long.body


def test_enforcing_takes_those_with_tls_only() -> None:
    settings = TlsSettings(TlsMode.ENFORCING)
    with loopback(echo, tls=settings) as server, caller(server.address) as plain, tls_caller(server) as secret:
        assert secret.ask(ASK).body == b"asked"
        plain.send(ASK)
        assert plain.receive() is None
        assert server.refused(Refusal.TLS) == 1
        server.until(lambda: server.opened.count == 1)


def test_disabled_takes_plain_ones_only() -> None:
    with loopback(echo) as server, caller(server.address) as plain:
        assert plain.ask(ASK).body == b"asked"
        with pytest.raises((ssl.SSLError, ConnectionError)):
            tls_caller(server)
        assert server.refused(Refusal.FRAME) == 1


def test_a_client_trusts_the_authority_of_the_certificate(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate = authority.certificate("server")
    trusting = ssl.create_default_context(cafile=authority.ca_file)
    with (
        loopback(echo, tls=TlsSettings(cert_file=certificate.cert_file, key_file=certificate.key_file)) as server,
        tls_caller(server, trusting) as client,
    ):
        assert client.ask(ASK).body == b"asked"


def test_a_client_without_the_wanted_certificate_is_refused(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, own = authority.certificate("server"), authority.certificate("client")
    settings = TlsSettings(TlsMode.ENFORCING, certificate.cert_file, certificate.key_file, authority.ca_file)
    with loopback(echo, tls=settings) as server:
        stranger = ssl.create_default_context(cafile=authority.ca_file)
        with pytest.raises((ssl.SSLError, ConnectionError)), tls_caller(server, stranger) as client:
            client.send(ASK)
            assert client.receive() is None
            raise ConnectionError("it ended")
        server.until(lambda: server.opened.count == 0)
        assert server.refused(Refusal.TLS) == 1
        known = ssl.create_default_context(cafile=authority.ca_file)
        known.load_cert_chain(own.cert_file, own.key_file)
        with tls_caller(server, known) as client:
            assert client.ask(ASK).body == b"asked"


def test_a_handshake_that_stops_ends_the_connection() -> None:
    with loopback(echo, Limits(handshake_s=0.2), TlsSettings()) as server, caller(server.address) as client:
        client.sock.sendall(b"\x16\x03\x01")
        assert client.receive() is None
        server.until(lambda: server.opened.count == 0)
        assert server.refused(Refusal.TLS) == 1


def test_a_client_that_never_sends_a_byte_is_counted_and_leaves_after_the_time() -> None:
    with loopback(echo, Limits(idle_s=60), TlsSettings()) as server, caller(server.address) as client:
        server.until(lambda: server.opened.count == 1)
        server.let_pass(120)
        assert client.receive() is None
        server.until(lambda: server.opened.count == 0)
        assert server.refused(Refusal.IDLE) == 1


def test_without_openssl_and_cryptography_only_clients_with_tls_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setitem(__import__("sys").modules, "cryptography", None)
    with pytest.raises(TlsUnusable, match="--tls-cert"):
        Tls(TlsSettings()).context()
    with loopback(echo, tls=TlsSettings()) as server, caller(server.address) as plain:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            tls_caller(server)
        assert plain.ask(ASK).body == b"asked"
        assert server.refused(Refusal.TLS) == 1


def test_asyncio_still_takes_its_buffers_from_where_they_are_made_small() -> None:
    # When this fails, a connection with TLS takes 256 KiB again, and tls.py has to say it in another way
    protocol: Any = sslproto.SSLProtocol
    before = protocol.max_size
    try:
        keep_buffers_small()
        with loopback(echo, tls=TlsSettings()) as server, tls_caller(server) as client:
            assert client.ask(ASK).body == b"asked"
            transport: Any = server.made[0]._transport
            assert len(transport._ssl_protocol._ssl_buffer) == protocol.max_size < before
    finally:
        protocol.max_size = before


@pytest.mark.parametrize("made_by", ["openssl", "cryptography"])
def test_a_certificate_is_made_by_what_is_there(made_by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if made_by == "openssl":
        monkeypatch.setitem(__import__("sys").modules, "cryptography", None)
    else:
        monkeypatch.setenv("PATH", "/nowhere")
    with loopback(echo, tls=TlsSettings()) as server, tls_caller(server) as client:
        assert client.ask(ASK).body == b"asked"
