"""Offsets: a group's offsets in the queues of a cluster, and their storage.

==================  =================================================================================
``BrokerOffsets``   of a group in clustering mode: at the brokers
``FileOffsets``     of one member of a broadcast group: in a file of this host
==================  =================================================================================

Each broker keeps the offsets of its own queues [RemoteBrokerOffsetStore]. It writes them to disk 10 s after its start,
and then every 5 s; a kill loses later ones. So offsets are committed again after the connection to a broker was lost.

The file has the format of RocketMQ (LocalFileOffsetStore): an object ``offsetTable`` whose keys are queues::

    {"offsetTable":{{"brokerName":"broker-a","queueId":1,"topic":"orders"}:9}}

Its path is ``broadcast/<name servers>/<member>/<group>/offsets.json`` in the state directory. The member's process
holds a lock file beside it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import urllib.parse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from rmqclient.cluster.address.state_directory import cluster_directory
from rmqclient.cluster.client.client import ClusterClient
from rmqclient.errors import BrokerUnreachable, ClientIdInUse, QueueError, StoreUnusable
from rmqclient.remoting.bodies import ResetOffset
from rmqclient.remoting.codes import RequestCode, ResponseCode
from rmqclient.remoting.errors import BodyError, GroupNotFound
from rmqclient.remoting.frame import Frame
from rmqclient.remoting.table import request, response_fields
from rmqclient.store import MessageQueue
from rmqclient.store.threads.logs import Log


class Offsets(Protocol):
    """Keeps the offsets of one group, or of one member of a broadcast group. Safe for threads."""

    def read(self, queue: MessageQueue) -> int:
        """Return the offset of the next message, for a new group of the oldest one. Raises QueueError."""

    def commit(self, queue: MessageQueue, offset: int) -> None:
        """Set the offset of the next message; others can read it afterwards. Raises QueueError, OSError."""

    def commit_soon(self, queue: MessageQueue, offset: int, done: Callable[[bool], None]) -> None:
        """Set the offset without waiting; ``done`` gets, on any thread, whether it was set. Raises as ``commit``."""

    def life(self, queue: MessageQueue) -> object:
        """Return a value that changes when a committed offset may be lost, and has to be committed again."""

    def flush(self) -> None:
        """Make committed offsets survive the process. Raises OSError."""


_TIMEOUT_S = 3.0

_log = Log(__name__)


class BrokerOffsets:
    """The offsets of one group at the brokers."""

    def __init__(self, client: ClusterClient, group: str) -> None:
        self._client = client
        self._group = group
        self._failing: set[MessageQueue] = set()

    def read(self, queue: MessageQueue) -> int:
        """Return the committed offset, or else that of the oldest message. Raises as a call."""
        committed = committed_offset(self._client, self._group, queue)
        return oldest_offset(self._client, queue) if committed is None else committed

    def commit(self, queue: MessageQueue, offset: int) -> None:
        """Commit an offset, forwards or back, and wait for the broker's answer. Raises as a call."""
        self._client.call(self._client.brokers.address(queue.broker_name), self._request(queue, offset), _TIMEOUT_S)

    def set(self, queue: MessageQueue, offset: int) -> None:
        """As :meth:`commit`, for a group that may have had no member yet."""
        try:
            self.commit(queue, offset)
        except GroupNotFound:  # a 5.x broker keeps offsets only of groups that it knows; a pull makes it known
            self._client.call(self._client.brokers.address(queue.broker_name), self._pull(queue), also=range(1, 256))
            self.commit(queue, offset)

    def commit_soon(self, queue: MessageQueue, offset: int, done: Callable[[bool], None]) -> None:
        """Commit an offset without waiting; ``done`` gets, on the I/O thread, whether it was set."""

        def answered(answer: Frame | QueueError) -> None:
            stored = isinstance(answer, Frame) and answer.code == ResponseCode.SUCCESS
            if stored:
                self._failing.discard(queue)
            elif queue not in self._failing:  # do not log it every second
                self._failing.add(queue)
                _log.warning("group %s: an offset of %s is not committed yet: %s", self._group, queue, answer)
            done(stored)

        try:
            address = self._client.brokers.address(queue.broker_name)
        except BrokerUnreachable as error:  # its master is away
            answered(error)
        else:
            self._client.submit(address, self._request(queue, offset), answered, _TIMEOUT_S)

    def life(self, queue: MessageQueue) -> object:
        """Return a value that changes if the broker may have been killed, or if the master has changed."""
        address = self._client.brokers.master_address(queue.broker_name)
        return address, self._client.losses(address)

    def _request(self, queue: MessageQueue, offset: int) -> Frame:
        return request(
            RequestCode.UPDATE_CONSUMER_OFFSET,
            consumerGroup=self._group,
            topic=self._client.url.wrap(queue.topic),
            queueId=queue.queue_id,
            commitOffset=offset,
        )

    def _pull(self, queue: MessageQueue) -> Frame:
        return request(
            RequestCode.PULL_MESSAGE,
            consumerGroup=self._group,
            topic=self._client.url.wrap(queue.topic),
            queueId=queue.queue_id,
            queueOffset=0,
            maxMsgNums=1,
            sysFlag=4,  # it has a subscription
            commitOffset=0,
            suspendTimeoutMillis=0,
            subscription="*",
            subVersion=0,
            expressionType="TAG",
        )

    def flush(self) -> None:
        """Do nothing: the broker writes its offsets to disk every 5 s."""


