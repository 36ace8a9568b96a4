"""Settings of the primary: copies what the log does not contain from the primary's broker into the replica.

These are the four documents that a stock slave copies, in its order. [SlaveSynchronize]

======================  ====================================================================================
document                what is copied
======================  ====================================================================================
topics                  new and changed ones; a topic that was deleted at a stock primary stays here. Of ours,
                        removed ones, too, with what hides their messages, when the log here has come so far
offsets of groups       all, also lower ones, but limited to the end of the queue here
delay levels            into ``delayOffset.json``, for use after a promotion
settings of groups      the whole document
======================  ====================================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from rmqclient.replication.primary_client.broker_client import BrokerClient
from rmqclient.store import MessageQueue, MessageStore
from rmqclient.store.errors import UnknownTopic
from rmqclient.store.files.file_lock import TOPIC_BYTE
from rmqclient.store.message_queue import is_name
from rmqclient.store.settings import config_file, document
from rmqclient.store.settings.config_file import TopicConfig

_GROUPS_FILE: Final = Path("config", "subscriptionGroup.json")


class SettingsOfPrimary:
    """Copies topics, groups, offsets and delay levels. For one thread."""

    def __init__(self, store: MessageStore, broker: BrokerClient) -> None:
        self._store = store
        self._broker = broker
        self._groups = b""

    def take_settings(self) -> None:
        """Copy topics and the settings of groups. Raises as :class:`BrokerClient`, and StoreFull, TableFull."""
        self._take_topics()
        self._take_groups()

    def take_progress(self) -> None:
        """Copy the offsets of groups and delay levels. Raises as :meth:`take_settings`, and StoreBusy."""
        self._take_offsets()
        self._take_delays()

    def _take_topics(self) -> None:
        answer = self._broker.topics()
        here = self._store.state.published_to
        self._hide({name: end for name, end in (answer.removed or {}).items() if is_name(name) and 0 < end <= here})
        self._store.topics.adopt(
            {
                name: TopicConfig(
                    topic.read_queues,
                    topic.write_queues,
                    topic.perm,
                    topic.order,
                    topic.filter_type,
                    topic.sys_flag,
                    "compact" if (topic.attributes or {}).get("cleanup.policy") == "COMPACTION" else "delete",
                )
                for name, topic in answer.topics.items()
                if is_name(name)
            }
        )

    def _hide(self, removed: Mapping[str, int]) -> None:
        """Hide the messages of removed topics; a topic that was made again comes back with the topics."""
        store = self._store
        for topic in store.topics.adopt_removed(removed):
            for queue in store.topics.queues(topic):
                low, high = store.topics.min_offset(queue), store.topics.max_offset(queue)
                store.topics.raise_min_offset(queue, store.consume_queues[queue].oldest(low, high, removed[topic]))

    def _take_offsets(self) -> None:
        for name, offsets in self._broker.group_offsets().offsets.items():
            topic, _, group = name.partition("@")
            if is_name(topic) and is_name(group):
                for queue_id, offset in offsets.items():
                    self._move(group, MessageQueue(topic, queue_id), offset)

    def _move(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Set a group's offset; at most the end of the queue, while later messages have not come yet."""
        store = self._store
        try:
            number = store.topics.slot(queue)
        except UnknownTopic:
            return
        offset = min(max(offset, 0), store.topics.max_offset(queue))
        slot = store.groups.find_or_add(group, number, offset)
        if slot.committed_offset != offset:
            with slot.locked(store.config.lock_timeout_ms):
                slot.seek(offset)

    def _take_delays(self) -> None:
        answer = self._broker.delay_offsets().offsets
        with self._store.lock.held(TOPIC_BYTE):
            if answer and config_file.read_delay_offsets(self._store.root) != answer:
                config_file.write_delay_offsets(self._store.root, answer)

    def _take_groups(self) -> None:
        answer = self._broker.group_settings()
        path = self._store.root / _GROUPS_FILE
        if answer != self._groups and answer:
            with self._store.lock.held(TOPIC_BYTE):
                document.write(path, document.render(document.parse(answer, path)))
            self._groups = answer
