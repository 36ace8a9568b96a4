"""Retry topics: retry topics that do not exist yet, shown to tools and clients as by a broker.

A broker makes the retry topic of a group at its first heartbeat, and tools find a group by it. A local group gets one
with its first failure. Until then this shows one with a broker's settings; the first message makes its queue, as for a
system topic. None of this is in a file. [ClientManageProcessor.heartBeat]
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Final

from rmqclient.broker.topics.topic_names import RETRY_PREFIX, retry_topic
from rmqclient.names import group_and_member
from rmqclient.store import HALF_TOPIC, MessageStore, layout
from rmqclient.store.message_queue import is_name
from rmqclient.store.settings.config_file import TopicConfig
from rmqclient.store.waiting.transaction_log import GROUP as TRANSACTION_GROUP

_CONFIG: Final = TopicConfig(read_queue_count=1, write_queue_count=1)
_OWN: Final = frozenset({TRANSACTION_GROUP, "rmq_sys_timer"})
"""Groups of the store itself."""
_GOOD_FOR_S: Final = 0.5
_MEMBERSHIP_WORD: Final = layout.RUNTIME_HEADER.at["membership_word"]


class RetryTopics:
    """The retry topics of the groups that have members or an offset. Safe for threads."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._members = store.members()
        self._lock = threading.Lock()
        self._word: int | None = None
        self._good_until = 0.0
        self._configs: Mapping[str, TopicConfig] = {}

    def config(self, topic: str) -> TopicConfig | None:
        """Return the settings of a group's retry topic; None for another topic, and for an unknown group."""
        return self.configs().get(topic) if topic.startswith(RETRY_PREFIX) else None

    def configs(self) -> Mapping[str, TopicConfig]:
        """Return all settings by name. A new group without members may be missing for half a second."""
        word = self._store.state.words.load32(_MEMBERSHIP_WORD)
        with self._lock:
            if word != self._word or time.monotonic() >= self._good_until:
                self._configs = dict.fromkeys(self._names(), _CONFIG)
                self._word, self._good_until = word, time.monotonic() + _GOOD_FOR_S
            return self._configs

    def _names(self) -> list[str]:
        members = {member.group for member in self._members.roll.all() if member.topic != HALF_TOPIC}
        known = members | {slot.group for slot in self._store.groups}
        groups = {group_and_member(each)[0] for each in known} - _OWN
        return [name for name in map(retry_topic, sorted(groups)) if is_name(name)]
