"""Queue table: the message queues of a store by slot, in the runtime file, with their offsets.

A slot is a queue's number in every other table. It is filled under the table mutex before ``queue_count`` is advanced,
and stays the queue's own for as long as the store is open anywhere.
"""

from __future__ import annotations

from bisect import insort
from pathlib import Path

from rmqclient.store import layout
from rmqclient.store.errors import TableFull, UnknownTopic
from rmqclient.store.message_queue import MessageQueue
from rmqclient.store.native_threads import threading
from rmqclient.store.runtime.shared_state import SharedState, queue_slot_at

QueueSlot = int
"""Number of a slot of the queue table."""


class QueueTable:
    """The queue table as one process knows it; it reads on as other processes add queues."""

    def __init__(self, root: Path, state: SharedState, lock_timeout_ms: int) -> None:
        self._root = root
        self._state = state
        self._lock_timeout_ms = lock_timeout_ms
        self._queues: list[MessageQueue] = []
        self._slots: dict[MessageQueue, QueueSlot] = {}
        self._by_topic: dict[str, list[MessageQueue]] = {}
        self._reading = threading.Lock()

    def __len__(self) -> int:
        self._read_on()
        return len(self._queues)

    def queue(self, slot: QueueSlot) -> MessageQueue:
        """Return the message queue of a slot. Raises IndexError for a slot that is not in use."""
        if slot >= len(self._queues):
            self._read_on()
        return self._queues[slot]

    def slot(self, queue: MessageQueue) -> QueueSlot:
        """Return the slot of a message queue. Raises UnknownTopic."""
        if queue not in self._slots:
            self._read_on()
        if queue not in self._slots:
            raise UnknownTopic(f"queue {queue.queue_id} of topic {queue.topic!r} does not exist in {self._root}")
        return self._slots[queue]

    def all_queues(self) -> list[MessageQueue]:
        """Return every message queue, by slot."""
        self._read_on()
        return list(self._queues)

    def add(self, queues: list[MessageQueue], max_offsets: dict[MessageQueue, tuple[int, int]] | None = None) -> None:
        """Give a slot to each queue without one; ``max_offsets`` holds the known (min, max) offsets."""
        with self._state.locked(self._state.table_mutex, self._lock_timeout_ms):
            self._read_on()
            for queue in queues:
                if queue not in self._slots:
                    low, high = (max_offsets or {}).get(queue, (0, 0))
                    _fill(self._state, self._state.queue_count, queue, low, high)
                    self._state.queue_count += 1
            self._read_on()

    def check_room(self, queue_count: int) -> None:
        """Raise TableFull unless ``queue_count`` more queues have room."""
        if self._state.queue_count + queue_count > layout.QUEUE_SLOTS:
            raise TableFull(
                f"{queue_count} more queues: the store has {self._state.queue_count} of at most {layout.QUEUE_SLOTS}"
            )

    def min_offset(self, queue: MessageQueue) -> int:
        """Return the queue offset of the oldest message."""
        return self._state.words.load(queue_slot_at(self.slot(queue)) + layout.QUEUE_SLOT.at["min_offset"])

    def max_offset(self, queue: MessageQueue) -> int:
        """Return the queue offset that the next message will get."""
        return self._state.words.load(queue_slot_at(self.slot(queue)) + layout.QUEUE_SLOT.at["max_offset"])

    def max_offsets(self) -> list[int]:
        """Return the max offset of every queue, by slot."""
        self._read_on()
        load, field = self._state.words.load, layout.QUEUE_SLOT.at["max_offset"]
        return [load(queue_slot_at(slot) + field) for slot in range(len(self._queues))]

    def advance_max_offset(self, queue: MessageQueue, max_offset: int) -> None:
        """Raise a queue's max offset, for the repair of an append; never lowers it."""
        if max_offset > self.max_offset(queue):
            self._state.words.store(queue_slot_at(self.slot(queue)) + layout.QUEUE_SLOT.at["max_offset"], max_offset)

    def raise_min_offset(self, queue: MessageQueue, min_offset: int) -> None:
        """Raise a queue's min offset, because the messages below were removed; never lowers it."""
        self._state.raise_word(queue_slot_at(self.slot(queue)) + layout.QUEUE_SLOT.at["min_offset"], min_offset)

    def bytes_in(self) -> dict[MessageQueue, int]:
        """Return how many bytes of records each queue was sent."""
        load, at = self._state.words.load, layout.QUEUE_SLOT.at["bytes_in"]
        return {queue: load(queue_slot_at(self.slot(queue)) + at) for queue in self.all_queues()}

    def set_bytes_in(self, queue: MessageQueue, count: int) -> None:
        """Set how many bytes of records a queue was sent. For the holder of the append mutex, or of the whole store."""
        self._state.words.store(queue_slot_at(self.slot(queue)) + layout.QUEUE_SLOT.at["bytes_in"], count)

    def _read_on(self) -> None:
        with self._reading:
            for slot in range(len(self._queues), self._state.queue_count):
                at = queue_slot_at(slot)
                fields, words = layout.QUEUE_SLOT.at, self._state.words
                topic = self._state.text(at + fields["topic"], words.load32(at + fields["topic_size"]))
                queue = MessageQueue(topic, words.load32(at + fields["queue_id"]))
                self._slots[queue] = slot
                self._queues.append(queue)
                insort(self._by_topic.setdefault(topic, []), queue)


def _fill(state: SharedState, slot: QueueSlot, queue: MessageQueue, min_offset: int, max_offset: int) -> None:
    at = queue_slot_at(slot)
    fields, words = layout.QUEUE_SLOT.at, state.words
    name = queue.topic.encode()
    state.put_bytes(at + fields["topic"], name.ljust(128, b"\0"))
    words.store32(at + fields["topic_size"], len(name))
    words.store32(at + fields["queue_id"], queue.queue_id)
    words.store(at + fields["min_offset"], min_offset)
    words.store(at + fields["max_offset"], max_offset)
