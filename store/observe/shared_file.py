"""Shared file: the words that the processes of a store share and the bytes that they hold, read from outside.

Nothing is written, no lock is taken, and neither the compiled kernel nor any package is imported. A word is read whole.
Words are read one after the other, so a number may be a moment older than the one beside it.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
from typing import TYPE_CHECKING

from rmqclient.store import layout
from rmqclient.store.closing import Closing
from rmqclient.store.observe.config import opened

if TYPE_CHECKING:
    from rmqclient.store.layout import Layout

BROKER_BYTE = 0
HOUSEKEEPER_BYTE = 2
MEMBER_BYTES = 4096
WORKER_BYTES = 8192
"""As :mod:`rmqclient.store.files.file_lock` has them; a test compares."""

_FLOCK = struct.Struct("hhqqi0q")


class Unreadable(Exception):
    """There is no store, no process has opened it since it was copied here, or another version did."""


class SharedFile(Closing):
    """The runtime file of a store, mapped, and its lock file. For one thread. Raises Unreadable."""

    def __init__(self, root: str) -> None:
        self.root = root
        self._lock = -1
        try:
            descriptor = opened(os.path.join(root, "shared"))
        except OSError as error:
            raise Unreadable(f"{root}: no store of this host is open or was open there ({error.strerror})") from error
        try:
            status = os.fstat(descriptor)
            self.identity = status.st_dev, status.st_ino
            self._map = mmap.mmap(descriptor, min(status.st_size, layout.RUNTIME_SIZE), prot=mmap.PROT_READ)
            self._lock = opened(os.path.join(root, "lock"))
        except (OSError, ValueError) as error:
            raise Unreadable(f"{root} cannot be read: {error}") from error
        finally:
            os.close(descriptor)
        self._check()
        self.view = memoryview(self._map)
        """Its bytes."""
        self.words = self.view.cast("Q")
        """The same as 64-bit words."""
        self._halves = self.view.cast("I")

    def close(self) -> None:
        """Let go of the files. Closing twice does nothing."""
        if self._lock >= 0:
            for view in (self._halves, self.words, self.view):
                view.release()
            self._map.close()
            os.close(self._lock)
            self._lock = -1

    @property
    def is_present(self) -> bool:
        """Whether the words are of this boot and of this file: a copy has those of the original."""
        fields = layout.RUNTIME_HEADER.read(self._map)
        with open("/proc/sys/kernel/random/boot_id", "rb") as file:
            boot_id = file.read(len(fields["boot_id"]))
        return (fields["device"], fields["inode"], fields["boot_id"]) == (*self.identity, boot_id)

    def is_locked(self, byte: int) -> bool:
        """Tell whether a process holds a byte of the lock file."""
        asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, byte, 1, 0)
        answer = fcntl.fcntl(self._lock, fcntl.F_OFD_GETLK, asked)
        return bool(_FLOCK.unpack(answer)[0] != fcntl.F_UNLCK)

    def word(self, name: str) -> int:
        """Return a word of the header, such as ``poisoned``, ``disk_full``, ``published_to`` and ``flushed_to``."""
        return self.words[layout.RUNTIME_HEADER.at[name] // 8]

    def column(self, at: int, slot: Layout, word: str, count: int) -> list[int]:
        """Return one word of each of the first ``count`` slots of the table that begins at a byte."""
        begin, step = (at + slot.at[word]) // 8, slot.size // 8
        return self.words[begin : begin + count * step : step].tolist()

    def half(self, begin: int, slot: Layout, name: str) -> int:
        """Return a 32-bit field of the slot that begins at a byte."""
        return self._halves[(begin + slot.at[name]) // 4]

    def text(self, begin: int, slot: Layout, name: str) -> str:
        """Return a text of the slot that begins at a byte."""
        at = begin + slot.at[name]
        return bytes(self.view[at : at + self.half(begin, slot, f"{name}_size")]).decode("utf-8", "replace")

    def _check(self) -> None:
        header = layout.RUNTIME_HEADER
        fields = header.read(self._map) if len(self._map) >= header.size else {}
        if fields.get("magic") != layout.RUNTIME_MAGIC or len(self._map) < layout.RUNTIME_SIZE:
            raise Unreadable(f"{self.root}/shared is not whole: a process that opens the store builds it again")
        if fields["fingerprint"] != layout.RUNTIME_FINGERPRINT:
            raise Unreadable(f"{self.root} was opened by another version of rmqclient: use that version")
