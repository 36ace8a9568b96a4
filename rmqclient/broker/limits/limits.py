"""Limits of a server: how much its clients may take of it. The unit of a number is in its name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rmqclient.remoting.frame import MAX_FRAME_BYTES
from rmqclient.store.numbers import MOST_BYTES, check_whole, positive_s

_KIB: Final = 1 << 10
_MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What clients may take.

    Raises TypeError for another type, and ValueError for a number that is not above 0, or a frame longer than the
    protocol allows.

    RocketMQ's name of a setting is in brackets, where it has one.
    """

    connections: int = 20_000
    """Connections of all clients; the process also needs a file descriptor for each."""

    connections_per_address: int = 15_000
    """Connections from one address: many processes may stand behind one router."""

    frame_bytes: int = MAX_FRAME_BYTES
    """The longest frame of a client. A longer one is refused when its length has been read. [frameMaxLength]"""

    header_bytes: int = 256 * _KIB
    """The longest header in a frame; every object of it costs more memory than its letters. That of a message has its
    32 KiB of properties, and JSON may take six letters for one of theirs."""

    flight_bytes: int = 256 * _MIB
    """Memory of the requests of all clients that wait for their answers, and of half-sent frames. More gets
    SYSTEM_BUSY."""

    flight_bytes_per_connection: int = 64 * _MIB
    """The same, of one client."""

    unsent_bytes_paused: int = 1 * _MIB
    """When more than this waits for a client that does not read, nothing is read from it."""

    unsent_bytes_per_connection: int = 64 * _MIB
    """When more than this waits for a client, the client is cut off."""

    unsent_bytes: int = 512 * _MIB
    """When more than this waits for all clients that do not read, the one that gets the next answer is cut off."""

    held_pulls: int = 50_000
    """Pulls of all clients that wait for messages; one more gets SYSTEM_BUSY, after which clients wait for a while."""

    awaited_topics: int = 100_000
    """Topics of all clients that are not there and were asked for; one more is not remembered as awaited."""

    groups_per_address: int = 1_000
    """Groups that are made because clients of one address use them. An administrator makes more (request 200)."""

    group_queues_per_address: int = 4_096
    """Queues in which groups begin because clients of one address use them; the store has 16,384 for all."""

    topics_per_address: int = 1_000
    """Topics that are made by messages of clients of one address. An administrator makes more (request 17)."""

    frame_s: float = 60.0
    """How long a client may take from the first byte of a frame to its last."""

    handshake_s: float = 10.0
    """How long a client may take to agree about TLS."""

    idle_s: float = 120.0
    """A connection on which neither side has sent for so long is closed. [serverChannelMaxIdleTimeSeconds]"""

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            if name.endswith("_s"):
                positive_s(name, getattr(self, name))
            else:
                check_whole(self, name, most=MOST_BYTES)
        if self.frame_bytes > MAX_FRAME_BYTES:
            raise ValueError(f"frame_bytes={self.frame_bytes}: the protocol allows {MAX_FRAME_BYTES} at most")
