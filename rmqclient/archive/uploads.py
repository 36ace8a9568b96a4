"""Uploads: the objects that one run puts into an archive, each counted, and none that a killed run has put there."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
from typing import NamedTuple

from rmqclient.archive.storage import Storage

READ_BYTES = 8 << 20


class Upload(NamedTuple):
    """How far the upload of one object is; the last word on it says ``done == size``."""

    name: str
    done: int
    size: int


Progress = Callable[[Upload], None]


class Uploads:
    """What is put into ``storage``; ``progress`` is told of each step."""

    def __init__(self, storage: Storage, progress: Progress) -> None:
        self.storage = storage
        self.progress = progress
        self.done: list[Upload] = []
        self.found = 0

    def put(self, name: str, size: int, parts: Callable[[], Iterable[bytes]], *, may_be_there: bool) -> int:
        """Make an object of parts with ``size`` bytes in all, and return their CRC-32.

        With ``may_be_there`` one that has the same bytes is left as it is. ``parts`` can be taken twice.
        """
        if may_be_there and self.storage.size(name) == size:
            crc = crc_of(parts())
            if crc == self._archived_crc(name):
                self.found += 1
                return crc
        crc = 0

        def counted() -> Iterable[bytes]:
            nonlocal crc
            done = 0
            for part in parts():
                self.progress(Upload(name, done, size))
                crc, done = zlib.crc32(part, crc), done + len(part)
                yield part

        self.storage.write(name, counted())
        self.done.append(Upload(name, size, size))
        self.progress(self.done[-1])
        return crc

    def _archived_crc(self, name: str) -> int:
        file = self.storage.open(name)
        try:
            return crc_of(file.parts(READ_BYTES))
        finally:
            file.close()


def crc_of(parts: Iterable[bytes]) -> int:
    """Return the CRC-32 of bytes that come in parts."""
    crc = 0
    for part in parts:
        crc = zlib.crc32(part, crc)
    return crc
