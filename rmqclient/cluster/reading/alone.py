"""Alone: a named mutex between processes, by locks at the brokers.

A broker gives the lock of a group's queue to one client at a time (LOCK_BATCH_MQ), until 60 s after the last renewal.
It does not check whether the group and the queue exist. So the name is used as the topic, and a process must get the
lock of every reachable master. Two processes that reach a common broker exclude each other. If they reach no common
broker, or if the holder is stopped for a minute, both may hold the mutex: the caller must tolerate that.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from rmqclient.cluster.client.client import ClusterClient
from rmqclient.cluster.groups.locks import RENEW_EVERY_S, QueueLocks
from rmqclient.errors import BrokerUnreachable, QueueError, RequestTimedOut, StoreBusy
from rmqclient.names import CRON_GROUP
from rmqclient.store import MessageQueue

_LOOK_EVERY_S: Final = 0.1


class Alone:
    """The named mutexes of one client. Safe for threads."""

    def __init__(self, client: ClusterClient) -> None:
        self._client = client
        self._locks = QueueLocks(client, CRON_GROUP, ordered=True)
        self._here: dict[str, threading.Lock] = {}

    @contextmanager
    def keep_others_out(self, name: str, timeout_s: float) -> Iterator[None]:
        """Hold a mutex against other processes, and other threads of this client, until the block ends.

        Raises StoreBusy after ``timeout_s``, BrokerUnreachable if no master answers.
        """
        here = self._here.setdefault(name, threading.Lock())
        if not here.acquire(timeout=timeout_s):
            raise StoreBusy(f"another thread holds {name!r}")
        try:
            queues = self._locked(name, time.monotonic() + timeout_s)
            ended = threading.Event()
            self._renew_later(queues, ended)
            try:
                yield
            finally:
                ended.set()
                self._unlock(queues)
        finally:
            here.release()

    def _locked(self, name: str, deadline: float) -> list[MessageQueue]:
        while True:
            mine, is_held = self._tried(name)
            if mine and not is_held:
                return mine
            self._unlock(mine)
            if not mine and not is_held:
                raise BrokerUnreachable(f"no master gives a lock for {name!r}: none can be reached")
            if time.monotonic() > deadline:
                raise StoreBusy(f"another process holds {name!r}")
            time.sleep(_LOOK_EVERY_S)

    def _tried(self, name: str) -> tuple[list[MessageQueue], bool]:
        """Lock the name at each master; return the locks obtained, and whether another client holds one."""
        mine: list[MessageQueue] = []
        for broker_name in self._client.brokers.masters():
            queue = MessageQueue(name, 0, broker_name)
            with suppress(BrokerUnreachable, RequestTimedOut):
                if not self._locks.lock(queue):
                    return mine, True
                mine.append(queue)
        return mine, False

    def _unlock(self, queues: list[MessageQueue]) -> None:
        for queue in queues:
            with suppress(QueueError):  # the lock expires after 60 s
                self._locks.unlock(queue)

    def _renew_later(self, queues: list[MessageQueue], ended: threading.Event) -> None:
        def renew() -> None:  # on the I/O thread
            if not ended.is_set():
                with suppress(QueueError):
                    self._locks.renew(queues, lambda _asked, _kept: None)
                    self._client.later(RENEW_EVERY_S, renew)

        self._client.later(RENEW_EVERY_S, renew)
