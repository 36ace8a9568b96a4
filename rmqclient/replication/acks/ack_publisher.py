"""Ack publisher: publishes the acknowledged end, and until when followers are in sync, to the senders of all processes.

Each time followers reach the target, the log's end at that moment becomes the next target, which they must reach within
the time-out to be in sync. So a connected follower that hangs is out of sync one time-out after the first message that
it does not report, and a new one is in sync once it has caught up.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Final

from rmqclient.errors import QueueError
from rmqclient.replication.acks.followers import Follower, acknowledged
from rmqclient.store import MessageStore, boottime
from rmqclient.store.settings.replication import Replication, Sync
from rmqclient.store.threads.guarded import GuardedThread
from rmqclient.store.threads.logs import Log

_log = Log(__name__)

_NS_IN_MS: Final = 1_000_000
_LOOKS_IN_A_TIMEOUT: Final = 6


class AckPublisher:
    """Checks the followers of one open store after each report, and a few times within the time-out."""

    def __init__(
        self, store: MessageStore, settings: Replication, connections: Callable[[], Iterable[Follower]]
    ) -> None:
        self._store = store
        self._settings = settings
        self._connections = connections
        self._goal: int | None = None
        self._reached_at = 0
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = GuardedThread(target=self._run, name="rmq-ha-acks")

    @property
    def is_needed(self) -> bool:
        """Whether sends wait for followers."""
        return self._settings.sync is not Sync.NONE

    def start(self) -> None:
        """Set what senders of all processes wait for, and start checking. Raises StoreFull."""
        self._store.log_sending.configure(self._settings)
        if self.is_needed:
            self._thread.start()

    def close(self) -> None:
        """Stop; from now on no follower is in sync."""
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join()
            with self._lock:
                self._store.log_sending.lose()

    def look(self) -> None:
        """Publish the acknowledged end now. For any thread.

        Also if sends no longer wait, while followers lack messages that were answered without them.
        """
        if not self.is_needed and not self._store.state.is_missing:
            return
        with self._lock:
            if self._ended.is_set():
                return
            acked = acknowledged(self._connections(), self._settings)
            lease = self._lease(acked)
            if acked is None:
                self._store.log_sending.lose()
                return
            self._store.log_sending.say(acked, lease)
            if lease and self._store.state.is_missing:
                self._complete(acked)

    def _lease(self, acked: int | None) -> int:
        """Return the time until which the followers are in sync; 0 if they are not."""
        published_to, now = self._store.state.published_to, boottime()
        if acked is None:
            self._goal, self._reached_at = None, 0
            return 0
        if self._goal is None:
            self._goal = published_to
        if acked >= self._goal:
            self._goal, self._reached_at = published_to, now
        return self._reached_at + self._settings.timeout_ms * _NS_IN_MS if self._reached_at else 0

    def _complete(self, acked: int) -> None:
        if acked < self._store.state.published_to:
            return
        try:
            self._store.log_sending.note_complete(acked)
        except QueueError as error:
            _log.warning("followers have caught up, but this could not be recorded yet: %s", error)

    def _run(self) -> None:
        while not self._ended.wait(self._settings.timeout_ms / 1000 / _LOOKS_IN_A_TIMEOUT):
            self.look()
