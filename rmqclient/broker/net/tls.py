"""TLS of a server, on the port of plain connections. [TlsHelper, TlsMode]

A server without a certificate generates a self-signed one when the first client with TLS connects. That client must
accept any certificate, as RocketMQ's clients do with ``tls.test.mode.enable``. The key is elliptic, which takes
milliseconds, and is made by the command ``openssl`` or, without it, by the package ``cryptography``.
"""

from __future__ import annotations

import ssl
import subprocess
from asyncio import sslproto
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from rmqclient.broker.settings import TlsMode, TlsSettings
from rmqclient.errors import TlsUnusable

CLIENT_HELLO: Final = 0x16
"""The first byte of a connection with TLS; as the first byte of a frame it would announce 352 MiB."""

_NAME: Final = "rmq-serve"
_DAYS: Final = 3650
_OPENSSL_S: Final = 10.0


_BUFFER_BYTES: Final = 32 * 1024
"""Bytes of asyncio's buffer for a TLS connection: twice the longest record."""


class Tls:
    """TLS of one server; its context is made at its first use."""

    def __init__(self, settings: TlsSettings) -> None:
        self._settings = settings
        self._context: ssl.SSLContext | None = None

    @property
    def is_looked_for(self) -> bool:
        """Whether the first byte of each connection is checked for TLS."""
        return self._settings.mode is not TlsMode.DISABLED

    @property
    def is_required(self) -> bool:
        """Whether plain connections are refused."""
        return self._settings.mode is TlsMode.ENFORCING

    @property
    def is_certified(self) -> bool:
        """Whether the server was given a certificate."""
        return self._settings.cert_file is not None

    def context(self) -> ssl.SSLContext:
        """Return the TLS context. Takes some 50 ms if a certificate has to be made. Raises TlsUnusable."""
        if self._context is None:
            self._context = _context_of(self._settings)
        return self._context


def keep_buffers_small() -> None:
    """Make asyncio's buffer of each later TLS connection of this process 32 KiB.

    By default it has 256 KiB, all of them written to at the start, so a thousand idle clients would take 256 MiB.
    """
    setattr(sslproto.SSLProtocol, "max_size", _BUFFER_BYTES)  # noqa: B010 - the types of asyncio do not know it


def _context_of(settings: TlsSettings) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        if settings.cert_file is not None:
            context.load_cert_chain(settings.cert_file, settings.key_file, password="")
        else:
            _load_own(context)
        if settings.client_ca_file is not None:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(settings.client_ca_file)
    except (OSError, ValueError) as error:
        raise TlsUnusable(
            f"certificate {settings.cert_file}, key {settings.key_file}, clients' authority "
            f"{settings.client_ca_file}: {error}; the files are PEM, and the key has no password"
        ) from error
    return context


def _load_own(context: ssl.SSLContext) -> None:
    """Load a generated, self-signed certificate. Python loads only from files, which are removed afterwards."""
    import tempfile  # noqa: PLC0415 - most servers never make a certificate

    with tempfile.TemporaryDirectory(prefix="rmq-tls-") as made:
        cert_file, key_file = Path(made, "cert.pem"), Path(made, "key.pem")
        makers: tuple[Callable[[Path, Path], bool], ...] = (_by_openssl, _by_cryptography)
        if not any(make(cert_file, key_file) for make in makers):
            raise TlsUnusable(
                "no certificate was given and none can be made: neither the command openssl nor the package "
                "cryptography is here; give --tls-cert and --tls-key, or --tls disabled"
            )
        context.load_cert_chain(cert_file, key_file)


def _by_openssl(cert_file: Path, key_file: Path) -> bool:
    """Make both files with the command; return whether that succeeded."""
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", str(key_file))
    cert = ("-out", str(cert_file), "-days", str(_DAYS), "-subj", f"/CN={_NAME}")
    try:
        ended = subprocess.run(
            ["openssl", "req", "-x509", *key, *cert],  # noqa: S607 - wherever the host has it
            capture_output=True,
            timeout=_OPENSSL_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return ended.returncode == 0


def _by_cryptography(cert_file: Path, key_file: Path) -> bool:
    """Make both files with the package; return whether that succeeded."""
    try:
        from cryptography import x509  # noqa: PLC0415 - only tests need the package, and hosts without openssl
        from cryptography.hazmat.primitives import hashes, serialization  # noqa: PLC0415
        from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415
        from cryptography.x509.oid import NameOID  # noqa: PLC0415
    except ImportError:
        return False
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, _NAME)])
    now = datetime.now(UTC)
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    made = made.serial_number(x509.random_serial_number())
    made = made.not_valid_before(now - timedelta(hours=1)).not_valid_after(now + timedelta(days=_DAYS))
    cert_file.write_bytes(made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    key_file.write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))
    return True
