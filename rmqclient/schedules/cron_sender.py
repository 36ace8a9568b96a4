"""Cron sender: sends the message of each tick of a schedule, once, in one process of as many as there are.

Every process that runs a schedule does the same at each tick, and none is needed for it:

1.  It takes the schedule's byte of the lock file, which the kernel takes from the dead.
2.  It settles an append that a death interrupted, so that what is in the log can be seen.
3.  It looks for a message with the tick's key in the log, by the index. If there is one, the tick is done.
4.  If not, it calls the function, sends what that made, and gives the byte back.

A kill before the append leaves the tick to the next process, at once; a kill behind it leaves the message. There is no
state besides the log, so that a restart, a power cut and a clock that was set end in the same question: is it there?

**Missed ticks.** Of the ticks within ``misfire_grace`` that have no message the latest is sent, or with
``coalesce=False`` each, in order. Older ones are over. A tick that is older than the oldest message of a store from
which messages were removed is not sent: its message may have been one of them.

**A function that returns None** leaves nothing that others could find: each process asks its own.
"""

from __future__ import annotations

import datetime
import logging
from collections.abc import Callable
from threading import Event

from rmqclient.backend import Backend
from rmqclient.backend.local import store_of
from rmqclient.schedules.cron import UTC, Cron
from rmqclient.sending.producer import Producer
from rmqclient.store.crash_points import CrashPoint, reach
from rmqclient.store.errors import StoreBusy, StoreClosed

_log = logging.getLogger(__name__)

LONGEST_SLEEP_S = 1.0
"""After which a clock that was set is noticed."""

_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 10.0
_LOCK_TIMEOUT_S = 1.0


class CronSender:
    """Sends the messages of one schedule. :meth:`run` is for a thread of its own."""

    def __init__(
        self,
        backend: Backend,
        producer: Producer,
        cron: Cron,
        now: Callable[[], datetime.datetime] = lambda: datetime.datetime.now(UTC),
    ) -> None:
        self._backend = backend
        self._store = store_of(backend, "a schedule")
        self._producer = producer
        self._cron = cron
        self._now = now
        self._settled_to: datetime.datetime | None = None
        """Up to here every tick is done with, as far as this process goes."""
        self._pause_s = _FIRST_PAUSE_S

    def run(self, ended: Event) -> None:
        """Send what is due until ``ended`` is set; failures are reported and tried again."""
        while not ended.is_set():
            try:
                pause_s = self.look()
            except StoreClosed:  # by another thread, just now
                return
            ended.wait(pause_s)

    def look(self) -> float:
        """Send what is due; return in how many seconds to look again. Raises StoreClosed."""
        now = self._now()
        try:
            for tick in self._due(now):
                self._settle(tick)
                self._settled_to = tick
        except StoreClosed:
            raise
        except StoreBusy as error:  # somebody else is at it, and its function takes long
            _log.info("schedule %s will look again: %s", self._cron.name, error)
            return _FIRST_PAUSE_S
        except Exception:  # noqa: BLE001 - the function is the application's
            _log.exception("schedule %s: trying again in %.0f s", self._cron.name, self._pause_s)
            pause_s, self._pause_s = self._pause_s, min(2 * self._pause_s, _LONGEST_PAUSE_S)
            return pause_s
        self._settled_to, self._pause_s = now, _FIRST_PAUSE_S
        return self._seconds_left()

    def _due(self, now: datetime.datetime) -> list[datetime.datetime]:
        """Return the ticks that need a message, unless they have one."""
        after = now - self._cron.misfire_grace
        if self._settled_to is not None and after < self._settled_to <= now:  # later, when the clock was set back
            after = self._settled_to
        ticks = list(self._cron.ticks(after, now))
        return ticks[-1:] if self._cron.coalesce else ticks

    def _settle(self, tick: datetime.datetime) -> None:
        """See to it that a tick has its message."""
        with self._backend.alone(f"{self._cron.topic} {self._cron.name}", _LOCK_TIMEOUT_S):
            self._store.settle_appends()
            if self._store.messages_by_key(self._cron.topic, self._cron.key(tick), limit=1):
                return
            if self._is_forgotten(tick):
                _log.warning(
                    "schedule %s: %s is older than the oldest message, and is passed over: its message may have been "
                    "removed",
                    self._cron.name,
                    tick,
                )
                return
            message = self._cron.message(tick)
            if message is not None:
                reach(CrashPoint.CRON_CALLED)
                self._producer.send(message)
                reach(CrashPoint.CRON_SENT)

    def _is_forgotten(self, tick: datetime.datetime) -> bool:
        """Tell whether a message of that time may have been removed."""
        begin = self._store.state.min_offset
        return begin > 0 and self._store.read(begin).store_timestamp / 1000 > tick.timestamp()

    def _seconds_left(self) -> float:
        now = self._now()
        following = self._cron.next_tick(self._settled_to or now)
        left_s = LONGEST_SLEEP_S if following is None else (following - now).total_seconds()
        return min(max(0.0, left_s), LONGEST_SLEEP_S)
