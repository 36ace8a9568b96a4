"""URL of a cluster: its name servers and the client's options.

::

    rocketmq://[access_key:secret_key@]host:9876[,host2:9876][/namespace][?option=value&...]

===================  =======  ========================================================================================
option               default  meaning
===================  =======  ========================================================================================
``tls``              false    use TLS with name servers and brokers; without ``ca_file`` any certificate is accepted
``ca_file``          none     file of certificates (PEM) that sign those of the servers; implies ``tls``
``check_hostname``   false    the certificate must also name the host; needs ``ca_file``
``cert_file``        none     certificate of this client (PEM), for servers that ask for one
``key_file``         none     its private key (PEM), unless it is in ``cert_file``
``timeout``          3        seconds for an answer, and for making a connection
``unit_name``        none     appended to client ids [ClientConfig.unitName]
``security_token``   none     of temporary access keys [SessionCredentials]
===================  =======  ========================================================================================

Hosts may also be separated by ``;``, as in RocketMQ; the default port is 9876. Reserved characters in a key must be
percent-encoded, such as ``%2F`` for ``/``. Without keys in the URL, those of the environment are used:
``ROCKETMQ_ACCESS_KEY``, ``ROCKETMQ_SECRET_KEY`` and ``ROCKETMQ_SECURITY_TOKEN``.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NoReturn
from urllib.parse import parse_qsl, unquote

from rmqclient.cluster.address import namespace
from rmqclient.errors import InvalidURL
from rmqclient.remoting.frame import Frame
from rmqclient.remoting.signature import signature_of

SCHEME: Final = "rocketmq://"
DEFAULT_PORT: Final = 9876
DEFAULT_TIMEOUT_S: Final = 3.0  # mqClientApiTimeout
LONGEST_TIMEOUT_S: Final = 3600.0

_PARTS = re.compile(
    r"rocketmq://(?:(?P<keys>[^/?#]*)@)?(?P<hosts>[^/?#@]+)(?:/(?P<space>[^/?#]*))?(?:\?(?P<query>[^#]*))?"
)
_HOST = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::(?P<port>[0-9]{1,5}))?")
_NAMESPACE = re.compile(r"[a-zA-Z0-9_-]*")
_TRUTH: Final = {"true": True, "false": False}
_OPTIONS: Final = (
    "tls",
    "ca_file",
    "check_hostname",
    "cert_file",
    "key_file",
    "timeout",
    "unit_name",
    "security_token",
)


@dataclass(frozen=True, slots=True)
class Keys:
    """The access key and the secret key that sign requests. The ``repr`` does not show the secret."""

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str = field(default="", repr=False)

    def sign(self, asked: Frame) -> None:
        """Sign a request, for brokers with ``aclEnable``; replaces an earlier signature. [AclClientRPCHook]"""
        fields = asked.fields
        fields["AccessKey"] = self.access_key
        if self.security_token:
            fields["SecurityToken"] = self.security_token
        fields["Signature"] = signature_of(fields, asked.body, self.secret_key.encode())


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """TLS options; without ``ca_file`` the server's certificate is not verified. Empty means not given."""

    ca_file: str = ""
    check_hostname: bool = False
    cert_file: str = ""
    key_file: str = ""


@dataclass(frozen=True, slots=True)
class ClusterURL:
    """A parsed URL; see the module. ``name_servers`` are ``host:port``, at least one."""

    name_servers: tuple[str, ...]
    keys: Keys | None = None
    namespace: str = ""
    tls: TlsOptions | None = None
    timeout_s: float = DEFAULT_TIMEOUT_S
    unit_name: str = ""

    @classmethod
    def parse(cls, text: str) -> ClusterURL:
        """Parse a URL. Raises InvalidURL, which names the error and never shows the secret key."""
        parts = _PARTS.fullmatch(text)
        if parts is None:
            raise InvalidURL(f"{_shown(text)}: write it as rocketmq://host:9876, or {_FORM}")
        options = _Options(text, parts["query"] or "")
        space = unquote(parts["space"] or "")
        if not _NAMESPACE.fullmatch(space):
            raise InvalidURL(
                f"{_shown(text)}: the namespace, after the first /, has other characters than a-z A-Z 0-9 _ -; "
                "a / in a key is written %2F"
            )
        return cls(
            tuple(_address(text, host) for host in re.split("[,;]", parts["hosts"])),
            _keys(text, parts["keys"], options.take("security_token")),
            space,
            options.tls(),
            options.timeout_s(),
            options.end(options.take("unit_name")),
        )

    @property
    def shown(self) -> str:
        """The URL for display: hosts and namespace, without keys and options."""
        return SCHEME + ",".join(self.name_servers) + (f"/{self.namespace}" if self.namespace else "")

    def wrap(self, name: str) -> str:
        """Return the name of a topic or group on the wire: with the namespace, if the URL has one."""
        return namespace.wrap(self.namespace, name) if self.namespace else name

    def unwrap(self, name: str) -> str:
        """Return the name of a topic or group as the application knows it."""
        return namespace.unwrap(self.namespace, name) if self.namespace else name


