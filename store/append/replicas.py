"""Replicas: what sends wait for when a store is set to wait for followers, whichever process sends.

The process that sends the log to followers says in three shared words how far they are, and until when they are in
sync; it renews that while it hears them, so its death is noticed when the time is up. Every sender sleeps on one futex
until ``replicated_to`` has passed its message.

A message that is answered although followers lack it is the one that a promotion would lose. So before the first such
answer ``replication.json`` says so on the disk, and it says so until the followers have everything again. Both changes
are made under the topic byte: whoever finds ``is_missing`` set after its append is covered by what the file says.
"""

from __future__ import annotations

import enum
from dataclasses import replace
from pathlib import Path
from typing import Final

from rmqclient.store import clock, layout
from rmqclient.store.crash_points import CrashPoint, reach
from rmqclient.store.errors import NotReplicated, QueueError, ReplicaUnavailable, StoreBusy
from rmqclient.store.files.file_lock import SENDER_BYTE, TOPIC_BYTE, LockFile
from rmqclient.store.kernel._kernel import SendResult, sent_result
from rmqclient.store.runtime.shared_state import SharedState
from rmqclient.store.settings.replica_mark import check_primary
from rmqclient.store.settings.replication import Replication, Sync, read_replication, write_replication

_WORD: Final = layout.RUNTIME_HEADER.at["replica_word"]
REPLACED: Final = layout.RESTRICTED["replaced"]
_REFUSE, _DEGRADE = layout.RESTRICTED["refuse"], layout.RESTRICTED["degrade"]
WAITED_FOR: Final = _REFUSE | _DEGRADE
"""Bits of ``restricted`` under which a send waits for followers."""

_SLICE_MS: Final = 50
_NS_IN_MS: Final = 1_000_000


class Copies(enum.IntEnum):
    """What became of the copies of a message. The numbers are those of the kernel's ``SendResult.copies``."""

    NOT_ASKED = 0  #: the store waits for no follower
    MADE = 1  #: as many followers as it waits for have the message
    LATE = 2  #: they have not said so in time
    ABSENT = 3  #: too few followers were in sync to wait for


