"""Outcomes: answers to sends. [SendMessageProcessor.handlePutMessageResult]

Clients read the fields of every such answer, so failures have ``MSG_REGION`` and ``TRACE_ON``, too.
"""

from __future__ import annotations

from typing import Final

from rmqclient.broker.request import Request
from rmqclient.broker.sending.incoming import IS_TRACED, REGION
from rmqclient.errors import QueueError
from rmqclient.remoting.codes import ResponseCode
from rmqclient.remoting.errors import AnswerError
from rmqclient.remoting.frame import Frame
from rmqclient.store.errors import (
    DiskFailed,
    InvalidName,
    LimitReached,
    MessageRejected,
    ReadOnlyReplica,
    ReplicaUnavailable,
    StoreBusy,
    StoreClosed,
    StoreFull,
    StorePoisoned,
    TableFull,
    UnknownTopic,
)

_NOT_AVAILABLE: Final = (
    DiskFailed, LimitReached, ReadOnlyReplica, ReplicaUnavailable, StoreClosed, StoreFull, StorePoisoned, TableFull,
)  # fmt: skip

_CODES: Final[dict[type[QueueError], tuple[ResponseCode, str]]] = {
    MessageRejected: (
        ResponseCode.MESSAGE_ILLEGAL,
        "the message is illegal, maybe msg body or properties length not matched. ",
    ),
    StoreBusy: (ResponseCode.SYSTEM_BUSY, "[PC_SYNCHRONIZED]broker busy, start flow control for a while: "),
    **dict.fromkeys(_NOT_AVAILABLE, (ResponseCode.SERVICE_NOT_AVAILABLE, "service not available now. ")),
    UnknownTopic: (ResponseCode.TOPIC_NOT_EXIST, ""),
    InvalidName: (ResponseCode.SYSTEM_ERROR, ""),
}


def stored(
    request: Request,
    message_id: str,
    queue_id: int,
    queue_offset: int,
    recall_handle: str | None = None,
    transaction_id: str | None = None,
) -> Frame:
    """Return the answer for a stored message."""
    return request.success(
        msgId=message_id,
        queueId=queue_id,
        queueOffset=queue_offset,
        transactionId=transaction_id,
        recallHandle=recall_handle,
        MSG_REGION=REGION,
        TRACE_ON=IS_TRACED,
    )


def refused(request: Request, error: QueueError) -> Frame:
    """Return the answer for a message that was not stored."""
    code, remark = explained(error)
    return request.failure(code, remark, MSG_REGION=REGION, TRACE_ON=IS_TRACED)


def explained(error: QueueError) -> tuple[int, str]:
    """Return code and remark of an answer for an error."""
    if isinstance(error, AnswerError):
        return error.code, error.remark or str(error)
    for kind, (code, begin) in _CODES.items():
        if isinstance(error, kind):
            return code, f"{begin}{error}"
    return ResponseCode.SYSTEM_ERROR, f"{type(error).__name__} {error}"
