"""Waits: delays of messages, and the handle that recalls a delayed one.

=============================  =============================================================================
property                       value
=============================  =============================================================================
``DELAY``                      delay level; a number above the highest level means the highest
``TIMER_DELAY_SEC``            delay in seconds [5.x]
``TIMER_DELAY_MS``             delay in milliseconds [5.x]
``TIMER_DELIVER_MS``           time of delivery in milliseconds since 1970 [5.x]
=============================  =============================================================================

The first of them counts. A time in the past means no delay. [HookUtils.handleScheduleMessage]
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from rmqclient.remoting.codes import ResponseCode
from rmqclient.remoting.errors import AnswerError
from rmqclient.store import clock

HIGHEST_LEVEL: Final = 18
_TIMES: Final = ("TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS")
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,18}")
_LONGEST_MS: Final = 10 * 366 * 86_400_000
_VERSION: Final = "v1"


class Wait(NamedTuple):
    """A delay level, or a time of delivery in ms since 1970; the other one is 0."""

    level: int = 0
    due_ms: int = 0


NO_WAIT: Final = Wait()


def wait_of(properties: Mapping[str, str], now_ms: int | None = None) -> Wait:
    """Return the delay in a message's properties. Raises AnswerError for a level or a time that is not a number."""
    if "DELAY" in properties:
        level = _number(properties["DELAY"], ResponseCode.SYSTEM_ERROR, "a delay level")
        if level > 0:
            return Wait(min(level, HIGHEST_LEVEL))
    for name in _TIMES:
        if name in properties:
            return _until(name, properties[name], clock.wall_ms() if now_ms is None else now_ms)
    return NO_WAIT


def _until(name: str, text: str, now_ms: int) -> Wait:
    value = _number(text, ResponseCode.MESSAGE_ILLEGAL, "timer message illegal")
    due_ms = {"TIMER_DELAY_SEC": now_ms + value * 1000, "TIMER_DELAY_MS": now_ms + value}.get(name, value)
    if due_ms - now_ms > _LONGEST_MS:
        raise AnswerError(
            ResponseCode.MESSAGE_ILLEGAL,
            f"timer message illegal, the delay time should not be bigger than the max delay {_LONGEST_MS}ms: "
            f"{name} is {text}",
        )
    return Wait(0, due_ms) if due_ms > now_ms else NO_WAIT


def _number(text: str, code: ResponseCode, what: str) -> int:
    if not _NUMBER.fullmatch(text):
        raise AnswerError(code, f"{what}: {text[:80]!r} is not a number")
    return int(text)


class RecallHandle(NamedTuple):
    """The handle by which a client recalls a timer message. [RecallMessageHandle.HandleV1]"""

    topic: str
    broker_name: str
    due_ms: int
    message_id: str

    def text(self) -> str:
        """Return the encoded handle."""
        words = (_VERSION, self.topic, self.broker_name, str(self.due_ms), self.message_id)
        return base64.urlsafe_b64encode(" ".join(words).encode()).decode()

    @classmethod
    def of(cls, text: str) -> RecallHandle:
        """Decode a handle. Raises ValueError."""
        try:
            version, topic, broker_name, due, message_id, *_ = base64.urlsafe_b64decode(text).decode().split(" ")
        except (ValueError, binascii.Error):
            raise ValueError("recall handle is invalid") from None
        if version != _VERSION:
            raise ValueError("recall handle is invalid")
        return cls(topic, broker_name, int(due) if _NUMBER.fullmatch(due) else -1, message_id)
