"""Housekeeper: one process at a time does the work that is due from time to time.

The tasks of :mod:`rmqclient.store.upkeep.timetable` flush the log, write the checkpoint and ``consumerOffset.json``,
and so on. The housekeeper also makes the next commit log file ahead of the writers. Threads beside the tasks deliver
the messages that wait (:mod:`rmqclient.store.waiting.schedule`, :mod:`rmqclient.store.waiting.timer`).

The role is a byte lock, so the kernel takes it from a process that dies, and every process that has the store open
tries for it, twice a second. A process that gives the role back wakes the others, so that what waits for its time does
not wait for that. Each task may run twice, or in two processes at once, without harm.

A supervisor is preferred, because it lives longest: while a supervisor has the store open, the others leave the role
to it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from rmqclient.store import clock, layout
from rmqclient.store.errors import StoreError, StoreReplaced
from rmqclient.store.files.file_lock import HOUSEKEEPER_BYTE, SUPERVISOR_BYTE, LockFile
from rmqclient.store.runtime.shared_state import SharedState
from rmqclient.store.threads.guarded import GuardedThread
from rmqclient.store.threads.logs import Log
from rmqclient.store.threads.signals import take_no_signals
from rmqclient.store.upkeep.timetable import Every, Timetable, run_guarded

_log = Log(__name__)

_PREPARE_WORD = layout.RUNTIME_HEADER.at["prepare_word"]
_ATTEMPT_MS = 500


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
        self._beside = {"upkeep": Timetable(tasks).run, **beside}
        self._ending = ending
        self._check_in_place = check_in_place
        self._closed = threading.Event()
        self._preferred = False
        self._serving = False
        self._thread = GuardedThread(target=self._run, name="rmq-housekeeper")
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

    def _run(self) -> None:
        take_no_signals()
        words = self._state.words
        while True:
            seen = words.load32(_PREPARE_WORD)  # before the looks: close() changes it last
            if self._closed.is_set() or not self._is_in_place():
                return
            if not self._may_serve() or not self._lock.try_exclusive(HOUSEKEEPER_BYTE):
                words.wait(_PREPARE_WORD, seen, _ATTEMPT_MS)
                continue
            failure = None
            try:
                self._serve()
            except RuntimeError as error:  # no thread can be started now: another process may have some left
                failure = error
            finally:
                self._lock.unlock(HOUSEKEEPER_BYTE)
                words.signal(_PREPARE_WORD)
            if failure is not None:
                _log.error("housekeeping is tried again: %s", failure)
                self._closed.wait(_ATTEMPT_MS / 1000)

    def _is_in_place(self) -> bool:
        try:
            self._check_in_place()
        except StoreReplaced:
            return False
        except StoreError as error:  # a disk that fails says nothing about the name
            _log.error("%s", error)
        return True

    def _may_serve(self) -> bool:
        return self._preferred or self._lock.holder(SUPERVISOR_BYTE) is None

    def _serve(self) -> None:
        ended, beside = threading.Event(), list[threading.Thread]()
        try:
            for name, run in self._beside.items():
                thread = GuardedThread(target=run, args=(ended,), name=f"rmq-{name}")
                thread.start()
                beside.append(thread)
            self._serving = True
            while not self._closed.is_set() and self._may_serve() and self._is_in_place():
                seen = self._state.words.load32(_PREPARE_WORD)
                run_guarded(self._prepare)
                if not self._closed.is_set():
                    self._state.words.wait(_PREPARE_WORD, seen, _ATTEMPT_MS)
        finally:
            ended.set()
            clock.ring()
            self._ending()
            for thread in beside:
                thread.join()
            self._serving = False
