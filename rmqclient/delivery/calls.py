"""Calls: what one handler thread is doing and has done, and counts of what went wrong in all threads of a handler."""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from operator import length_hint

from rmqclient.backend.group_protocols import RunningSlot
from rmqclient.calling.current import Current
from rmqclient.delivery.process_queue import ProcessQueue
from rmqclient.failures.application_errors import is_a
from rmqclient.message import ReceivedMessage
from rmqclient.store import fork


def leave(error: BaseException | None) -> None:
    """End a forked child as an interpreter would that had run a function of the application."""
    code: object = 0
    if error is not None:
        code = (error.code or 0) if is_a(error, SystemExit) else None
    if not isinstance(code, int):
        traceback.print_exception(error)
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


class Counters:
    """Counts of what went wrong for one handler in this process, since it started. Safe for threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.failed = 0
        """Delivery attempts that failed."""
        self.refused = 0
        """Acknowledgements refused because the queue had gone to another member."""

    def add(self, *, failed: int = 0, refused: int = 0) -> None:
        """Add to the counts."""
        with self._lock:
            self.failed += failed
            self.refused += refused


class Calls:
    """The handler calls of one thread.

    Others read it: to notice a call that never returns, and to take over the rest of a batch whose thread is kept by
    one message.
    """

    running_slot: RunningSlot
    """Where the thread says what it runs, in case that kills the process. Set before the thread starts."""

    current: Current
    """What the thread shows of itself in log lines. Set before the thread starts."""

    queue: ProcessQueue
    """The queue of its batch. Set before :attr:`unfinished` holds anything."""

    def __init__(self) -> None:
        self.begun = 0
        """Calls begun so far."""
        self.running = 0
        """Messages whose handler runs now."""
        self.handled = 0
        """Messages that the handler finished and that were acknowledged. Only this thread counts them."""
        self.unfinished: Iterator[ReceivedMessage] = iter(())
        """The messages of its batch that it has not begun. Other threads may take them over."""
        self.kept: list[ReceivedMessage] = []
        """Messages of its batch that failed, could not be stored, and so stay in flight."""
        self._relieved: list[ReceivedMessage] = []
        self._relieving = threading.Lock()
        self._begun_at_look = 0
        self._looked_at = 0.0
        self._seen = 0
        self._seen_at = 0
        self.is_forked = False
        """Whether this is a child that a handler forked, and that goes on in its thread."""
        fork.register(self)

    def leave_to_parent(self) -> None:
        """Note that this is a forked child: the thread and the message are its parent's."""
        self.is_forked = True

    def leave_if_forked(self, error: BaseException | None = None) -> None:
        """End this process if a handler forked it and returned, or raised, in it.

        The exit code is 0, or that of ``sys.exit``; 1 after any other error, which is printed.
        """
        if self.is_forked:
            leave(error)

    def forgive(self) -> None:
        """Say that this process ends: a death from now on is no attempt of what runs."""
        if self.running:
            self.running_slot.forgive()

    def rest(self) -> None:
        """Say that no handler runs in this thread any more."""
        self.current.given = self.current.steps = None
        self.running_slot.rest()
        self.running = 0

    def running_since(self, now: int) -> int:
        """Return the time at which the present call was first seen running, 0 when no call runs.

        ``now`` is CLOCK_BOOTTIME in ns. The time is that of a call of this method, so it is as exact as these calls
        are frequent.
        """
        if self.begun != self._seen or not self.running:
            self._seen, self._seen_at = self.begun, now
        return self._seen_at if self.running else 0

    @property
    def kept_s(self) -> float:
        """For how many seconds one call has kept this thread, as far as looks at this have seen."""
        now = time.monotonic()
        if self.begun != self._begun_at_look or not self.running:
            self._begun_at_look, self._looked_at = self.begun, now
        return now - self._looked_at

    def relieve(self) -> ReceivedMessage | None:
        """Take one unfinished message away from this thread; None when there is none, or its queue was lost."""
        with self._relieving:
            if not length_hint(self.unfinished) or self.queue.grant.lease_is_over or not self.queue.grant.valid:
                return None  # the batch of a lost queue belongs to the next owner
            message = next(self.unfinished, None)
            if message is not None:
                self._relieved.append(message)
            return message

    def close_batch(self, batch: list[ReceivedMessage]) -> list[ReceivedMessage]:
        """Return the messages of ``batch`` that this thread accounts for. From now on no message is taken away."""
        with self._relieving:
            self.unfinished = iter(())
            relieved, self._relieved = self._relieved, []
        return [message for message in batch if message not in relieved] if relieved else batch
