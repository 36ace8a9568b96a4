"""Topics: listing and making topics, and their cleanup policies.

A name server knows the topics of its registered brokers. A topic is made on every master, with the same number of
queues on each; the broker tells the name servers before it answers. 4.9 brokers make dead-letter topics write-only;
they are made readable at the first read.
"""

from __future__ import annotations

from typing import Final

from rmqclient.cluster.client.client import ClusterClient
from rmqclient.cluster.client.routes import not_writable
from rmqclient.cluster.groups.bells import ClusterBell
from rmqclient.errors import ConfigMismatch, NotOnCluster
from rmqclient.names import DEAD_LETTER_PREFIX
from rmqclient.remoting.bodies import READABLE, WRITABLE, fastjson
from rmqclient.remoting.codes import ResponseCode
from rmqclient.remoting.errors import RequestNotSupported
from rmqclient.remoting.table import RequestCode, request
from rmqclient.store import MessageQueue
from rmqclient.store.errors import UnknownTopic
from rmqclient.store.threads.logs import Log

_READ_AND_WRITE: Final = READABLE | WRITABLE
_OF_4_9: Final = 413  # the first later version: V5_0_0
_POLICY: Final = "cleanup.policy"  # TopicAttributes.CLEANUP_POLICY_ATTRIBUTE
_POLICIES: Final = {"delete": "DELETE", "compact": "COMPACTION"}

_log = Log(__name__)


class Topics:
    """The topics of one cluster, by the application's names. Safe for threads."""

    def __init__(self, client: ClusterClient) -> None:
        self._client = client
        self._url = client.url

    def names(self) -> list[str]:
        """Return the topics of the namespace, sorted; without a namespace, all except those named after brokers."""
        answer = self._client.name_servers.call(request(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER))
        found = fastjson.read(answer.body) if answer.body else {}
        names = found.get("topicList") if isinstance(found, dict) else None
        cluster = self._client.brokers.cluster()
        own = {*cluster.brokers, *cluster.clusters, *(f"{name}_REPLY_TOPIC" for name in cluster.clusters)}
        shown = {self._url.unwrap(name): name for name in map(str, names or ()) if name not in own}
        return sorted(topic for topic, name in shown.items() if self._url.wrap(topic) == name)

    def queues(self, topic: str) -> list[MessageQueue]:
        """Return the readable queues of a topic, in RocketMQ's order. Raises UnknownTopic."""
        queues = self._client.routes.read_queues(topic)
        if not queues and topic.startswith(DEAD_LETTER_PREFIX):
            self._make_readable(topic)
            queues = self._client.routes.read_queues(topic)
        return list(queues)

    read_queues = queues
    """The same: a route has no other readable queues."""

    def bell(self) -> ClusterBell:
        """Return a bell that never rings; waiters poll at their time-out."""
        return ClusterBell()

    def write_queues(self, topic: str) -> list[MessageQueue]:
        """Return the writable queues of a topic, sorted. Raises UnknownTopic, TopicNotWritable."""
        queues = self._client.routes.publish_queues(topic)
        if not queues:
            raise not_writable(topic)
        return list(queues)

    def create(self, topic: str, queue_count: int, cleanup_policy: str | None = None) -> list[MessageQueue]:
        """Make a topic with ``queue_count`` queues on every master, or return the queues that it has.

        Raises NotOnCluster for a compact topic if a broker is older than 5.0, ConfigMismatch if the topic has another
        policy, and the error of a broker that refuses.
        """
        try:
            self._client.routes.of(topic, fresh=True)
        except UnknownTopic:
            self._make(topic, queue_count, cleanup_policy)
            self._client.routes.of(topic, fresh=True)
        else:
            self._check_policy(topic, cleanup_policy)
        return self.queues(topic)

    def cleanup_policy(self, topic: str) -> str:
        """Return ``delete`` or ``compact``; a 4.9 broker has only the first. Raises UnknownTopic."""
        for broker in self._client.routes.of(topic).brokers:
            asked = request(RequestCode.GET_TOPIC_CONFIG, topic=self._url.wrap(topic))
            try:
                answer = self._client.call(self._client.brokers.read_address(broker.name), asked)
            except RequestNotSupported:
                return "delete"
            config = fastjson.read(answer.body)
            attributes = config.get("attributes") if isinstance(config, dict) else None
            if isinstance(attributes, dict) and attributes.get(_POLICY) == _POLICIES["compact"]:
                return "compact"
        return "delete"

    def _make(self, topic: str, queue_count: int, cleanup_policy: str | None) -> None:
        masters = self._client.brokers.masters()
        attributes = None
        if cleanup_policy == "compact":
            for name, address in masters.items():
                if broker_version(self._client, address) < _OF_4_9:
                    raise NotOnCluster(
                        f"compact topic {topic!r}: broker {name!r} is older than 5.0 and removes messages by their age "
                        "only: leave out cleanup_policy, or keep the latest value of each key elsewhere"
                    )
            attributes = f"+{_POLICY}={_POLICIES['compact']}"
        for address in masters.values():
            self._update(address, topic, queue_count, _READ_AND_WRITE, attributes)

    def _check_policy(self, topic: str, wanted: str | None) -> None:
        if wanted is not None and (present := self.cleanup_policy(topic)) != wanted:
            raise ConfigMismatch(f"topic {topic!r} has the cleanup policy {present!r}: it cannot become {wanted!r}")

    def _make_readable(self, topic: str) -> None:
        _log.warning("topic %s could only be written, as 4.9 makes it: it is made readable, too", topic)
        for queue in self._client.routes.of(topic, fresh=True).queues:
            address = self._client.brokers.address(queue.broker_name)
            self._update(address, topic, max(1, queue.write_queues), queue.perm | READABLE, None)
        self._client.routes.of(topic, fresh=True)

    def _update(self, address: str, topic: str, queue_count: int, perm: int, attributes: str | None) -> None:
        made = request(
            RequestCode.UPDATE_AND_CREATE_TOPIC,
            topic=self._url.wrap(topic),
            defaultTopic="TBW102",
            readQueueNums=queue_count,
            writeQueueNums=queue_count,
            perm=perm,
            topicFilterType="SINGLE_TAG",
            topicSysFlag=0,
            order=False,
            attributes=attributes,
        )
        self._client.call(address, made)


def broker_version(client: ClusterClient, address: str) -> int:
    """Return the version of a broker, such as 407 for 4.9.7, which each of its answers has. [MQVersion]

    A failure is accepted, too: in its first second a broker without statistics may answer 1.
    """
    asked = request(RequestCode.GET_BROKER_RUNTIME_INFO)
    return client.call(address, asked, also={ResponseCode.SYSTEM_ERROR}).version


def runtime_info(client: ClusterClient, address: str) -> dict[str, str]:
    """Return a broker's runtime info. [BrokerController.getRuntimeInfo]"""
    body = fastjson.read(client.call(address, request(RequestCode.GET_BROKER_RUNTIME_INFO)).body)
    table = body.get("table") if isinstance(body, dict) else None
    return {str(name): str(value) for name, value in table.items()} if isinstance(table, dict) else {}
