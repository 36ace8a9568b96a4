"""System topics: the topics that every broker has. [TopicConfigManager, TopicValidator of 4.9.7]

They appear in routes and lists as with a broker. The first message makes their queues, so a new store has no files for
them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rmqclient.remoting.codes import ResponseCode
from rmqclient.remoting.errors import AnswerError
from rmqclient.store import HALF_TOPIC, OPERATION_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC, ReceivedMessage
from rmqclient.store.settings.config_file import TopicConfig

AUTO_CREATE_TOPIC: Final = "TBW102"
"""The topic whose settings new topics take. [AUTO_CREATE_TOPIC_KEY_TOPIC]"""

TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
BENCHMARK_TOPIC: Final = "BenchmarkTest"
_SELF_TEST: Final = "SELF_TEST_TOPIC"
_OFFSET_MOVED: Final = "OFFSET_MOVED_EVENT"
_CHECKED_TOO_OFTEN: Final = "TRANS_CHECK_MAX_TIME_TOPIC"

_NAMES: Final = frozenset(
    {
        AUTO_CREATE_TOPIC,
        SCHEDULE_TOPIC,
        BENCHMARK_TOPIC,
        HALF_TOPIC,
        TRACE_TOPIC,
        OPERATION_TOPIC,
        _CHECKED_TOO_OFTEN,
        _SELF_TEST,
        _OFFSET_MOVED,
    }
)
_PREFIX: Final = "rmq_sys_"

OF_ALL_TOPICS: Final = frozenset({SCHEDULE_TOPIC, TIMER_TOPIC, HALF_TOPIC, OPERATION_TOPIC, _CHECKED_TOO_OFTEN})
"""Topics in which waiting messages of all topics stand."""

NOT_FOR_SENDERS: Final = frozenset(
    {SCHEDULE_TOPIC, HALF_TOPIC, OPERATION_TOPIC, _CHECKED_TOO_OFTEN, _SELF_TEST, _OFFSET_MOVED}
)
"""Topics to which clients may not send. [NOT_ALLOWED_SEND_TOPIC_SET]"""

_BENCHMARK_QUEUES: Final = 16
"""Queues of the benchmark topic. A broker has 1024, which would waste slots of the store."""


class SystemTopics:
    """The system topics of one broker."""

    def __init__(self, broker_name: str, cluster_name: str, *, auto_create: bool) -> None:
        self.reply_topic = f"{cluster_name}_REPLY_TOPIC"
        """Topic of replies to requests."""
        self._names = _NAMES | {broker_name, cluster_name, self.reply_topic}
        default = {AUTO_CREATE_TOPIC: _of(8, perm=7)} if auto_create else {}
        self.configs: Mapping[str, TopicConfig] = {
            _SELF_TEST: _of(1),
            **default,
            BENCHMARK_TOPIC: _of(_BENCHMARK_QUEUES),
            cluster_name: _of(16, perm=7),
            broker_name: _of(1, perm=7),
            _OFFSET_MOVED: _of(1),
            SCHEDULE_TOPIC: _of(18),
            TRACE_TOPIC: _of(1),
            self.reply_topic: _of(1),
        }
        """Settings of the topics, by name."""

    def __contains__(self, topic: str) -> bool:
        """Return whether a topic belongs to the broker."""
        return topic in self._names or topic.startswith(_PREFIX)

    def names(self) -> frozenset[str]:
        """Return the names that a broker lists as its system topics, whether they exist or not. [request 305]"""
        return self._names

    def refuse(self, topic: str) -> None:
        """Raise AnswerError for a topic that belongs to the broker: clients may not change or delete it."""
        if topic in self:
            raise AnswerError(ResponseCode.SYSTEM_ERROR, f"The topic[{topic}] is conflict with system topic.")


def _of(queues: int, *, perm: int = 6) -> TopicConfig:
    return TopicConfig(read_queue_count=queues, write_queue_count=queues, perm=perm)


def topic_of(record: ReceivedMessage) -> str:
    """Return the topic of a record; for a waiting message, its target topic."""
    waits_for = record.properties.get("REAL_TOPIC") if record.topic in OF_ALL_TOPICS else None
    return waits_for or record.topic
