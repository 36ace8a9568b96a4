"""TLS: the layer between a connection's frames and its socket. [TlsHelper]

RocketMQ's name servers and brokers accept TLS and plain connections on one port, and tell them apart by the first byte.
Its clients accept any certificate by the default of ``tls.test.mode.enable``; so does this one without a CA file. With
one, it must have signed the certificate. The host name is checked only on demand, because brokers' certificates rarely
have the addresses that brokers register.
"""

from __future__ import annotations

import ssl
import threading

from rmqclient.cluster.address.url import TlsOptions
from rmqclient.errors import InvalidURL


def context_of(options: TlsOptions) -> ssl.SSLContext:
    """Return the TLS context. Raises InvalidURL if a file has no certificates or no key."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = options.check_hostname
    context.verify_mode = ssl.CERT_REQUIRED if options.ca_file else ssl.CERT_NONE
    try:
        if options.ca_file:
            context.load_verify_locations(options.ca_file)
        if options.cert_file:
            context.load_cert_chain(options.cert_file, options.key_file or None, password="")
    except (OSError, ValueError) as error:
        raise InvalidURL(
            f"ca_file={options.ca_file} cert_file={options.cert_file} key_file={options.key_file}: {error}; files of "
            "certificates and keys are PEM, and keys have no password"
        ) from error
    return context


class TlsLayer:
    """TLS of one connection. One thread may wrap while another unwraps."""

    def __init__(self, context: ssl.SSLContext, host: str) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        self._lock = threading.Lock()  # an SSL object is for one thread at a time

    def handshake(self, received: bytes) -> tuple[bool, bytes]:
        """Take bytes of the peer; return whether the handshake is done, and bytes to send. Raises ``ssl.SSLError``."""
        self._incoming.write(received)
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False, self._outgoing.read()
        return True, self._outgoing.read()

    def wrap(self, data: bytes) -> bytes:
        """Return ``data`` encrypted. Raises ``ssl.SSLError``."""
        with self._lock:
            if data:
                self._tls.write(data)
            return self._outgoing.read()

    def unwrap(self, received: bytes) -> bytes:
        """Return the data that ``received`` completes; may be empty. Raises ``ssl.SSLError``."""
        parts: list[bytes] = []
        with self._lock:
            self._incoming.write(received)
            try:
                while part := self._tls.read(256 * 1024):
                    parts.append(part)
            except ssl.SSLWantReadError:
                pass
        return b"".join(parts)

    @property
    def has_more_to_send(self) -> bool:
        """Whether the layer has bytes of its own for the peer, such as a new key."""
        return self._outgoing.pending > 0
