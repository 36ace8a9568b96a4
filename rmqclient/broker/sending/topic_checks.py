"""Topic checks: whether a message may go to a topic and a queue, in a broker's order.

[AbstractSendMessageProcessor.msgCheck of 4.9.7]
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Final

from rmqclient.broker.request import Request
from rmqclient.broker.settings import ServeSettings
from rmqclient.broker.topics.system_topics import NOT_FOR_SENDERS
from rmqclient.broker.topics.topic_names import RETRY_PREFIX, retry_topic
from rmqclient.broker.topics.topics import Topics
from rmqclient.remoting.codes import ResponseCode
from rmqclient.remoting.errors import AnswerError
from rmqclient.store import TIMER_TOPIC
from rmqclient.store.settings.config_file import TopicConfig

_FORBIDDEN: Final = NOT_FOR_SENDERS | {TIMER_TOPIC}
_PERMISSIONS: Final = ((4, "R"), (2, "W"), (1, "X"))


class TopicChecks:
    """Finds the queue of a message, or refuses it."""

    def __init__(self, topics: Topics, settings: ServeSettings) -> None:
        self._topics = topics
        self._settings = settings
        self._settled: dict[str, int] = {}
        self._settled_for: Mapping[str, TopicConfig] | None = None

    def is_open(self, topic: str) -> bool:
        """Whether the store has queues of a topic, so that none of the checks waits for the disk to make them."""
        return bool(self._topics.queues(topic))

    def settled_queues(self, topic: str) -> int:
        """Return the number of write queues of an existing topic of an application; 0 for others, which need checks.

        The result is cached until some process changes a topic.
        """
        configs = self._topics.made()
        if configs is not self._settled_for:
            self._settled, self._settled_for = {}, configs
        found = self._settled.get(topic)
        if found is None:
            found = self._settled[topic] = self._queues_of(topic) if topic in configs else 0
        return found

    def _queues_of(self, topic: str) -> int:
        config = self._topics.config(topic)
        if config is None or self._settings.read_only or topic in _FORBIDDEN or topic.startswith(RETRY_PREFIX):
            return 0
        return min(len(self._topics.queues(topic)), max(config.write_queue_count, config.read_queue_count))

    def queue_id(self, request: Request) -> int:
        """Return the queue of a message; makes the topic if that is allowed. Raises AnswerError.

        A queue id below 0 lets the broker choose.
        """
        fields = request.fields
        topic: str = fields["topic"]
        if self._settings.read_only:
            raise AnswerError(
                ResponseCode.NO_PERMISSION, f"the broker[{request.peer.local.host}] sending message is forbidden"
            )
        self._topics.check_name(topic)
        if topic in _FORBIDDEN:
            raise AnswerError(ResponseCode.NO_PERMISSION, f"Sending message to topic[{topic}] is forbidden.")
        config = self._topics.config(topic) or self._made(topic, request)
        queue_id: int = fields["queueId"]
        if queue_id >= max(config.write_queue_count, config.read_queue_count):
            raise AnswerError(
                ResponseCode.SYSTEM_ERROR,
                f"request queueId[{queue_id}] is illegal, {_shown(topic, config)} Producer: {request.peer.remote}",
            )
        return queue_id if queue_id >= 0 else random.randrange(max(1, config.write_queue_count))

    def _made(self, topic: str, request: Request) -> TopicConfig:
        fields = request.fields
        made = self._topics.auto_create(
            topic, fields["defaultTopic"], fields["defaultTopicQueueNums"], request.peer.remote
        )
        if made is None and topic.startswith(RETRY_PREFIX):
            made = self._topics.create_missing(topic, client=request.peer.remote)
        if made is None:
            raise AnswerError(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic[{topic}] not exist, apply first please!\n"
                "See http://rocketmq.apache.org/docs/faq/ for further details.",
            )
        return made


def group_of_retries(topic: str) -> str | None:
    """Return the group of a retry topic; None for another topic."""
    return topic.removeprefix(RETRY_PREFIX) if topic.startswith(retry_topic("")) else None


def _shown(topic: str, config: TopicConfig) -> str:
    """Return a topic as RocketMQ's ``TopicConfig.toString`` does."""
    perm = "".join(letter if config.perm & bit else "-" for bit, letter in _PERMISSIONS)
    return (
        f"TopicConfig [topicName={topic}, readQueueNums={config.read_queue_count}, "
        f"writeQueueNums={config.write_queue_count}, perm={perm}, topicFilterType={config.topic_filter_type}, "
        f"topicSysFlag={config.topic_sys_flag}, order={str(config.order).lower()}]"
    )
