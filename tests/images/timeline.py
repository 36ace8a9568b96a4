"""What the files and directories of a store held, moment by moment, and what of it a power cut cannot take.

A file is known by its inode, so that a rename moves its content. What a sync at a moment covers is durable from the
next moment on; at the moment itself the disk has not answered yet.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from pathlib import PurePath
from typing import Generic, TypeVar

Value = TypeVar("Value")

PREALLOCATED = ("commitlog", "consumequeue", "index")
"""Directories whose files appear in full length: a power cut leaves zeros in them, and never a shorter file."""

FIRST = 1
"""The first moment at which the power can go: at moment 0 stands what the disk held before."""


class Steps(Generic[Value]):
    """A value that changes at moments."""

    def __init__(self, first: Value) -> None:
        self._first = first
        self._moments: list[int] = []
        self._values: list[Value] = []

    @property
    def last(self) -> Value:
        """The present value."""
        return self._values[-1] if self._values else self._first

    def note(self, moment: int, value: Value) -> None:
        """Note the value at a moment, unless it is what it was."""
        if value != self.last:
            self._moments.append(moment)
            self._values.append(value)

    def at(self, moment: int) -> Value:
        """Return the value at a moment."""
        number = bisect_right(self._moments, moment)
        return self._values[number - 1] if number else self._first

    def between(self, after: int, moment: int) -> list[Value]:
        """Return the values that were noted after the first moment, up to the second one."""
        return self._values[bisect_right(self._moments, after) : bisect_right(self._moments, moment)]


class Track(Steps[Value]):
    """The content of one file or directory. ``first`` is what the disk holds when nothing was ever synced."""

    def __init__(self, first: Value) -> None:
        super().__init__(first)
        self._synced: list[int] = []

    def sync(self, moment: int) -> None:
        """Make the present content durable from the next moment on."""
        self._synced.append(moment)

    def synced_before(self, moment: int) -> int:
        """Return the moment of the last sync that had returned, -1 when there was none."""
        number = bisect_left(self._synced, moment)
        return self._synced[number - 1] if number else -1

    def durable(self, moment: int) -> Value:
        """Return what a power cut at a moment cannot take."""
        return self.at(self.synced_before(moment))

    def since(self, moment: int) -> list[Value]:
        """Return what was noted since, in order: the disk may have any of it."""
        return self.between(self.synced_before(moment), moment)


Entries = dict[str, int]
"""Names of a directory and the inodes of their files."""


class Timeline:
    """Every file and directory, by paths relative to the store."""

    def __init__(self) -> None:
        self.moment = -1
        self.files: dict[int, Track[bytes]] = {}
        self.directories: dict[str, Track[Entries]] = {}

    def note_file(self, directory: str, inode: int, content: bytes) -> None:
        """Note what a file holds now."""
        if inode not in self.files:
            is_preallocated = PurePath(directory).parts[:1] and PurePath(directory).parts[0] in PREALLOCATED
            self.files[inode] = Track(bytes(len(content)) if is_preallocated else b"")
        self.files[inode].note(self.moment, content)

    def note_directory(self, path: str, entries: Entries) -> None:
        """Note what a directory holds now."""
        if path not in self.directories:
            self.directories[path] = Track({})
        self.directories[path].note(self.moment, entries)

    def sync_everything(self) -> None:
        """Declare all that stands there durable: the run begins on what a disk held."""
        for file in self.files.values():
            file.sync(self.moment)
        for directory in self.directories.values():
            directory.sync(self.moment)

    def present(self, directory: str) -> dict[str, bytes]:
        """Return the files that stand in a directory now."""
        track = self.directories.get(directory)
        return {name: self.files[inode].last for name, inode in track.last.items()} if track else {}