class Replicas:
    """The followers of one store, as its senders see them; for any thread."""

    def __init__(self, root: Path, state: SharedState, lock: LockFile) -> None:
        self._root = root
        self._state = state
        self._lock = lock

    @property
    def are_waited_for(self) -> bool:
        """Whether sends wait for followers."""
        return bool(self._state.restricted & WAITED_FOR)

    @property
    def are_in_sync(self) -> bool:
        """Whether so many followers as sends wait for were caught up a moment ago."""
        return self._state.replica_lease > clock.boottime()

    def admit(self) -> None:
        """Allow an append that its sender wants to be replicated. Raises ReadOnlyReplica, ReplicaUnavailable."""
        self.check_primary()
        if self._state.restricted & _REFUSE and not self.are_in_sync:
            settings = read_replication(self._root)
            raise ReplicaUnavailable(
                f"{self._root} waits for {settings.followers} in-sync followers ({settings.sync}), and fewer are: "
                "nothing was written. See `rmq replica status`; start a follower, or serve with --on-lost degrade"
            )

    def check_primary(self) -> None:
        """Refuse an append to a replica, or behind the end of the store's use. Raises ReadOnlyReplica, StoreClosed.

        Raises StoreReplaced when the directory is another one now.
        """
        self._state.check_open(self._root)
        if self._state.restricted & REPLACED:
            self._lock.check_in_place()
        check_primary(self._root, is_replica=self._state.is_replica)

    def copies(self, end: int) -> Copies:
        """Wait until followers have the log up to ``end``; anything but MADE is on the disk before this returns.

        Raises StoreFull, StoreBusy when that cannot be written: the message is stored, and must not be answered.
        """
        found = self._waited(end)
        if found in (Copies.LATE, Copies.ABSENT) and not self._state.is_missing:
            self._note_missing(end)
        return found

    def settle(self, end: int) -> bool | None:
        """Wait as a sender in this process; return ``SendResult.replicated``. Raises NotReplicated."""
        try:
            found = self.copies(end)
        except (QueueError, OSError) as error:
            raise NotReplicated(
                f"followers lack the message, and that cannot be written down: {error}; the message is stored here"
            ) from error
        if found is Copies.NOT_ASKED:
            return None
        if found is not Copies.MADE and self._state.restricted & _REFUSE:
            raise NotReplicated(
                f"no {read_replication(self._root).followers} followers have said within "
                f"{self._state.replica_timeout_ms} ms that they have the message; it is stored here"
            )
        return found is Copies.MADE

    def _waited(self, end: int) -> Copies:
        state = self._state
        if not self.are_waited_for:
            return Copies.NOT_ASKED
        if state.replicated_to >= end:
            return Copies.MADE
        if not self.are_in_sync:
            return Copies.ABSENT
        deadline = clock.boottime() + state.replica_timeout_ms * _NS_IN_MS
        while (left := deadline - clock.boottime()) > 0:
            seen = state.words.load32(_WORD)
            if state.replicated_to >= end:
                return Copies.MADE
            state.words.wait(_WORD, seen, min(_SLICE_MS, left // _NS_IN_MS + 1))
        return Copies.MADE if state.replicated_to >= end else Copies.LATE

    def _note_missing(self, end: int) -> None:
        """Write down that followers lack what is answered from now on. Raises StoreFull, StoreBusy."""
        with self._lock.held(TOPIC_BYTE):
            known = read_replication(self._root)
            if known.missing_from is None:
                write_replication(self._root, known.missing(self._known_to(known, end), clock.wall_ms()))
            reach(CrashPoint.MISSING_NOTED)
            self._state.is_missing = 1

    def _known_to(self, known: Replication, end: int) -> int:
        """Return up to where followers have what was answered: their last word, or where sends began to wait.

        A power cut may have taken what was there then.
        """
        return self._state.replicated_to or (known.waits_from if known.waits_from < end else 0)


class LogSending:
    """The role of the process that sends the log to followers, and what it says about them to the senders."""

    def __init__(self, root: Path, state: SharedState, lock: LockFile) -> None:
        self._root = root
        self._state = state
        self._lock = lock

    def begin(self) -> None:
        """Become the one process that sends the log, until :meth:`end`.

        Raises StoreBusy when another one does.
        """
        if not self._lock.try_exclusive(SENDER_BYTE):
            pid = self._lock.holder(SENDER_BYTE)
            raise StoreBusy(
                f"{f'process {pid}' if pid else 'another process'} sends the log of {self._root} already: end it, or "
                "start this server without --ha-listen"
            )

    def end(self) -> None:
        """Let another process send the log."""
        if self._lock.is_open:
            self._lock.unlock(SENDER_BYTE)

    def configure(self, settings: Replication) -> None:
        """Let every process that has the store open, and those that open it, wait like this. Raises StoreFull."""
        with self._lock.held(TOPIC_BYTE):
            known = read_replication(self._root)
            self.lose()
            settings = replace(
                settings.missing(known.missing_from, known.missing_since_ms), waits_from=known.waits_from
            )
            had, is_same = self._state.replicated_to, settings == known
            if settings.sync is not Sync.NONE and known.missing_from is None and not (is_same and had):
                settings = replace(settings, waits_from=had or self._state.published_to)
            if settings != known:
                write_replication(self._root, settings)
            if not is_same:
                self._state.replicated_to = 0  # it was said of other followers, or of fewer
            apply(self._state, settings)

    def say(self, replicated_to: int, in_sync_until: int) -> None:
        """Say how far the followers are, and until when (ns, boottime) they are in sync; wakes the senders."""
        state = self._state
        moved = state.replicated_to != replicated_to
        state.replica_lease = in_sync_until
        state.replicated_to = replicated_to
        reach(CrashPoint.REPLICATED_SAID)
        if moved:
            state.words.signal(_WORD)

    def lose(self) -> None:
        """Say that too few followers are in sync. What they had is still where their debts begin."""
        self._state.replica_lease = 0

    def note_complete(self, replicated_to: int) -> None:
        """Forget that followers lacked messages, if ``replicated_to`` covers all that can have been answered.

        The word falls first: a sender that finds it set has appended below the end that is read after that. Then it
        says what the file says, also when that could not be written. Raises StoreFull, StoreBusy.
        """
        with self._lock.held(TOPIC_BYTE):
            self._state.is_missing = 0
            known = read_replication(self._root)
            try:
                if replicated_to >= self._state.published_to:
                    write_replication(self._root, known.missing(None, None))
            finally:
                self._state.is_missing = int(read_replication(self._root).missing_from is not None)


def apply(state: SharedState, settings: Replication) -> None:
    """Put settings into the shared words."""
    state.replica_timeout_ms = settings.timeout_ms
    state.is_missing = int(settings.missing_from is not None)
    at = layout.RUNTIME_HEADER.at["restricted"]
    while not state.words.replace(at, seen := state.restricted, (seen & ~WAITED_FOR) | settings.restriction):
        pass


def told(result: SendResult, replicated: bool | None) -> SendResult:
    """Return a result that says whether replicas have the message."""
    if replicated is None:
        return result
    return sent_result(
        result.queue,
        result.queue_offset,
        result.commit_log_offset,
        result.commit_log_end,
        result.message_id,
        result.is_duplicate,
        result.offset_message_id,
        replicated,
    )
