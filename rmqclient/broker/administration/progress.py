"""Progress: reads the progress of groups from the store, for local and remote members alike.

A broadcast group of local members keeps its offsets by member, under ``group|member``. A broker has no offsets of such
a group, so these are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from rmqclient.broker.administration.rates import FIRST_OF_5
from rmqclient.broker.stored_names import stored_group
from rmqclient.broker.topics.topics import Topics
from rmqclient.names import MEMBER_SEPARATOR
from rmqclient.remoting.bodies import ConsumeStats, QueueProgress, QueueTimeSpan
from rmqclient.store import MessageQueue, MessageStore
from rmqclient.store.errors import MessageExpired, StoreCorrupt, UnknownTopic


class Progress:
    """Reads the progress of groups. For threads of the pool: it looks at every queue that any group ever had."""

    def __init__(self, store: MessageStore, topics: Topics, broker_name: str) -> None:
        self._store = store
        self._topics = topics
        self._broker_name = broker_name

    def groups(self) -> list[str]:
        """Return the groups that have an offset in any topic that clients see, sorted."""
        return sorted(self.all_offsets())

    def all_offsets(self) -> dict[str, dict[str, dict[int, int]]]:
        """Return the committed offsets in all topics that clients see, by group, topic and queue id."""
        found: dict[str, dict[str, dict[int, int]]] = {}
        for group, queue, offset in self._committed():
            found.setdefault(group, {}).setdefault(queue.topic, {})[queue.queue_id] = offset
        return found

    def offsets(self, group: str) -> dict[str, dict[int, int]]:
        """Return the committed offsets of a group by topic and queue id."""
        return self.all_offsets().get(stored_group(group), {})

    def groups_of(self, topic: str) -> list[str]:
        """Return the groups that have an offset in a topic, sorted."""
        return sorted({group for group, queue, _ in self._committed() if queue.topic == topic})

    def stats(self, topics: Mapping[str, Mapping[int, int]], rate: float, version: int) -> ConsumeStats:
        """Return a group's progress with these offsets; ``rate`` is in messages per second.

        It has every queue that consumers see; without an offset the group is at 0. A tool of 5.x, by its ``version``,
        subtracts the offset from the pull offset, so both are given as the same number.
        """
        queues: dict[MessageQueue, QueueProgress] = {}
        for topic, offsets in topics.items():
            for queue in self.readable(topic):
                at = offsets.get(queue.queue_id, 0)
                key = queue._replace(broker_name=self._broker_name)
                pulled = at if version >= FIRST_OF_5 else None
                queues[key] = QueueProgress(self._max_offset(queue), at, self.stored_at(queue, at - 1), pulled)
        return ConsumeStats(queues, rate)

    def readable(self, topic: str) -> list[MessageQueue]:
        """Return the queues of a topic that consumers see; empty for an unknown topic."""
        config = self._topics.config(topic)
        return [MessageQueue(topic, queue_id) for queue_id in range(config.read_queue_count if config else 0)]

    def stored_at(self, queue: MessageQueue, queue_offset: int) -> int:
        """Return when a message was stored, in ms since 1970; 0 if there is no message, -1 if it was removed."""
        if not 0 <= queue_offset < self._max_offset(queue):
            return 0
        try:
            return int(self._store.messages.at(queue, queue_offset).store_timestamp)
        except (MessageExpired, StoreCorrupt):
            return -1

    def span(self, topic: str, group_offsets: Mapping[int, int], now_ms: int) -> Iterator[QueueTimeSpan]:
        """Yield the times of the messages of each queue, and that of the next one for the group."""
        for queue in self.readable(topic):
            low, high = self._min_offset(queue), self._max_offset(queue)
            at = group_offsets.get(queue.queue_id, 0)
            next_at = self.stored_at(queue, at) if at < high else 0
            yield QueueTimeSpan(
                queue._replace(broker_name=self._broker_name),
                min_timestamp=self.stored_at(queue, low),
                max_timestamp=self.stored_at(queue, high - 1),
                consume_timestamp=self.stored_at(queue, at - 1),
                delay_ms=max(0, now_ms - next_at) if next_at > 0 else 0,
            )

    def behind(self, stats: Iterable[ConsumeStats]) -> int:
        """Return the number of messages not yet consumed, in all these queues."""
        return sum(max(0, each.broker_offset - each.consumer_offset) for one in stats for each in one.queues.values())

    def _committed(self) -> Iterator[tuple[str, MessageQueue, int]]:
        known = self._topics.configs()
        for slot in self._store.groups:
            queue = self._store.topics.queue(slot.queue_slot)
            if queue.topic in known and MEMBER_SEPARATOR not in slot.group:
                yield slot.group, queue, slot.finished_to

    def _max_offset(self, queue: MessageQueue) -> int:
        try:
            return self._store.topics.max_offset(queue)
        except UnknownTopic:
            return 0

    def _min_offset(self, queue: MessageQueue) -> int:
        try:
            return self._store.topics.min_offset(queue)
        except UnknownTopic:
            return 0
