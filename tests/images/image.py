"""Images: what a disk can hold after a power cut at a moment.

The page cache writes back any dirty unit at any time in any order, so an image is what was durable and any subset of
the units that changed since, each with any of the values that it had since. The changes to one directory reach the disk
in their order, as in the journals of ext4 and xfs; those to different ones, and to files, in any.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from tests.images.timeline import Entries, Timeline, Track

UNITS = (8, 512, 4096)
"""Bytes that reach the disk as a whole: an aligned word, a sector, a page."""

SECTOR = 512
IN_PLACE = "checkpoint"
"""Rewritten in place, so what is in flight may take the sector that it was to replace."""

_LONGEST_END_OF_ZEROS = 16
"""Of what is durable: the tags code of an entry, and more. A record ends with another byte."""

_MOST_VERSIONS = 3
_THRESHOLDS = (16, 64, 128, 192, 240)
_CHOICE = {share: b"\xff" * share + bytes(256 - share) for share in _THRESHOLDS}
"""Tables that turn that share of 256 random bytes into ones, and the others into zeros."""


@dataclass(slots=True)
class Image:
    """Files by their paths, relative to the store."""

    kind: str
    files: dict[str, bytes]
    inodes: dict[str, int]
    directories: set[str]


def draw(timeline: Timeline, moment: int, chance: random.Random) -> Image:
    """Draw one image of a power cut at a moment."""
    kind = chance.choices(list(KINDS), [share for share, _ in KINDS.values()])[0]
    return KINDS[kind][1](_Cut(timeline, moment, chance), kind)


class _Cut:
    """A power cut: the choices that are left to the disk."""

    def __init__(self, timeline: Timeline, moment: int, chance: random.Random) -> None:
        self.timeline = timeline
        self.moment = moment
        self.chance = chance

    def image(
        self, kind: str, entries: Callable[[Track[Entries]], Entries], content: Callable[[Track[bytes]], bytes]
    ) -> Image:
        inodes: dict[str, int] = {}
        directories = set()
        for path, directory in self.timeline.directories.items():
            found = entries(directory)
            inodes.update((f"{path}/{name}" if path else name, inode) for name, inode in found.items())
            if found or directory.synced_before(self.moment) >= 0:
                directories.add(path)
        contents = {inode: content(self.timeline.files[inode]) for inode in dict.fromkeys(inodes.values())}
        return Image(kind, {path: contents[inode] for path, inode in inodes.items()}, inodes, directories)

    def names_of_any_moment(self, directory: Track[Entries]) -> Entries:
        """Return names as they stood at the last sync or at any moment since, for each directory another one."""
        return self.chance.choice([directory.durable(self.moment), *directory.since(self.moment)])

    def names_up_to(self, moment: int) -> Callable[[Track[Entries]], Entries]:
        """Return names as they stood at a moment, or at the last sync if that was later."""
        return lambda directory: directory.at(max(moment, directory.synced_before(self.moment)))

    def content_up_to(self, moment: int) -> Callable[[Track[bytes]], bytes]:
        """Return content as it stood at a moment, or at the last sync if that was later."""
        return lambda file: file.at(max(moment, file.synced_before(self.moment)))

    def any_units(self, unit: int) -> Callable[[Track[bytes]], bytes]:
        """Return content of which each unit has one of the values that it had since the last sync."""

        def content(file: Track[bytes]) -> bytes:
            since = file.since(self.moment)
            if not since:
                return file.durable(self.moment)
            return torn([file.durable(self.moment), *self._some(since)], unit, self.chance)

        return content

    def earlier(self) -> int:
        """Return a moment of late, the later ones more often."""
        return self.moment - int(self.chance.expovariate(0.15))

    def _some(self, since: list[bytes]) -> list[bytes]:
        """Return some versions, in their order; the last one nearly always."""
        if len(since) <= _MOST_VERSIONS:
            return since
        others = sorted(self.chance.sample(range(len(since) - 1), _MOST_VERSIONS - 1))
        last = len(since) - 1 if self.chance.random() < 0.8 else self.chance.randrange(len(since))
        return [since[number] for number in (*others, last)]


def torn(versions: list[bytes], unit: int, chance: random.Random) -> bytes:
    """Return the first version with units of the others over it."""
    size = max(map(len, versions))
    current = int.from_bytes(versions[0].ljust(size, b"\0"), "big")
    for version in versions[1:]:
        other = int.from_bytes(version.ljust(size, b"\0"), "big")
        current ^= (current ^ other) & _mask(size, unit, chance)
    return current.to_bytes(size, "big")[: len(chance.choice(versions))]


def _mask(size: int, unit: int, chance: random.Random) -> int:
    units = -(-size // unit)
    chosen = chance.randbytes(units).translate(_CHOICE[chance.choice(_THRESHOLDS)])
    if unit == UNITS[0]:
        mask = bytearray(units * unit)
        for at in range(unit):
            mask[at::unit] = chosen
    else:
        mask = bytearray().join(bytes((byte,)) * unit for byte in chosen)
    return int.from_bytes(mask[:size], "big")


# --- kinds ----------------------------------------------------------------------------------------


def _nothing(cut: _Cut, kind: str) -> Image:
    return cut.image(kind, lambda names: names.durable(cut.moment), lambda file: file.durable(cut.moment))


def _everything(cut: _Cut, kind: str) -> Image:
    return cut.image(kind, lambda names: names.at(cut.moment), lambda file: file.at(cut.moment))


def _prefix(cut: _Cut, kind: str) -> Image:
    moment = cut.earlier()
    return cut.image(kind, cut.names_up_to(moment), cut.content_up_to(moment))


def _subset(cut: _Cut, kind: str) -> Image:
    names = cut.names_of_any_moment if cut.chance.random() < 0.5 else cut.names_up_to(cut.earlier())
    return cut.image(kind, names, cut.any_units(cut.chance.choice(UNITS)))


def _garbled(cut: _Cut, kind: str) -> Image:
    image = _subset(cut, kind)
    sectors = [
        (path, at)
        for path, inode in image.inodes.items()
        for at in _sectors_in_flight(cut, path, cut.timeline.files[inode])
    ]
    if sectors:
        path, at = cut.chance.choice(sectors)
        content = image.files[path]
        size = max(0, min(SECTOR, len(content) - at))
        rubbish = bytes(size) if cut.chance.random() < 0.3 else cut.chance.randbytes(size)
        image.files[path] = content[:at] + rubbish + content[at + size :]
    return image


def _sectors_in_flight(cut: _Cut, path: str, file: Track[bytes]) -> list[int]:
    """Return the sectors that were changed and, unless they are rewritten in place, hold nothing durable."""
    since = file.since(cut.moment)
    if not since:
        return []
    before, latest = file.durable(cut.moment), since[-1]
    end = 0 if path == IN_PLACE else len(before.rstrip(b"\0")) + _LONGEST_END_OF_ZEROS
    return [
        at for at in range(0, len(latest), SECTOR) if at >= end and latest[at : at + SECTOR] != before[at : at + SECTOR]
    ]


KINDS: dict[str, tuple[float, Callable[[_Cut, str], Image]]] = {
    "nothing": (0.05, _nothing),
    "everything": (0.05, _everything),
    "prefix": (0.2, _prefix),
    "subset": (0.5, _subset),
    "garbled": (0.2, _garbled),
}
"""How often each kind is drawn, and how."""
