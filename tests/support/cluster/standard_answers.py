"""What a cluster answers when nothing goes wrong, as far as a client needs it: a little broker without messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from rmqclient.remoting.codes import RequestCode, ResponseCode
from rmqclient.remoting.frame import Frame
from rmqclient.remoting.table import request_fields, response

CLUSTER: Final = "DefaultCluster"
QUEUES: Final = 4
READ_AND_WRITE: Final = 6
RETRY: Final = "%RETRY%"


@dataclass
class Cluster:
    """The topics with their number of queues (None: every topic exists), and what clients told the brokers."""

    topics: Mapping[str, int] | None
    brokers: dict[str, str]
    members: dict[str, set[str]] = field(default_factory=dict)
    """The client ids of each group of consumers."""
    locks: dict[tuple[str, str, str, int], str] = field(default_factory=dict)
    """The client id that holds (group, topic, broker, queue id)."""
    offsets: dict[tuple[str, str, str, int], int] = field(default_factory=dict)
    """The committed offset of (group, topic, broker, queue id)."""
    sent: int = 0

    def members_by_group(self) -> dict[str, frozenset[str]]:
        """Return the members as they are now."""
        return {group: frozenset(members) for group, members in self.members.items()}

    def queues_of(self, topic: str) -> int | None:
        """Return the number of queues on each broker; None for an unknown topic. A retry topic comes with its group."""
        if topic.startswith(RETRY):
            return 1 if topic.removeprefix(RETRY) in self.members else None
        return QUEUES if self.topics is None else self.topics.get(topic)


def standard_answer(cluster: Cluster, request: Frame, broker: str) -> Frame:
    """Return the answer; of a request that nothing here knows, that its code is not supported."""
    answer = _ANSWERS.get(request.code)
    if answer is None:
        remark = f" request type {request.code} not supported"
        return response(request, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=remark)
    return answer(cluster, request, broker)


def route_of(cluster: Cluster, queues: int) -> dict[str, Any]:
    """Return the body of a topic's route: ``queues`` queues on each broker."""
    return {
        "brokerDatas": [broker_data(name, address) for name, address in cluster.brokers.items()],
        "filterServerTable": {},
        "queueDatas": [
            {
                "brokerName": name,
                "perm": READ_AND_WRITE,
                "readQueueNums": queues,
                "topicSysFlag": 0,
                "writeQueueNums": queues,
            }
            for name in cluster.brokers
        ],
    }


def broker_data(name: str, address: str) -> dict[str, Any]:
    """Return a broker as routes and cluster infos describe it."""
    return {"brokerAddrs": {"0": address}, "brokerName": name, "cluster": CLUSTER}


def _route(cluster: Cluster, request: Frame, _: str) -> Frame:
    topic = request_fields(request)["topic"]
    queues = cluster.queues_of(topic)
    if queues is None:
        remark = f"No topic route info in name server for the topic: {topic}"
        return response(request, ResponseCode.TOPIC_NOT_EXIST, remark=remark)
    return response(request, body=orjson.dumps(route_of(cluster, queues)))


def _cluster_info(cluster: Cluster, request: Frame, _: str) -> Frame:
    brokers = {name: broker_data(name, address) for name, address in cluster.brokers.items()}
    body = {"brokerAddrTable": brokers, "clusterAddrTable": {CLUSTER: list(brokers)}}
    return response(request, body=orjson.dumps(body))


def _heartbeat(cluster: Cluster, request: Frame, _: str) -> Frame:
    heartbeat = orjson.loads(request.body)
    for consumer in heartbeat.get("consumerDataSet") or ():
        cluster.members.setdefault(consumer["groupName"], set()).add(heartbeat["clientID"])
    return response(request)


def _unregister(cluster: Cluster, request: Frame, _: str) -> Frame:
    fields = request_fields(request)
    cluster.members.get(fields.get("consumerGroup", ""), set()).discard(fields["clientID"])
    return response(request)


