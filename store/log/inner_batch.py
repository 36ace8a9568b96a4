"""Inner batch: many messages in the body of one record, compressed together, in RocketMQ 5's format.

The record is an ordinary one with one consume queue entry and one queue offset, so RocketMQ 4.9 still opens the
directory. Its system flag and its properties make it a batch:

============  =====================================================================================================
system flag   ``0x80`` INNER_BATCH, and how the body is compressed (:mod:`rmqclient.store.bodies`)
INNER_NUM     how many messages there are
KEYS          every key of every message, once
TAGS          the tag, which all of them have
UNIQ_KEY      that of the first message; the others' follow, each counted up by one in its last four digits
============  =====================================================================================================

``0x40`` NEED_UNWRAP is neither set nor read here. When it is set, RocketMQ 5's client opens the batch but counts its
messages on from the queue offset of the record (MessageDecoder.decodeMessage): the group gets ahead of the queue and
misses later messages. Without it that client gets one message whose body is the messages below, as the 4.9 client does.

The body, opened, is messages back to back (MessageDecoder.encodeMessage), numbers big-endian::

    byte      size  field            meaning
    --------  ----  ---------------  -------
           0     4  total_size       bytes of the message, this field included
           4     4  magic            0
           8     4  body_crc         0
          12     4  flag             the application's own
          16     4  body_size        bytes of the body, which follows
        20+n     2  properties_size  bytes of the properties, which follow: ``name 0x01 value 0x02`` each

Each message has its own properties, its keys and unique key among them. When it is opened it becomes a record of its
own, in memory: with the place, the times and the hosts of the batch, and without the bits above. A copy of it, as
for a retry, is therefore an ordinary message.

The body is not trusted. It may open to at most ``max_opened_body_bytes`` and ``MAX_INNER_MESSAGES``. A body whose sizes
do not add up to its end, or whose messages do not add up to INNER_NUM, is refused.
"""

from __future__ import annotations

from collections.abc import Sequence

from rmqclient.store.errors import BodyUnreadable, NotInstalled
from rmqclient.store.kernel._kernel import MAX_INNER_MESSAGES, ReceivedMessage, inner_messages

__all__ = [
    "INNER_BATCH",
    "MAX_INNER_MESSAGES",
    "inner_messages",
    "is_batch",
    "opened",
    "stated_messages",
    "unique_keys",
]

INNER_BATCH = 0x80
_UNIQUE_KEY_DIGITS = 32
_COUNTER_DIGITS = 4


def is_batch(message: ReceivedMessage) -> bool:
    """Return whether a record is a batch."""
    return message.sys_flag & INNER_BATCH != 0


def opened(message: ReceivedMessage) -> Sequence[ReceivedMessage]:
    """Return the messages of a record: those of a batch, or the record itself if it is none or cannot be opened."""
    if is_batch(message):
        try:
            return inner_messages(message)
        except (BodyUnreadable, NotInstalled):
            pass
    return (message,)


def stated_messages(message: ReceivedMessage) -> int:
    """Return how many messages a record says that it has: 1 if it is no batch, or does not say a number."""
    stated = message.properties.get("INNER_NUM", "") if is_batch(message) else ""
    is_number = stated.isascii() and stated.isdigit() and int(stated) <= MAX_INNER_MESSAGES
    return max(1, int(stated)) if is_number else 1


def unique_keys(message: ReceivedMessage) -> list[str]:
    """Return the unique keys of a record in the index: its own and, for a batch, those that follow it."""
    first = message.properties.get("UNIQ_KEY")
    if not first:
        return []
    counter = first[-_COUNTER_DIGITS:]
    if not is_batch(message) or len(first) != _UNIQUE_KEY_DIGITS or set(counter) - set("0123456789ABCDEF"):
        return [first]
    start = int(counter, 16)
    count = stated_messages(message)
    return [f"{first[:-_COUNTER_DIGITS]}{(start + number) % 0x10000:04X}" for number in range(count)]
