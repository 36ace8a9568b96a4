"""Certificates of a test: an authority, and what it signs for 127.0.0.1; valid for a day."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass(frozen=True)
class Certificate:
    """A certificate with its key, as files of PEM. ``key_file`` is PKCS #8, as Java wants it."""

    cert_file: Path
    key_file: Path

    def server_context(self, *, clients_of: Path | None = None) -> ssl.SSLContext:
        """Return how a server speaks TLS with it; ``clients_of``: clients must show a certificate of this authority."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.cert_file, self.key_file)
        if clients_of is not None:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(clients_of)
        return context


_SIGNS = x509.KeyUsage(
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)


class Authority:
    """An authority of its own in a directory; ``ca_file`` is its certificate."""

    def __init__(self, directory: Path, name: str = "authority") -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = named(name)
        self.ca_file = directory / f"{name}.pem"
        made = self._begun(self._name, self._key.public_key())
        made = made.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        made = made.add_extension(_SIGNS, critical=True)
        made = made.add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
        self.ca_file.write_bytes(made.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))

    def certificate(self, name: str, host: str = "127.0.0.1") -> Certificate:
        """Make a certificate for a host."""
        key = ec.generate_private_key(ec.SECP256R1())
        host_name = x509.SubjectAlternativeName([x509.IPAddress(ip_address(host))])
        made = self._begun(named(name), key.public_key()).add_extension(host_name, critical=False)
        files = Certificate(self._directory / f"{name}.pem", self._directory / f"{name}.key")
        signed = made.sign(self._key, hashes.SHA256())
        files.cert_file.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        files.key_file.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return files

    def _begun(self, subject: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        begun = x509.CertificateBuilder().subject_name(subject).issuer_name(self._name).public_key(key)
        begun = begun.serial_number(x509.random_serial_number())
        # Python 3.13 and later look for it: VERIFY_X509_STRICT
        signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        begun = begun.add_extension(signer, critical=False)
        return begun.not_valid_before(now - timedelta(hours=1)).not_valid_after(now + timedelta(days=1))


def named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
