"""Lineage: which history the log of a store is, and who wrote which part of it. Two stores compare theirs.

A history begins with a store that gets its first replica of this library: ``<root>/lineage.json`` then has the identity
of the store (:mod:`rmqclient.store.settings.identity`). A replica has that of its primary. An epoch is a part of the
log that one primary wrote. Each promotion begins one, and so does a primary that has lost power: see
:data:`EPOCHS_OF_A_PRIMARY` for their numbers. Epochs stand in
``<root>/epochFileCheckpoint`` as RocketMQ 5 writes them [EpochFileCache]::

    2                  how many
    184814133          CRC-32 & 0x7FFFFFFF of the lines that follow; 0 is not checked
    1-0                epoch 1 begins at byte 0 of the log
    2-299134

Two logs are the same up to the end of the newest epoch that both have, where it ends first. The number alone says
nothing, because an epoch without a byte is replaced by the next one at the same place: two promotions without a message
between them leave one entry. A store without epochs has had no replica of this library.

``lineage.json`` also says in which epoch somebody has followed last, and which copies did. While that is the newest
one, another store may have what a power cut takes from this one.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from pathlib import Path
from secrets import randbelow
from typing import Final, NamedTuple

from rmqclient.store.errors import StoreCorrupt
from rmqclient.store.settings import document
from rmqclient.store.settings.identity import new_identity, store_identity, write_identity

EPOCHS_FILE: Final = Path("epochFileCheckpoint")
LINEAGE_FILE: Final = Path("lineage.json")
MOST_EPOCHS: Final = 1_000
"""Older ones are forgotten. [AutoSwitchHAConnection takes no more]"""

EPOCHS_OF_A_PRIMARY: Final = 100_000
"""A promotion begins an epoch at the next multiple of this or above, and a primary that has lost power the next number.

