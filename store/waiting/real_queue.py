"""Real queue: the queue that a waiting message is for, as its properties ``REAL_TOPIC`` and ``REAL_QID`` name it."""

from __future__ import annotations

import re

from rmqclient.store.kernel._kernel import HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC, ReceivedMessage
from rmqclient.store.message_queue import MessageQueue, is_name

_WAITING = (SCHEDULE_TOPIC, TIMER_TOPIC, HALF_TOPIC)
_QUEUE_ID = re.compile("[0-9]{1,9}")


def real_queue(message: ReceivedMessage) -> MessageQueue | None:
    """Return the queue that a waiting message is for, or None if it names no queue that may be delivered to.

    The half messages of transactions are not delivered (ScheduleMessageService.executeOnTimeup), and nothing is
    delivered to the topics in which messages wait.
    """
    properties = message.properties
    topic, queue_id = properties.get("REAL_TOPIC", ""), properties.get("REAL_QID", "")
    if topic in _WAITING or not (is_name(topic) and _QUEUE_ID.fullmatch(queue_id)):
        return None
    return MessageQueue(topic, int(queue_id))
