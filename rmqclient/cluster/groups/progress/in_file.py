"""Offsets in a file: those of one member of a broadcast group, on this host.

The file has the format of RocketMQ (LocalFileOffsetStore): an object ``offsetTable`` whose keys are queues::

    {"offsetTable":{{"brokerName":"broker-a","queueId":1,"topic":"orders"}:9}}

Its path is ``broadcast/<name servers>/<member>/<group>/offsets.json`` in the state directory. A process holds a lock
of the file beside it while it is this member.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import urllib.parse
from collections.abc import Callable, Mapping
from pathlib import Path

from rmqclient.cluster.address.state_directory import cluster_directory
from rmqclient.errors import ClientIdInUse, StoreUnusable
from rmqclient.remoting.bodies import ResetOffset
from rmqclient.remoting.errors import BodyError
from rmqclient.store import MessageQueue


class FileOffsets:
    """The offsets of a member. ``oldest(queue)`` returns the offset of the oldest message.

    Raises ClientIdInUse when another process of this host is the member, StoreUnusable when the file cannot be read.
    """

    def __init__(self, path: Path, oldest: Callable[[MessageQueue], int]) -> None:
        self._path = path
        self._oldest = oldest
        self._lock = threading.Lock()
        self._changed = False
        path.parent.mkdir(parents=True, exist_ok=True)
        self._alone = (path.parent / "lock").open("ab")
        try:
            fcntl.flock(self._alone, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._alone.close()
            raise ClientIdInUse(
                f"another process of this host is this member of the broadcast group: it has {path.parent} open; give "
                "each process a name of its own"
            ) from None
        self._table = _read(path)

    def read(self, queue: MessageQueue) -> int:
        """Return the offset of the next message; that of the oldest one for a queue that the member never had."""
        with self._lock:
            offset = self._table.get(queue)
        return self._oldest(queue) if offset is None else offset

    def commit(self, queue: MessageQueue, offset: int) -> None:
        """Set the offset of the next message, in memory; :meth:`flush` keeps it."""
        with self._lock:
            self._changed = self._changed or self._table.get(queue) != offset
            self._table[queue] = offset

    def commit_soon(self, queue: MessageQueue, offset: int, done: Callable[[bool], None]) -> None:
        """Set the offset of the next message, in memory."""
        self.commit(queue, offset)
        done(True)

    def life(self, queue: MessageQueue) -> None:
        """Return None: the file forgets nothing."""

    def flush(self) -> None:
        """Write the file, by way of another one that takes its place. Raises OSError."""
        with self._lock:
            if self._changed:
                _write(self._path, self._table)
                self._changed = False

    def begin(self, topics: set[str], offsets: Mapping[MessageQueue, int]) -> bool:
        """Set where the member begins in topics. False, and nothing is done, if it had one before. Raises OSError."""
        with self._lock:
            if any(queue.topic in topics for queue in self._table):
                return False
            self._table.update(offsets)
            _write(self._path, self._table)
            return True

    def close(self) -> None:
        """Write the file, and let another process be the member. Raises OSError."""
        try:
            self.flush()
        finally:
            self._alone.close()


def offsets_path(name_servers: tuple[str, ...], member: str, group: str) -> Path:
    """Return where a member keeps its offsets. The order of the name servers does not matter."""
    names = [urllib.parse.quote(name, safe="") for name in (member, group)]
    return cluster_directory("broadcast", name_servers).joinpath(*names, "offsets.json")


def _read(path: Path) -> dict[MessageQueue, int]:
    try:
        return dict(ResetOffset.decode(path.read_bytes()).offsets)
    except FileNotFoundError:
        return {}
    except (OSError, BodyError) as error:
        raise StoreUnusable(f"the offsets in {path} cannot be read: {error}; remove the file to begin anew") from error


def _write(path: Path, table: Mapping[MessageQueue, int]) -> None:
    new = path.with_suffix(f".{os.getpid()}.new")
    try:
        with new.open("wb") as file:
            file.write(ResetOffset(dict(table)).encode())
            os.fsync(file.fileno())
        new.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            new.unlink(missing_ok=True)
        raise