So a replica that is promoted is above each epoch that its primary has begun meanwhile, also without having heard of it:
a primary that has begun :data:`MOST_EPOCHS` has forgotten the epoch that such a replica knows. Below these last ones
the number is drawn by lot, so that two replicas that are both promoted begin different epochs, and one of them can
rejoin the other. RocketMQ reads an epoch as a Java int, so there is room for 20,000 promotions.
"""

MOST_COPIES: Final = 64
"""Of those that followed, the newest are kept."""

_CRC_BITS: Final = 0x7FFFFFFF


class Epoch(NamedTuple):
    """A part of the log that one primary wrote."""

    number: int
    start: int
    """Its first byte in the log."""


Epochs = tuple[Epoch, ...]


class Lineage(NamedTuple):
    """The history of a log, and its parts, the oldest first."""

    store_id: str
    """32 hexadecimal digits; empty for a store that has had no replica of this library."""
    epochs: Epochs

    @property
    def newest(self) -> int:
        """The number of the newest epoch, 0 when there is none."""
        return self.epochs[-1].number if self.epochs else 0


def common_end(own: Epochs, own_end: int, theirs: Epochs, their_end: int) -> int | None:
    """Return the offset up to which two logs of one history are the same; None when the epochs do not say.

    ``own_end`` and ``their_end`` are the ends of the logs. [EpochFileCache.findConsistentPoint]
    """
    known = set(theirs)
    for epoch in reversed(own):
        if epoch in known:
            return min(_end_of(epoch, own, own_end), _end_of(epoch, theirs, their_end))
    both_begin = bool(own and theirs) and own[0].start == theirs[0].start == 0
    return 0 if both_begin else None


def _end_of(epoch: Epoch, epochs: Epochs, log_end: int) -> int:
    number = epochs.index(epoch) + 1
    return min(epochs[number].start, log_end) if number < len(epochs) else log_end


def after_promotion(newest: int) -> int:
    """Return the number of the epoch that a store begins which takes the place of its primary."""
    return (newest // EPOCHS_OF_A_PRIMARY + 1) * EPOCHS_OF_A_PRIMARY + randbelow(EPOCHS_OF_A_PRIMARY - MOST_EPOCHS)


def begun(epochs: Epochs, end: int, number: int) -> Epochs:
    """Return the epochs with a new one that begins at the end of the log.

    Epochs without a byte here are gone: they begin where the new one does, or behind it.
    """
    return (*(epoch for epoch in epochs if epoch.start < end), Epoch(number, end))[-MOST_EPOCHS:]


def cut(epochs: Epochs, end: int) -> Epochs:
    """Return the epochs that have bytes below ``end``; the first one stays."""
    return (*epochs[:1], *(epoch for epoch in epochs[1:] if epoch.start < end))


def read_lineage(root: Path) -> Lineage:
    """Return the history of a store; empty for one that has none. Raises StoreCorrupt for a damaged file."""
    found = document.read(root / LINEAGE_FILE)
    store_id = "" if found is None else found.get("store_id")
    if not isinstance(store_id, str):
        raise StoreCorrupt(root / LINEAGE_FILE, 0, f"does not say which history this is: {found!r}")
    return Lineage(store_id, _parse(document.content(root / EPOCHS_FILE), root / EPOCHS_FILE))


def write_lineage(root: Path, lineage: Lineage) -> None:
    """Make a history that of a store, durably; what is the same is not written again. Raises StoreFull."""
    known = read_lineage(root)
    if lineage.store_id:
        write_identity(root, lineage.store_id)
    if lineage.store_id != known.store_id:
        document.write(root / LINEAGE_FILE, document.render({"store_id": lineage.store_id}))
    if lineage.epochs != known.epochs:
        document.replace_file(root / EPOCHS_FILE, _render(lineage.epochs))


def note_followed(root: Path, copy: str) -> None:
    """Say, durably, that a copy follows the store in its newest epoch. Raises StoreCorrupt, StoreFull."""
    copies = followers(root)
    if copy not in copies:
        known = read_lineage(root)
        said = {"store_id": known.store_id, "followed_in": known.newest, "followed_by": [*copies, copy][-MOST_COPIES:]}
        document.write(root / LINEAGE_FILE, document.render(said))


def is_followed(root: Path) -> bool:
    """Tell whether somebody has followed the store in its newest epoch. Raises StoreCorrupt."""
    return bool(followers(root))


def followers(root: Path) -> tuple[str, ...]:
    """Return which copies have followed the store in its newest epoch. Raises StoreCorrupt."""
    found = document.read(root / LINEAGE_FILE) or {}
    if not found.get("followed_in", 0) == read_lineage(root).newest != 0:
        return ()
    return tuple(map(str, found.get("followed_by", ())))


def begin_lineage(root: Path) -> Lineage:
    """Return the history of a primary, begun with epoch 1 when it has none. Raises StoreCorrupt, StoreFull."""
    known = read_lineage(root)
    begun_now = Lineage(known.store_id or store_identity(root) or new_identity(), known.epochs or (Epoch(1, 0),))
    write_lineage(root, begun_now)
    return begun_now


def _render(epochs: Sequence[Epoch]) -> bytes:
    lines = "".join(f"{epoch.number}-{epoch.start}\n" for epoch in epochs).encode()
    return b"%d\n%d\n%s" % (len(epochs), zlib.crc32(lines) & _CRC_BITS, lines)


def _parse(content: bytes, path: Path) -> Epochs:
    if not content:
        return ()
    try:
        count, crc, *lines = content.decode("ascii").splitlines()
        epochs = tuple(Epoch(*map(int, line.split("-"))) for line in lines)
        is_whole = len(epochs) == int(count) and int(crc) in (0, zlib.crc32(_lines_of(content)) & _CRC_BITS)
    except (ValueError, TypeError) as error:
        raise StoreCorrupt(path, 0, f"is not a list of epochs: {error}") from error
    if not is_whole or list(epochs) != sorted(set(epochs)):
        raise StoreCorrupt(path, 0, "the list of epochs is damaged")
    return epochs


def _lines_of(content: bytes) -> bytes:
    return content.split(b"\n", 2)[2]
