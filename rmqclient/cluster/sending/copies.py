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
from rmqclient.cluster.sending.outgoing import Outgoing, sending
from rmqclient.errors import PropertiesTooLarge
from rmqclient.message import ReceivedMessage
from rmqclient.names import DEAD_LETTER_PREFIX, RETRY_PREFIX
from rmqclient.remoting.codes import RequestCode
from rmqclient.store import MAX_PROPERTIES_BYTES

_COMPRESSION: Final = 0x701
"""Bits of the system flag that say how the body is compressed. [MessageSysFlag]"""
_NEVER: Final = 2**31 - 1
_TOPICS: Final = ("RETRY_TOPIC", "DLQ_ORIGIN_TOPIC")
"""Properties of a copy that name a topic."""


def sent_to(topic: str) -> str:
    """Return the topic that a copy for a topic is sent to."""
    return RETRY_PREFIX + topic.removeprefix(DEAD_LETTER_PREFIX) if topic.startswith(DEAD_LETTER_PREFIX) else topic


def outgoing(
    message: ReceivedMessage,
    topic: str,
    properties: Mapping[str, str],
    wait: Mapping[str, str],
    group: str,
    url: ClusterURL,
    reconsume_times: int,
) -> Outgoing:
    """Return the request for a copy. ``wait`` has the properties of its delay; ``group`` is the name on the wire.

    Raises PropertiesTooLarge.
    """
    properties = dict(properties)
    for name in _TOPICS:
        if name in properties:  # the application's name, which a redelivered message shows as its topic
            properties[name] = url.unwrap(properties[name])
    is_retry = topic.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX))
    most = 0 if topic.startswith(DEAD_LETTER_PREFIX) else _NEVER
    frame = sending(
        RequestCode.SEND_MESSAGE_V2,
        group,
        url.wrap(sent_to(topic)),
        message.stored_body,
        properties=_text(message, {**without_wait(properties), **wait}),
        sys_flag=message.sys_flag & _COMPRESSION,
        flag=message.flag,
        born_ms=message.born_timestamp,
        reconsume_times=reconsume_times,
        max_reconsume_times=most if is_retry else None,
    )
    return Outgoing(frame, (message.message_id,))


def _text(message: ReceivedMessage, properties: Mapping[str, str]) -> str:
    text = "".join(f"{name}\x01{value}\x02" for name, value in properties.items() if name and value)
    size = len(text.encode())
    if size > MAX_PROPERTIES_BYTES:
        raise PropertiesTooLarge(
            f"message {message.message_id}: its properties take {size:,} bytes, and a broker takes "
            f"{MAX_PROPERTIES_BYTES:,}"
        )
    return text
