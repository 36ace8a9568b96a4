"""Rejoining: a store that was a primary follows the one that took its place.

What only it has is found before a byte is changed: by the epochs of both, and by its last record below, which must be
the same there, byte by byte. Then it is shown, kept in ``diverged/``, and cut off. A store whose files do not allow
that stays as it is.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rmqclient.errors import ConfigMismatch, LogsDiffer, StoreUnusable
from rmqclient.replication.addresses import broker_beside, split
from rmqclient.replication.frames import OURS, SILENCE_S
from rmqclient.replication.handshake import PRIMARY, Hello, Wants, greet, hello_of
from rmqclient.replication.status import Seen, write_seen
from rmqclient.store import MessageQueue, MessageStore, clock, open_store
from rmqclient.store.log import commit_log
from rmqclient.store.log.record import Blank, Record
from rmqclient.store.recovery import cutting, replica
from rmqclient.store.settings.lineage import common_end
from rmqclient.store.settings.replica_mark import ReplicaMark

_CONNECT_S: Final = 5.0
_READ_BYTES: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Rejoining:
    """What a store has that its new primary has not, and where it would be cut."""

    primary: str
    epoch: int
    """The newest epoch of the store."""
    primary_epoch: int
    """The epoch of the new primary."""
    end: int
    """Where the log of the store ends."""
    cut_to: int
    """Up to here both logs are the same."""
    cut_bytes: int
    cut_messages: int
    cut_s: float
    """Seconds from the first of these messages to the last one, by the clock that stored them."""


def look(root: Path, primary: str) -> Rejoining:
    """Return what would be cut; changes nothing. ``primary`` is where the new primary sends its log.

    Raises StoreUnusable, LogsDiffer and ConfigMismatch when the store cannot follow it; OSError and FrameError when the
    primary does not answer; what opening raises.
    """
    with open_store(root, create=False, housekeeping=False, settling=True) as store, _asked(store, primary) as asked:
        own, theirs = hello_of(store), asked.theirs
        end = _common(own, theirs)
        ends = _ends_below(store, end)
        cutting.check_compacted(root, ends)
        asked.compare(end, ends)
        times = _times(store, end)
        return Rejoining(
            primary,
            own.lineage.newest,
            theirs.lineage.newest,
            own.end,
            end,
            own.end - end,
            len(times),
            (times[-1] - times[0]) / 1000 if times else 0.0,
        )


def rejoin(root: Path, found: Rejoining, broker: str | None = None) -> Path | None:
    """Cut a store as :func:`look` has found, and let it follow; return the file that keeps what was cut.

    Raises StoreInUse when a process has the store open, or it was used since; StoreFull and what opening raises.
    """
    mark = ReplicaMark(
        found.primary,
        broker_beside(found.primary) if broker is None else broker,
        clock.wall_ms(),
        epoch=found.primary_epoch,
        cut_to=found.cut_to,
    )
    kept = replica.return_as_replica(root, mark, found.end)
    write_seen(root, Seen())
    with open_store(root, create=False, housekeeping=False):
        pass  # the opening has cut it
    return kept


def _common(own: Hello, theirs: Hello) -> int:
    """Return up to where the epochs say that both logs are the same. Raises as :func:`look`."""
    if theirs.role != PRIMARY:
        raise StoreUnusable(f"its role is {theirs.role}, not {PRIMARY}: give the address of the present primary")
    if own.store_id != theirs.store_id or not own.store_id:
        raise LogsDiffer(
            f"it is another store ({theirs.store_id or 'without a replica'}) than this one "
            f"({own.store_id or 'without a replica'}). Nothing was changed"
        )
    if own.sizes != theirs.sizes:
        raise ConfigMismatch(f"its files have the sizes {theirs.sizes}, those of this store {own.sizes}")
    if theirs.lineage.newest < own.lineage.newest:
        raise LogsDiffer(
            f"it has epoch {theirs.lineage.newest}, this store has {own.lineage.newest}: it should follow this one"
        )
    end = common_end(own.lineage.epochs, own.end, theirs.lineage.epochs, theirs.end)
    if end is None or end < max(own.begin, theirs.begin):
        known = "nowhere" if end is None else f"up to byte {end} only, which is not there any more"
        raise StoreUnusable(
            f"both logs are the same {known}: nothing was changed. Make a new directory for the replica"
        )
    return end


def _ends_below(store: MessageStore, end: int) -> dict[MessageQueue, int]:
    """Return where each queue ends when the log ends there."""
    return {queue: store.consume_queues[queue].end_below(end) for queue in store.topics.all_queues()}


def _times(store: MessageStore, start: int) -> list[int]:
    """Return when each message from ``start`` on was stored, ms since 1970."""
    steps = commit_log.walk(store.log_files, start, store.state.published_to)
    return [outcome.message.store_timestamp for _, outcome in steps if isinstance(outcome, Record)]


class _Asked:
    """A connection to the new primary, which is read and acknowledges nothing."""

    def __init__(self, store: MessageStore, connection: socket.socket, theirs: Hello) -> None:
        self._store = store
        self._socket = connection
        self.theirs = theirs

    def compare(self, end: int, ends: dict[MessageQueue, int]) -> None:
        """Ask for the last record below ``end`` once more.

        Raises LogsDiffer when it is another one there, StoreUnusable when it is gone there, OSError, FrameError.
        """
        entries = (self._store.consume_queues[queue].entry_or_none(count - 1) for queue, count in ends.items() if count)
        start = max((entry.commit_log_offset for entry in entries if entry), default=end)
        if start < self.theirs.begin:
            raise self._removed(start, end)
        own = b"".join(cutting.parts(self._store.log_files, start, end))
        if own != self._received(start, len(own)):
            raise LogsDiffer(
                f"both have the epochs that say that they are the same up to byte {end}, and the record at {start} "
                "differs: one of the directories was copied, and both were written to. Nothing was changed. Make a new "
                "directory for the replica"
            )
        if own and not self._is_whole(start, end):
            raise LogsDiffer(f"byte {end}, up to which both are the same, is in the middle of a record here")

    def _is_whole(self, start: int, end: int) -> bool:
        """Tell whether a record ends at ``end``, or a file does."""
        ends = [
            offset + outcome.size
            for offset, outcome in commit_log.walk(self._store.log_files, start, end)
            if isinstance(outcome, Record | Blank)
        ]
        return end in ends or end % self._store.log_files.file_bytes == 0

    def _received(self, start: int, count: int) -> bytes:
        if not count:
            return b""
        self._socket.sendall(OURS.report(start))
        reader, content, heard_at = OURS.frame_reader(), b"", time.monotonic()
        while len(content) < count:
            data = self._socket.recv(_READ_BYTES)
            if not data:
                raise ConnectionResetError("the primary closed the connection")
            part = b"".join(frame.content for frame in reader.feed(data))
            if part or reader.is_amid_frame:
                heard_at = time.monotonic()
            elif time.monotonic() - heard_at > SILENCE_S:  # it goes on saying how it stands
                raise self._removed(start, start + count)
            content += part
        return content[:count]

    def _removed(self, start: int, end: int) -> StoreUnusable:
        return StoreUnusable(
            f"the primary sends nothing of bytes {start} to {end}, the last ones that both have: it has removed them. "
            "Nothing was changed. Make a new directory for the replica"
        )


@contextmanager
def _asked(store: MessageStore, primary: str) -> Iterator[_Asked]:
    with socket.create_connection(split(primary), _CONNECT_S) as connection:
        connection.settimeout(SILENCE_S)
        theirs = greet(connection, hello_of(store, Wants.LOOK))
        if theirs is None:
            raise StoreUnusable(f"{primary} is a stock primary, without epochs: make a new directory for the replica")
        yield _Asked(store, connection, theirs)
