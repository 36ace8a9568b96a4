"""Limits: how much of a server its clients may use. The unit of a number is in its name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rmqclient.remoting.frame import MAX_FRAME_BYTES
from rmqclient.store.numbers import MOST_BYTES, check_whole, positive_s

_KIB: Final = 1 << 10
_MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits on clients. RocketMQ's name of a setting, if it has one, is in brackets.

    Raises TypeError for a wrong type, and ValueError for a number that is not above 0, or a frame length beyond the
    protocol's limit.
    """

    connections: int = 20_000
    """Connections of all clients; the process also needs a file descriptor for each."""

    connections_per_address: int = 15_000
    """Connections from one address; many processes may share it behind a router."""

    frame_bytes: int = MAX_FRAME_BYTES
    """Length of a client's frame. A longer one is refused once its length has been read. [frameMaxLength]"""

    header_bytes: int = 256 * _KIB
    """Length of a frame's header; parsed, it takes more memory than this. A message's header has up to 32 KiB of
    properties, and JSON may need six bytes for one of theirs."""

    flight_bytes: int = 256 * _MIB
    """Memory of all requests that wait for answers, and of incomplete frames. More requests get SYSTEM_BUSY."""

    flight_bytes_per_connection: int = 64 * _MIB
    """The same, of one client."""

    unsent_bytes_paused: int = 1 * _MIB
    """When more unsent bytes than this wait for a client, the server stops reading from it."""

    unsent_bytes_per_connection: int = 64 * _MIB
    """When more unsent bytes than this wait for a client, its connection is closed."""

    unsent_bytes: int = 512 * _MIB
    """When more unsent bytes than this wait for all clients, the connection that gets the next answer is closed."""

    held_pulls: int = 50_000
    """Pulls of all clients that wait for messages. Another one gets SYSTEM_BUSY, after which clients pause."""

    awaited_topics: int = 100_000
    """Missing topics remembered for all clients that asked for them; further ones are not remembered."""

    groups_per_address: int = 1_000
    """Groups made by their use by clients of one address. An administrator may make more (request 200)."""

    group_queues_per_address: int = 4_096
    """Pairs of group and queue made by their use by clients of one address; the store has 16,384 for all."""

    topics_per_address: int = 1_000
    """Topics made by messages of clients of one address. An administrator may make more (request 17)."""

    frame_s: float = 60.0
    """Time from the first byte of a frame to its last."""

    handshake_s: float = 10.0
    """Time for a TLS handshake."""

    idle_s: float = 120.0
    """Time after which a connection without traffic is closed. [serverChannelMaxIdleTimeSeconds]"""

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            if name.endswith("_s"):
                positive_s(name, getattr(self, name))
            else:
                check_whole(self, name, most=MOST_BYTES)
        if self.frame_bytes > MAX_FRAME_BYTES:
            raise ValueError(f"frame_bytes={self.frame_bytes}: the protocol allows {MAX_FRAME_BYTES} at most")
