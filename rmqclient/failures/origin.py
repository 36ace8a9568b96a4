"""Origin: where a message failed first, and how long its first copy waits. A broker makes copies by the same rules."""

from __future__ import annotations

from rmqclient.message import ReceivedMessage

FIRST_LEVEL = 3
"""Delay level of the first retry. [3 + reconsumeTimes]"""


def origin_topic(message: ReceivedMessage) -> str:
    """Return the topic where a message failed first, or its own topic if it never failed."""
    return message.properties.get("RETRY_TOPIC") or message.topic


def origin_message_id(message: ReceivedMessage) -> str:
    """Return the offset message id of the first record of a message that failed."""
    return message.properties.get("ORIGIN_MESSAGE_ID") or message.offset_message_id
