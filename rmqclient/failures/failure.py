"""Failure: why a delivery attempt failed, and the history of failures that a message carries.

The history is one property, ``RMQ_FAILURES``: a JSON array with one object per failed attempt, the oldest first.
RocketMQ reads it as a property of the application. Keys::

    at       when the failure was noticed, ms since the epoch
    attempt  delivery attempt, 1 for the first
    error    class of the exception with its module; "death" when the process died, "time limit" when it was ended
             because the handler took longer than its time limit
    text     the text of the exception; for a death, what is known about it
    trace    the last frames of the traceback; left out of older failures when room is short
    worker   client id of the consumer

All properties of a message together have 32,767 bytes on disk, 31,000 of them when it is sent. The history takes at
most 8 KiB, and at most the room that the message leaves: older tracebacks are dropped first, then
failures from the second one on, then the last traceback.
"""

from __future__ import annotations

import contextlib
import json
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from rmqclient.failures.application_errors import is_a, text_of
from rmqclient.message import ReceivedMessage
from rmqclient.store import CRC_PROPERTY_SIZE, MAX_PROPERTIES_BYTES, clock

if TYPE_CHECKING:  # a server that starts needs no backend
    from rmqclient.backend.group_protocols import Death

HISTORY = "RMQ_FAILURES"
DEATH = "death"
TIME_LIMIT = "time limit"
DEATHS = frozenset((DEATH, TIME_LIMIT))
"""Of a failure with which the process ended."""

_LONGEST_HISTORY = 8 * 1024
_LONGEST_TEXT = 200
_LONGEST_TRACE = 2_000
_FRAMES = 8
_ROOM_FOR_DELIVERY = 512
"""Bytes for the properties that a broker and the delay add on the way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """One delivery attempt that failed."""

    attempt: int
    error: str
    text: str
    worker: str
    trace: str = ""
    at: int = field(default_factory=clock.wall_ms)
    """ms since the epoch."""

    exception: BaseException | None = field(default=None, compare=False, repr=False)
    """The exception that the handler raised, for the policy; None for a death, and when no handler was called."""

    is_passed_on: bool = field(default=False, compare=False)
    """Whether another process is to try, which costs no attempt."""

    @classmethod
    def raised(cls, exception: BaseException, attempt: int, worker: str) -> Self:
        """Return the failure of a handler that raised.

        After a MemoryError this frees the variables of the frames that it came through, because storing the message
        takes memory, too.
        """
        if is_a(exception, MemoryError):
            traceback.clear_frames(exception.__traceback__)
        return cls(
            attempt=attempt,
            error=storable(_class_name(type(exception))),
            text=_short(storable(text_of(exception)), _LONGEST_TEXT),
            trace=storable(_trace(exception)),
            worker=worker,
            exception=exception,
        )

    @classmethod
    def died(cls, death: Death, message: ReceivedMessage) -> Self:
        """Return the failure of a handler whose process died with this message."""
        attempt = message.reconsume_times + death.begun
        if death.overdue_s is None:
            text = f"process {death.pid} died, or had to stop, while it handled the message"
            return cls(attempt=attempt, error=DEATH, text=text, worker=death.client_id)
        return cls(
            attempt=attempt,
            error=TIME_LIMIT,
            text=f"the handler took longer than the time limit, so process {death.pid} was ended",
            worker=death.client_id,
            at=clock.wall_ms() - round(death.overdue_s * 1000),
        )

    @classmethod
    def without_handler(cls, group: str, message: ReceivedMessage, worker: str) -> Self:
        """Return the failure of a process that has no handler of the group for the topic of a message."""
        text = f"this process has no handler of group {group} for topic {message.topic}"
        return cls(attempt=message.delivery_attempt, error=LookupError.__name__, text=text, worker=worker)

    def entry(self) -> dict[str, Any]:
        """Return the failure as an object of the history."""
        entry = {"at": self.at, "attempt": self.attempt, "error": self.error, "text": self.text, "worker": self.worker}
        return {**entry, "trace": self.trace} if self.trace else entry


def history(properties: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the failures of a message, the oldest first; empty if its history is missing or malformed."""
    try:
        found = json.loads(properties.get(HISTORY, "[]"))
    except ValueError:
        return []
    entries = [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []
    return [
        {storable(name): storable(value) if isinstance(value, str) else value for name, value in each.items()}
        for each in entries
    ]


def storable(text: str) -> str:
    """Return a text that UTF-8 can hold: a half of a surrogate pair becomes what Python shows for it.

    Texts of exceptions have one when they quote cut JavaScript, or a file name that is no UTF-8.
    """
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def with_failures(properties: Mapping[str, str], failures: Sequence[Failure]) -> dict[str, str]:
    """Return the properties with these failures added to the history, as far as room allows."""
    others = {name: value for name, value in properties.items() if name != HISTORY}
    taken = sum(map(_size, others.items()))
    room = MAX_PROPERTIES_BYTES - CRC_PROPERTY_SIZE - _ROOM_FOR_DELIVERY - taken - len(HISTORY) - 2
    text = _shortened([*history(properties), *(each.entry() for each in failures)], min(room, _LONGEST_HISTORY))
    return {**others, HISTORY: text} if text else others


def without_longest(properties: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Return as many properties as a record holds, and the names of those that are left out, the longest first.

    For what a broker stored, or a client whose limit was higher: they keep no room for the properties of a dead letter.
    """
    kept, left_out = dict(properties), list[str]()
    while kept and sum(map(_size, kept.items())) > MAX_PROPERTIES_BYTES - CRC_PROPERTY_SIZE:
        longest = HISTORY if HISTORY in kept else max(kept, key=lambda name: _size((name, kept[name])))
        left_out.append(longest)
        del kept[longest]
    return kept, left_out


def _size(pair: tuple[str, str]) -> int:
    """Return the bytes that a property takes on disk."""
    name, value = pair
    return len(name.encode()) + len(value.encode()) + 2


def _shortened(entries: list[dict[str, Any]], room: int) -> str:
    """Return the entries as JSON in at most ``room`` bytes; the first and the last stay longest. Empty if none fits."""
    while entries:
        text = json.dumps(entries, separators=(",", ":"))  # ASCII, and no control character of the property format
        if len(text) <= room:
            return text
        *older, _ = entries
        traced = next((number for number, each in enumerate(older) if "trace" in each), None)
        if traced is None and len(entries) <= 2 and "trace" in entries[-1]:
            traced = len(entries) - 1
        if traced is not None:
            entries[traced] = {name: value for name, value in entries[traced].items() if name != "trace"}
        else:
            del entries[1 if len(entries) > 2 else 0]
    return ""


def _class_name(kind: type) -> str:
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _trace(exception: BaseException) -> str:
    with contextlib.suppress(BaseException):
        frames = traceback.extract_tb(exception.__traceback__)[1:]  # the first one is ours, which called the handler
        return _short("".join(traceback.format_list(frames[-_FRAMES:])), _LONGEST_TRACE, keep_end=True)
    return ""


def _short(text: str, longest: int, *, keep_end: bool = False) -> str:
    if len(text) <= longest:
        return text
    return "..." + text[3 - longest :] if keep_end else text[: longest - 3] + "..."
