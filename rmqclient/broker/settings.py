"""Settings: the options of a server."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from rmqclient.broker.address import Address
from rmqclient.broker.limits.limits import Limits
from rmqclient.store.settings.replication import ASYNC, OnLost, Replication, Sync

STORE = "the store"
"""Text that replaces the store's path in answers, because clients must not learn the path."""

DEFAULT_ADDRESS = Address("127.0.0.1", 9876)
"""Default address; the port is that of RocketMQ's name server."""


class TlsMode(StrEnum):
    """Accepted kinds of connections, on one port. [tls.server.mode]"""

    DISABLED = "disabled"  #: plain ones only
    PERMISSIVE = "permissive"  #: both, as the first byte says
    ENFORCING = "enforcing"  #: those with TLS only


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """TLS options. Raises ValueError for a key without a certificate, and for files that would not be read."""

    mode: TlsMode = TlsMode.PERMISSIVE
    cert_file: Path | None = None
    """Certificate and its chain, PEM; default: generated, self-signed."""

    key_file: Path | None = None
    """Its private key, PEM, without a password; None if it is in ``cert_file``."""

    client_ca_file: Path | None = None
    """Authorities, PEM; clients with TLS must have a certificate signed by one of them. None: no certificate needed."""

    def __post_init__(self) -> None:
        if self.key_file is not None and self.cert_file is None:
            raise ValueError(f"key_file={self.key_file}: a key needs a certificate")
        named = self.cert_file or self.client_ca_file
        if self.mode is TlsMode.DISABLED and named is not None:
            raise ValueError(f"{named} is never read while TLS is disabled")


@dataclass(frozen=True, slots=True)
class ServeSettings:
    """Options of a server."""

    root: Path
    listen: tuple[Address, ...] = (DEFAULT_ADDRESS,)
    """Addresses to listen on; each answers the requests of a name server and of a broker."""

    advertise: Address | None = None
    """The address in routes and message ids; None: the one that each client connected to."""

    ha_listen: Address | None = None
    """Address for replicas that follow the log; None: replicas are not served."""

    replication: Replication = ASYNC
    """What a send waits for while replicas follow the log."""

    replica: Address | None = None
    """Address of a replica that answers reads: routes have it, and clients that are far behind are sent there.
    [slaveReadEnable]"""

    memory_percent: int = 40
    """Bytes of log, in per cent of the host's memory, that count as far behind. [accessMessageInMemoryMaxRatio]"""

    broker_name: str = "broker-a"
    cluster_name: str = "DefaultCluster"
    auto_create_topics: bool = True
    """Whether a message to a new topic makes it, as with a broker's ``autoCreateTopicEnable``."""

    read_only: bool = False
    """Whether requests that write are refused."""

    sync: bool = False
    """Whether a send waits until its message is on disk, as with a broker's ``flushDiskType=SYNC_FLUSH``."""

    drain_s: float = 5.0
    """Seconds for which an ending server waits for answers under way."""

    limits: Limits = field(default_factory=Limits)
    """Limits on clients."""

    tls: TlsSettings = TlsSettings()

    acl_file: Path | None = None
    """File of access keys and permissions; None: every client may do everything."""

    failures: tuple[str, ...] = ()
    """For tests: requests that fail (:mod:`rmqclient.broker.life.failures`)."""

    can_fail: bool = False
    """For tests: whether clients may make requests fail; only with a store that is removed with its server."""

    clock_factor: int | None = None
    """For tests: seconds of the store's clock for each real second; None: the host's clock.

    Only with a store that is removed with its server (:mod:`rmqclient.store.clock`)."""

    die_with_parent: bool = False
    """Whether the server ends with the process that started it."""


def replication_of(wait_for: str, on_lost: str, followers: int, timeout_ms: int) -> Replication:
    """Return the settings of replication from a command's options. Raises ValueError for invalid numbers."""
    return Replication(Sync(wait_for), OnLost(on_lost), followers, timeout_ms)
