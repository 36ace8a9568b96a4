"""Cron sender: sends the message of each tick of a schedule once, however many processes run the schedule.

At each tick every process that runs the schedule does the same, so any one of them is enough:

1.  It takes the lock of the schedule, a byte of the lock file. The kernel releases it when its holder dies.
2.  It settles an append that a death interrupted, so that the log shows every message that was appended.
3.  It looks in the log, by the index, for a message with the tick's key. If there is one, the tick is done.
4.  Otherwise it calls the function, sends the message that the function made, and releases the lock.

If the process is killed before the append, the next process handles the tick at once. If it is killed after the append,
the message is there. The log is the only state. So a restart, a power cut and a clock that was set all lead to the same
question: is the message there?

**Missed ticks.** Among the ticks within ``misfire_grace`` that have no message, the latest is sent; with
``coalesce=False`` all are sent, in order. Older ticks are dropped. If messages were removed from the store, a tick that
is older than the oldest message is not sent, because its message may have been among them.

**If the function returns None,** there is no message that other processes could find, so each process calls its own
function.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable
from contextvars import copy_context
from threading import Event

from rmqclient.backend import Backend
from rmqclient.delivery.calls import leave
from rmqclient.message import Message
from rmqclient.schedules.cron import UTC, Cron
from rmqclient.sending.producer import Producer
from rmqclient.store import boottime, clock
from rmqclient.store.crash_points import CrashPoint, reach
from rmqclient.store.errors import StoreBusy, StoreClosed
from rmqclient.store.log.query import END_OF_TIME
from rmqclient.store.threads.logs import Log

_log = Log(__name__)

OVERDUE_S = 60.0
"""A tick whose message is not there after so many seconds is reported."""

LONGEST_SLEEP_S = 2.0
"""Time after which the sender notices that a clock was set."""

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
        now: Callable[[], datetime.datetime] = lambda: datetime.datetime.fromtimestamp(clock.wall_ns() / 1e9, UTC),
        since: datetime.datetime | None = None,
    ) -> None:
        self._backend = backend
        self._producer = producer
        self._cron = cron
        self._now = now
        self._settled_to = since
        """This process has handled every tick up to here."""
        self._begun = now()
        self._next: datetime.datetime | None = None
        """The first tick behind ``_settled_to``; None before the first look, and when there is none any more."""
        self._failing_since: datetime.datetime | None = None
        self._pause_s = _FIRST_PAUSE_S
        self.calling_since = 0
        """CLOCK_BOOTTIME in ns when the function was called that runs now; 0 when none runs."""

    @property
    def name(self) -> str:
        """The name of the schedule."""
        return self._cron.name

    @property
    def is_overdue(self) -> bool:
        """Whether a tick has passed by more than a minute, and no process has sent its message.

        A tick that is dropped, because the function failed for longer than ``misfire_grace``, counts until a later one
        is sent.
        """
        now = self._now()
        # Looking for a tick takes long, and each heartbeat asks every schedule.
        due = self._failing_since or self._next or self._cron.next_tick(self._settled_to or self._begun)
        return due is not None and (now - due).total_seconds() > OVERDUE_S

    def run(self, ended: Event) -> None:
        """Send what is due until ``ended`` is set and the clock rung. Failures are logged and retried."""
        while True:
            heard = clock.heard()
            if ended.is_set():
                return
            try:
                pause_s = self.look()
            except StoreClosed:  # another thread has just closed the store
                return
            clock.wait(heard, clock.real_s(pause_s))

    def look(self) -> float:
        """Send what is due; return in how many seconds to look again. Raises StoreClosed."""
        now = self._now()
        if self._next is not None and self._settled_to is not None and self._settled_to <= now < self._next:
            return self._seconds_left(now)  # looking for ticks takes much longer, and there may be many schedules
        try:
            for tick in self._due(now):
                self._settle(tick)
                self._settled_to, self._next = tick, None
                self._failing_since = None
        except StoreClosed:
            raise
        except StoreBusy as error:  # the function of another process takes long
            _log.info("schedule %s will look again: %s", self._cron.name, error)
            return _FIRST_PAUSE_S
        except BaseException as error:  # noqa: BLE001 - the function is the application's, and may call sys.exit()
            self._failing_since = self._failing_since or now
            name, failed = self._cron.name, type(error).__name__
            _log.error("schedule %s: %s; trying again in %.0f s", name, failed, self._pause_s, exc_info=error)
            pause_s, self._pause_s = self._pause_s, min(2 * self._pause_s, _LONGEST_PAUSE_S)
            return pause_s
        self._settled_to, self._pause_s = now, _FIRST_PAUSE_S
        self._next = self._cron.next_tick(now)
        return self._seconds_left(self._now())

    def _due(self, now: datetime.datetime) -> list[datetime.datetime]:
        """Return the ticks whose message must be there now."""
        after = now - self._cron.misfire_grace
        if self._settled_to is not None and after < self._settled_to <= now:  # later, when the clock was set back
            after = self._settled_to
        if not self._cron.coalesce:
            return list(self._cron.ticks(after, now))
        last = self._cron.last_tick(now, after)
        return [] if last is None else [last]

    def _settle(self, tick: datetime.datetime) -> None:
        """Send the message of a tick unless it is in the log."""
        with self._backend.alone(f"{self._cron.topic} {self._cron.name}", _LOCK_TIMEOUT_S):
            self._backend.messages.settle()
            if self._backend.messages.by_key(self._cron.topic, self._cron.key(tick), 0, END_OF_TIME, 1):
                return
            if self._is_forgotten(tick):
                _log.warning(
                    "schedule %s: %s is older than the oldest message, and is passed over: its message may have been "
                    "removed",
                    self._cron.name,
                    tick,
                )
                return
            message = self._called(tick)
            if message is not None:
                reach(CrashPoint.CRON_CALLED)
                self._producer.send(message)
                reach(CrashPoint.CRON_SENT)
                self._backend.messages.settle()  # the next holder of the lock finds it

    def _called(self, tick: datetime.datetime) -> Message | None:
        """Call the function, and end a child that it forked and that comes back."""
        pid, error = os.getpid(), None
        self.calling_since = boottime()
        try:
            return copy_context().run(self._cron.message, tick)
        except BaseException as raised:
            error = raised
            raise
        finally:
            self.calling_since = 0
            if os.getpid() != pid:
                leave(error)

    def _is_forgotten(self, tick: datetime.datetime) -> bool:
        """Tell whether a message of that time may have been removed."""
        begin_ms = self._backend.messages.begin_ms()
        return begin_ms is not None and begin_ms / 1000 > tick.timestamp()

    def _seconds_left(self, now: datetime.datetime) -> float:
        left_s = LONGEST_SLEEP_S if self._next is None else (self._next - now).total_seconds()
        return min(max(0.0, left_s), LONGEST_SLEEP_S)
