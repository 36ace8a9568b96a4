"""Ends: how a call ends whose message goes on later, or elsewhere. None of them is a failure.

They are no ``Exception``, so that ``except Exception`` in a handler lets them pass.
"""

from __future__ import annotations

from collections.abc import Callable


class StepsEnd(BaseException):
    """Ends a call of a handler. The message is given back when :meth:`store` has returned."""

    def __init__(self, text: str, store: Callable[[], object]) -> None:
        super().__init__(text)
        self._store = store

    def store(self) -> None:
        """Store what must be stored before the message is given back. Raises as a send: it is tried again in place."""
        self._store()


class Paused(StepsEnd):
    """The message comes again when a time or a signal has come."""


class MovedOn(StepsEnd):
    """A later copy of the message goes on: this one was left over by a kill."""


class Lost(StepsEnd):
    """The queue has gone to another member, which goes on with the message."""


class CutShort(Lost):
    """The consumer has ended before the call: whoever has the queue next gets the message."""

    def __init__(self) -> None:
        super().__init__("the consumer has ended", lambda: None)


def failures_in(error: BaseException) -> int:
    """Return 1 if the call of a handler that raised this has failed, 0 if its message goes on elsewhere."""
    return 0 if isinstance(error, StepsEnd) else 1