_FORM = f"{SCHEME}[access_key:secret_key@]host:9876[,host2:9876][/namespace][?tls=true&timeout=3]"


class _Options:
    """The options of a URL, each of which may be given once."""

    def __init__(self, url: str, query: str) -> None:
        self._url = url
        self._given: dict[str, str] = {}
        for name, value in parse_qsl(query, keep_blank_values=True):
            if name in self._given:
                self._refuse(name, value, "it is given twice")
            self._given[name] = value

    def take(self, name: str) -> str:
        return self._given.pop(name, "")

    def tls(self) -> TlsOptions | None:
        wanted = self._truth("tls")
        ca_file, cert_file, key_file = (self._file(name) for name in ("ca_file", "cert_file", "key_file"))
        check_hostname = self._truth("check_hostname") or False
        if check_hostname and not ca_file:
            self._refuse("check_hostname", "true", "it needs ca_file: without one nothing is verified")
        if key_file and not cert_file:
            self._refuse("key_file", key_file, "it needs cert_file")
        if wanted is False and (ca_file or cert_file):
            self._refuse("tls", "false", "ca_file and cert_file are for TLS")
        return TlsOptions(ca_file, check_hostname, cert_file, key_file) if wanted or ca_file or cert_file else None

    def timeout_s(self) -> float:
        text = self.take("timeout")
        if not text:
            return DEFAULT_TIMEOUT_S
        try:
            timeout_s = float(text)
        except ValueError:
            timeout_s = 0.0
        if not 0 < timeout_s <= LONGEST_TIMEOUT_S:
            self._refuse("timeout", text, f"give seconds, more than 0 and at most {LONGEST_TIMEOUT_S:,.0f}")
        return timeout_s

    def end(self, unit_name: str) -> str:
        """Return the last option. Raises InvalidURL for unknown options."""
        for name in self._given:
            raise InvalidURL(f"{_shown(self._url)}: there is no option {name}; there are {', '.join(_OPTIONS)}")
        return unit_name

    def _truth(self, name: str) -> bool | None:
        text = self.take(name)
        if text and text.lower() not in _TRUTH:
            self._refuse(name, text, "say true or false")
        return _TRUTH.get(text.lower())

    def _file(self, name: str) -> str:
        path = self.take(name)
        if path and not Path(path).is_file():
            self._refuse(name, path, "there is no such file")
        return path

    def _refuse(self, name: str, value: str, why: str) -> NoReturn:
        raise InvalidURL(f"{_shown(self._url)}: option {name}={value}: {why}")


def _address(url: str, text: str) -> str:
    found = _HOST.fullmatch(text.strip())
    port = int(found["port"] or DEFAULT_PORT) if found else 0
    if found is None or not 0 < port <= 65535:
        raise InvalidURL(f"{_shown(url)}: {text!r} is not host:port; the port is from 1 to 65,535")
    return f"{found['host']}:{port}"


def _keys(url: str, text: str | None, token: str) -> Keys | None:
    if text is None:
        access, secret = os.environ.get("ROCKETMQ_ACCESS_KEY", ""), os.environ.get("ROCKETMQ_SECRET_KEY", "")
        token = token or os.environ.get("ROCKETMQ_SECURITY_TOKEN", "")
        where = "the environment: set both ROCKETMQ_ACCESS_KEY and ROCKETMQ_SECRET_KEY"
    else:
        access, _, secret = (unquote(part) for part in text.partition(":"))
        where = "the URL: write access_key:secret_key@ before the host"
    if bool(access) != bool(secret):
        raise InvalidURL(f"{_shown(url)}: one of the two keys is missing in {where}")
    return Keys(access, secret, token) if access else None


def _shown(url: str) -> str:
    """Return a URL for an error, without its keys and options, which may be secrets."""
    return repr(re.sub(r"//.*@", "//***@", url.partition("?")[0], flags=re.DOTALL))
