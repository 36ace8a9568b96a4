"""Compressor: compresses the bodies of a producer's messages, if that makes them smaller.

RocketMQ's producer compresses bodies of at least 4,096 bytes (DefaultMQProducerImpl.tryToCompressMessage), even if they
become larger. Here a body that would become larger is sent unchanged.
"""

from __future__ import annotations

from rmqclient.codecs import encoded
from rmqclient.message import Message
from rmqclient.store.bodies import Compression, check_level, compress
from rmqclient.store.numbers import check_kind, whole

OVER_BYTES = 4_096


def compressor_of(compression: Compression | None, over_bytes: int, level: int | None) -> Compressor | None:
    """Return the compressor for these settings of a producer; None without a compression.

    Raises as :class:`Compressor`, and ValueError for a setting that has no effect without a compression.
    """
    check_kind("compression", compression, Compression)
    if compression is not None:
        return Compressor(compression, over_bytes, level)
    for name, value, default in (
        ("compress_over_bytes", over_bytes, OVER_BYTES),
        ("compression_level", level, None),
    ):
        if value != default:
            raise ValueError(f"{name}={value!r} without a compression: give one, as compression=Compression.ZSTD")
    return None


class Compressor:
    """Compresses bodies of at least ``over_bytes``. Raises NotInstalled, and ValueError for invalid settings."""

    def __init__(self, compression: Compression, over_bytes: int, level: int | None) -> None:
        self._compression = Compression(compression)
        whole("compress_over_bytes", over_bytes)
        check_level("compression_level", compression, level)
        self._over_bytes = over_bytes
        self._level = level

    def compressed(self, message: Message, max_body_bytes: int) -> Message:
        """Return the message with its body encoded and, if that helps, compressed. Raises MessageRejected.

        A body of more than ``max_body_bytes`` and an object that is not a message are returned unchanged: the append
        refuses them. So is a message whose body was already prepared by :meth:`Message.with_body`.
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
