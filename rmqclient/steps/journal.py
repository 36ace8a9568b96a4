"""Journal: the stored steps of one group's messages, and the copies of waiting messages.

The records are in the topic ``%STEPS%group``, with one queue. Any process finds them by the id of their message in the
store's index, in constant time. Only retention removes them: a record stands after its message in the log, so it exists
as long as the message. A message that is delivered again later, after a pause or a long retry delay, is stored anew. So
its records are stored once more, in the timer, where they stay as long: :meth:`Journal.keep`.

=======================================  ==============================================================================
a kill between                           result
=======================================  ==============================================================================
a step and its record                    the step runs again
a record and the next step               the step does not run again
storing a waiting copy and the           the message is delivered again, finds the copy, and gives way to it
acknowledgement
storing the copy of a failed message     the message is delivered again and gives way; no second copy is stored
and the acknowledgement
a signal and the waking of its message   the signal is stored, but its sender does not know; the wait ends at its time
                                         limit, or when the sender retries. Until then retention may remove the signal
=======================================  ==============================================================================

A message that begins to wait looks for its signal again after its copy is stored, and a signal looks for a waiting copy
after it is stored. So one of them sees the other. If both deliver the copy, the timer delivers it once. In the same way
at least one of them stores the signal again in the timer, until the message is delivered: :meth:`Journal.keep_signals`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from rmqclient.backend.backend import Backend
from rmqclient.errors import NotOnCluster, StepError
from rmqclient.failures.retry import flush, retry_topic, waiting_properties
from rmqclient.message import MessageQueue, ReceivedMessage
from rmqclient.names import STEPS_PREFIX, check_group
from rmqclient.steps.ends import MovedOn
from rmqclient.steps.record import Key, Record, check_name
from rmqclient.steps.stored_copies import StoredCopies, id_of
from rmqclient.steps.values import coding_of
from rmqclient.store import TIMER_TOPIC, Durability, clock

COUNT = "RMQ_STEPS_DONE"
"""Property of a copy for a later delivery: the group, and the number of steps, sleeps and waits of its message."""
PAUSED = "RMQ_STEPS"
"""Property of a waiting copy: the group."""
WAITS_FOR = "RMQ_WAITS_FOR"
"""Property of a copy that waits for a signal: the signal's name."""

_MS_PER_HOUR = 3_600_000


