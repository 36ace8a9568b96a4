"""Outgoing: a message as a request to a broker, and the offsets in its answer."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rmqclient.cluster.sending.queue_choice import DEFAULT_QUEUES, DEFAULT_TOPIC
from rmqclient.message import MessageQueue, SendResult
from rmqclient.remoting.codes import RequestCode, ResponseCode
from rmqclient.remoting.errors import PlaceUnknown
from rmqclient.remoting.frame import Frame
from rmqclient.remoting.table import request, response_fields
from rmqclient.store import sent_results

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

_QUEUE_ID: Final = "e"
_BROKER_NAME: Final = "n"
_PROPERTIES: Final = "i"


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A request without its queue, which each try chooses."""

    request: Frame
    message_ids: Sequence[str]

    @property
    def size(self) -> int:
        """Bytes of the body and the properties."""
        return len(self.request.body) + len(self.request.fields[_PROPERTIES])

    def frame(self, queue: MessageQueue) -> Frame:
        """Return the request for one queue."""
        place = {_QUEUE_ID: str(queue.queue_id), _BROKER_NAME: queue.broker_name}
        return Frame(self.request.code, self.request.fields | place, self.request.body)

    def results(self, answer: Frame, queue: MessageQueue) -> list[SendResult]:
        """Return the results with offsets. Raises PlaceUnknown if the answer does not have them."""
        try:
            return self._results(response_fields(RequestCode.SEND_MESSAGE_V2, answer), queue)
        except ValueError as error:
            text = f"broker {queue.broker_name} has stored what was sent, but does not say where: {error}"
            raise PlaceUnknown(text) from error

    def _results(self, fields: Mapping[str, Any], queue: MessageQueue) -> list[SendResult]:
        places, offset = fields["msgId"].split(","), fields["queueOffset"]
        if offset < 0:
            raise ValueError(f"queueOffset is {offset}: queues begin at 0")
        if len(places) != len(self.message_ids):
            places = [places[0]] * len(self.message_ids)
        return sent_results(queue, offset, self.message_ids, places)


def sending(
    code: RequestCode,
    group: str,
    topic: str,
    body: bytes,
    *,
    properties: str = "",
    sys_flag: int = 0,
    flag: int = 0,
    born_ms: int = 0,
    reconsume_times: int = 0,
    max_reconsume_times: int | None = None,
) -> Frame:
    """Return a request for a message or a batch, without its queue. Names are those on the wire."""
    return request(
        code,
        body,
        producerGroup=group,
        topic=topic,
        defaultTopic=DEFAULT_TOPIC,
        defaultTopicQueueNums=DEFAULT_QUEUES,
        queueId=0,
        sysFlag=sys_flag,
        bornTimestamp=born_ms or time.time_ns() // 1_000_000,
        flag=flag,
        properties=properties,
        reconsumeTimes=reconsume_times,
        unitMode=False,
        maxReconsumeTimes=max_reconsume_times,
        batch=code == RequestCode.SEND_BATCH_MESSAGE,
    )
