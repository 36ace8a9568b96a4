"""Settings: what a server is told when it starts."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from rmqclient.broker.address import Address
from rmqclient.broker.limits.limits import Limits
from rmqclient.store.settings.replication import ASYNC, OnLost, Replication, Sync

STORE = "the store"
"""What clients are told instead of the path of the store: where it lies is nothing for the network."""

DEFAULT_ADDRESS = Address("127.0.0.1", 9876)
"""Where a server listens unless it is told otherwise; the port is that of RocketMQ's name server."""


class TlsMode(StrEnum):
    """Which connections are taken; one port serves both kinds. [tls.server.mode]"""

    DISABLED = "disabled"  #: plain ones only
    PERMISSIVE = "permissive"  #: both, as the first byte says
    ENFORCING = "enforcing"  #: those with TLS only


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """How TLS is spoken. Raises ValueError for a key without a certificate, and for files that are never read."""

    mode: TlsMode = TlsMode.PERMISSIVE
    cert_file: Path | None = None
    """Certificate and what signs it, PEM; without one a certificate is made that nobody has signed."""

    key_file: Path | None = None
    """Its private key, PEM, without a password; None if it is in ``cert_file``."""

    client_ca_file: Path | None = None
    """Clients with TLS must show a certificate that one of these has signed."""

    def __post_init__(self) -> None:
        if self.key_file is not None and self.cert_file is None:
            raise ValueError(f"key_file={self.key_file}: a key needs a certificate")
        named = self.cert_file or self.client_ca_file
        if self.mode is TlsMode.DISABLED and named is not None:
            raise ValueError(f"{named} is never read while TLS is disabled")


@dataclass(frozen=True, slots=True)
class ServeSettings:
    """Where a server listens, and what it says of itself."""

    root: Path
    listen: tuple[Address, ...] = (DEFAULT_ADDRESS,)
    """Each of them answers the requests to a name server and those to a broker."""

    advertise: Address | None = None
    """The address in routes and message ids; None for the one by which each connection came in."""

    ha_listen: Address | None = None
    """Where replicas follow the log; None for nowhere."""

    replication: Replication = ASYNC
    """What sends wait for while replicas follow the log."""

    replica: Address | None = None
    """Where a replica answers reads; routes name it, and clients that are far behind are sent there. None: nowhere.
    [slaveReadEnable]"""

    memory_percent: int = 40
    """How much of the host's memory a client may be behind before that. [accessMessageInMemoryMaxRatio]"""

    broker_name: str = "broker-a"
    cluster_name: str = "DefaultCluster"
    auto_create_topics: bool = True
    """Whether a message to a new topic makes it, as with a broker's ``autoCreateTopicEnable``."""

    read_only: bool = False
    """Refuse whatever would write a message, a topic or a setting."""

    sync: bool = False
    """Answer a message when it is on the disk, as with a broker's ``flushDiskType=SYNC_FLUSH``."""

    drain_s: float = 5.0
    """How long a server that ends waits for answers that are under way."""

    limits: Limits = field(default_factory=Limits)
    """How much clients may take."""

    tls: TlsSettings = TlsSettings()

    acl_file: Path | None = None
    """Access keys and what they may do; None lets everybody do everything."""

    failures: tuple[str, ...] = ()
    """Requests that fail, for tests: see :mod:`rmqclient.broker.life.failures`."""

    can_fail: bool = False
    """Whether requests may be told to fail; only for a store that is removed with its server."""

    clock_factor: int | None = None
    """How many seconds pass in a real one, by a clock that tests can move; None for the clock of the host.

    Only for a store that is removed with its server: see :mod:`rmqclient.store.clock`."""

    die_with_parent: bool = False
    """End when the process that started the server has ended."""


def replication_of(wait_for: str, on_lost: str, followers: int, timeout_ms: int) -> Replication:
    """Return what sends wait for, by the words of a command. Raises ValueError for numbers that cannot be."""
    return Replication(Sync(wait_for), OnLost(on_lost), followers, timeout_ms)
