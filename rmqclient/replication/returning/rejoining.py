"""Rejoining: a former primary follows the one that replaced it.

Before any change, the messages that only this store has are found by the epochs of both; the last record below them
must be equal on both, byte by byte. Then they are shown, saved in ``diverged/``, and cut off. A store whose files do
not allow that is left unchanged.
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
from rmqclient.replication.frames import OURS, SILENCE_S
from rmqclient.replication.handshake import PRIMARY, Hello, Wants, greet, hello_of
from rmqclient.replication.primary_client.broker_client import broker_beside, split
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
    """The messages that only this store has, and where it would be cut."""

    primary: str
    epoch: int
    """The newest epoch of the store."""
    primary_epoch: int
    """The epoch of the new primary."""
    end: int
    """The end of the store's log."""
    cut_to: int
    """The end of the common part of both logs."""
    cut_bytes: int
    cut_messages: int
    cut_s: float
    """Seconds from the first of these messages to the last one, by the clock that stored them."""


def look(root: Path, primary: str) -> Rejoining:
    """Return what would be cut; changes nothing. ``primary`` is the new primary's address for replicas.

    Raises StoreUnusable, LogsDiffer and ConfigMismatch if the store cannot follow it; OSError and FrameError if the
    primary does not answer; and as opening.
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
    """Cut a store as :func:`look` has found, and make it a replica; return the file with the cut messages.

    Raises StoreInUse if a process has the store open or has used it since; StoreFull; and as opening.
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
    """Return the end of the common part of both logs, by their epochs. Raises as :func:`look`."""
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
    """Return the end of each queue if the log ended at ``end``."""
    return {queue: store.consume_queues[queue].end_below(end) for queue in store.topics.all_queues()}


def _times(store: MessageStore, start: int) -> list[int]:
    """Return the store times of the messages from ``start`` on, in ms since 1970."""
    steps = commit_log.walk(store.log_files, start, store.state.published_to)
    return [outcome.message.store_timestamp for _, outcome in steps if isinstance(outcome, Record)]


class _Asked:
    """An observer's connection to the new primary."""

    def __init__(self, store: MessageStore, connection: socket.socket, theirs: Hello) -> None:
        self._store = store
        self._socket = connection
        self.theirs = theirs

    def compare(self, end: int, ends: dict[MessageQueue, int]) -> None:
        """Compare the last record below ``end`` with the primary's.

        Raises LogsDiffer if they differ, StoreUnusable if the primary has removed it, OSError, FrameError.
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
        """Return whether a record or a file ends at ``end``."""
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
            elif time.monotonic() - heard_at > SILENCE_S:  # the primary only sends heartbeats
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
