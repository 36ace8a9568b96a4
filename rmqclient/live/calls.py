"""Calls: what is shown of each call of a handler.

::

    12:04:31 orders -> bill (billing)  2.1 ms
    12:04:32 orders -> bill (billing)  failed after 0.4 ms, attempt 1 of 17: ValueError: no such customer
      Traceback (most recent call last):
        ...
"""

from __future__ import annotations

import contextlib
import importlib
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from rmqclient.calling.hooks import HandlerCall
from rmqclient.failures.application_errors import is_a, text_of
from rmqclient.failures.retry import Outcome
from rmqclient.failures.suspend import Suspend
from rmqclient.handler import Handler
from rmqclient.names import function_name

_PACKAGE = str(Path(__file__).parents[1])
_ON_THE_WAY = {contextlib.__file__, importlib.__file__}


class Call(NamedTuple):
    """One call of a handler that has ended."""

    handler: Handler
    message_ids: tuple[str, ...]
    """Of a batch, those of all its messages."""
    attempt: int
    """Of the first message; counts from 1."""
    at: str
    """When it ended: local time of day, to the second."""
    took_s: float
    error: BaseException | None = None
    """What the handler raised, or what its body could not be decoded by."""

    @property
    def where(self) -> str:
        """Topic, function and group in one line."""
        several = f", {len(self.message_ids)} messages" if self.handler.batch is not None else ""
        return f"{self.handler.topic} -> {short_name(self.handler)} ({self.handler.group}{several})"

    @property
    def outcome(self) -> str:
        """How it ended, and what follows, in one line."""
        if self.error is None:
            again = f", attempt {self.attempt}" if self.attempt > 1 else ""
            return f"{shown_time(self.took_s)}{again}"
        if is_a(self.error, Suspend) and self.handler.order is not None:
            return f"after {shown_time(self.took_s)}: {text_of(self.error)}"
        text = " ".join(text_of(self.error).split())
        error = type(self.error).__name__ + (f": {text}" if text else "")
        return f"failed after {shown_time(self.took_s)}, {self._what_follows()}: {error}"

    @property
    def trace(self) -> str:
        """The traceback without the frames that lead from this package to the application; empty without an error."""
        return "" if self.error is None else trace_of(self.error)

    def _what_follows(self) -> str:
        handler = self.handler
        if handler.broadcast:
            return "dropped"
        if handler.retry.outcome(self.attempt, self.error) is Outcome.DEAD_LETTER:
            return "a dead letter"
        if handler.order is not None:
            return f"attempt {self.attempt}, and the messages behind it wait"
        return f"attempt {self.attempt} of {handler.retry.max_retries + 1}"


def watched_by(tell: Callable[[Call], None]) -> Callable[[HandlerCall], Iterator[None]]:
    """Return middleware that tells of each call when it has ended; it changes nothing.

    ``tell`` is called in the thread of the handler, and must be quick and raise nothing.
    """

    def watched(call: HandlerCall) -> Iterator[None]:
        begun = time.perf_counter()
        try:
            yield
        except BaseException as error:
            tell(_ended(call, begun, error))
            raise
        tell(_ended(call, begun, None))

    return watched


def _ended(call: HandlerCall, begun: float, error: BaseException | None) -> Call:
    took_s = time.perf_counter() - begun
    ids = tuple(message.message_id for message in call.messages)
    return Call(call.handler, ids, call.message.delivery_attempt, time.strftime("%H:%M:%S"), took_s, error)


def short_name(handler: Handler) -> str:
    """Return the name of a handler's function without its module and its class."""
    return function_name(handler.function).rpartition(":")[2].rpartition(".")[2]


def trace_of(error: BaseException) -> str:
    """Return the whole traceback of an exception, but the frames that lead from this package to the application."""
    shown = traceback.TracebackException.from_exception(error)
    shown.stack[:] = frames_of(error) or shown.stack
    return "".join(shown.format())


def frames_of(error: BaseException) -> list[traceback.FrameSummary]:
    """Return the frames of an exception that are not of this package, nor of the import of a module."""
    return [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith((_PACKAGE, "<frozen importlib")) and frame.filename not in _ON_THE_WAY
    ]


def shown_time(seconds: float) -> str:
    """Return a duration for people: ``0.3 ms``, ``2.10 s``."""
    return f"{seconds * 1000:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"
