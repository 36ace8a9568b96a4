"""Inner batch: many messages in the body of one record, compressed together, as RocketMQ 5 has it.

The record is an ordinary one with one consume queue entry and one queue offset, so a directory that has some stays
RocketMQ 4.9's; what makes it a batch is in its system flag and one property:

============  =====================================================================================================
system flag   ``0x80`` INNER_BATCH, and how the body is compressed (:mod:`rmqclient.store.bodies`)
INNER_NUM     how many messages there are
KEYS          every key of every message, once
TAGS          the tag, which all of them have
UNIQ_KEY      that of the first message; the others' follow, each counted up by one in its last four digits
============  =====================================================================================================

``0x40`` NEED_UNWRAP is not set here, and not looked at. For it RocketMQ 5's client opens the batch, but counts its
messages on from the queue offset of the record (MessageDecoder.decodeMessage): its group gets ahead of the queue and
misses what comes next. Without it that client has one message whose body is the messages below, as the client of 4.9.

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
own, in memory: with the place, the times and the hosts of the batch, and without the bits above. So a copy of it, as
for a retry, is an ordinary message.

The body says nothing that may be believed: it opens to at most ``max_opened_body_bytes`` and to ``MAX_INNER_MESSAGES``,
and what does not add up to its end, or to INNER_NUM, is refused.
"""

from __future__ import annotations

from collections.abc import Sequence

from rmqclient.store.errors import BodyUnreadable, NotInstalled
from rmqclient.store.kernel._kernel import MAX_INNER_MESSAGES, ReceivedMessage, inner_messages

__all__ = ["INNER_BATCH", "MAX_INNER_MESSAGES", "inner_messages", "is_batch", "opened", "unique_keys"]

INNER_BATCH = 0x80
_UNIQUE_KEY_DIGITS = 32
_COUNTER_DIGITS = 4


def is_batch(message: ReceivedMessage) -> bool:
    """Tell whether a record is a batch."""
    return message.sys_flag & INNER_BATCH != 0


def opened(message: ReceivedMessage) -> Sequence[ReceivedMessage]:
    """Return the messages that a record stands for: those of a batch, or itself, also when it cannot be opened."""
    if is_batch(message):
        try:
            return inner_messages(message)
        except (BodyUnreadable, NotInstalled):
            pass
    return (message,)


def unique_keys(message: ReceivedMessage) -> list[str]:
    """Return the unique keys that the index has for a record: its own and, of a batch, those that follow it."""
    first = message.properties.get("UNIQ_KEY")
    if not first:
        return []
    counter = first[-_COUNTER_DIGITS:]
    if not is_batch(message) or len(first) != _UNIQUE_KEY_DIGITS or set(counter) - set("0123456789ABCDEF"):
        return [first]
    told = message.properties.get("INNER_NUM", "")
    count = int(told) if told.isascii() and told.isdigit() and int(told) <= MAX_INNER_MESSAGES else 1
    start = int(counter, 16)
    return [f"{first[:-_COUNTER_DIGITS]}{(start + number) % 0x10000:04X}" for number in range(max(1, count))]
