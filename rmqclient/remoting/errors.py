"""Errors of the protocol: invalid frames, invalid fields, and answers that mean failure.

::

    QueueError
    └── RemotingError
        ├── FrameError                the bytes are not a frame; the connection cannot be used any more
        ├── HeaderError               a field is missing, unknown or of a wrong type
        │   └── PlaceUnknown          the message is stored, but the answer does not say where
        ├── BodyError                 a body does not follow the format of its request
        └── AnswerError               the peer answered with a failure; has code, remark and address
            ├── SystemBusy            it refuses for now; the same request may succeed later
            ├── RequestNotSupported   it does not support this request
            ├── StoredInPart          the message is stored, but not yet flushed or copied to a slave
            ├── MessageIllegal        the message is too long, or its properties are
            ├── ServiceNotAvailable   it cannot write now
            ├── NoPermission          it forbids this, or the signature is wrong
            ├── TopicNotFound         it does not have the topic
            ├── QueryNotFound         it has no matching offset, message or value
            ├── SubscriptionInvalid   the filter does not parse
            ├── SubscriptionNotFound  it has no subscription of the group
            ├── SubscriptionNotLatest it has only an older subscription of the group
            ├── GroupNotFound         it does not have the group
            ├── InvalidParameter      it refuses the value of a field
            ├── ConsumerNotOnline     no member of the group is connected
            ├── ConsumeTimedOut       the member did not answer the peer in time
            └── GoAway                it is about to close this connection

The code of an answer determines the class; a code without a class of its own gives :class:`AnswerError`.
"""

from __future__ import annotations

from typing import ClassVar, Final, Protocol

from rmqclient.remoting.codes import ResponseCode
from rmqclient.store.errors import MessageRejected, QueueError, UnknownGroup, UnknownTopic


class RemotingError(QueueError):
    """The protocol was violated, or a peer answered with a failure."""


class FrameError(RemotingError):
    """The bytes of a connection are not a frame, or a frame cannot be encoded. Close the connection."""


class HeaderError(RemotingError, ValueError):
    """A field of a header is missing, unknown to the table, or has a value of a wrong type."""


class PlaceUnknown(HeaderError):
    """A broker has stored the message, but the offsets in its answer are invalid."""

    stored: ClassVar[bool] = True


class BodyError(RemotingError, ValueError):
    """A body does not follow the format of its request."""


class AnswerError(RemotingError):
    """A peer answered with another code than success.

    ``code`` is the number, ``remark`` the peer's text (for people only; do not parse it), ``address`` the peer.
    """

    def __init__(self, code: int, remark: str | None = None, address: str = "") -> None:
        peer = f"{address} answered" if address else "the answer is"
        super().__init__(f"{peer} {code} {name_of(code)}" + (f": {remark}" if remark else ""))
        self.code = code
        self.remark = remark
        self.address = address

    def __reduce__(self) -> tuple[type[AnswerError], tuple[int, str | None, str]]:
        return type(self), (self.code, self.remark, self.address)


class SystemBusy(AnswerError):
    """The peer refuses requests for now: its page cache is busy, or a queue of requests or a quota is full."""

    retryable = True


class RequestNotSupported(AnswerError):
    """The peer does not support this request, because of its version or its role."""


class StoredInPart(AnswerError):
    """The message is stored, but was not flushed or copied to a slave in time."""

    stored: ClassVar[bool] = True


class MessageIllegal(AnswerError, MessageRejected):
    """The body or the properties are too long for the broker; nothing was written."""


class ServiceNotAvailable(AnswerError):
    """The broker cannot write now: it is starting or stopping, or its disk is full."""

    retryable = True


class NoPermission(AnswerError):
    """The topic, the group, the broker or the access key does not allow this."""


class TopicNotFound(AnswerError, UnknownTopic):
    """The peer does not have the topic."""


class QueryNotFound(AnswerError, LookupError):
    """The peer has no matching offset, message or value."""


class SubscriptionInvalid(AnswerError, ValueError):
    """The filter expression does not parse."""


class SubscriptionNotFound(AnswerError):
    """The broker has no subscription of the group; the next heartbeat brings it."""

    retryable = True


class SubscriptionNotLatest(AnswerError):
    """The broker has only an older subscription of the group; the next heartbeat brings the new one."""

    retryable = True


class GroupNotFound(AnswerError, UnknownGroup):
    """The broker does not have the group, and does not create it."""


class InvalidParameter(AnswerError, ValueError):
    """The peer refuses the value of a field; only 5.x has a code for this."""


class ConsumerNotOnline(AnswerError):
    """No member of the group is connected to the broker."""

    retryable = True


class ConsumeTimedOut(AnswerError):
    """The broker forwarded the request to a member of the group, which did not answer in time."""

    retryable = True


class GoAway(AnswerError):
    """The peer is about to close this connection; repeat the request on a new one."""

    retryable = True


ERRORS: Final[dict[int, type[AnswerError]]] = {
    ResponseCode.SYSTEM_BUSY: SystemBusy,
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: RequestNotSupported,
    ResponseCode.FLUSH_DISK_TIMEOUT: StoredInPart,
    ResponseCode.SLAVE_NOT_AVAILABLE: StoredInPart,
    ResponseCode.FLUSH_SLAVE_TIMEOUT: StoredInPart,
    ResponseCode.MESSAGE_ILLEGAL: MessageIllegal,
    ResponseCode.SERVICE_NOT_AVAILABLE: ServiceNotAvailable,
    ResponseCode.NO_PERMISSION: NoPermission,
    ResponseCode.TOPIC_NOT_EXIST: TopicNotFound,
    ResponseCode.QUERY_NOT_FOUND: QueryNotFound,
    ResponseCode.SUBSCRIPTION_PARSE_FAILED: SubscriptionInvalid,
    ResponseCode.SUBSCRIPTION_NOT_EXIST: SubscriptionNotFound,
    ResponseCode.SUBSCRIPTION_NOT_LATEST: SubscriptionNotLatest,
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: GroupNotFound,
    ResponseCode.INVALID_PARAMETER: InvalidParameter,
    ResponseCode.CONSUMER_NOT_ONLINE: ConsumerNotOnline,
    ResponseCode.CONSUME_MSG_TIMEOUT: ConsumeTimedOut,
    ResponseCode.FLOW_CONTROL: SystemBusy,
    ResponseCode.GO_AWAY: GoAway,
}
"""Code → class, for codes that callers handle differently."""

_REFUSED: Final = "org.apache.rocketmq.acl.common.AclException"


class Answer(Protocol):
    """The part of a frame that an error needs."""

    code: int
    remark: str | None


def error_of(answer: Answer, address: str = "") -> AnswerError:
    """Return the error of an answer, for the caller to raise; ``address`` is the peer's, for the text.

    A 4.9 broker that refuses an access key answers SYSTEM_ERROR; by its text this becomes NoPermission.
    """
    if answer.code == ResponseCode.SYSTEM_ERROR and _REFUSED in (answer.remark or ""):
        return NoPermission(answer.code, answer.remark, address)
    return ERRORS.get(answer.code, AnswerError)(answer.code, answer.remark, address)


def name_of(code: int) -> str:
    """Return RocketMQ's name of a response code; UNKNOWN for another number."""
    try:
        return ResponseCode(code).name
    except ValueError:
        return "UNKNOWN"
