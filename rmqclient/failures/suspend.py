"""Suspend: how a handler asks for its message again after a pause."""

from __future__ import annotations

from rmqclient.duration import LONGEST_DELAY, Duration, in_seconds


class Suspend(Exception):
    """Raised by a handler to get its message again after a pause, and the messages behind it after that.

    ``pause`` is a timedelta, or seconds, up to ten years. It holds the queue with ``order="queue"``, the key with
    ``order="key"``, for at least 0.01 s, and counts as a delivery attempt. A handler without an order gets its message
    again after the pause, instead of the delay of its policy, whose number of attempts holds.

    Raises TypeError for anything except a duration, and ValueError for one that is negative or too long.
    """

    def __init__(self, pause: Duration) -> None:
        super().__init__(pause)
        self.seconds = in_seconds("pause", pause, most=LONGEST_DELAY.total_seconds())

    def __str__(self) -> str:
        return f"again in {self.seconds:g} s"
