"""Table: the current value of each key of a topic, in the memory of this process.

::

    with Table("./store", "prices", value_type=Price) as prices:
        prices["AAPL"]                          # the last Price that was sent with this key

The key of a message is the first of its ``keys``, and the value is its body. An empty body deletes the key. A message
without a key changes nothing. A table begins with the oldest message of each queue and then follows the topic: one
thread reads new messages, and sleeps until a sender wakes it.

**Which message counts** if several have the same key: the last one in the commit log, which all queues of a store
share. The table reads the queues one after another, and an older message of one queue must not replace a newer one of
another queue. So for two rounds through the queues the table keeps the log offset of each key's message. After two
rounds it has read every message that is older than such an offset, because an append publishes its message before the
next append begins. A topic of one queue does not need this. In a cluster the broker's store time decides, and the table
keeps all times: one broker may publish an older message after another one has published a newer one.

**The table keeps** the key and the bytes of the body. The bytes are decoded at each access, so each caller gets its own
object, and a value that is never read is never decoded.
"""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterator, Mapping, ValuesView
from typing import Any

from rmqclient.backend.bells import Bell
from rmqclient.backend.updates import Unreadable, Updates
from rmqclient.codecs import value_decoder_for
from rmqclient.duration import Duration, in_seconds
from rmqclient.message import SendResult
from rmqclient.names import check_topic
from rmqclient.opening import Place, open_backend
from rmqclient.store import LONGEST_SLEEP_S, MessageQueue, fork
from rmqclient.store.closing import Closing
from rmqclient.store.errors import BodyUnreadable, NotInstalled, QueueError, StoreClosed, UnknownTopic
from rmqclient.store.native_threads import threading
from rmqclient.store.threads.guarded import GuardedThread
from rmqclient.store.threads.locks import Condition
from rmqclient.store.threads.logs import Log

_log = Log(__name__)


class Snapshot(Mapping[str, Any]):
    """The values by key at one time. A value is decoded when it is read."""

    def __init__(self, topic: str, values: dict[str, bytes | Unreadable], value_type: Any) -> None:
        self.topic = topic
        self.value_type = value_type
        self._values = values
        self._decode = value_decoder_for(value_type)

    def __getitem__(self, key: str) -> Any:
        """Return the value of a key. Raises KeyError, and BodyUnreadable if the body does not decode to its type."""
        value = self._values[key]
        if isinstance(value, Unreadable):
            raise BodyUnreadable(f"the value of key {key!r} of topic {self.topic!r} cannot be read: {value.reason}")
        try:
            return self._decode(value)
        except Exception as error:
            raise BodyUnreadable(
                f"the value of key {key!r} of topic {self.topic!r} is not a {_name_of(self.value_type)}: {error}; "
                "stored() returns its bytes"
            ) from error

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._values))

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, key: object) -> bool:
        return key in self._values

    def stored(self, key: str) -> bytes:
        """Return the bytes of a value. Raises KeyError, and BodyUnreadable for a compressed body that is damaged."""
        value = self._values[key]
        if isinstance(value, Unreadable):
            raise BodyUnreadable(f"the value of key {key!r} of topic {self.topic!r} cannot be read: {value.reason}")
        return value


