"""Topic commands: making, changing, deleting and listing topics; the offsets of their queues."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from rmqclient.broker.administration.rates import FIRST_OF_5, Rates
from rmqclient.broker.request import Request
from rmqclient.broker.routes import ADMINISTRATOR, ANY, NOTHING, Route, of_topic
from rmqclient.broker.topics.topic_names import check_name
from rmqclient.broker.topics.topics import Topics, unknown
from rmqclient.remoting.bodies import DataVersion, QueueRange, TopicConfig, TopicList, TopicStats, TopicTable, fastjson
from rmqclient.remoting.codes import RequestCode, ResponseCode
from rmqclient.remoting.errors import AnswerError
from rmqclient.remoting.frame import Frame
from rmqclient.store import MessageQueue, MessageStore
from rmqclient.store.errors import MessageExpired, StoreCorrupt
from rmqclient.store.settings import config_file, removed_topics
from rmqclient.store.settings.config_file import TopicConfig as StoredTopic
from rmqclient.store.settings.topic_table import queues_of

_COMPACTION = "+cleanup.policy=COMPACTION"
"""The only topic attribute of 5.x that the store supports."""


class TopicCommands:
    """Answers requests about topics. All of them may read files, so a thread of the pool runs them."""

    def __init__(self, store: MessageStore, topics: Topics, rates: Rates, broker_name: str) -> None:
        self._store = store
        self._topics = topics
        self._rates = rates
        self._broker_name = broker_name

    def routes(self) -> Iterable[Route]:
        """Declare requests about topics. Any key may read settings, which routes show too, but not offsets."""
        for code, change in (
            (RequestCode.UPDATE_AND_CREATE_TOPIC, self._update),
            (RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, self._update_many),
            (RequestCode.DELETE_TOPIC_IN_BROKER, self._delete),
        ):
            yield Route(code, change, needs=ADMINISTRATOR, writes=True, slow=True)
        yield Route(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, self._system_topics, needs=NOTHING, writes=False)
        yield Route(RequestCode.GET_ALL_TOPIC_CONFIG, self._table, needs=NOTHING, writes=False, slow=True)
        yield Route(RequestCode.GET_TOPIC_CONFIG, self._config, needs=NOTHING, writes=False, slow=True)
        yield Route(RequestCode.GET_TOPIC_STATS_INFO, self._stats, needs=of_topic(ANY), writes=False, slow=True)

    def _update(self, request: Request) -> Frame:
        fields = request.fields
        wanted = TopicConfig(
            fields["topic"],
            fields["readQueueNums"],
            fields["writeQueueNums"],
            fields["perm"],
            fields["topicFilterType"],
            fields.get("topicSysFlag", 0),
        )  # not order: a 4.9 broker does not read it
        self._apply(wanted, fields.get("attributes", ""))
        return request.success()

    def _update_many(self, request: Request) -> Frame:
        """Make several topics, a request of 5.x. Topics before one that is refused are made."""
        for entry in fastjson.read_list(request.body, "topicConfigList"):
            self._apply(TopicConfig.of(entry))
        return request.success()

    def _apply(self, wanted: TopicConfig, attributes: str = "") -> None:
        check_name(wanted.name)
        self._topics.system.refuse(wanted.name)
        if wanted.filter_type not in ("SINGLE_TAG", "MULTI_TAG"):
            raise AnswerError(
                ResponseCode.SYSTEM_ERROR, f"topicFilterType[{wanted.filter_type}]: SINGLE_TAG, MULTI_TAG"
            )
        is_compact = (
            _COMPACTION in attributes.split(",") or (wanted.attributes or {}).get("cleanup.policy") == "COMPACTION"
        )
        config = StoredTopic(
            read_queue_count=wanted.read_queues,
            write_queue_count=wanted.write_queues,
            perm=wanted.perm,
            topic_filter_type=wanted.filter_type,
            topic_sys_flag=wanted.sys_flag,
            cleanup_policy="compact" if is_compact else "delete",
        )
        self._topics.create(wanted.name, config)

    def _delete(self, request: Request) -> Frame:
        topic = request.fields["topic"]
        check_name(topic)
        self._topics.system.refuse(topic)
        self._topics.delete(topic)  # deleting an unknown topic succeeds
        return request.success()

    def _table(self, request: Request) -> Frame:
        counter, timestamp = config_file.topics_version(self._store.root)
        topics = {name: _body_of(name, config) for name, config in self._topics.configs().items()}
        removed = removed_topics.read_ends(self._store.root) or None
        return request.success(TopicTable(DataVersion(counter, timestamp), topics, removed=removed).encode())

    def _config(self, request: Request) -> Frame:
        topic = request.fields["topic"]
        config = self._topics.config(topic)
        if config is None:
            raise AnswerError(ResponseCode.TOPIC_NOT_EXIST, f"No topic in this broker. topic: {topic}")
        attributes = {"+cleanup.policy": "COMPACTION"} if config.cleanup_policy == "compact" else {}
        body = replace(_body_of(topic, config), attributes=attributes)  # of 5.x, as is the request
        return request.success(body.encode())

    def _system_topics(self, request: Request) -> Frame:
        return request.success(TopicList(tuple(sorted(self._topics.system.names()))).encode())

    def _stats(self, request: Request) -> Frame:
        topic = request.fields["topic"]
        config = self._topics.config(topic)
        if config is None:
            raise unknown(topic)
        known = set(self._topics.queues(topic))
        ranges = {}
        for queue_id in range(queues_of(config)):
            queue = MessageQueue(topic, queue_id)
            ranges[queue._replace(broker_name=self._broker_name)] = (
                self._range(queue) if queue in known else QueueRange()
            )
        rates, is_of_5 = self._rates, request.frame.version >= FIRST_OF_5
        per_second = rates.stored.per_second(rates.slots_of_topic(topic)) if is_of_5 else None
        return request.success(TopicStats(ranges, per_second).encode(as_fastjson=True))

    def _range(self, queue: MessageQueue) -> QueueRange:
        topics = self._store.topics
        low, high = topics.min_offset(queue), topics.max_offset(queue)
        return QueueRange(low, high, stored_at(self._store, queue, high - 1) if high > low else 0)


def stored_at(store: MessageStore, queue: MessageQueue, queue_offset: int) -> int:
    """Return when a message was stored, in ms since 1970; 0 for one that was removed."""
    try:
        return int(store.messages.at(queue, queue_offset).store_timestamp)
    except (MessageExpired, StoreCorrupt):
        return 0


def _body_of(name: str, config: StoredTopic) -> TopicConfig:
    return TopicConfig(
        name,
        config.read_queue_count,
        config.write_queue_count,
        config.perm,
        config.topic_filter_type,
        config.topic_sys_flag,
        config.order,
    )
