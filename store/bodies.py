"""Bodies: how they are compressed, as the system flag of a record tells it, and opened again.

==============  =======  ===========================================  ====================================
bits            value    meaning                                      bytes of the body
==============  =======  ===========================================  ====================================
0               0x001    the body is compressed
8-10            0x000    zlib, as every client before 4.9.4 wrote it  RFC 1950
8-10            0x100    LZ4                                          a frame, as ``lz4.frame`` writes it
8-10            0x200    Zstandard                                    frames, RFC 8878
8-10            0x300    zlib                                         RFC 1950
==============  =======  ===========================================  ====================================

(MessageSysFlag, CompressionType and CompressorFactory of RocketMQ 4.9.4 and later.) The store keeps the bytes as they
are; producers compress, and consumers open. No size that a compressed body states is believed: a body is opened up to a
limit and a little further, and refused if more would follow.

LZ4 and Zstandard need the packages ``lz4`` and ``zstandard``, the extra ``compression``.
"""

from __future__ import annotations

import enum
import importlib
import zlib
from collections.abc import Callable
from typing import Any

from rmqclient.store.errors import BodyUnreadable, NotInstalled
from rmqclient.store.native_threads import threading
from rmqclient.store.numbers import whole

COMPRESSED = 0x1
TYPE_MASK = 0x700

DEFAULT_LIMIT = 64 << 20
"""Bytes that a body may open to by default."""

_LARGEST_WINDOW = 1 << 27
_MOST_LEVEL = 1_000_000  # the fastest level of Zstandard is -131,072; each library knows its own
_PIECE = 256
"""Bytes of Zstandard that are opened at once when the frame does not state its size: at most 64 blocks, 8 MiB."""


class _Zstandard(threading.local):
    """Contexts of one thread. Two threads cannot share a context, and making one costs as much as compressing 4 KiB."""

    def __init__(self) -> None:
        self._compressors: dict[int, Any] = {}
        self._opener: Any = None

    def compressor(self, level: int) -> Any:
        if level not in self._compressors:
            self._compressors[level] = _library("zstandard").ZstdCompressor(level=level)
        return self._compressors[level]

    def opener(self) -> Any:
        if self._opener is None:
            self._opener = _library("zstandard").ZstdDecompressor(max_window_size=_LARGEST_WINDOW)
        return self._opener


_zstandard = _Zstandard()


class Compression(enum.Enum):
    """A way to compress bodies. The value is the system flag of a body that was compressed this way."""

    LZ4 = 0x101
    ZSTD = 0x201
    ZLIB = 0x301


def compress(body: bytes, compression: Compression, level: int | None = None) -> bytes:
    """Return a body compressed, by default as RocketMQ does it. Raises NotInstalled."""
    packed: bytes
    if compression is Compression.ZLIB:
        packed = zlib.compress(body, 5 if level is None else level)
    elif compression is Compression.LZ4:
        packed = _library("lz4.frame").compress(body, compression_level=0 if level is None else level)
    else:
        packed = _zstandard.compressor(3 if level is None else level).compress(body)
    return packed


def check_level(name: str, compression: Compression, level: int | None) -> None:
    """Raise TypeError and ValueError for a level that a way to compress has not, and NotInstalled."""
    if level is not None:
        whole(name, level, -_MOST_LEVEL, _MOST_LEVEL)
    try:
        compress(b"", compression, level)
    except (ValueError, TypeError, OverflowError, zlib.error) as error:
        raise ValueError(f"{name}={level!r} of {compression.name}: {error}") from error


def open_body(body: bytes, sys_flag: int, limit: int) -> bytes:
    """Return the body of a record as it was sent; ``body`` itself when the system flag says that it is not compressed.

    Raises BodyUnreadable when the body opens to more than ``limit`` bytes, is damaged, ends too soon or is compressed
    in an unknown way, and NotInstalled when its library is missing.
    """
    if not sys_flag & COMPRESSED:
        return body
    kind = sys_flag & TYPE_MASK
    open_kind = _OPENERS.get(kind)
    if open_kind is None:
        raise BodyUnreadable(f"a body of {len(body)} bytes is compressed in a way that is not known: {kind >> 8}")
    try:
        opened, is_whole = open_kind(body, limit)
    except (zlib.error, RuntimeError, EOFError) as error:
        raise BodyUnreadable(f"a compressed body of {len(body)} bytes is damaged: {error}") from error
    if len(opened) > limit:
        raise _too_large(body, limit)
    if not is_whole:
        raise BodyUnreadable(f"a compressed body of {len(body)} bytes ends too soon, {len(opened)} bytes of content on")
    return opened


def _open_zlib(body: bytes, limit: int) -> tuple[bytes, bool]:
    opener = zlib.decompressobj()
    opened = opener.decompress(body, limit + 1)
    return opened, opener.eof


def _open_lz4(body: bytes, limit: int) -> tuple[bytes, bool]:
    opener = _library("lz4.frame").LZ4FrameDecompressor()
    opened: bytes = opener.decompress(body, max_length=limit + 1)
    return opened, opener.eof


def _open_zstd(body: bytes, limit: int) -> tuple[bytes, bool]:
    zstandard = _library("zstandard")
    try:
        size = zstandard.frame_content_size(body)
        if size > limit:
            raise _too_large(body, limit)
        if size > 0:
            return _zstandard.opener().decompress(body), True
        opener = _zstandard.opener().decompressobj()
        opened = bytearray()
        for start in range(0, len(body), _PIECE):
            opened += opener.decompress(body[start : start + _PIECE])
            if opener.eof or len(opened) > limit:
                break
        return bytes(opened), opener.eof
    except zstandard.ZstdError as error:
        raise RuntimeError(str(error)) from error


_OPENERS: dict[int, Callable[[bytes, int], tuple[bytes, bool]]] = {
    0: _open_zlib,
    0x100: _open_lz4,
    0x200: _open_zstd,
    0x300: _open_zlib,
}


def _too_large(body: bytes, limit: int) -> BodyUnreadable:
    return BodyUnreadable(
        f"a compressed body of {len(body)} bytes opens to more than {limit} (max_opened_body_bytes): raise that limit "
        "where the message is read, if its sender is trusted"
    )


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = name.partition(".")[0]
        raise NotInstalled(
            f"this compression needs the package {package}: pip install 'rmqclient[compression]'"
        ) from error