class Table(Snapshot, Closing):
    """The current value of each key of a topic; a mapping and a context manager, safe for the threads of one process.

    ``root`` is the directory of a store, or an open one. ``value_type`` is the type that bodies are decoded into, as
    with a handler's parameter: ``bytes``, ``str``, a dataclass, TypedDict, msgspec.Struct or pydantic model, or ``Any``
    for any JSON value. With ``wait`` the constructor returns after :meth:`wait_until_caught_up`. A missing topic is an
    empty table until it is made.

    ``on_change`` is called with the keys that were set or deleted, after the change and on the table's thread, so it
    must not wait for the table. It is not called for messages from before the start. Its exceptions are logged.

    Iteration, ``items()`` and ``values()`` use the table as it was when they began. Messages that retention removed
    before the table had read them, and damaged ones, are logged, counted in :attr:`lost`, and skipped: the keys keep
    their values.

    After a fork the child must make its own; this one raises StoreClosed there.

    Raises InvalidName, HandlerError for a ``value_type`` that bodies cannot be decoded into, and as
    :func:`rmqclient.store.open_store`.
    """

    def __init__(
        self,
        root: Place,
        topic: str,
        *,
        value_type: Any = bytes,
        on_change: Callable[[set[str]], object] | None = None,
        wait: bool = True,
    ) -> None:
        super().__init__(check_topic(topic, reserved=True), {}, value_type)
        self.lost = 0
        """Number of messages that were removed before they were read, or are damaged."""
        self.without_key = 0
        """Number of messages without a key."""
        self._on_change = on_change
        self._backend = open_backend(root, create=False)
        self._reader = self._backend.queues.update_reader()
        self._arrival_bell = self._backend.queues.bell()
        self._topic_bell = self._backend.topics.bell()
        self._positions: dict[MessageQueue, int] = {}
        self._found_at: dict[str, int] = {}
        """Key → place of its value, for values of this look at the queues."""
        self._found_before: dict[str, int] = {}
        """The same for the look before."""
        self._moved = Condition()
        self._tells_changes = False
        self._closing = False
        self._refusal = ""
        """Reason for which later calls are refused; empty while the table is usable."""
        self._is_forked = False
        self._thread = GuardedThread(target=self._follow, name=f"rmq-table-{topic}")
        fork.register(self)
        self._thread.start()
        if wait:
            try:
                self.wait_until_caught_up()
            except BaseException:
                self.close()
                raise

    def __getitem__(self, key: str) -> Any:
        """Return the value of a key; see :meth:`Snapshot.__getitem__`. Raises StoreClosed, too."""
        self._check_usable()
        return super().__getitem__(key)

    def __iter__(self) -> Iterator[str]:
        self._check_usable()
        return super().__iter__()

    def __len__(self) -> int:
        self._check_usable()
        return super().__len__()

    def __contains__(self, key: object) -> bool:
        self._check_usable()
        return super().__contains__(key)

    def items(self) -> ItemsView[str, Any]:
        """Return the current keys and values."""
        return self.snapshot().items()

    def values(self) -> ValuesView[Any]:
        """Return the current values."""
        return self.snapshot().values()

    def stored(self, key: str) -> bytes:
        """Return the bytes of a value; see :meth:`Snapshot.stored`."""
        self._check_usable()
        return super().stored(key)

    def snapshot(self) -> Snapshot:
        """Return an immutable copy of the table."""
        self._check_usable()
        return Snapshot(self.topic, self._values.copy(), self.value_type)

    @property
    def positions(self) -> dict[MessageQueue, int]:
        """The queue offset below which each queue has been read."""
        self._check_usable()
        with self._moved:
            return dict(self._positions)

    def wait_until_caught_up(self, timeout: Duration | None = None) -> None:
        """Wait until the table has every message that is in the topic now. Raises TimeoutError, StoreClosed.

        A handler that calls this first sees every message that was sent before its own.
        """
        self._check_usable()
        ends = self._ends()
        self._wait(lambda: all(self._positions.get(queue, 0) >= end for queue, end in ends.items()), timeout, f"{ends}")

    def wait_for(self, sent: SendResult, timeout: Duration | None = None) -> None:
        """Wait until the table has a sent message, and so all messages before it in its queue.

        Raises TimeoutError, StoreClosed, and ValueError for a message of another topic, such as one that is delayed.
        """
        if sent.queue.topic != self.topic:
            raise ValueError(f"{sent} does not stand in topic {self.topic!r}, of which this is the table")
        self._wait(lambda: self._positions.get(sent.queue, 0) > sent.queue_offset, timeout, f"{sent}")

    def close(self) -> None:
        """End the thread and leave the store. Closing twice, or in a forked child, does nothing."""
        if self._closing or self._is_forked:
            return
        self._closing = True
        self._arrival_bell.ring()
        self._topic_bell.ring()
        if threading.current_thread() is not self._thread:
            self._thread.join()
        self._backend.close()

    def leave_to_parent(self) -> None:
        """In a forked child: refuse all later calls."""
        self._is_forked = True
        self._refusal = "this table belongs to the process that this one was forked from: make one in this process"

    def _check_usable(self) -> None:
        if self._refusal:
            raise StoreClosed(self._refusal)

    def _wait(self, condition: Callable[[], bool], timeout: Duration | None, what: str) -> None:
        self._check_usable()
        seconds = None if timeout is None else in_seconds("timeout", timeout)
        with self._moved:
            done = self._moved.wait_for(lambda: bool(self._refusal) or condition(), seconds)
        self._check_usable()
        if not done:
            raise TimeoutError(f"after {seconds} s the table of {self.topic!r} has not come to {what}")

    # --- the thread --------------------------------------------------------------------------------

    def _follow(self) -> None:
        refusal = f"the table of {self.topic!r} was closed"
        try:
            self._look_until_closed()
        except (StoreClosed, NotInstalled) as error:
            refusal = str(error)
        except Exception:  # noqa: BLE001 - waiting threads must learn of any error
            _log.exception("the table of %r has failed", self.topic)
            refusal = f"the table of {self.topic!r} has failed, and the log says why"
        with self._moved:
            self._refusal = refusal
            self._moved.notify_all()

    def _look_until_closed(self) -> None:
        while not self._closing:
            self._reader.refresh()
            bell: Bell = self._topic_bell
            heard = bell.heard()
            try:
                bell, heard = self._arm()
                has_more = self._look()
            except (StoreClosed, NotInstalled):
                raise
            except (QueueError, OSError) as error:  # such as too many open files; the next round tries again
                _log.error("the table of %r cannot be read, trying again: %s", self.topic, error)
                has_more = False
            if not has_more and not self._closing:
                bell.wait(heard, LONGEST_SLEEP_S)

    def _ends(self) -> dict[MessageQueue, int]:
        return {queue: self._backend.queues.span(queue).max_offset for queue in self._queues()}

    def _queues(self) -> list[MessageQueue]:
        try:
            return self._backend.topics.queues(self.topic)
        except UnknownTopic:
            return []

    def _arm(self) -> tuple[Bell, int]:
        """Arm a bell for the next message, or for the first queue; return the bell and its ``heard``."""
        self._backend.check_usable()
        queues = self._queues()
        if queues:
            return self._arrival_bell, self._arrival_bell.arm(*queues)
        return self._topic_bell, self._topic_bell.heard()

    def _look(self) -> bool:
        """Read the queues once, up to their current ends. Returns False if there were no new messages."""
        ends = self._ends()
        for queue in ends.keys() - self._positions.keys():
            with self._moved:
                self._positions[queue] = self._backend.queues.span(queue).min_offset
                self._moved.notify_all()
        new = [queue for queue, end in ends.items() if self._positions[queue] < end]
        is_only = len(self._queues()) == 1  # ask again: a queue made meanwhile may have older messages
        for queue in new:
            for updates in self._reader.read(queue, self._positions[queue], ends[queue]):
                self._take_in(queue, updates, is_only=is_only)
                if self._closing:
                    return False
        if self._reader.reads_in_order:
            self._found_before, self._found_at = self._found_at, {}
        self._tells_changes = self._on_change is not None
        return bool(new)

    def _take_in(self, queue: MessageQueue, updates: Updates, *, is_only: bool) -> None:
        if is_only and all(updates.keys) and all(updates.values):
            self._values.update(zip(updates.keys, updates.values, strict=True))
        else:
            self._take_in_each(updates)
        self.lost += updates.lost
        with self._moved:
            self._positions[queue] = updates.next_offset
            self._moved.notify_all()
        if self._tells_changes and updates.keys:
            self._tell({key for key in updates.keys if key})

    def _take_in_each(self, updates: Updates) -> None:
        values, found, before = self._values, self._found_at, self._found_before
        for key, value, offset in zip(updates.keys, updates.values, updates.places, strict=True):
            if not key:
                self.without_key += 1
            elif found.get(key, -1) <= offset and before.get(key, -1) <= offset:
                found[key] = offset
                if value:
                    values[key] = value
                else:
                    values.pop(key, None)

    def _tell(self, keys: set[str]) -> None:
        assert self._on_change is not None
        try:
            self._on_change(keys)
        except BaseException:  # noqa: BLE001 - application code must not end the table, nor by SystemExit its process
            _log.exception("on_change of the table of %r failed", self.topic)


def _name_of(value_type: Any) -> str:
    return getattr(value_type, "__qualname__", None) or str(value_type)