def _members(cluster: Cluster, request: Frame, _: str) -> Frame:
    group = request_fields(request)["consumerGroup"]
    members = cluster.members.get(group)
    if not members:
        return response(request, ResponseCode.SYSTEM_ERROR, remark=f"no consumer for this group, {group}")
    return response(request, body=orjson.dumps({"consumerIdList": sorted(members)}))


def _lock(cluster: Cluster, request: Frame, _: str) -> Frame:
    wanted = orjson.loads(request.body)
    held = [
        queue
        for queue in wanted["mqSet"]
        if cluster.locks.setdefault(_locked(wanted, queue), wanted["clientId"]) == wanted["clientId"]
    ]
    return response(request, body=orjson.dumps({"lockOKMQSet": held}))


def _unlock(cluster: Cluster, request: Frame, _: str) -> Frame:
    wanted = orjson.loads(request.body)
    for queue in wanted["mqSet"]:
        if cluster.locks.get(_locked(wanted, queue)) == wanted["clientId"]:
            del cluster.locks[_locked(wanted, queue)]
    return response(request)


def _locked(wanted: dict[str, Any], queue: dict[str, Any]) -> tuple[str, str, str, int]:
    return wanted["consumerGroup"], queue["topic"], queue["brokerName"], queue["queueId"]


def _offset(cluster: Cluster, request: Frame, broker: str) -> Frame:
    offset = cluster.offsets.get(_committed(request, broker))
    if offset is None:
        return response(request, ResponseCode.QUERY_NOT_FOUND, remark="Not found")
    return response(request, offset=offset)


def _commit(cluster: Cluster, request: Frame, broker: str) -> Frame:
    cluster.offsets[_committed(request, broker)] = request_fields(request)["commitOffset"]
    return response(request)


def _committed(request: Frame, broker: str) -> tuple[str, str, str, int]:
    fields = request_fields(request)
    return fields["consumerGroup"], fields["topic"], broker, fields["queueId"]


def _no_message(_: Cluster, request: Frame, __: str) -> Frame:
    return response(request, offset=0)


def _never(_: Cluster, request: Frame, __: str) -> Frame:
    return response(request, timestamp=-1)


def _stored(cluster: Cluster, request: Frame, _: str) -> Frame:
    cluster.sent += 1
    message_id = f"7F000001{10911:08X}{cluster.sent:016X}"
    queue_id = request_fields(request)["queueId"]
    return response(request, msgId=message_id, queueId=queue_id, queueOffset=cluster.sent - 1)


def _done(_: Cluster, request: Frame, __: str) -> Frame:
    return response(request)


_ANSWERS: Final[dict[int, Callable[[Cluster, Frame, str], Frame]]] = {
    RequestCode.GET_ROUTEINFO_BY_TOPIC: _route,
    RequestCode.GET_BROKER_CLUSTER_INFO: _cluster_info,
    RequestCode.HEART_BEAT: _heartbeat,
    RequestCode.UNREGISTER_CLIENT: _unregister,
    RequestCode.CHECK_CLIENT_CONFIG: _done,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: _members,
    RequestCode.LOCK_BATCH_MQ: _lock,
    RequestCode.UNLOCK_BATCH_MQ: _unlock,
    RequestCode.QUERY_CONSUMER_OFFSET: _offset,
    RequestCode.UPDATE_CONSUMER_OFFSET: _commit,
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: _no_message,
    RequestCode.GET_MAX_OFFSET: _no_message,
    RequestCode.GET_MIN_OFFSET: _no_message,
    RequestCode.GET_EARLIEST_MSG_STORETIME: _never,
    RequestCode.SEND_MESSAGE: _stored,
    RequestCode.SEND_MESSAGE_V2: _stored,
    RequestCode.SEND_BATCH_MESSAGE: _stored,
    RequestCode.CONSUMER_SEND_MSG_BACK: _done,
    RequestCode.END_TRANSACTION: _done,
}
