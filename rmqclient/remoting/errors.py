"""Errors of the protocol: bytes that are not a frame, fields that do not fit, and answers that say no.

::

    QueueError
    └── RemotingError
        ├── FrameError                the bytes are no frame; the connection is of no use any more
        ├── HeaderError               a field is missing, unknown or of a wrong type
        │   └── PlaceUnknown          the message is stored, but the answer does not say where
        ├── BodyError                 a body does not follow the format of its request
        └── AnswerError               the peer answered with a code that means no; carries code, remark and address
            ├── SystemBusy            it refuses for now; the same request may succeed later
            ├── RequestNotSupported   it does not know this request
            ├── StoredInPart          the message is stored, but not yet flushed or copied to a slave
            ├── MessageIllegal        the message is too long, or its properties are
            ├── ServiceNotAvailable   it cannot write now
            ├── NoPermission          it forbids this, or the signature is wrong
            ├── TopicNotFound         it does not have the topic
            ├── QueryNotFound         it has nothing that fits the question
            ├── SubscriptionInvalid   the filter does not parse
            ├── SubscriptionNotFound  it does not know what the group subscribes to
            ├── SubscriptionNotLatest it knows only an older subscription of the group
            ├── GroupNotFound         it does not have the group
            ├── InvalidParameter      a field has a value that it refuses
            ├── ConsumerNotOnline     no member of the group is connected
            ├── ConsumeTimedOut       the member did not answer the peer in time
            └── GoAway                it is about to close this connection

The class of an answer is that of its code; a code without a class of its own is an :class:`AnswerError`.
"""

from __future__ import annotations

from typing import ClassVar, Final, Protocol

from rmqclient.remoting.codes import ResponseCode
from rmqclient.store.errors import MessageRejected, QueueError, UnknownGroup, UnknownTopic


class RemotingError(QueueError):
    """The protocol was not followed, or a peer said no."""


class FrameError(RemotingError):
    """The bytes of a connection are no frame, or a frame cannot be written. The connection has to be closed."""


class HeaderError(RemotingError, ValueError):
    """A field of a header is missing, unknown to the table, or has a value that its type does not allow."""


class PlaceUnknown(HeaderError):
    """A broker has stored what was sent, but its answer does not say where: a field of it cannot be."""

    stored: ClassVar[bool] = True


class BodyError(RemotingError, ValueError):
    """A body does not follow the format of its request."""


class AnswerError(RemotingError):
    """A peer answered with another code than success.

    ``code`` is the number, ``remark`` the peer's text (for people only; never judge by it), ``address`` the peer.
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
    """The peer refuses requests for now: its page cache, a queue of requests or a quota is full."""

    retryable = True


class RequestNotSupported(AnswerError):
    """The peer does not know this request: it is older or younger than the request, or of another role."""


class StoredInPart(AnswerError):
    """The message is stored, but the flush or the slave that the broker waits for did not come in time."""

    stored: ClassVar[bool] = True


class MessageIllegal(AnswerError, MessageRejected):
    """The body or the properties are longer than the broker takes; nothing was written."""


class ServiceNotAvailable(AnswerError):
    """The broker cannot write now: it starts, stops or its disk is full."""

    retryable = True


class NoPermission(AnswerError):
    """The topic, the group or the broker does not allow this, or the access key may not do it."""


class TopicNotFound(AnswerError, UnknownTopic):
    """The peer does not have the topic."""


class QueryNotFound(AnswerError, LookupError):
    """The peer has nothing that fits the question: no offset, no message, no value."""


class SubscriptionInvalid(AnswerError, ValueError):
    """The filter expression does not parse."""


class SubscriptionNotFound(AnswerError):
    """The broker does not know what the group subscribes to; the next heartbeat tells it."""

    retryable = True


class SubscriptionNotLatest(AnswerError):
    """The broker knows only an older subscription of the group; the next heartbeat tells it."""

    retryable = True


class GroupNotFound(AnswerError, UnknownGroup):
    """The broker does not have the group, and does not create it by itself."""


class InvalidParameter(AnswerError, ValueError):
    """A field has a value that the peer refuses; only 5.x tells this apart from other failures."""


class ConsumerNotOnline(AnswerError):
    """No member of the group is connected to the broker."""

    retryable = True


class ConsumeTimedOut(AnswerError):
    """The broker asked a member of the group, and the member did not answer in time."""

    retryable = True


class GoAway(AnswerError):
    """The peer is about to close this connection; the request has to be repeated on a new one."""

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
"""The class of each code that a caller may want to tell apart."""

_REFUSED: Final = "org.apache.rocketmq.acl.common.AclException"


class Answer(Protocol):
    """What an error takes from the frame of an answer."""

    code: int
    remark: str | None


def error_of(answer: Answer, address: str = "") -> AnswerError:
    """Return the error that an answer is, to be raised by the caller; ``address`` is the peer's, for the text.

    A broker of 4.9 that refuses access keys answers SYSTEM_ERROR, and only its text says why: NoPermission, too.
    """
    if answer.code == ResponseCode.SYSTEM_ERROR and _REFUSED in (answer.remark or ""):
        return NoPermission(answer.code, answer.remark, address)
    return ERRORS.get(answer.code, AnswerError)(answer.code, answer.remark, address)


def name_of(code: int) -> str:
    """Return RocketMQ's name of a response code, and UNKNOWN for a number without one."""
    try:
        return ResponseCode(code).name
    except ValueError:
        return "UNKNOWN"
