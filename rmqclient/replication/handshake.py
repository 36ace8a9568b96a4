"""Handshake: detects peers of this library on the port where stock brokers replicate.

The connecting side first sends 8 bytes, a negative number. A stock primary takes them for an invalid report and only
sends heartbeats with that number, so 4 zero bytes after the number mean "stock". A primary of this library answers with
the number and a :class:`Hello`, and waits for the other side's.

==========  ====================  ====================================
byte        field                 layout
==========  ====================  ====================================
0           ``MAGIC``             i64
8           length of the text    i32
12          CRC-32 of the text    u32
16          the hello             JSON
==========  ====================  ====================================

Then reports go one way and frames the other, as in the stock protocol but with checksums: :data:`.frames.OURS`.

===========  =======================================================================================================
``wants``    after the two hellos
===========  =======================================================================================================
``follow``   the replica reports, the primary sends its log. With a primary that is ``unsettled``, because it needs
             its replica's log, it is the reverse: it reports, and the replica sends
``look``     the same as ``follow``, but reports of this observer only give its position and acknowledge nothing
``fence``    a third hello, in which the primary says that it is ``fenced`` now
===========  =======================================================================================================
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Final
from zlib import crc32

import orjson

from rmqclient.errors import FrameError
from rmqclient.replication.primary_client.broker_client import LogShape
from rmqclient.store import MessageStore, StoreConfig
from rmqclient.store.files.file_lock import TOPIC_BYTE
from rmqclient.store.settings import replica_mark
from rmqclient.store.settings.lineage import Epoch, Lineage, begin_lineage, read_lineage
from rmqclient.store.settings.store_settings import StoreSettings

MAGIC: Final = -0x726D_7172_6570_6C31
""""-rmqrepl1". It is not -1, which a stock primary takes for "nothing reported yet"."""

MAGIC_BYTES: Final = struct.pack(">q", MAGIC)
_HEAD: Final = struct.Struct(">qi")
_CRC: Final = struct.Struct(">I")
_MOST_BYTES: Final = 1 << 20

PRIMARY: Final = "primary"
"""The role of a store without a mark; the others are those of :class:`.replica_mark.Kind`."""

Receive = Callable[[int], bytes]
"""Returns exactly this number of bytes of a connection, or raises OSError."""


class Wants(StrEnum):
    """The request of the connecting side."""

    FOLLOW = "follow"
    LOOK = "look"
    FENCE = "fence"


@dataclass(frozen=True, slots=True)
class Hello:
    """Facts about one side's store."""

    role: str
    store_id: str
    """Empty for a store that never had a replica or a primary of this library."""
    epochs: tuple[tuple[int, int], ...]
    begin: int
    """Offset of the oldest byte of the log."""
    end: int
    sizes: tuple[int, int, int, int]
    """The fixed settings, as in ``store.json``."""
    wants: str = Wants.FOLLOW
    ack: str = ""
    """What a report of this side means: bytes on ``disk`` or in ``memory``."""
    copy: str = ""
    """The copy id, ``host:directory``."""
    epoch: int = 0
    """The epoch that fenced this store; 0 if it is not fenced."""

    @property
    def lineage(self) -> Lineage:
        """The history of the store."""
        return Lineage(self.store_id, tuple(Epoch(*epoch) for epoch in self.epochs))

    @property
    def shape(self) -> LogShape:
        """The shape of the log."""
        return LogShape(StoreSettings(*self.sizes), self.begin, self.end)


def hello_of(store: MessageStore, wants: Wants = Wants.FOLLOW, ack: str = "") -> Hello:
    """Return the hello of an open store. Raises StoreCorrupt."""
    mark, lineage = replica_mark.read_mark(store.root), read_lineage(store.root)
    return Hello(
        role=PRIMARY if mark is None else mark.kind,
        store_id=lineage.store_id,
        epochs=tuple((epoch.number, epoch.start) for epoch in lineage.epochs),
        begin=store.state.min_offset,
        end=store.state.published_to,
        sizes=_sizes(store.config),
        wants=wants,
        ack=ack,
        copy=f"{socket.gethostname()}:{store.root.absolute()}",
        epoch=mark.epoch if mark is not None else 0,
    )


def _sizes(config: StoreConfig) -> tuple[int, int, int, int]:
    return (
        config.commit_log_file_bytes,
        config.consume_queue_file_entries,
        config.index_slots,
        config.index_entries,
    )


def encode(hello: Hello) -> bytes:
    """Encode a hello."""
    text = orjson.dumps(asdict(hello))
    return _HEAD.pack(MAGIC, len(text)) + _CRC.pack(crc32(text)) + text


def read_hello(receive: Receive) -> Hello | None:
    """Read a hello; None from a stock primary. Raises FrameError for a damaged one, OSError."""
    magic, size = _HEAD.unpack(receive(_HEAD.size))
    if magic != MAGIC or not 0 <= size <= _MOST_BYTES:
        raise FrameError(f"the other side does not speak this protocol: it begins with {magic} and {size}")
    if not size:
        return None
    (said,) = _CRC.unpack(receive(_CRC.size))
    text = receive(size)
    if crc32(text) != said:
        raise FrameError("the hello of the other side came damaged")
    return _decode(text)


def _decode(text: bytes) -> Hello:
    try:
        found: dict[str, Any] = orjson.loads(text)
        first, second, third, fourth = map(int, found["sizes"])
        return Hello(
            role=str(found["role"]),
            store_id=str(found["store_id"]),
            epochs=tuple((int(number), int(start)) for number, start in found["epochs"]),
            begin=int(found["begin"]),
            end=int(found["end"]),
            sizes=(first, second, third, fourth),
            wants=str(found["wants"]),
            ack=str(found["ack"]),
            copy=str(found["copy"]),
            epoch=int(found["epoch"]),
        )
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
        raise FrameError(f"the hello of the other side is not understood: {error}") from error


def greet(connection: socket.socket, hello: Hello) -> Hello | None:
    """Send the magic and exchange hellos; return that of the other side, None for a stock primary.

    A stock primary takes up to 5 s to answer. Raises FrameError, OSError.
    """
    connection.sendall(MAGIC_BYTES)
    theirs = read_hello(receiver(connection))
    if theirs is not None:
        connection.sendall(encode(hello))
    return theirs


def is_ours(first: bytes) -> bool:
    """Return whether the first report of a connection is the magic."""
    return first == MAGIC_BYTES


def answer(connection: socket.socket, store: MessageStore) -> Hello:
    """Answer the magic with a store's hello, and return that of the connecting side.

    A primary's history begins with its first replica of this library. Raises FrameError, OSError, StoreFull.
    """
    if replica_mark.read_mark(store.root) is None:
        with store.lock.held(TOPIC_BYTE):
            begin_lineage(store.root)
    connection.sendall(encode(hello_of(store)))
    theirs = read_hello(receiver(connection))
    if theirs is None:
        raise FrameError("an empty hello")
    return theirs


def receiver(connection: socket.socket) -> Receive:
    """Return a function that reads exactly a number of bytes of a connection."""

    def receive(count: int) -> bytes:
        content = b""
        while len(content) < count:
            part = connection.recv(count - len(content))
            if not part:
                raise ConnectionResetError("the other side closed the connection")
            content += part
        return content

    return receive
