"""Wire: records as a broker sends them, and messages as a client sends them to a broker.

An answer to a pull holds records one behind the other, as they stand in the broker's commit log. A request to send
holds the body of one message, and its properties as a text: name, byte 1, value, byte 2, for each
(MessageDecoder.messageProperties2String). The body of a batch is a row of messages, without gaps:

====  ====  ======================================================
at    size  field (MessageDecoder.encodeMessage)
====  ====  ======================================================
0     4     size of all of it
4     8     zeros
12    4     flag of the application
16    4     size n of the body
20    n     body
20+n  2     size p of the properties
22+n  p     properties
====  ====  ======================================================

All numbers are big-endian. The queue, the time and the hosts of a batch are those of its request.
"""

from __future__ import annotations

import enum
import ipaddress
import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rmqclient.store.append.appending import AppendFiles
from rmqclient.store.bodies import DEFAULT_LIMIT
from rmqclient.store.errors import MessageRejected, RecordsDamaged
from rmqclient.store.kernel import _kernel
from rmqclient.store.kernel._kernel import Message, MessageIds, ReceivedMessage, SendResult
from rmqclient.store.layout import FOUND
from rmqclient.store.log.record import reason
from rmqclient.store.message_queue import MessageQueue
from rmqclient.store.runtime.shared_state import process_start_unique


class ReadStatus(enum.IntEnum):
    """How :meth:`rmqclient.store.kernel._kernel.RecordReader.read` ended."""

    FOUND = 0
    NONE_WANTED = 1  #: there are messages, and none of those looked at is wanted
    AT_END = 2  #: the next message is not there yet
    BEYOND_END = 3  #: the offset lies above the next message's; the answer says that one's
    REMOVED = 4  #: the message was removed; the answer says the oldest one that is there


def decode_records(
    data: bytes,
    queue: MessageQueue | None = None,
    *,
    broker_name: str = "",
    delivered: bool = False,
    max_opened_body_bytes: int = DEFAULT_LIMIT,
) -> list[ReceivedMessage]:
    """Return the messages of the records in ``data``, in order; they share its memory.

    ``queue`` is what their ``queue`` says; without it each says the topic and the queue id of its record, and
    ``broker_name``. ``delivered``: the messages are for a group, so a retry and a half message show the topic they are
    for, as :meth:`ReceivedMessage.as_delivered` tells. A batch of a 5.x broker that is to be unwrapped becomes its
    messages; one that cannot be opened stays, and its ``unopened`` says why. The CRC of each body is checked.

    Raises RecordsDamaged, which names the position, when a record is broken or cut off.
    """
    messages, position, found = _kernel.pulled(data, queue, broker_name, delivered, max_opened_body_bytes)
    if found != FOUND["RECORD"]:
        raise RecordsDamaged(position, len(data), reason(found))
    return messages


def found_in(data: memoryview, at: int, end: int) -> tuple[list[tuple[int, int, memoryview]], int]:
    """Return the answers to pulls that found messages, in frames from ``at`` on, and where the first other one begins.

    Each is the ``opaque``, ``nextBeginOffset`` and the records, which are a view. A frame that is not complete at
    ``end`` is another one, and so is one with a binary header or an unusual one. Raises ValueError for a place that is
    not in ``data``.
    """
    return _kernel.found_in(data, at, end)


def encode_properties(message: Message, extra: Mapping[str, str] | None = None) -> str:
    """Return the properties of a message as a text: KEYS, TAGS, its own, then those of ``extra``.

    ``extra`` may hold the names that RocketMQ keeps for itself, such as ``WAIT``. Without a ``UNIQ_KEY`` in it, a new
    one is made. Raises MessageRejected for a name or a value with bytes 1 or 2 in it, PropertiesTooLarge.
    """
    return _kernel.encode_properties(message, _with_id(extra))


def encode_batch(messages: Sequence[Message], extras: Sequence[Mapping[str, str]] | None = None) -> bytes:
    """Return the body of request 320: these messages with their properties, and those of ``extras`` for each.

    Raises MessageRejected for a compressed body, and as :func:`encode_each`.
    """
    encoded = encode_each(messages, extras)
    if not all(encoded):
        raise MessageRejected(
            "a message whose body is compressed cannot be part of a batch for a broker: send it alone"
        )
    return b"".join(encoded)


def encode_each(messages: Sequence[Message], extras: Sequence[Mapping[str, str]] | None = None) -> list[bytes]:
    """Return each message as it stands in a batch; no bytes for one with a compressed body, which must be sent alone.

    Bodies must be ``bytes``; TypeError. Raises as :func:`encode_properties`, and ValueError when ``extras`` are not as
    many as messages.
    """
    given = [_with_id(extra) for extra in extras] if extras is not None else [_with_id(None) for _ in messages]
    return _kernel.encode_each(list(messages), given)


def _with_id(extra: Mapping[str, str] | None) -> Mapping[str, str]:
    if extra and "UNIQ_KEY" in extra:
        return extra
    return {"UNIQ_KEY": new_message_id(), **(extra or {})}


class _Process(NamedTuple):
    pid: int
    ids: MessageIds


_process: list[_Process] = []


def new_message_id() -> str:
    """Return a new id for a message: 32 hexadecimal digits, unique to it [MessageClientIDSetter.createUniqID]."""
    pid = os.getpid()
    if not _process or _process[0].pid != pid:  # a forked child must not count on where its parent is
        _process[:] = [_Process(pid, MessageIds(AppendFiles.month, process_start_unique()))]
    return _process[0].ids.next()


class OffsetId(NamedTuple):
    """What an offset message id says: the address of a broker, and the place of the record in its log."""

    host: str
    port: int
    commit_log_offset: int

    @property
    def address(self) -> str:
        """``host:port``, with brackets around an IPv6 host."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_offset_id(text: str) -> OffsetId:
    """Read an offset message id: 32 hexadecimal digits, or 56 with an IPv6 host (MessageDecoder.decodeMessageId).

    Raises ValueError for anything else.
    """
    data = _kernel.offset_id_bytes(text)
    host, port, offset = data[:-12], data[-12:-8], data[-8:]
    return OffsetId(str(ipaddress.ip_address(host)), int.from_bytes(port, "big"), int.from_bytes(offset, "big"))


def sent_results(
    queue: MessageQueue, queue_offset: int, message_ids: Sequence[str], offset_message_ids: Sequence[str]
) -> list[SendResult]:
    """Return the results of sends that a broker stored in a row, from its answer; the first stands at ``queue_offset``.

    The broker does not tell the sizes of the records: ``commit_log_end`` is where one begins. Raises ValueError for an
    offset message id that :func:`parse_offset_id` refuses, and when there are not as many of them as messages.
    """
    return _kernel.sent_results(queue, queue_offset, list(message_ids), list(offset_message_ids))
