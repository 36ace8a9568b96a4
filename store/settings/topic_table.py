"""Topics and their message queues: ``config/topics.json`` for good, the queue table of the runtime file while open.

A topic is made in this order, under the topic lock: ``topics.json`` durable, slots filled, ``queue_count`` advanced. A
process killed in between leaves a topic that the next call of :meth:`TopicTable.create` completes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from rmqclient.store import layout
from rmqclient.store.errors import TopicNotWritable, UnknownTopic, store_errors
from rmqclient.store.files.file_lock import TOPIC_BYTE, LockFile
from rmqclient.store.message_queue import MessageQueue
from rmqclient.store.runtime.queue_table import QueueTable
from rmqclient.store.runtime.shared_state import SharedState
from rmqclient.store.settings import config_file, removed_topics
from rmqclient.store.settings.cleanup_policy import CleanupPolicies
from rmqclient.store.settings.config_file import READABLE, WRITABLE, TopicConfig
from rmqclient.store.settings.replica_mark import check_primary

_MOST_QUEUES = 1_024
_DEAD_LETTERS = "%DLQ%"
_MEMBERSHIP_WORD = layout.RUNTIME_HEADER.at["membership_word"]


class TopicTable(QueueTable):
    """The queues of a store by topic, as one process knows them, and the settings of the topics."""

    def __init__(self, root: Path, state: SharedState, lock: LockFile, lock_timeout_ms: int) -> None:
        super().__init__(root, state, lock_timeout_ms)
        self._lock = lock
        self._policies = CleanupPolicies(root, state)
        self.is_compact = self._policies.is_compact
        self._configs: Mapping[str, TopicConfig] = {}
        self._configs_at: tuple[int, tuple[int, int, int]] | None = None

    def __contains__(self, topic: str) -> bool:
        """Tell whether a topic was made."""
        self._read_on()
        return topic in self._by_topic

    def queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues of a topic in order of their ids. Raises UnknownTopic."""
        self._read_on()
        found = self._by_topic.get(topic)
        if not found:
            import difflib  # noqa: PLC0415 - for an error alone

            names = list(self._by_topic)  # other threads may add to it meanwhile
            close = difflib.get_close_matches(topic, names, n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise UnknownTopic(f"topic {topic!r} does not exist in {self._root}; it is made by its first message{hint}")
        return list(found)

    def read_queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues of a topic that consumers get messages from; none without the permission.

        [readQueueNums, perm] Brokers make dead letter topics that can only be written: they are read here all the same.
        Raises UnknownTopic.
        """
        queues, config = self.queues(topic), self.configs().get(topic)
        if config is None:
            return queues
        count = config.read_queue_count if config.perm & READABLE or topic.startswith(_DEAD_LETTERS) else 0
        return [queue for queue in queues if queue.queue_id < count]

    def write_queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues of a topic that new messages go to; there is one. [writeQueueNums, perm]

        Raises UnknownTopic, TopicNotWritable.
        """
        queues, config = self.queues(topic), self.configs().get(topic)
        count = _MOST_QUEUES if config is None else write_queues_of(config)
        found = [queue for queue in queues if queue.queue_id < count]
        if not found:
            raise not_writable(topic)
        return found

    def topics(self) -> list[str]:
        """Return the names of all topics, sorted."""
        self._read_on()
        return sorted(self._by_topic)

    def create(self, topic: str, queue_count: int, cleanup_policy: str | None = None) -> list[MessageQueue]:
        """Make a topic with ``queue_count`` queues unless it exists; return its queues.

        ``cleanup_policy`` is ``delete`` or ``compact``. None means ``delete`` for a new topic, and accepts either for
        an existing one. Raises TableFull, ConfigMismatch if the topic exists with the other policy, ValueError.
        """
        if cleanup_policy not in (None, "delete", "compact"):
            raise ValueError(f"cleanup_policy={cleanup_policy!r}: give 'delete' or 'compact'")
        if cleanup_policy is None and self._is_whole(topic):
            return self.queues(topic)
        with self._lock.held(TOPIC_BYTE):
            topics = config_file.read_topics(self._root)
            if topic not in topics:
                check_primary(self._root, is_replica=bool(self._state.is_replica))
                self.check_room(queue_count)
                topics[topic] = TopicConfig(
                    read_queue_count=queue_count,
                    write_queue_count=queue_count,
                    cleanup_policy=cleanup_policy or "delete",
                )
                config_file.write_topics(self._root, topics)
            self._policies.settle(topic, topics[topic], cleanup_policy)
            config = topics[topic]
            self.add([MessageQueue(topic, queue_id) for queue_id in range(queues_of(config))])
        self._state.signal_membership()
        return self.queues(topic)

    def _is_whole(self, topic: str) -> bool:
        """Tell whether a topic has all of its queues. Its users need no lock, whoever may hold it."""
        config = self.configs().get(topic)
        self._read_on()
        return config is not None and len(self._by_topic.get(topic, ())) >= queues_of(config)

    def configs(self) -> Mapping[str, TopicConfig]:
        """Return the settings of every topic that was made and not removed, by name. Raises StoreCorrupt.

        ``topics.json`` is read again after a process has made, changed or removed a topic.
        """
        word = self._state.words.load32(_MEMBERSHIP_WORD)  # before the file: its writers signal afterwards
        if self._configs_at is None or self._configs_at[0] != word:
            version = _version_of(self._root / config_file.TOPICS_FILE)
            if self._configs_at is None or self._configs_at[1] != version:
                self._configs = config_file.read_topics(self._root)
            self._configs_at = word, version
        return self._configs

    def configure(self, topic: str, config: TopicConfig) -> list[MessageQueue]:
        """Make a topic with these settings, or give them to it; return its queues. For good.

        A topic keeps its cleanup policy, and every queue that it ever had, although clients see fewer of them then.
        Raises TableFull, InvalidName, StoreFull.
        """
        check_primary(self._root, is_replica=bool(self._state.is_replica))
        with self._lock.held(TOPIC_BYTE):
            known = config_file.read_topics(self._root).get(topic)
            if known is not None:
                config = replace(config, cleanup_policy=known.cleanup_policy)
            self._read_on()
            self.check_room(max(0, queues_of(config) - len(self._by_topic.get(topic, ()))))
            if known != config:
                config_file.write_topics(self._root, {topic: config})
            self._policies.settle(topic, config)
            self.add([MessageQueue(topic, queue_id) for queue_id in range(queues_of(config))])
        self._state.signal_membership()
        return self.queues(topic)

    def adopt(self, primary: Mapping[str, TopicConfig]) -> None:
        """Give a replica the topics of its primary, with their settings. A topic that is gone there stays here.

        Raises TableFull, StoreFull, StoreCorrupt.
        """
        with self._lock.held(TOPIC_BYTE):
            known = config_file.read_topics(self._root)
            changed = {name: config for name, config in primary.items() if known.get(name) != config}
            if changed:
                config_file.write_topics(self._root, changed)
            for name, config in changed.items():
                self._policies.settle(name, config)
                self.add([MessageQueue(name, queue_id) for queue_id in range(queues_of(config))])
        if changed:
            self._state.signal_membership()

    def adopt_removed(self, primary: Mapping[str, int]) -> list[str]:
        """Give a replica the topics that its primary has removed, by the commit log offsets; return which are new.

        They are no topics here, either, and the next opening hides their messages. Raises StoreFull, StoreCorrupt.
        """
        with self._lock.held(TOPIC_BYTE):
            known = removed_topics.read_ends(self._root)
            changed = {topic: end for topic, end in primary.items() if end > known.get(topic, 0)}
            if changed:
                removed_topics.write_ends(self._root, changed)
            for topic in changed:
                config_file.remove_topic(self._root, topic)
        if changed:
            self._state.signal_membership()
        return [topic for topic in changed if topic in self.topics()]

    def remove(self, topic: str) -> bool:
        """Take a topic out of ``topics.json``, and let its queues begin at their end; return whether it was there.

        Messages that a running producer has sent since it was removed are hidden, too: they make it no topic again.
        Its messages stay in the log until retention removes them, and its queues stay in the table: other processes
        hold them by their numbers. A topic of this name that is made again goes on with these queues and offsets.
        A later opening knows by :mod:`rmqclient.store.settings.removed_topics` what is hidden. A lost ``topics.json``
        hides nothing. Raises StoreFull.
        """
        check_primary(self._root, is_replica=bool(self._state.is_replica))
        with self._lock.held(TOPIC_BYTE):
            self._read_on()
            log_end = (
                self._state.published_to
            )  # before the queues: what is sent meanwhile is hidden by no later opening
            queues = () if self.is_compact(topic) else self._by_topic.get(topic, ())
            ends = {queue: self.max_offset(queue) for queue in queues}
            hidden = {queue: end for queue, end in ends.items() if self.min_offset(queue) < end}
            if hidden:
                removed_topics.write_ends(self._root, {topic: log_end})
            is_removed = config_file.remove_topic(self._root, topic) or bool(hidden)
            for queue, end in hidden.items():
                self.raise_min_offset(queue, end)
        self._state.signal_membership()
        return is_removed

    def compact_queues(self) -> list[MessageQueue]:
        """Return the queues of all compact topics, by slot."""
        return [queue for queue in self.all_queues() if self.is_compact(queue.topic)]

    def make_lost(self, queue: MessageQueue) -> None:
        """Make the queue that a message waits for again if it was lost. Raises TableFull."""
        try:
            self.slot(queue)
        except UnknownTopic:
            self.create(queue.topic, min(queue.queue_id + 1, _MOST_QUEUES))
            self.add([queue])
            self._state.signal_membership()


def queues_of(config: TopicConfig) -> int:
    """Return how many queues a topic has; RocketMQ may let consumers see more of them than producers."""
    return max(config.read_queue_count, config.write_queue_count)


def write_queues_of(config: TopicConfig) -> int:
    """Return how many queues of a topic take new messages; 0 for one that may not be written."""
    return config.write_queue_count if config.perm & WRITABLE else 0


def not_writable(topic: str) -> TopicNotWritable:
    """Return the error for a topic that takes no messages."""
    return TopicNotWritable(
        f"topic {topic!r} takes no messages: its permission or its number of write queues says so. Nothing was "
        f"written; `rmq topic update {topic} --perm rw` opens it"
    )


def _version_of(path: Path) -> tuple[int, int, int]:
    """What tells whether a file was replaced; zeros without one."""
    with store_errors(f"{path} cannot be looked at"):
        try:
            status = path.stat()
        except FileNotFoundError:
            return 0, 0, 0
    return status.st_ino, status.st_mtime_ns, status.st_size