class QueueOffset:
    """The committed offset of one queue, for the owner of the queue. Safe for threads.

    ``known`` is the committed offset, and :meth:`Offsets.life` when it was read. ``finished_to`` returns the offset to
    commit, and ``is_mine`` whether the queue still belongs to the owner: otherwise nothing is committed.
    """

    def __init__(
        self,
        queue: MessageQueue,
        offsets: Offsets,
        known: tuple[int, object],
        finished_to: Callable[[], int],
        is_mine: Callable[[], bool],
    ) -> None:
        self._queue = queue
        self._offsets = offsets
        self._finished_to = finished_to
        self._is_mine = is_mine
        self._known = known
        self._commits = 0  # commits sent during the broker's current life
        self._committing = threading.Lock()

    @property
    def committed(self) -> int:
        """The offset known to the broker."""
        return self._known[0]

    def commit(self) -> None:
        """Commit the offset if it changed or may be lost. Raises QueueError, OSError."""
        if self._is_mine():
            self.commit_last()

    def commit_last(self) -> None:
        """As :meth:`commit`, for an owner that has just ended its grant."""
        with self._committing:  # so that commits arrive in order
            current = self._current()
            while not self._is_known(current):
                self._offsets.commit(self._queue, current[0])
                self._note(current)

    def commit_soon(self) -> None:
        """As :meth:`commit`, without waiting; does nothing while an earlier one waits for its answer."""
        if not self._is_mine() or not self._committing.acquire(blocking=False):
            return

        def done(stored: bool) -> None:
            if stored:
                self._note(current)
            self._committing.release()

        try:
            current = self._current()
            if self._is_known(current):
                self._committing.release()
            else:
                self._offsets.commit_soon(self._queue, current[0], done)
        except BaseException:
            self._committing.release()
            raise

    def _current(self) -> tuple[int, object]:
        return self._finished_to(), self._offsets.life(self._queue)

    def _is_known(self, current: tuple[int, object]) -> bool:
        """Whether the broker has an offset for sure. The first one is committed twice.

        If the first offsets of a group in a topic, for several queues, reach a broker at once, it makes a table for
        each of them and keeps only the last one, but answers success to all. [ConsumerOffsetManager.commitOffset]
        """
        return current == self._known and self._commits != 1

    def _note(self, current: tuple[int, object]) -> None:
        self._commits = self._commits + 1 if current[1] == self._known[1] else 1
        self._known = current


def committed_offset(client: ClusterClient, group: str, queue: MessageQueue) -> int | None:
    """Return a group's offset at the broker; None if it has no offset.

    A 4.9 broker answers 0 also for a group without an offset, while the first message of the queue is in memory
    (ConsumerManageProcessor.queryConsumerOffset).
    """
    wanted = request(
        RequestCode.QUERY_CONSUMER_OFFSET,
        consumerGroup=group,
        topic=client.url.wrap(queue.topic),
        queueId=queue.queue_id,
    )
    address = client.brokers.address(queue.broker_name)
    answer = client.call(address, wanted, _TIMEOUT_S, also=(ResponseCode.QUERY_NOT_FOUND,))
    if answer.code == ResponseCode.QUERY_NOT_FOUND:
        return None
    return int(response_fields(RequestCode.QUERY_CONSUMER_OFFSET, answer)["offset"])


def oldest_offset(client: ClusterClient, queue: MessageQueue) -> int:
    """Return the queue offset of the oldest message."""
    wanted = request(RequestCode.GET_MIN_OFFSET, topic=client.url.wrap(queue.topic), queueId=queue.queue_id)
    answer = client.call(client.brokers.address(queue.broker_name), wanted, _TIMEOUT_S)
    return int(response_fields(RequestCode.GET_MIN_OFFSET, answer)["offset"])


class FileOffsets:
    """The offsets of a member. ``oldest(queue)`` returns the offset of the oldest message.

    Raises ClientIdInUse if another process of this host is the member, StoreUnusable if the file cannot be read.
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
        """Return the offset of the next message; for a new queue that of the oldest message."""
        with self._lock:
            offset = self._table.get(queue)
        return self._oldest(queue) if offset is None else offset

    def commit(self, queue: MessageQueue, offset: int) -> None:
        """Set the offset of the next message, in memory until :meth:`flush`."""
        with self._lock:
            self._changed = self._changed or self._table.get(queue) != offset
            self._table[queue] = offset

    def commit_soon(self, queue: MessageQueue, offset: int, done: Callable[[bool], None]) -> None:
        """Set the offset of the next message, in memory."""
        self.commit(queue, offset)
        done(True)

    def life(self, queue: MessageQueue) -> None:
        """Return None: the file does not lose offsets."""

    def flush(self) -> None:
        """Replace the file atomically. Raises OSError."""
        with self._lock:
            if self._changed:
                _write(self._path, self._table)
                self._changed = False

    def begin(self, topics: set[str], offsets: Mapping[MessageQueue, int]) -> bool:
        """Set the start offsets of topics. Does nothing and returns False if it had one of them. Raises OSError."""
        with self._lock:
            if any(queue.topic in topics for queue in self._table):
                return False
            self._table.update(offsets)
            _write(self._path, self._table)
            return True

    def close(self) -> None:
        """Write the file and free the lock. Raises OSError."""
        try:
            self.flush()
        finally:
            self._alone.close()


def offsets_path(name_servers: tuple[str, ...], member: str, group: str) -> Path:
    """Return the path of a member's offsets. The order of the name servers does not matter."""
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
