"""Topics: the topics of the store as clients see them, for all handlers.

``config/topics.json`` has their settings, in RocketMQ's form; local processes make topics there, too. Clients also see
system topics that do not exist yet; the first message makes their queues.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rmqclient.broker.address import Address
from rmqclient.broker.limits.counters import Counters
from rmqclient.broker.limits.made import Kind, Made
from rmqclient.broker.settings import ServeSettings
from rmqclient.broker.topics.retry_topics import RetryTopics
from rmqclient.broker.topics.system_topics import AUTO_CREATE_TOPIC, SystemTopics
from rmqclient.broker.topics.topic_names import check_name, retry_topic
from rmqclient.remoting.codes import ResponseCode
from rmqclient.remoting.errors import AnswerError
from rmqclient.store import MessageQueue, MessageStore
from rmqclient.store.settings.config_file import TopicConfig

_MOST_QUEUES: Final = 1_024
_FLAGS = range(2**31)
_INHERIT: Final = 1
_READ_AND_WRITE: Final = 6


class Topics:
    """Topics as clients see them. Safe for threads.

    Methods that make, change or delete a topic wait for the disk. :meth:`config` and :meth:`queues` read memory, and
    the file only after some process has changed a topic.
    """

    def __init__(self, store: MessageStore, settings: ServeSettings, made: Made | None = None) -> None:
        """``made`` limits the topics that messages of clients create."""
        self.system = SystemTopics(settings.broker_name, settings.cluster_name, auto_create=settings.auto_create_topics)
        self._made = made or Made(settings.limits, Counters())
        self._table = store.topics
        self._retries = RetryTopics(store)
        self._auto_creates = settings.auto_create_topics
        self._is_read_only = settings.read_only

    def config(self, topic: str) -> TopicConfig | None:
        """Return the settings of a topic; None if it was not made, or was deleted."""
        found = self._table.configs().get(topic)
        if topic == AUTO_CREATE_TOPIC and not self._auto_creates:
            return None
        return found or self.system.configs.get(topic) or self._retries.config(topic)

    def made(self) -> Mapping[str, TopicConfig]:
        """Return the settings of existing topics by name; the same object until some process changes a topic."""
        return self._table.configs()

    def configs(self) -> Mapping[str, TopicConfig]:
        """Return the settings of all topics by name, including system topics."""
        found = {**self.system.configs, **self._table.configs()}
        if not self._auto_creates:
            found.pop(AUTO_CREATE_TOPIC, None)
        return found

    def listed(self) -> Mapping[str, TopicConfig]:
        """Return the settings of all topics by name, including system topics and retry topics not yet made."""
        return {**self._retries.configs(), **self.configs()}

    def queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues of a topic in the store, in order; empty for a topic that clients cannot see.

        After the number of queues was lowered, they are more than clients see.
        """
        if self.config(topic) is None or topic not in self._table:
            return []
        return self._table.queues(topic)

    def open(self, topic: str) -> list[MessageQueue]:
        """Return the queues of a topic; makes those of a system topic for its first message.

        Raises AnswerError (17) for an unknown topic, and as :meth:`create`.
        """
        found = self.queues(topic)
        if not found:
            config = self.config(topic)
            if config is None:
                raise unknown(topic)
            self._refuse_when_read_only(topic)
            found = self._table.configure(topic, config)
        return found

    def check_name(self, topic: str) -> None:
        """Raise AnswerError (1) for an invalid name, with a broker's text."""
        check_name(topic)

    def create(self, topic: str, config: TopicConfig) -> None:
        """Make or change a topic. Queues beyond a lowered number keep their messages; clients do not see them.

        Raises AnswerError for an invalid name or number, TableFull without slots for more queues, StoreFull.
        """
        check_name(topic)
        for count in (config.read_queue_count, config.write_queue_count):
            if not 1 <= count <= _MOST_QUEUES:
                raise AnswerError(
                    ResponseCode.SYSTEM_ERROR, f"topic[{topic}]: {count} queues: a topic has 1 to {_MOST_QUEUES}"
                )
        if not 0 <= config.perm <= 0xF:
            raise AnswerError(ResponseCode.SYSTEM_ERROR, f"topic[{topic}]: perm is {config.perm}: bits 8, 4, 2 and 1")
        flag = config.topic_sys_flag
        if flag not in _FLAGS:  # once stored, it would make the whole file unreadable
            raise AnswerError(ResponseCode.SYSTEM_ERROR, f"topic[{topic}]: topicSysFlag is {flag}: 0 to {_FLAGS[-1]}")
        self._refuse_when_read_only(topic)
        self._table.configure(topic, config)

    def create_missing(
        self, topic: str, queues: int = 1, perm: int = _READ_AND_WRITE, *, client: Address | None = None
    ) -> TopicConfig:
        """Return the settings of a topic that the broker needs, such as a retry topic; makes a missing one.

        Raises as :meth:`create`. [createTopicInSendMessageBackMethod]
        """
        found = self.made().get(topic) or self.system.configs.get(topic)
        if found is None:
            if client is not None:
                self._made.take(Kind.TOPIC, client)
            found = TopicConfig(read_queue_count=queues, write_queue_count=queues, perm=perm)
            self.create(topic, found)
        return found

    def create_retry(self, group: str, queues: int = 1) -> TopicConfig:
        """Return the settings of a group's retry topic; makes a missing one. Raises as :meth:`create`."""
        return self.create_missing(retry_topic(group), queues)

    def auto_create(self, topic: str, default_topic: str, queues: int, client: Address) -> TopicConfig | None:
        """Make a topic for its first message, with the settings of ``default_topic``; None if that is not allowed.

        ``queues`` is the client's number, limited to the default topic's. Raises as :meth:`create`.
        [createTopicInSendMessageMethod]
        """
        found = self.config(topic)
        if found is not None:
            return found
        model = self.config(default_topic)
        if model is None or not model.perm & _INHERIT or queues < 1:
            return None
        check_name(topic)
        self._made.take(Kind.TOPIC, client)
        count = min(queues, model.write_queue_count)
        config = TopicConfig(
            read_queue_count=count,
            write_queue_count=count,
            perm=model.perm & ~_INHERIT,
            topic_filter_type=model.topic_filter_type,
        )
        self.create(topic, config)
        return config

    def delete(self, topic: str) -> bool:
        """Delete a topic; return whether it existed.

        Its queues are empty from now on. The log keeps its messages until retention removes them, and a later topic of
        the same name continues the queue offsets.
        """
        self._refuse_when_read_only(topic)
        return self._table.remove(topic)

    def _refuse_when_read_only(self, topic: str) -> None:
        if self._is_read_only:
            raise AnswerError(ResponseCode.NO_PERMISSION, f"topic[{topic}]: this server is for reading only")


def unknown(topic: str) -> AnswerError:
    """Return the error for a missing topic, with a broker's text."""
    return AnswerError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
