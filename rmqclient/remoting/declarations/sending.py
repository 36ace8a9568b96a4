"""Requests that carry messages to a broker, and those of transactions and replies."""

from __future__ import annotations

from typing import Final

from rmqclient.remoting.codes import RequestCode
from rmqclient.remoting.declarations.declaration import Direction, Request

_TO_BROKER: Final = Direction.TO_BROKER
_TO_CLIENT: Final = Direction.TO_CLIENT

_MESSAGE: Final = (
    "producerGroup! s, topic! s, defaultTopic! s, defaultTopicQueueNums! i, queueId! i, sysFlag! i, "
    "bornTimestamp! l, flag! i, properties s, reconsumeTimes i, unitMode b"
)
_LONG: Final = f"{_MESSAGE}, maxReconsumeTimes i, batch b"
_SHORT: Final = (
    "a=producerGroup! s, b=topic! s, c=defaultTopic! s, d=defaultTopicQueueNums! i, e=queueId! i, f=sysFlag! i, "
    "g=bornTimestamp! l, h=flag! i, i=properties s, j=reconsumeTimes i, k=unitMode b, l=maxReconsumeTimes i, "
    "m=batch b, n=bname s"
)
_STORED: Final = (
    "msgId! s, queueId! i, queueOffset! l, transactionId s, batchUniqId s, recallHandle s, MSG_REGION s, TRACE_ON s"
)
_OF_A_BODY: Final = "the message's body"
_OF_A_HALF: Final = "tranStateTableOffset! l, commitLogOffset! l"

REQUESTS: Final = (
    Request(
        RequestCode.SEND_MESSAGE,
        _TO_BROKER,
        _LONG,
        body=_OF_A_BODY,
        answer=_STORED,
        note="A queueId below 0 lets the broker choose. Go sends this one, with the long names.",
    ),
    Request(
        RequestCode.SEND_MESSAGE_V2,
        _TO_BROKER,
        _SHORT,
        body=_OF_A_BODY,
        answer=_STORED,
        note="The same with short names. The answers 10, 11 and 12 mean that the message is stored, too. queueOffset "
        "and msgId of a delayed or a half message are those of the record in the system topic.",
    ),
    Request(
        RequestCode.SEND_BATCH_MESSAGE,
        _TO_BROKER,
        _SHORT,
        body="messages, one after another",
        answer=_STORED,
        note="batch is true. msgId is a list with commas, and queueOffset that of the first message.",
    ),
    Request(
        RequestCode.SEND_REPLY_MESSAGE,
        _TO_BROKER,
        _LONG,
        body=_OF_A_BODY,
        answer=_STORED,
        note="The reply to a request; the broker passes it on with 326.",
    ),
    Request(
        RequestCode.SEND_REPLY_MESSAGE_V2,
        _TO_BROKER,
        _SHORT,
        body=_OF_A_BODY,
        answer=_STORED,
        note="A reply that cannot be passed on is stored all the same: the answer is 1, with all fields.",
    ),
    Request(
        RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
        _TO_CLIENT,
        f"{_MESSAGE}, bornHost! s, storeHost! s, storeTimestamp! l",
        body=_OF_A_BODY,
        note="bornHost and storeHost are ip:port.",
    ),
    Request(
        RequestCode.CONSUMER_SEND_MSG_BACK,
        _TO_BROKER,
        "offset! l, group! s, delayLevel! i, originMsgId s, originTopic s, unitMode b, maxReconsumeTimes i",
        note="offset is that of the commit log.",
    ),
    Request(
        RequestCode.END_TRANSACTION,
        _TO_BROKER,
        f"producerGroup! s, {_OF_A_HALF}, commitOrRollback! i, fromTransactionCheck b, msgId! s, "
        "transactionId s, topic s",
        note="Without an answer. commitOrRollback is 0 unknown, 8 commit, 12 rollback; msgId is the unique key; "
        "tranStateTableOffset is the queue offset of the half message.",
    ),
    Request(
        RequestCode.CHECK_TRANSACTION_STATE,
        _TO_CLIENT,
        f"{_OF_A_HALF}, msgId s, transactionId s, offsetMsgId s, topic s",
        body="the half message as a record, under its real topic",
        note="Without an answer; the producer sends 37 with fromTransactionCheck.",
    ),
    Request(
        RequestCode.RESUME_CHECK_HALF_MESSAGE,
        _TO_BROKER,
        "msgId s, topic s",
        note="msgId is an offset id. The broker asks about the half message again.",
    ),
    Request(
        RequestCode.RECALL_MESSAGE,
        _TO_BROKER,
        "producerGroup s, topic! s, recallHandle! s",
        answer="msgId! s",
        note="Since 5.0: takes a delayed message back.",
    ),
)
