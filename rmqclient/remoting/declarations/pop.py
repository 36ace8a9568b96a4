"""Requests of POP consumers, since 5.0: the broker hides delivered messages for a time, and members own no queues."""

from __future__ import annotations

from typing import Final

from rmqclient.remoting.codes import RequestCode
from rmqclient.remoting.declarations.declaration import Direction, Request

_TO_BROKER: Final = Direction.TO_BROKER

_QUEUE: Final = "consumerGroup! s, topic! s, queueId! i"

REQUESTS: Final = (
    Request(
        RequestCode.POP_MESSAGE,
        _TO_BROKER,
        f"{_QUEUE}, maxMsgNums! i, invisibleTime! l, pollTime! l, bornTime! l, initMode! i, expType s, exp s, order b, "
        "attemptId s",
        answer="popTime! l, invisibleTime! l, reviveQid! i, restNum! l, startOffsetInfo s, msgOffsetInfo s, "
        "orderCountInfo s",
        answer_body="records, one after another",
        note="queueId is -1 for all queues; times in milliseconds. 210 if nothing came.",
    ),
    Request(
        RequestCode.ACK_MESSAGE,
        _TO_BROKER,
        f"{_QUEUE}, extraInfo! s, offset! l",
        note="extraInfo is the message's property POP_CK.",
    ),
    Request(RequestCode.BATCH_ACK_MESSAGE, _TO_BROKER, body="acknowledgements"),
    Request(
        RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
        _TO_BROKER,
        f"{_QUEUE}, extraInfo! s, offset! l, invisibleTime! l",
        answer="popTime! l, invisibleTime! l, reviveQid! i",
    ),
    Request(
        RequestCode.PEEK_MESSAGE,
        _TO_BROKER,
        f"{_QUEUE}, maxMsgNums! i",
        answer="popTime! l, invisibleTime! l, reviveQid! i, restNum! l, startOffsetInfo s, msgOffsetInfo s, "
        "orderCountInfo s",
        answer_body="records, one after another",
    ),
    Request(
        RequestCode.NOTIFICATION,
        _TO_BROKER,
        f"{_QUEUE}, pollTime! l, bornTime! l, order b, attemptId s",
        answer="hasMsg! b, pollingFull b",
    ),
    Request(RequestCode.POLLING_INFO, _TO_BROKER, _QUEUE, answer="pollingNum! i"),
)
