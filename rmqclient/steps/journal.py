"""Journal: what is stored of the steps of one group's messages, and the copies of messages that wait.

The records lie in the topic ``%STEPS%group``, one queue, and are found by the id of their message in the index of the
store: by any process, in the same time however many there are. Nothing removes them but retention, and nothing needs
to: a record stands behind its message in the log, so it is there as long as the message is. A message that comes again
later, after a pause or a long retry delay, leaves that place. Then its records are stored once more in the timer, where
they stay until the message does: :meth:`Journal.keep`.

=======================================  ==============================================================================
a kill between                           leaves
=======================================  ==============================================================================
a step and its record                    nothing: the step runs again
a record and the next step               the record: the step does not run again
the copy that waits, and the             both: the message that is delivered again finds the copy, and gives way to it
acknowledgement
the copy of a message that failed, and   both: the message that is delivered again gives way, and no second copy is
the acknowledgement                      stored beside the one that goes on
a signal and the waking of its message   the signal, whose sender was not told that it is stored; the wait ends with its
                                         time limit, or when the sender tries again. Until then retention may remove it
=======================================  ==============================================================================

A message that begins to wait looks for its signal once more when its copy is stored, and a signal that is stored looks
for a copy that waits. So one of them sees the other. Both may deliver the copy: the timer lets one of them. In the same
way one of them stores the signal once more in the timer, until the message comes again, or both do:
:meth:`Journal.keep_signals`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from rmqclient.failures.retry import flush, retry_topic, waiting_properties
from rmqclient.local.backend import LocalBackend
from rmqclient.message import MessageQueue, ReceivedMessage
from rmqclient.names import RETRY_PREFIX, STEPS_PREFIX
from rmqclient.steps.ends import MovedOn
from rmqclient.steps.record import Key, Record
from rmqclient.store import SCHEDULE_TOPIC, TIMER_TOPIC, Durability, clock
from rmqclient.store.log.query import END_OF_TIME

COUNT = "RMQ_STEPS_DONE"
"""Property of a copy for a later delivery: the group, and how many steps, sleeps and waits its message had."""
PAUSED = "RMQ_STEPS"
"""Property of a copy that waits: the group."""
WAITS_FOR = "RMQ_WAITS_FOR"
"""Property of a copy that waits for a signal: the name of that."""

_MOST_RECORDS = 1 << 20
_MOST_COPIES = 1_000
_MS_PER_HOUR = 3_600_000


class Journal:
    """The stored steps of one group; safe for threads."""

    def __init__(self, backend: LocalBackend, group: str) -> None:
        self.group = group
        self.limit = backend.config.max_body_bytes
        """Most bytes of one result."""
        self._backend = backend
        self._topic = STEPS_PREFIX + group
        self._retry_topic = retry_topic(group)
        self._sender = backend.sender(lambda topic: backend.create_topic(topic, 1), prepare=False)

    def find(self, message_id: str, *, is_copy: bool = True) -> dict[Key, Record]:
        """Return the records of a message. Raises as a read of the index, and StoreBusy.

        Only of a message that was stored for a later delivery, records may wait in the timer.
        """
        self._backend.settle()
        found: dict[Key, Record] = {}
        for message in self._messages_of(message_id, is_copy=is_copy):
            record = Record.of(message)
            if record is not None:
                other = found.get(record.key)
                if other is None or record.place < other.place:
                    found[record.key] = record
        return found

    @property
    def log_begin(self) -> int:
        """Where the log begins. A message that stands before it, in a compacted file, may have outlived its records."""
        return self._backend.store.state.min_offset

    @property
    def is_quick(self) -> bool:
        """Whether :meth:`add` waits for no disk."""
        return self._backend.config.durability is not Durability.SYNC

    def add(self, message_id: str, record: Record, *, lasting: bool = True) -> Record:
        """Store a record and return it with its place; with ``lasting`` it is as durable as a message that was sent.

        Raises as a send.
        """
        sent = self._sender.append(record.message(self._topic, message_id))
        if lasting:
            flush(self._backend, self._sender, sent)
        return replace(record, place=sent.commit_log_offset, stored_ms=clock.wall_ms())

    def keep(self, message_id: str, records: Collection[Record], until_ms: int) -> None:
        """Let records outlive retention until a time, if that may remove them before. Raises as a send."""
        oldest = min((record.stored_ms for record in records), default=until_ms)
        if not self._is_long(oldest, until_ms):
            return
        for record in sorted(records, key=lambda each: each.place):
            self._sender.append(record.message(self._topic, message_id), None, 0, until_ms)

    def keep_signals(self, message_id: str) -> None:
        """Let the signals of a message that comes again later outlive retention until then. Raises as a send.

        What was stored of it before it began to wait is kept already, and so is what an earlier call has kept.
        """
        newest = max(self._waiting(message_id), key=lambda copy: copy.commit_log_offset, default=None)
        if newest is None or (until_ms := newest.tags_code) <= clock.wall_ms():
            return
        kept = {
            record.place
            for message in self._records_in_timer(message_id)
            if message.tags_code >= until_ms and (record := Record.of(message)) is not None
        }
        signals = [each for each in self.find(message_id).values() if not each.number and each.place not in kept]
        if signals:
            self.keep(message_id, signals, until_ms)
            flush(self._backend, self._sender, None)

    def keep_late_signals(self, message_id: str, until_ms: int) -> None:
        """Do so for those that came while the message was handled, when its copy is stored. Raises as a send."""
        if self._is_long(clock.wall_ms(), until_ms):
            self.keep_signals(message_id)

    def count(self, records: Collection[Record]) -> dict[str, str]:
        """Return the property of a copy by which a later call sees that some of its message's records are gone."""
        return {COUNT: f"{self.group} {numbered(records)}"}

    def postpone(
        self, message: ReceivedMessage, records: Collection[Record], due_ms: int, waits_for: str | None
    ) -> None:
        """Store a message for the same attempt later: at a time, or when its signal comes. Raises as a send."""
        message_id = id_of(message)
        self.keep(message_id, records, due_ms)
        properties = {name: value for name, value in waiting_properties(message).items() if name != WAITS_FOR}
        properties |= {"UNIQ_KEY": message_id, PAUSED: self.group, **self.count(records)}
        if waits_for is not None:
            properties[WAITS_FOR] = waits_for
        sent = self._sender.append_copy(
            message,
            self._retry_topic,
            0,
            properties,
            reconsume_times=message.delivery_attempt - 1,
            due_ms=due_ms,
        )
        flush(self._backend, self._sender, sent)
        self.keep_late_signals(message_id, due_ms)
        if waits_for is not None:
            self.wake(message_id)

    def wake(self, message_id: str) -> bool:
        """Deliver a message now if it waits for a signal that is stored; tell whether this did. Raises as a send."""
        copies = [copy for copy in self._copies(TIMER_TOPIC, message_id) if WAITS_FOR in copy.properties]
        if not copies:
            return False
        stored = self.find(message_id)
        for copy in copies:
            if ("answer", copy.properties[WAITS_FOR]) in stored:
                sent = self._sender.deliver_early(copy)
                if sent is not None:
                    flush(self._backend, self._sender, sent)
                    return True
        return False

    def look_after(self, message_id: str) -> bool:
        """Do for a message what a stored signal asks for: keep that, and wake the message; tell whether this did.

        Raises as a send.
        """
        self.keep_signals(message_id)
        return self.wake(message_id)

    def later_copy(self, message: ReceivedMessage) -> ReceivedMessage | None:
        """Return the newest copy of a message that was stored after it, waiting or delivered; None without one."""
        message_id = id_of(message)
        later = [
            copy
            for topic in (TIMER_TOPIC, SCHEDULE_TOPIC, self._retry_topic)
            for copy in self._copies(topic, message_id)
            if copy.commit_log_offset > message.commit_log_offset
        ]
        return max(later, key=lambda copy: copy.commit_log_offset, default=None)

    def is_finished(self, copy: ReceivedMessage) -> bool:
        """Tell whether a copy was delivered, and the group has acknowledged it. All of its records are stored then."""
        if copy.topic != self._retry_topic:
            return False
        queue = MessageQueue(copy.topic, copy.queue_id)
        return copy.queue_offset < (self._backend.committed_offset(self.group, queue) or 0)

    def moved_on(self, message: ReceivedMessage) -> MovedOn | None:
        """Return how a call ends whose message goes on as a later copy; None if no copy of it is under way.

        A message that failed is not stored for its retry then: two of its copies would run side by side. Raises as
        :meth:`find`.
        """
        self._backend.settle()
        copy = self.later_copy(message)
        if copy is None or self.is_finished(copy):
            return None
        return MovedOn("a later copy of the message goes on", lambda: self.look_after(id_of(message)))

    @property
    def is_begun(self) -> bool:
        """Whether any message of the group has had a step. Asking costs next to nothing."""
        return self._topic in self._backend.store.topics

    def _messages_of(self, message_id: str, *, is_copy: bool) -> Iterator[ReceivedMessage]:
        yield from self._by_key(self._topic, message_id, _MOST_RECORDS)
        if not is_copy:
            return
        yield from self._records_in_timer(message_id)

    def _records_in_timer(self, message_id: str) -> Iterator[ReceivedMessage]:
        for message in self._by_key(TIMER_TOPIC, message_id, _MOST_RECORDS):
            if message.properties.get("REAL_TOPIC") == self._topic:
                yield message

    def _waiting(self, message_id: str) -> Iterator[ReceivedMessage]:
        """Yield what waits, or waited, to be delivered to this group under an id: a copy, or the delayed message."""
        for topic in (TIMER_TOPIC, SCHEDULE_TOPIC):
            for message in self._by_key(topic, message_id, _MOST_COPIES):
                place = message.properties.get("REAL_TOPIC", self._topic)
                is_elsewhere = place.startswith(RETRY_PREFIX) and place != self._retry_topic
                if message.message_id == message_id and place != self._topic and not is_elsewhere:
                    yield message

    def _is_long(self, since_ms: int, until_ms: int) -> bool:
        """Tell whether retention may remove what was stored at a time before another one."""
        return until_ms - since_ms >= self._backend.config.retention.file_reserved_hours * _MS_PER_HOUR // 4

    def _copies(self, topic: str, message_id: str) -> Iterator[ReceivedMessage]:
        """Yield the copies of a message, for this group, that stand in a topic."""
        for message in self._by_key(topic, message_id, _MOST_COPIES):
            place = message.properties.get("REAL_TOPIC") if topic != self._retry_topic else topic
            if place == self._retry_topic and message.message_id == message_id:
                yield message

    def _by_key(self, topic: str, key: str, limit: int) -> list[ReceivedMessage]:
        return self._backend.messages_by_key(topic, key, 0, END_OF_TIME, limit)


def numbered(records: Collection[Record]) -> int:
    """Return how many records are steps, sleeps and waits. Signals come at any time, and do not count."""
    return sum(record.number > 0 for record in records)


def id_of(message: ReceivedMessage) -> str:
    """Return the id that a message has through all its copies."""
    origin = message.properties.get("UNIQ_KEY") or message.properties.get("ORIGIN_MESSAGE_ID")
    return origin or message.offset_message_id
