"""Compressor: makes the bodies that a producer sends smaller, where that can be done.

RocketMQ's producer does the same with bodies of 4,096 bytes and more (DefaultMQProducerImpl.tryToCompressMessage). One
that would not become smaller is sent as it is, where RocketMQ's producer makes it larger.
"""

from __future__ import annotations

import zlib

from rmqclient.codecs import encoded
from rmqclient.message import Message
from rmqclient.store.bodies import Compression, compress

OVER_BYTES = 4_096


class Compressor:
    """Compresses bodies of ``over_bytes`` and more. Raises NotInstalled, and ValueError for settings that are none."""

    def __init__(self, compression: Compression, over_bytes: int, level: int | None) -> None:
        self._compression = Compression(compression)
        if over_bytes < 0:
            raise ValueError(f"compress_over_bytes={over_bytes}: must not be negative")
        try:
            compress(b"", compression, level)
        except (ValueError, TypeError, OverflowError, zlib.error) as error:
            raise ValueError(f"compression_level={level!r} of {compression.name}: {error}") from error
        self._over_bytes = over_bytes
        self._level = level

    def compressed(self, message: Message, max_body_bytes: int) -> Message:
        """Return the message with the body to store, which is encoded first. Raises MessageRejected.

        A longer body than ``max_body_bytes`` stays as it is, and so does what is no message: the append refuses them.
        So does one that is made already, by :meth:`Message.with_body`.
        """
        if not isinstance(message, Message):
            return message
        if message.sys_flag:
            return message
        message = encoded(message)
        body = message.body
        if isinstance(body, bytes) and self._over_bytes <= len(body) <= max_body_bytes:
            packed = compress(body, self._compression, self._level)
            if len(packed) < len(body):
                return message.with_body(packed, self._compression.value)
        return message
