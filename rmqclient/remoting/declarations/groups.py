"""Requests of membership in a group: heartbeats, members, locks, and requests of brokers to clients."""

from __future__ import annotations

from typing import Final

from rmqclient.remoting.codes import RequestCode
from rmqclient.remoting.declarations.declaration import Direction, Request

_TO_BROKER: Final = Direction.TO_BROKER
_TO_CLIENT: Final = Direction.TO_CLIENT

_GROUP: Final = "consumerGroup! s"
_RESET: Final = "topic! s, group! s, timestamp! l, isForce! b, queueId i, offset l"
_STATUS: Final = "topic! s, group! s, clientAddr s"

REQUESTS: Final = (
    Request(
        RequestCode.HEART_BEAT,
        _TO_BROKER,
        body="heartbeat",
        answer="IS_SUPPORT_HEART_BEAT_V2 b, IS_SUB_CHANGE b",
        note="The version of the answer's frame is the broker's. The broker knows a member by this connection.",
    ),
    Request(RequestCode.UNREGISTER_CLIENT, _TO_BROKER, "clientID! s, producerGroup s, consumerGroup s"),
    Request(
        RequestCode.CHECK_CLIENT_CONFIG,
        _TO_BROKER,
        body="client id, group and one subscription",
        note="At the start of a consumer with a filter of SQL. 23 if the filter does not parse.",
    ),
    Request(
        RequestCode.GET_CONSUMER_LIST_BY_GROUP,
        _TO_BROKER,
        _GROUP,
        answer_body="client ids",
        note="1 if the group has no member.",
    ),
    Request(RequestCode.LOCK_BATCH_MQ, _TO_BROKER, body="lock request", answer_body="queues that are locked now"),
    Request(RequestCode.UNLOCK_BATCH_MQ, _TO_BROKER, body="lock request", note="Mostly without an answer."),
    Request(
        RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,
        _TO_CLIENT,
        _GROUP,
        note="Without an answer: a member joined or left.",
    ),
    Request(
        RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
        _TO_CLIENT,
        _RESET,
        body="offsets by queue",
        note="Without an answer. timestamp is -1 for the end.",
    ),
    Request(
        RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
        _TO_CLIENT,
        _STATUS,
        answer_body="offsets by queue",
    ),
    Request(
        RequestCode.GET_CONSUMER_RUNNING_INFO,
        _TO_CLIENT,
        f"{_GROUP}, clientId! s, jstackEnable b",
        answer_body="running info",
        note="An administrator asks the broker the same, and the broker passes it on to the client.",
    ),
    Request(
        RequestCode.CONSUME_MESSAGE_DIRECTLY,
        _TO_CLIENT,
        f"{_GROUP}, clientId s, msgId s, brokerName s, topic s, topicSysFlag i, groupSysFlag i",
        body="the message as a record",
        answer_body="the handler's result",
        note="An administrator asks the broker without a body, and the broker passes it on with the record.",
    ),
    Request(
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
        _TO_BROKER,
        _RESET,
        answer_body="offsets by queue",
        note="timestamp is -1 for the end; 5.x also has queueId (-1 for all) and offset.",
    ),
    Request(
        RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
        _TO_BROKER,
        _STATUS,
        answer_body="offsets by client and queue",
    ),
    Request(
        RequestCode.QUERY_ASSIGNMENT,
        _TO_BROKER,
        body="client id, group, topic and strategy",
        answer_body="assigned queues",
        note="Since 5.0, only of consumers that let the broker assign queues.",
    ),
    Request(
        RequestCode.SET_MESSAGE_REQUEST_MODE,
        _TO_BROKER,
        body="group, topic and mode",
        note="Since 5.0: PULL or POP.",
    ),
)
