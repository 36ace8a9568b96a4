"""Settings: what a server is told when it starts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple


class Address(NamedTuple):
    """A host and a port. Port 0 stands for any free one."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


DEFAULT_ADDRESS = Address("127.0.0.1", 9876)
"""Where a server listens unless it is told otherwise; the port is that of RocketMQ's name server."""


@dataclass(frozen=True, slots=True)
class ServeSettings:
    """Where a server listens, and what it says of itself."""

    root: Path
    listen: tuple[Address, ...] = (DEFAULT_ADDRESS,)
    """Each of them answers the requests to a name server and those to a broker."""

    advertise: Address | None = None
    """The address in routes and message ids; None for the one by which each connection came in."""

    broker_name: str = "broker-a"
    cluster_name: str = "DefaultCluster"
    auto_create_topics: bool = True
    """Whether a message to a new topic makes it, as with a broker's ``autoCreateTopicEnable``."""

    read_only: bool = False
    """Refuse whatever would write a message, a topic or a setting."""

    drain_s: float = 5.0
    """How long a server that ends waits for answers that are under way."""

    die_with_parent: bool = False
    """End when the process that started the server has ended."""
