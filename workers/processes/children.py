"""Children: the processes of a supervisor's workers, each with its slot in the table of workers."""

from __future__ import annotations

import logging
import signal
from collections import Counter
from dataclasses import replace

from rmqclient.admin.workers import WorkerState, WorkerStatus, WorkerTable
from rmqclient.errors import QueueError
from rmqclient.workers.exit_codes import WorkerExit
from rmqclient.workers.processes.child import Child, helpers
from rmqclient.workers.processes.left_behind import Orphans
from rmqclient.workers.processes.stacks import forget_stacks
from rmqclient.workers.processes.standing import Standing
from rmqclient.workers.processes.worker import Boot
from rmqclient.workers.processes.worker_life import Vitals

_log = logging.getLogger(__name__)


class Children:
    """The running processes of workers, by the workers' numbers. A method does nothing for a worker without one.

    Every process gets ``boot``, with its own slot and the name ``<member_name>-<number>``.
    """

    def __init__(self, table: WorkerTable, boot: Boot, standing: Standing, member_name: str) -> None:
        self._table = table
        self._boot = boot
        self._standing = standing
        self._member_name = member_name
        self._running: dict[int, Child] = {}
        self._starts: Counter[int] = Counter()
        self._orphans = Orphans()

    def sentinels(self) -> list[int]:
        """Return the descriptors that are readable when a process has ended."""
        return [child.sentinel for child in self._running.values()]

    def pids(self) -> list[int]:
        """Return the process numbers."""
        return [child.pid for child in self._running.values()]

    def statuses(self) -> dict[int, WorkerStatus]:
        """Return what the table says of each process, by its slot."""
        return {child.slot: self._table.status(child.slot) for child in self._running.values()}

    def exits(self) -> list[tuple[int, int]]:
        """Return the workers whose processes have ended, with the exit codes."""
        codes = [(number, child.exit_code()) for number, child in self._running.items()]
        return [(number, code) for number, code in codes if code is not None]

    def shown_pid(self, number: int) -> str:
        """Return the process number for a line of the log; empty without a process."""
        child = self._running.get(number)
        return f" (pid {child.pid})" if child else ""

    def vitals(self, number: int) -> Vitals | None:
        """Return what can be seen of the life of a worker's process."""
        child = self._running.get(number)
        if child is None:
            return None
        status = self._table.status(child.slot)
        message_age_s = _seconds(status.message_age_ms)
        if message_age_s is not None:
            message_age_s = self._standing.running_s(child.pid, message_age_s)
        is_ready = status.state in (WorkerState.READY, WorkerState.OVERDUE)
        beat_age_s = _seconds(status.beat_age_ms)
        if beat_age_s is not None:
            beat_age_s = self._standing.watched_s(beat_age_s)
        return Vitals(is_ready, beat_age_s, message_age_s)

    def start(self, number: int) -> bool:
        """Start the process of a worker; return whether there is one now."""
        name = f"{self._member_name}-{number}"
        try:
            slot = self._table.claim(name, self._starts[number])
        except QueueError as error:
            _log.error("worker %d: no slot: %s", number, error)
            return False
        try:
            child = Child(replace(self._boot, slot=slot, member_name=name))
        except (OSError, EOFError) as error:
            _log.error("worker %d: no process: %s", number, error)
            self._table.release(slot)
            return False
        self._starts[number] += 1
        self._running[number] = child
        self._table.assign(slot, child.pid)
        return True

    def send(self, number: int, signal_number: signal.Signals) -> None:
        """Send a signal to the process of a worker."""
        if number in self._running:
            self._running[number].send(signal_number)

    def kill_all(self) -> None:
        """Kill every process."""
        for child in self._running.values():
            child.send(signal.SIGKILL)

    def mark_overdue(self, number: int, limit_s: float) -> None:
        """Note in the table that the message of a worker runs for longer than its time limit."""
        if number in self._running:
            self._table.mark_overdue(self._running[number].slot, limit_s)

    def release(self, number: int) -> None:
        """Free what an ended process had, and kill what it has left behind."""
        if (child := self._running.pop(number, None)) is not None:
            self._kill_left_behind(number, child)
            child.close()
            self._table.release(child.slot)

    def look_at_orphans(self) -> None:
        """Find new orphans, and take the ends of those that have ended."""
        self._orphans.look(self._own())

    def _kill_left_behind(self, number: int, child: Child) -> None:
        """Kill what a worker that did not end in order had started: its messages are handled again without it."""
        if child.exit_code() != WorkerExit.STOPPED and (count := self._orphans.kill_new({child.pid, *self._own()})):
            _log.warning("worker %d (pid %d): %d processes that it had started were killed", number, child.pid, count)
        forget_stacks(child.pid)

    def _own(self) -> set[int]:
        """Return what is no orphan; workers are one if their fork server was killed."""
        return {*helpers(), *self.pids()}


def _seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000
