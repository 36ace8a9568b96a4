"""Suspend: how a handler asks for its message again after a pause."""

from __future__ import annotations

from rmqclient.duration import Duration, in_seconds


class Suspend(Exception):
    """Raised by a handler to get its message again after a pause, and the messages behind it after that.

    ``pause`` is a timedelta, or seconds; it is clamped to 0.01 to 30 s. It holds the queue with ``order="queue"``, the
    key with ``order="key"``, and counts as a delivery attempt. For any other handler it is a failure like others.

    Raises TypeError for anything except a duration, and ValueError for a negative one.
    """

    def __init__(self, pause: Duration) -> None:
        super().__init__(pause)
        self.seconds = in_seconds("pause", pause)

    def __str__(self) -> str:
        return f"again in {self.seconds:g} s"