class Journal:
    """The stored steps of one group. Safe for threads.

    Raises NotOnCluster, which names the ``user`` of the journal, if the backend does not keep steps.
    """

    def __init__(self, backend: Backend, group: str, user: str) -> None:
        if backend.steps is None:
            raise NotOnCluster(f"{user} needs a store of this host: give its directory, not {backend!r}")
        self.group = group
        self.limit = backend.limits.max_body_bytes
        """Bytes of one result, at most."""
        self._backend = backend
        self._stored = StoredCopies(backend, group)
        self._topic = STEPS_PREFIX + group
        self._retry_topic = retry_topic(group)
        self._store = backend.steps
        self._sender = backend.steps.sender()
        self._kept_ms = (backend.limits.file_reserved_hours or 0) * _MS_PER_HOUR

    def find(self, message_id: str, *, is_copy: bool = True) -> dict[Key, Record]:
        """Return the records of a message. Raises as a read of the index, and StoreBusy.

        ``is_copy``: also look in the timer, which has records only of messages stored for a later delivery.
        """
        self._backend.messages.settle()
        found: dict[Key, Record] = {}
        for message in self._stored.records(message_id, is_copy=is_copy):
            record = Record.of(message)
            if record is not None:
                other = found.get(record.key)
                if other is None or record.place < other.place:
                    found[record.key] = record
        return found

    @property
    def log_begin(self) -> int:
        """The begin of the log. A message before it, in a compacted file, may have outlived its records."""
        return self._store.log_begin

    @property
    def is_quick(self) -> bool:
        """Whether :meth:`add` does not wait for the disk."""
        return self._backend.limits.durability is not Durability.SYNC

    def add(self, message_id: str, record: Record, *, lasting: bool = True) -> Record:
        """Store a record and return it with its place; with ``lasting`` it is as durable as a sent message.

        Raises as a send.
        """
        sent = self._sender.append(record.message(self._topic, message_id))
        if lasting:
            flush(self._backend, self._sender, sent)
        return replace(record, place=sent.commit_log_offset, stored_ms=clock.wall_ms())

    def keep(self, message_id: str, records: Collection[Record], until_ms: int) -> None:
        """Keep records until a time, if retention may remove them before. Raises as a send."""
        oldest = min((record.stored_ms for record in records), default=until_ms)
        if not self._is_long(oldest, until_ms):
            return
        for record in sorted(records, key=lambda each: each.place):
            self._sender.append(record.message(self._topic, message_id), None, 0, until_ms)

    def keep_signals(self, message_id: str) -> None:
        """Keep the signals of a waiting message until it is delivered again. Raises as a send.

        Signals from before the wait, and those of an earlier call of this, are kept already.
        """
        newest = max(self._stored.waiting(message_id), key=lambda copy: copy.commit_log_offset, default=None)
        if newest is None or (until_ms := newest.tags_code) <= clock.wall_ms():
            return
        kept = {
            record.place
            for message in self._stored.records_in_timer(message_id)
            if message.tags_code >= until_ms and (record := Record.of(message)) is not None
        }
        signals = [each for each in self.find(message_id).values() if not each.number and each.place not in kept]
        if signals:
            self.keep(message_id, signals, until_ms)
            flush(self._backend, self._sender, None)

    def keep_late_signals(self, message_id: str, until_ms: int) -> None:
        """Keep signals that came while the message was handled; call it after storing its copy. Raises as a send."""
        if self._is_long(clock.wall_ms(), until_ms):
            self.keep_signals(message_id)

    def count(self, records: Collection[Record]) -> dict[str, str]:
        """Return the property of a copy by which a later call detects missing records."""
        return {COUNT: f"{self.group} {numbered(records)}"}

    def postpone(
        self, message: ReceivedMessage, records: Collection[Record], due_ms: int, waits_for: str | None
    ) -> None:
        """Store a copy for the same attempt, at a time or after its signal. Raises as a send."""
        message_id = id_of(message)
        self.keep(message_id, records, due_ms)
        properties = {name: value for name, value in waiting_properties(message).items() if name != WAITS_FOR}
        properties |= {"UNIQ_KEY": message_id, PAUSED: self.group, **self.count(records)}
        if waits_for is not None:
            properties[WAITS_FOR] = waits_for
        sent = self._sender.append_copy(
            message,
            MessageQueue(self._retry_topic, 0),
            properties,
            reconsume_times=message.delivery_attempt - 1,
            due_ms=due_ms,
        )
        flush(self._backend, self._sender, sent)
        self.keep_late_signals(message_id, due_ms)
        if waits_for is not None:
            self.wake(message_id)

    def wake(self, message_id: str) -> bool:
        """Deliver a message now if it waits for a stored signal; return whether this did. Raises as a send."""
        copies = [copy for copy in self._stored.copies(TIMER_TOPIC, message_id) if WAITS_FOR in copy.properties]
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
        """Handle a newly stored signal: keep it, and wake its message; return whether this woke it.

        Raises as a send.
        """
        self.keep_signals(message_id)
        return self.wake(message_id)

    def moved_on(self, message: ReceivedMessage) -> MovedOn | None:
        """Return the end of a call if a later copy of its message is under way, or None.

        A failed message must not be stored for a retry then, because two copies would run at once. Raises as
        :meth:`find`.
        """
        self._backend.messages.settle()
        copy = self._stored.later_than(message)
        if copy is None or self._stored.is_finished(copy):
            return None
        return MovedOn("a later copy of the message goes on", lambda: self.look_after(id_of(message)))

    @property
    def is_begun(self) -> bool:
        """Whether any message of the group has had a step. This is cheap."""
        return self._store.has(self._topic)

    def _is_long(self, since_ms: int, until_ms: int) -> bool:
        """Return whether retention may remove a record stored at one time before another time."""
        return until_ms - since_ms >= self._kept_ms // 4


def numbered(records: Collection[Record]) -> int:
    """Return the number of records that are steps, sleeps and waits. Signals come at any time and do not count."""
    return sum(record.number > 0 for record in records)


def signal(backend: Backend, group: str, message_id: str, name: str, payload: object) -> bool:
    """Store a signal for a message of a group; return whether that woke it. See :meth:`rmqclient.Producer.signal`."""
    journal = Journal(backend, check_group(group), "signal()")
    message = backend.messages.by_id(message_id)
    if message is None:
        raise StepError(f"no message has the id {message_id!r}: give the message_id of the message that waits")
    form, body, _ = coding_of(type(payload)).encoded(f"signal {check_name(name)!r}", payload, journal.limit)
    journal.add(id_of(message), Record(kind="signal", name=name, form=form, body=body))
    return journal.look_after(id_of(message))
