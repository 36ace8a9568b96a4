"""Due pump: calls what delivers due messages again and again, and keeps it going after a failure.

The delay levels and the timer have a pump each, so that a failure in one level holds up no other.
"""

from __future__ import annotations

from collections.abc import Callable

from rmqclient.store import clock
from rmqclient.store.errors import QueueError, StoreBusy, StoreClosed, StorePoisoned
from rmqclient.store.threads.logs import Log

_log = Log(__name__)

LONGEST_SLEEP_MS = 500
"""No delay level is shorter, and a wall clock that was set is noticed within this time."""
PAUSE_AFTER_FAILURE_S = 10.0
"""[ScheduleMessageService.DELAY_FOR_A_PERIOD]"""
SLICE = 256
"""Most messages that one call delivers before other messages get their turn."""


class DuePump:
    """Delivers what is due, for one thread. ``name`` is for the log.

    ``deliver_due`` delivers up to a slice of messages and returns in how many ms to look again.
    """

    def __init__(self, name: str, deliver_due: Callable[[], int]) -> None:
        self._name = name
        self._deliver_due = deliver_due
        self._paused_until = 0.0

    def look(self) -> int:
        """Deliver what is due; return in how many ms to look again, :data:`LONGEST_SLEEP_MS` at most.

        A failure is logged, and the next calls within :data:`PAUSE_AFTER_FAILURE_S` do nothing. If the lock was busy,
        or this process is closing the store, the next call tries again.
        """
        if self._paused_until > clock.elapsed():
            return LONGEST_SLEEP_MS
        try:
            return min(self._deliver_due(), LONGEST_SLEEP_MS)
        except StoreClosed:
            pass  # another process goes on
        except StoreBusy as error:
            _log.info("%s will go on next time: %s", self._name, error)
        except (QueueError, OSError) as error:
            self._paused_until = clock.elapsed() + PAUSE_AFTER_FAILURE_S
            if not isinstance(error, StorePoisoned):  # every sender is told of that
                _log.error("%s waits for %.0f s: %s", self._name, PAUSE_AFTER_FAILURE_S, error)
        except Exception:  # noqa: BLE001 - a mistake must not end the thread, which delivers for every level
            self._paused_until = clock.elapsed() + PAUSE_AFTER_FAILURE_S
            _log.exception("%s waits for %.0f s", self._name, PAUSE_AFTER_FAILURE_S)
        return LONGEST_SLEEP_MS

    def resume(self) -> None:
        """End the pause after a failure."""
        self._paused_until = 0.0
