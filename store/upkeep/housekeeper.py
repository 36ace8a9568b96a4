"""Housekeeper: one process at a time does the work that is due from time to time.

The tasks of :mod:`rmqclient.store.upkeep.timetable` flush the log, write the checkpoint and ``consumerOffset.json``,
and so on. The housekeeper also makes the next commit log file ahead of the writers. Threads beside the tasks deliver
the messages that wait (:mod:`rmqclient.store.waiting.schedule`, :mod:`rmqclient.store.waiting.timer`).

The role is a byte lock, so the kernel takes it from a process that dies, and every process that has the store open
tries for it, twice a second. A process that gives the role back wakes the others, so that what waits for its time does
not wait for that.

The kernel takes nothing from a process that stands still: by Ctrl-Z, in a debugger, in a paused container. So the role
has a time, too. Its holder shows a beat twice a second. If there was none for two seconds in which another process has
run itself (:mod:`rmqclient.store.runtime.awake`), that one takes the role by raising the *turn*, a word of the runtime
file, and leaves the byte where it is. The threads of a housekeeper
ask before each step whether the turn is still theirs. The step that was under way ends after the process has
woken up: each of them may run twice, or in two processes at once, without harm.

A supervisor is preferred, because it lives longest: while one has the store open, and does not stand still, the others
leave the role to it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from rmqclient.store import clock, layout
from rmqclient.store.clock import boottime
from rmqclient.store.errors import LimitReached, StoreError, StoreReplaced
from rmqclient.store.files.file_lock import HOUSEKEEPER_BYTE, SUPERVISOR_BYTE, LockFile
from rmqclient.store.native_threads import threading
from rmqclient.store.runtime.awake import LOOKS_EVERY_MS
from rmqclient.store.runtime.shared_state import SharedState
from rmqclient.store.threads.guarded import GuardedThread
from rmqclient.store.threads.logs import Log
from rmqclient.store.threads.signals import take_no_signals
from rmqclient.store.upkeep.timetable import Every, Timetable, Told, run_guarded

_log = Log(__name__)

_PREPARE_WORD = layout.RUNTIME_HEADER.at["prepare_word"]
_TURN = layout.RUNTIME_HEADER.at["housekeeper_turn"]
_BEAT = layout.RUNTIME_HEADER.at["housekeeper_beat"]
_ATTEMPT_MS = LOOKS_EVERY_MS
_LEASE_NS = 2_000_000_000
"""After so much time without a beat the housekeeper stands still."""
_STAY_NS = 60_000_000_000
"""For so long the role stays where it was taken because no supervisor did: that one may stand still, too."""


class Turn(threading.Event):
    """Set when this process has given the role back, and when another one has taken it. Each step asks before it."""

    def __init__(self, state: SharedState, number: int) -> None:
        super().__init__()
        self._words = state.words
        self._number = number

    def is_set(self) -> bool:
        """Tell whether nothing more is to be done."""
        return super().is_set() or self.was_taken

    @property
    def was_taken(self) -> bool:
        """Whether another process has the role by now."""
        return self._words.load(_TURN) != self._number


class Housekeeper:
    """Tries for the role, and does its work while it has it.

    ``tasks`` maps a task to its interval. ``prepare`` makes the next commit log file, at once when a writer enters a
    new one. Each of ``beside`` runs in a thread of its own until the event it gets is set; ``ending`` then wakes those
    that sleep on something else. The thread ends when ``check_in_place``, called twice a second whoever has the role,
    raises StoreReplaced.
    """

    def __init__(
        self,
        state: SharedState,
        lock: LockFile,
        tasks: Mapping[Callable[[], None], int | Every],
        prepare: Callable[[], None],
        beside: Mapping[str, Callable[[threading.Event], None]],
        ending: Callable[[], None],
        check_in_place: Callable[[], None],
    ) -> None:
        self._state = state
        self._lock = lock
        self._prepare = prepare
        self._told = Told()
        self._beside = {"beat": self._beat, "upkeep": Timetable(tasks, check_in_place).run, **beside}
        self._ending = ending
        self._check_in_place = check_in_place
        self._closed = threading.Event()
        self._preferred = False
        self._stays_until = 0
        self._serving = False
        self._thread = GuardedThread(target=self._run, name="rmq-housekeeper")

    def start(self) -> None:
        """Try for the role from now on. Raises LimitReached."""
        self._thread.start()

    @property
    def has_role(self) -> bool:
        """Whether this process is the housekeeper now."""
        return self._serving

    def prefer(self) -> None:
        """Claim the role for this process, a supervisor, for as long as it has the store open."""
        self._preferred = True
        self._lock.try_shared(SUPERVISOR_BYTE)

    def close(self) -> None:
        """Give the role back; returns when no task runs any more."""
        self._closed.set()
        self._state.words.signal(_PREPARE_WORD)
        self._thread.join()

    def forget_work(self) -> None:
        """Let go of what it did, when it is closed: the tasks are functions of the store, which has this one."""
        self._beside = {}
        self._prepare = self._ending = self._check_in_place = _nothing

    def _run(self) -> None:
        take_no_signals()
        self._state.awake.begin()
        words = self._state.words
        while True:
            self._state.awake.look()
            seen = words.load32(_PREPARE_WORD)  # before the looks: close() changes it last
            if self._closed.is_set() or not self._is_in_place():
                return
            turn = self._next_turn()
            if turn is None:
                words.wait(_PREPARE_WORD, seen, _ATTEMPT_MS)
                continue
            failure = None
            try:
                self._serve(turn)
            except LimitReached as error:  # no thread can be started now: another process may have some left
                failure = error
            finally:
                was_taken = turn.was_taken  # from now on another process may take it, as it should
                self._lock.unlock(HOUSEKEEPER_BYTE)
                words.signal(_PREPARE_WORD)
            if failure is not None:
                _log.error("housekeeping is tried again: %s", failure)
            if was_taken:
                _log.warning("another process became the housekeeper while this one stood still")
            if failure is not None or was_taken:
                self._closed.wait(_ATTEMPT_MS / 1000)

    def _is_in_place(self) -> bool:
        try:
            self._check_in_place()
        except StoreReplaced:
            return False
        except StoreError as error:  # a disk that fails says nothing about the name
            _log.error("%s", error)
        return True

    def _next_turn(self) -> Turn | None:
        """Take the role if it is free, or its holder stands still; None if another process shall have it."""
        words = self._state.words
        number = words.load(_TURN)  # before the beat: whoever takes the role meanwhile has changed it
        words.replace(_BEAT, 0, boottime())
        stands = self._state.awake.ran_since(words.load(_BEAT)) > _LEASE_NS
        has_byte = (stands or self._is_welcome()) and self._lock.try_exclusive(HOUSEKEEPER_BYTE)
        if not (has_byte or stands):
            return None
        if not words.replace(_TURN, number, number + 1):
            self._lock.unlock(HOUSEKEEPER_BYTE)
            return None
        if stands:
            self._stays_until = boottime() + _STAY_NS
        if not has_byte:
            _log.warning("process %d stands still: this one is the housekeeper now", self._state.housekeeper_pid)
        self._state.housekeeper_beat, self._state.housekeeper_pid = boottime(), os.getpid()
        return Turn(self._state, number + 1)

    def _is_welcome(self) -> bool:
        return self._preferred or self._lock.holder(SUPERVISOR_BYTE) is None

    def _goes_on(self) -> bool:
        """Tell whether the role stays here, and not with a supervisor, which would need the byte for it."""
        has_byte = self._lock.try_exclusive(HOUSEKEEPER_BYTE)
        return not has_byte or boottime() < self._stays_until or self._is_welcome()

    def _beat(self, ended: threading.Event) -> None:
        while True:
            heard = clock.heard()
            if ended.is_set():
                return
            self._state.housekeeper_beat = self._state.awake.look()
            clock.wait(heard, _ATTEMPT_MS / 1000)

    def _serve(self, turn: Turn) -> None:
        beside = list[GuardedThread]()
        try:
            for name, run in self._beside.items():
                thread = GuardedThread(target=run, args=(turn,), name=f"rmq-{name}")
                thread.start()
                beside.append(thread)
            self._serving = True
            while not self._closed.is_set() and not turn.is_set() and self._goes_on() and self._is_in_place():
                self._state.awake.look()
                seen = self._state.words.load32(_PREPARE_WORD)
                run_guarded(self._prepare, self._check_in_place, self._told)
                if not self._closed.is_set():
                    self._state.words.wait(_PREPARE_WORD, seen, _ATTEMPT_MS)
        finally:
            turn.set()
            clock.ring()
            self._ending()
            for thread in beside:
                thread.join()
            self._serving = False


def _nothing() -> None:
    """Stands for the work that a closed housekeeper has forgotten."""
