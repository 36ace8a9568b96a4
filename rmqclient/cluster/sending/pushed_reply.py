"""Pushed: converts a reply in a request 326 to a message.

The header has the fields of a send, and the times and hosts of the record. This writes the record as a broker would
store it, so that the kernel can read it like any other message.
"""

from __future__ import annotations

import ipaddress
import struct
import zlib
from typing import Any, Final

from rmqclient.message import ReceivedMessage
from rmqclient.remoting.errors import BodyError
from rmqclient.remoting.frame import Frame
from rmqclient.remoting.table import request_fields
from rmqclient.store.wire import decode_records

_MAGIC: Final = -626_843_481
_HEAD: Final = struct.Struct(">iiIiiqqiq")
"""Size, magic code, CRC of the body, queue id, flag, queue offset, commit log offset, system flag, born time."""
_BORN_HOST_IS_IPV6: Final = 0x10
_STORE_HOST_IS_IPV6: Final = 0x20


def message_of_push(pushed: Frame) -> ReceivedMessage:
    """Return the reply in a request 326. Raises HeaderError, BodyError."""
    fields = request_fields(pushed)
    found = decode_records(_record(fields, pushed.body))
    if len(found) != 1:
        raise BodyError(f"a pushed reply is one message, not {len(found)}")
    return found[0]


def _record(fields: dict[str, Any], body: bytes) -> bytes:
    """Return the record of a message. [MessageDecoder.encode]"""
    topic: bytes = fields["topic"].encode()
    properties: bytes = fields.get("properties", "").encode()
    born, store = _host(fields["bornHost"]), _host(fields["storeHost"])
    flag = fields["sysFlag"] & ~(_BORN_HOST_IS_IPV6 | _STORE_HOST_IS_IPV6)
    flag |= (_BORN_HOST_IS_IPV6 if len(born) > 8 else 0) | (_STORE_HOST_IS_IPV6 if len(store) > 8 else 0)
    try:
        rest = (
            born
            + struct.pack(">q", fields["storeTimestamp"])
            + store
            + struct.pack(">iqi", fields.get("reconsumeTimes", 0), 0, len(body))
            + body
            + struct.pack(">B", len(topic))
            + topic
            + struct.pack(">h", len(properties))
            + properties
        )
    except struct.error as error:
        raise BodyError(f"a pushed reply of topic {fields['topic']!r:.80} cannot be a message: {error}") from error
    crc = zlib.crc32(body) & 0x7FFF_FFFF
    head = (fields["queueId"], fields["flag"], 0, 0, flag, fields["bornTimestamp"])
    return _HEAD.pack(_HEAD.size + len(rest), _MAGIC, crc, *head) + rest


def _host(text: str) -> bytes:
    """Return ``ip:port`` in the form of records: 4 or 16 bytes, and the port as 4."""
    host, _, port = text.lstrip("/").rpartition(":")
    try:
        return ipaddress.ip_address(host.strip("[]")).packed + int(port).to_bytes(4, "big")
    except (ValueError, OverflowError) as error:
        raise BodyError(f"{text!r:.80} is not ip:port") from error
