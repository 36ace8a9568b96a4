"""Send requests: messages as requests to a broker, and the offsets in its answers.

Most fields of a request are the same for every message of a producer. They are checked and written once, by the table
of requests; a send copies them and writes the others.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from rmqclient.cluster.sending.queue_choice import DEFAULT_QUEUES, DEFAULT_TOPIC
from rmqclient.message import MessageQueue, SendResult
from rmqclient.remoting.codes import RequestCode, ResponseCode
from rmqclient.remoting.errors import PlaceUnknown
from rmqclient.remoting.frame import Frame
from rmqclient.remoting.table import request, response_fields, wire_names
from rmqclient.store.wire import sent_results

STORED: Final = frozenset(
    (
        ResponseCode.SUCCESS,
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
    )
)
"""Codes that mean that the message is stored. [SendStatus]"""

PREPARED: Final = 0x4
"""Bit of a message's system flag: it is a half message. [MessageSysFlag.TRANSACTION_PREPARED_TYPE]"""

_VARYING: Final = (
    "topic",
    "queueId",
    "sysFlag",
    "bornTimestamp",
    "flag",
    "properties",
    "reconsumeTimes",
    "maxReconsumeTimes",
    "bname",
)
"""Fields that differ between messages; the requests for a message, a batch and a reply have the same header."""

_TOPIC, _QUEUE_ID, _SYS_FLAG, _BORN, _FLAG, _PROPERTIES, _TIMES, _MOST_TIMES, _BROKER_NAME = wire_names(
    RequestCode.SEND_MESSAGE_V2, _VARYING
)


class SendRequests:
    """Makes the requests with one code of a producer group: SEND_MESSAGE_V2, SEND_BATCH_MESSAGE, or a reply's.

    ``group`` is its name on the wire. Safe for threads.
    """

    def __init__(self, code: RequestCode, group: str) -> None:
        self._code = code.value
        self._fields = request(
            code,
            producerGroup=group,
            topic="",
            defaultTopic=DEFAULT_TOPIC,
            defaultTopicQueueNums=DEFAULT_QUEUES,
            queueId=0,
            sysFlag=0,
            bornTimestamp=0,
            flag=0,
            properties="",
            reconsumeTimes=0,
            unitMode=False,
            batch=code == RequestCode.SEND_BATCH_MESSAGE,
        ).fields

    def make(
        self, topic: str, body: bytes, properties: str = "", sys_flag: int = 0, flag: int = 0, born_ms: int = 0
    ) -> Frame:
        """Return a request for a message or a batch, for :func:`to_queue`. ``topic`` is its name on the wire."""
        fields = self._fields.copy()
        fields[_TOPIC] = topic
        fields[_SYS_FLAG] = str(sys_flag)
        fields[_BORN] = str(born_ms or time.time_ns() // 1_000_000)
        fields[_FLAG] = str(flag)
        fields[_PROPERTIES] = properties
        return Frame(self._code, fields, body)


def to_queue(sent: Frame, queue: MessageQueue) -> Frame:
    """Set the queue that a request is for, and return it: each try of a send may go to another queue."""
    sent.fields[_QUEUE_ID] = str(queue.queue_id)
    sent.fields[_BROKER_NAME] = queue.broker_name
    return sent


def count_attempts(sent: Frame, reconsume_times: int, most: int | None) -> None:
    """Set the number of failed deliveries of a message, and from which number on the broker makes it a dead letter."""
    sent.fields[_TIMES] = str(reconsume_times)
    if most is not None:
        sent.fields[_MOST_TIMES] = str(most)


def size_of(sent: Frame) -> int:
    """Return the bytes of the body and the properties of a request."""
    return len(sent.body) + len(sent.fields[_PROPERTIES])


def results_of(answer: Frame, queue: MessageQueue, message_ids: Sequence[str]) -> list[SendResult]:
    """Return the results with offsets. Raises PlaceUnknown if the answer does not have them."""
    try:
        fields = response_fields(RequestCode.SEND_MESSAGE_V2, answer)
        places, offset = fields["msgId"].split(","), fields["queueOffset"]
        if offset < 0:
            raise ValueError(f"queueOffset is {offset}: queues begin at 0")
        if len(places) != len(message_ids):
            places = [places[0]] * len(message_ids)
        return sent_results(queue, offset, message_ids, places)
    except ValueError as error:
        text = f"broker {queue.broker_name} has stored what was sent, but does not say where: {error}"
        raise PlaceUnknown(text) from error
