"""Requests that read messages, and those of offsets and limits of queues."""

from __future__ import annotations

from typing import Final

from rmqclient.remoting.codes import RequestCode
from rmqclient.remoting.declarations.declaration import Direction, Request

_TO_BROKER: Final = Direction.TO_BROKER

_QUEUE: Final = "topic! s, queueId! i"
_RECORDS: Final = "records, one after another"
_OFFSET: Final = "offset! l"
_PULL: Final = (
    f"consumerGroup! s, {_QUEUE}, queueOffset! l, maxMsgNums! i, sysFlag! i, commitOffset! l, suspendTimeoutMillis! l, "
    "subscription s, subVersion! l, expressionType s, maxMsgBytes i, requestSource i, proxyFrowardClientId s"
)
_PULLED: Final = (
    "suggestWhichBrokerId! l, nextBeginOffset! l, minOffset! l, maxOffset! l, "
    "offsetDelta l, topicSysFlag i, groupSysFlag i, forbiddenType i"
)

REQUESTS: Final = (
    Request(
        RequestCode.PULL_MESSAGE,
        _TO_BROKER,
        _PULL,
        answer=_PULLED,
        answer_body=_RECORDS,
        note="sysFlag: 1 commits commitOffset, 2 lets the broker wait, 4 brings a subscription, 16 is a lite pull. "
        "The answers 19, 20 and 21 have all required fields, too.",
    ),
    Request(
        RequestCode.LITE_PULL_MESSAGE,
        _TO_BROKER,
        _PULL,
        answer=_PULLED,
        answer_body=_RECORDS,
        note="Since 5.0: the same as 11, for lite pull consumers.",
    ),
    Request(
        RequestCode.QUERY_MESSAGE,
        _TO_BROKER,
        "topic! s, key! s, maxNum! i, beginTimestamp! l, endTimestamp! l, _UNIQUE_KEY_QUERY b",
        answer="indexLastUpdateTimestamp! l, indexLastUpdatePhyoffset! l",
        answer_body=_RECORDS,
        note="22 if nothing fits.",
    ),
    Request(
        RequestCode.VIEW_MESSAGE_BY_ID,
        _TO_BROKER,
        "offset! l, topic s",
        answer_body="one record",
        note="offset is that of the commit log. mqadmin 5.x names the topic.",
    ),
    Request(
        RequestCode.QUERY_CONSUMER_OFFSET,
        _TO_BROKER,
        f"consumerGroup! s, {_QUEUE}, setZeroIfNotFound b",
        answer=_OFFSET,
        note="22 if the group has none.",
    ),
    Request(
        RequestCode.UPDATE_CONSUMER_OFFSET,
        _TO_BROKER,
        f"consumerGroup! s, {_QUEUE}, commitOffset! l",
        note="Java's consumers send it without an answer.",
    ),
    Request(
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
        _TO_BROKER,
        f"{_QUEUE}, timestamp! l, boundaryType s",
        answer=_OFFSET,
        note="boundaryType since 5.0: lower or upper.",
    ),
    Request(
        RequestCode.GET_MAX_OFFSET,
        _TO_BROKER,
        f"{_QUEUE}, committed b",
        answer=_OFFSET,
        note="0 for an unknown queue.",
    ),
    Request(RequestCode.GET_MIN_OFFSET, _TO_BROKER, _QUEUE, answer=_OFFSET, note="0 for an unknown queue."),
    Request(
        RequestCode.GET_EARLIEST_MSG_STORETIME,
        _TO_BROKER,
        _QUEUE,
        answer="timestamp! l",
        note="Milliseconds; -1 if unknown.",
    ),
    Request(
        RequestCode.GET_ALL_CONSUMER_OFFSET, _TO_BROKER, answer_body="consumerOffset.json", note="Slaves ask for it."
    ),
    Request(RequestCode.GET_ALL_DELAY_OFFSET, _TO_BROKER, answer_body="delayOffset.json", note="Slaves ask for it."),
    Request(
        RequestCode.QUERY_CORRECTION_OFFSET,
        _TO_BROKER,
        "filterGroups s, compareGroup! s, topic! s",
        answer_body="offsets by queue",
        note="filterGroups is a list with commas.",
    ),
    Request(
        RequestCode.QUERY_CONSUME_QUEUE,
        _TO_BROKER,
        "topic s, queueId i, index l, count i, consumerGroup s",
        answer_body="entries of a consume queue",
    ),
)
