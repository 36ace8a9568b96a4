"""Replica entries: the consume queue entries of records that came from a primary."""

from __future__ import annotations

from rmqclient.store.errors import UnknownTopic
from rmqclient.store.kernel._kernel import Dispatcher, Mapping
from rmqclient.store.log.dispatch import ends_of
from rmqclient.store.log.record import Record, decode
from rmqclient.store.message_queue import MessageQueue
from rmqclient.store.parts import Parts
from rmqclient.store.threads.logs import Log

_log = Log(__name__)


class ReplicaEntries:
    """Writes the entries of a replica, for the one process that follows the primary."""

    def __init__(self, parts: Parts) -> None:
        self._state = parts.state
        self._queues = parts.consume_queues
        self._topics = parts.topics

    def write(self, start: int, records: memoryview) -> tuple[dict[MessageQueue, int], dict[MessageQueue, int]]:
        """Write the entries of records behind the ends of their queues; return the new begins and the new ends.

        A queue has a new begin, the number of its first message, if that is among the records.
        """
        begins: dict[MessageQueue, int] = {}

        def queue_file(
            topic: str, queue_id: int, queue_offset: int, commit_log_offset: int, end: int, is_checked: bool
        ) -> tuple[Mapping, int]:
            queue = MessageQueue(topic, queue_id)
            expected = max(end, self._max_offset(queue))
            if not expected:
                begins[queue] = queue_offset
            elif queue_offset != expected and not is_checked:
                _log.warning(
                    "%s: the record at %d has number %d, not %d: taken as the primary has it",
                    queue,
                    commit_log_offset,
                    queue_offset,
                    expected,
                )
            return self._queues[queue].file_for(queue_offset)

        writer = Dispatcher(queue_file, self._queues.entries_per_file)
        writer.dispatch(records, start, start, start + len(records))
        return begins, ends_of(writer)

    def _max_offset(self, queue: MessageQueue) -> int:
        """Return the end of a queue; a queue that its primary's ``topics.json`` did not name yet is made."""
        try:
            return self._topics.max_offset(queue)
        except UnknownTopic:
            self._topics.add([queue])
            self._state.signal_membership()
            return 0

    def timestamp(self, start: int, records: memoryview, ends: dict[MessageQueue, int]) -> int:
        """Return when the last of some records with an entry was stored; 0 when none of them has one."""
        entries = (self._queues[queue].entry_or_none(end - 1) for queue, end in ends.items())
        last = max((entry.commit_log_offset for entry in entries if entry), default=-1)
        found = decode(records, last - start, last) if last >= start else None
        return found.message.store_timestamp if isinstance(found, Record) else 0
