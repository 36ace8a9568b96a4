"""Topics: which of them applications send to, and which are the library's own."""

from __future__ import annotations

from typing import Final

from rmqclient.names import DEAD_LETTER_PREFIX, RETRY_PREFIX, STEPS_PREFIX
from rmqclient.store import SCHEDULE_TOPIC

_SYSTEM: Final = (SCHEDULE_TOPIC, "TRANS_CHECK_MAX_TIME_TOPIC", "rmq_sys_", "RMQ_SYS_", STEPS_PREFIX)
"""How their names begin [TopicValidator]; ours are the results of durable steps."""
_COPIES: Final = (RETRY_PREFIX, DEAD_LETTER_PREFIX)


def is_of_application(topic: str) -> bool:
    """Tell whether applications send to a topic: it is none of the library's own."""
    return not is_system(topic) and not has_copies(topic)


def is_system(topic: str) -> bool:
    """Tell whether a topic serves delays, transactions, traces or durable steps."""
    return topic.startswith(_SYSTEM)


def has_copies(topic: str) -> bool:
    """Tell whether a topic has the retries or the dead letters of a group."""
    return topic.startswith(_COPIES)
