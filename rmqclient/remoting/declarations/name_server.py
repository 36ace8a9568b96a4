"""Requests to a name server: routes, registrations and its own settings."""

from __future__ import annotations

from typing import Final

from rmqclient.remoting.codes import RequestCode
from rmqclient.remoting.declarations.declaration import Direction, Request

_TO_NAME_SERVER: Final = Direction.TO_NAME_SERVER

_BROKER: Final = "brokerName! s, brokerAddr! s, clusterName! s, brokerId! l"
_TOPICS: Final = "topic list"

REQUESTS: Final = (
    Request(
        RequestCode.GET_ROUTEINFO_BY_TOPIC,
        _TO_NAME_SERVER,
        "topic! s, acceptStandardJsonOnly b",
        answer_body="topic route",
        note="17 for an unknown topic. A version of 401 or more, or acceptStandardJsonOnly, asks for keys in quotes.",
    ),
    Request(RequestCode.GET_BROKER_CLUSTER_INFO, _TO_NAME_SERVER, answer_body="cluster info"),
    Request(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, _TO_NAME_SERVER, answer_body=_TOPICS),
    Request(
        RequestCode.GET_TOPICS_BY_CLUSTER,
        _TO_NAME_SERVER,
        "cluster! s",
        answer_body=_TOPICS,
        note="An unknown cluster has an empty list.",
    ),
    Request(
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS,
        _TO_NAME_SERVER,
        answer_body=_TOPICS,
        note="The names of clusters and brokers, and any broker's address, which is asked with 305 then.",
    ),
    Request(RequestCode.GET_UNIT_TOPIC_LIST, _TO_NAME_SERVER, answer_body=_TOPICS),
    Request(RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST, _TO_NAME_SERVER, answer_body=_TOPICS),
    Request(RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, _TO_NAME_SERVER, answer_body=_TOPICS),
    Request(RequestCode.DELETE_TOPIC_IN_NAMESRV, _TO_NAME_SERVER, "topic! s, clusterName s"),
    Request(RequestCode.REGISTER_TOPIC_IN_NAMESRV, _TO_NAME_SERVER, "topic! s", body="topic route", note="Since 5.0."),
    Request(
        RequestCode.REGISTER_BROKER,
        _TO_NAME_SERVER,
        "brokerName! s, brokerAddr! s, clusterName! s, haServerAddr! s, brokerId! l, compressed b, bodyCrc32 i, "
        "heartbeatTimeoutMillis l, enableActingMaster b",
        body="topics of the broker",
        answer="haServerAddr s, masterAddr s",
        answer_body="order of topics, as a table",
        note="The answer's fields are those of the master, for a slave. The body may name some of the topics only.",
    ),
    Request(RequestCode.UNREGISTER_BROKER, _TO_NAME_SERVER, _BROKER),
    Request(
        RequestCode.QUERY_DATA_VERSION,
        _TO_NAME_SERVER,
        _BROKER,
        body="data version",
        answer="changed! b",
        answer_body="data version",
    ),
    Request(
        RequestCode.BROKER_HEARTBEAT,
        _TO_NAME_SERVER,
        "clusterName! s, brokerAddr! s, brokerName! s, brokerId l, epoch i, maxOffset l, confirmOffset l, "
        "heartbeatTimeoutMills l, electionPriority i",
        note="Since 5.0.",
    ),
    Request(
        RequestCode.GET_BROKER_MEMBER_GROUP,
        _TO_NAME_SERVER,
        "clusterName! s, brokerName! s",
        answer_body="broker member group",
        note="Since 5.0.",
    ),
    Request(
        RequestCode.WIPE_WRITE_PERM_OF_BROKER,
        _TO_NAME_SERVER,
        "brokerName! s",
        answer="wipeTopicCount! i",
        note="In the name server's memory only; a later registration overwrites it.",
    ),
    Request(
        RequestCode.ADD_WRITE_PERM_OF_BROKER,
        _TO_NAME_SERVER,
        "brokerName! s",
        answer="addTopicCount! i",
    ),
    Request(RequestCode.PUT_KV_CONFIG, _TO_NAME_SERVER, "namespace! s, key! s, value! s"),
    Request(
        RequestCode.GET_KV_CONFIG,
        _TO_NAME_SERVER,
        "namespace! s, key! s",
        answer="value s",
        note="22 for an unknown key.",
    ),
    Request(RequestCode.DELETE_KV_CONFIG, _TO_NAME_SERVER, "namespace! s, key! s"),
    Request(
        RequestCode.GET_KVLIST_BY_NAMESPACE,
        _TO_NAME_SERVER,
        "namespace! s",
        answer_body="table of texts",
        note="22 for an unknown namespace.",
    ),
    Request(RequestCode.UPDATE_NAMESRV_CONFIG, _TO_NAME_SERVER, body="properties, one a line"),
    Request(RequestCode.GET_NAMESRV_CONFIG, _TO_NAME_SERVER, answer_body="properties, one a line"),
)
