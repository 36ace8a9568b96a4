"""Ends: ends of a call whose message continues later or elsewhere. They are not failures.

They are not subclasses of ``Exception``, so that ``except Exception`` in a handler does not catch them.
"""

from __future__ import annotations

from collections.abc import Callable

from rmqclient.failures.application_errors import is_a


class StepsEnd(BaseException):
    """Ends a call of a handler. The message is acknowledged after :meth:`store`."""

    def __init__(self, text: str, store: Callable[[], object]) -> None:
        super().__init__(text)
        self._store = store

    def store(self) -> None:
        """Store what the message needs before it is acknowledged. Raises as a send; the caller retries."""
        self._store()


class Paused(StepsEnd):
    """The message is delivered again at a time or after a signal."""


class MovedOn(StepsEnd):
    """A later copy of the message continues; a kill left this one over."""


class Lost(StepsEnd):
    """Another member has the queue now, and continues with the message."""


class CutShort(Lost):
    """The consumer ended before the call; the next owner of the queue gets the message."""

    def __init__(self) -> None:
        super().__init__("the consumer has ended", lambda: None)


def failures_in(error: BaseException) -> int:
    """Return 1 if a handler call that raised this has failed, 0 if its message continues elsewhere."""
    return 0 if is_a(error, StepsEnd) else 1
