"""Copies: sends a failed message again, with the history of its failures.

A copy for ``%RETRY%group`` is an ordinary send. Request 36 would let the broker make the copy, but with the properties
of the first record, without the history that dead letters show; and only that broker could do it.

A dead letter is also sent to ``%RETRY%group``, with ``maxReconsumeTimes`` 0: the broker then makes ``%DLQ%group`` and
stores it there (SendMessageProcessor.handleRetryAndDLQ). A send to that name would not make the topic.

The handler's policy counts attempts, so other copies have a ``maxReconsumeTimes`` that is never reached.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rmqclient.cluster.address.url import ClusterURL
from rmqclient.cluster.sending.delays import without_wait
from rmqclient.cluster.sending.send_requests import SendRequests, count_attempts
from rmqclient.errors import PropertiesTooLarge
from rmqclient.message import ReceivedMessage
from rmqclient.names import DEAD_LETTER_PREFIX, RETRY_PREFIX
from rmqclient.remoting.frame import Frame
from rmqclient.store import MAX_PROPERTIES_BYTES

_COMPRESSION: Final = 0x701
"""Bits of the system flag that say how the body is compressed. [MessageSysFlag]"""
_NEVER: Final = 2**31 - 1
_TOPICS: Final = ("RETRY_TOPIC", "DLQ_ORIGIN_TOPIC")
"""Properties of a copy that name a topic."""


def sent_to(topic: str) -> str:
    """Return the topic that a copy for a topic is sent to."""
    return RETRY_PREFIX + topic.removeprefix(DEAD_LETTER_PREFIX) if topic.startswith(DEAD_LETTER_PREFIX) else topic


def request_of(
    requests: SendRequests,
    url: ClusterURL,
    message: ReceivedMessage,
    topic: str,
    properties: Mapping[str, str],
    wait: Mapping[str, str],
    reconsume_times: int,
) -> Frame:
    """Return the request for a copy. ``wait`` has the properties of its delay. Raises PropertiesTooLarge."""
    properties = dict(properties)
    for name in _TOPICS:
        if name in properties:  # the application's name, which a redelivered message shows as its topic
            properties[name] = url.unwrap(properties[name])
    sent = requests.make(
        url.wrap(sent_to(topic)),
        message.stored_body,
        _text(message, {**without_wait(properties), **wait}),
        message.sys_flag & _COMPRESSION,
        message.flag,
        message.born_timestamp,
    )
    most = 0 if topic.startswith(DEAD_LETTER_PREFIX) else _NEVER
    count_attempts(sent, reconsume_times, most if topic.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX)) else None)
    return sent


def _text(message: ReceivedMessage, properties: Mapping[str, str]) -> str:
    text = "".join(f"{name}\x01{value}\x02" for name, value in properties.items() if name and value)
    size = len(text.encode())
    if size > MAX_PROPERTIES_BYTES:
        raise PropertiesTooLarge(
            f"message {message.message_id}: its properties take {size:,} bytes, and a broker takes "
            f"{MAX_PROPERTIES_BYTES:,}"
        )
    return text
