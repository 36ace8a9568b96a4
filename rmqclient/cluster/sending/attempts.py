"""Attempts: retries of a failed send. [DefaultMQProducerImpl.sendDefaultImpl]

A message has three tries. The next one goes to another broker, if there is one.

===========================================  ======================  =================================================
a try ended with                             most messages           with a sharding key, and half messages
===========================================  ======================  =================================================
no connection, a refusal for now             tried again             tried again; with a key, in the same queue
a lost connection, a time-out                tried again             raised
another answer, such as an illegal message   raised                  raised
===========================================  ======================  =================================================

After a lost connection or a time-out, a retry can store the message twice; both copies have the same id. With a
sharding key, the second copy could come after later messages. Of two half messages, a check would commit the second
one.

If the last try fails, the raised error has ``stored`` set if any of the tries may have stored the message.
"""

from __future__ import annotations

from typing import Final

from rmqclient.cluster.sending.queue_choice import QueueChoice
from rmqclient.errors import BrokerUnreachable, ConnectionFull, QueueError, RequestTimedOut
from rmqclient.message import MessageQueue
from rmqclient.remoting.codes import ResponseCode
from rmqclient.remoting.errors import AnswerError

TRIES: Final = 3
"""Tries of a message. [retryTimesWhenSendFailed + 1]"""

_REFUSED_FOR_NOW: Final = frozenset(
    (
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.NO_PERMISSION,
        ResponseCode.NO_BUYER_ID,
        ResponseCode.NOT_IN_CURRENT_UNIT,
        ResponseCode.GO_AWAY,
    )
)
"""Codes after which a send is tried again. [DefaultMQProducer.retryResponseCodes]"""

_BROKER_IS_FINE: Final = frozenset(
    (ResponseCode.TOPIC_NOT_EXIST, ResponseCode.NO_PERMISSION, ResponseCode.SYSTEM_ERROR)
)
"""Codes about the topic or the message, which do not count against the broker."""


class Attempts:
    """The tries of one message or batch. For one thread at a time.

    With ``once``, or with a sharding key, a message that may be stored is not sent again. With ``pinned``, every try
    goes to that queue.
    """

    __slots__ = ("_choice", "_failed_on", "_key", "_left", "_once", "_pinned", "_topic", "_uncertain")

    def __init__(
        self,
        choice: QueueChoice,
        topic: str,
        sharding_key: str | None = None,
        *,
        once: bool = False,
        pinned: MessageQueue | None = None,
    ) -> None:
        self._choice = choice
        self._topic = topic
        self._key = sharding_key
        self._once = once or sharding_key is not None
        self._pinned = pinned
        self._left = TRIES
        self._failed_on = ""
        self._uncertain: QueueError | None = None

    @property
    def need_no_name_server(self) -> bool:
        """Whether :meth:`next_queue` needs no request to a name server."""
        return self._choice.is_known(self._topic)

    def next_queue(self) -> MessageQueue:
        """Return the queue of the next try. Raises UnknownTopic, NameServerUnreachable."""
        if self._pinned is not None:
            return self._pinned
        try:
            return self._choice.next(self._topic, self._key, self._failed_on)
        except QueueError as error:
            raise self._worst(error) from None

    def succeeded(self, queue: MessageQueue, seconds: float) -> None:
        """Note a try that was answered."""
        self._choice.avoidance.took(queue.broker_name, seconds)

    def failed(self, queue: MessageQueue, error: QueueError) -> None:
        """Note a failed try. Raises the error for the caller if there are no more tries."""
        self._left -= 1
        if not _may_succeed_later(error):
            raise self._worst(error)
        if not isinstance(error, AnswerError) or error.code not in _BROKER_IS_FINE:
            self._choice.avoidance.failed(queue.broker_name)
        self._choice.forget(self._topic)
        if self._left == 0 or (error.stored and self._once):
            raise self._worst(error)
        self._failed_on = queue.broker_name
        if error.stored:
            self._uncertain = error

    def _worst(self, error: QueueError) -> QueueError:
        """Return an error after which the message may be stored, or else the last one."""
        if self._uncertain is None or error.stored:
            return error
        self._uncertain.add_note(f"a later try failed, too: {error}")
        return self._uncertain


def _may_succeed_later(error: QueueError) -> bool:
    if isinstance(error, AnswerError):
        return error.code in _REFUSED_FOR_NOW
    return isinstance(error, BrokerUnreachable | RequestTimedOut | ConnectionFull)
