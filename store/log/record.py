"""Message record: the unit of the commit log, and the other outcomes that a position of the log can have.

On disk, big-endian, back to back::

    byte  size  field                        meaning
    ----  ----  ---------------------------  -------
       0     4  total_size                   bytes of the whole record, this field included
       4     4  magic                        0xDAA320A7
       8     4  body_crc                     CRC-32 of the body, lower 31 bits; 0 when empty
      12     4  queue_id                     queue of the topic
      16     4  flag                         the application's own, opaque
      20     8  queue_offset                 number of the message within its queue
      28     8  commit_log_offset            first byte of this record in the commit log
      36     4  sys_flag                     compression, transaction state, address kinds
      40     8  born_timestamp               ms, the producer's clock
      48     4  born_host                    IPv4 address of the producer
      52     4  born_port                    its port
      56     8  store_timestamp              ms, taken under the append mutex
      64     4  store_host                   IPv4 address of the store
      68     4  store_port                   its port
      72     4  reconsume_times              delivery attempt - 1
      76     8  prepared_transaction_offset  of the half message; 0 without a transaction
      84     4  body_size                    bytes of the body, which follows
    ----  ----
      88

Then the body, one byte ``topic_size`` and the topic, two bytes ``properties_size`` and the properties:
``name 0x01 value 0x02`` each. The last property is ``__CRC32#`` (RocketMQ 5.2, MessageDecoder.createCrc32): 20 bytes
that cover the whole record before them. RocketMQ 4.9 reads it as one more property. An IPv6 host (a bit of
``sys_flag``) takes 20 bytes, and the fields after it move up by 12.

A file ends with a blank record, of which only these bytes are written::

    byte  size  field       meaning
    ----  ----  ----------  -------
       0     4  total_size  bytes left in the file, this field included
       4     4  magic       0xCBD43194
    ----  ----
       8

A record is valid if its sizes add up, ``commit_log_offset`` is its position, and its CRC matches: that of ``__CRC32#``,
or that of the body alone for a record of a 4.9 broker. Its topic must be a valid name, because a directory is named
after it. A record without our CRC must also have properties that are UTF-8 without a zero byte, and must not end with
the right digits after another name: such a record is ours, torn after its body, or its CRC's name is damaged.
"""

from __future__ import annotations

from dataclasses import dataclass

from rmqclient.store import layout
from rmqclient.store.kernel._kernel import Mapping, Message, ReceivedMessage
from rmqclient.store.kernel._kernel import decode as _decode
from rmqclient.store.layout import FOUND

__all__ = ["Blank", "Corrupt", "End", "Message", "Outcome", "ReceivedMessage", "Record", "Torn", "decode"]

_REASONS = {
    FOUND["BAD_MAGIC"]: "no magic code of a record",
    FOUND["BAD_SIZE"]: "sizes do not add up, or a number is negative",
    FOUND["BAD_OFFSET"]: "the stored commit_log_offset is not where the record stands",
    FOUND["BAD_BODY_CRC"]: "the CRC of the body does not match",
    FOUND["BAD_CRC"]: "the CRC of the record does not match",
    FOUND["BAD_TOPIC"]: "the topic is not a valid name",
}


@dataclass(frozen=True, slots=True)
class Record:
    """A whole and valid record."""

    message: ReceivedMessage
    size: int


@dataclass(frozen=True, slots=True)
class Blank:
    """The end of a file; the next record begins the next file."""

    size: int


@dataclass(frozen=True, slots=True)
class End:
    """Zeros: nothing was written here."""


@dataclass(frozen=True, slots=True)
class Torn:
    """The file ends before the record does."""


@dataclass(frozen=True, slots=True)
class Corrupt:
    """Bytes that are no valid record."""

    reason: str


Outcome = Record | Blank | End | Torn | Corrupt


def decode(buffer: bytes | memoryview | Mapping, position: int, commit_log_offset: int) -> Outcome:
    """Return the outcome at ``position`` of ``buffer``, which is byte ``commit_log_offset`` of the log."""
    found = _decode(buffer, position, commit_log_offset)
    if isinstance(found, ReceivedMessage):
        return Record(found, found.size)
    if found == FOUND["BLANK"]:
        return Blank(layout.BLANK_RECORD.read(buffer, position)["total_size"])
    if found == FOUND["END"]:
        return End()
    if found == FOUND["SHORT"]:
        return Torn()
    return Corrupt(_REASONS[found])


def reason(found: int) -> str:
    """Return an outcome number of the kernel in words."""
    return _REASONS.get(found, "bytes missing")
