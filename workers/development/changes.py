"""Changes: the source files below some directories, looked at again and again.

A look compares for each ``*.py`` its time, its size and its inode. So it also sees a file that an editor has put in the
place of the old one, on any file system and in any container. A look takes some 10 ms for a thousand files. Directories
that hold no source of the application are left out: hidden ones, environments, stores, caches, ``node_modules``.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

_NO_SOURCE = {"__pycache__", "node_modules", "site-packages"}
_NOT_OF_THE_APPLICATION = {"pyvenv.cfg", "commitlog"}
"""What an environment and a store have in their directory."""

Look = dict[str, tuple[int, int, int]]


class Changes:
    """What has changed below ``places``, directories or files, since this object was made."""

    def __init__(self, places: Sequence[Path]) -> None:
        self._places = places
        self._known = self._look()
        self._last = self._known

    def settled(self) -> list[str]:
        """Return the files that changed since the last list, when two looks in a row have found the same.

        An editor that writes a file in several steps has ended by then.
        """
        before, self._last = self._last, self._look()
        if self._last != before or self._last == self._known:
            return []
        changed = sorted(name for name, _ in self._last.items() ^ self._known.items())
        self._known = self._last
        return list(dict.fromkeys(changed))

    def _look(self) -> Look:
        found: Look = {}
        for name in self._sources():
            with contextlib.suppress(OSError):  # it has gone meanwhile
                status = os.stat(name)  # noqa: PTH116 - a Path for each file costs as much as the look
                found[name] = (status.st_mtime_ns, status.st_size, status.st_ino)
        return found

    def _sources(self) -> Iterator[str]:
        for place in self._places:
            if place.is_file():
                yield str(place)
                continue
            for folder, folders, files in os.walk(place):
                if _NOT_OF_THE_APPLICATION & {*files, *folders}:
                    folders.clear()
                    continue
                folders[:] = [name for name in folders if name not in _NO_SOURCE and not name.startswith(".")]
                yield from (f"{folder}/{name}" for name in files if name.endswith(".py"))
