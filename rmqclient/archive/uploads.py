"""Uploads: the objects that one run puts into an archive, except those that a killed run has put there."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
from typing import NamedTuple

from rmqclient.archive.storage import Storage

READ_BYTES = 8 << 20


class Upload(NamedTuple):
    """Progress of the upload of one object, in bytes; the last report has ``done == size``."""

    name: str
    done: int
    size: int


Progress = Callable[[Upload], None]


class Uploads:
    """Puts objects into ``storage`` and reports each step to ``progress``."""

    def __init__(self, storage: Storage, progress: Progress) -> None:
        self.storage = storage
        self.progress = progress
        self.done: list[Upload] = []
        self.found = 0

    def put(self, name: str, size: int, parts: Callable[[], Iterable[bytes]], *, may_be_there: bool) -> int:
        """Write an object of ``size`` bytes and return its CRC-32.

        With ``may_be_there`` an existing object with the same bytes is kept. ``parts`` may be called twice.
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
    """Return the CRC-32 of all parts together."""
    crc = 0
    for part in parts:
        crc = zlib.crc32(part, crc)
    return crc
