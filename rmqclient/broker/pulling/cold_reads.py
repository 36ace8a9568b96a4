"""Cold reads: which broker a client asks next, so that reading old messages leaves the primary's memory alone.

RocketMQ's rule [DefaultMessageStore.getMessage, PullMessageProcessor]: a message that stands further than 40 % of the
host's memory below the end of the log is taken to be on the disk only, and the next pull of the client goes to the
replica. It is a distance in bytes of the whole log, neither an age nor one of the topic. A client that has caught up
comes back.
"""

from __future__ import annotations

import os

from rmqclient.remoting import bodies
from rmqclient.store import MessageQueue, MessageStore
from rmqclient.store.errors import StoreCorrupt


class ColdReads:
    """Tells who reads far behind. With ``memory_percent=None`` nobody is sent elsewhere."""

    def __init__(self, store: MessageStore, memory_percent: int | None) -> None:
        self._store = store
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        self._most_bytes = None if memory_percent is None else memory * memory_percent // 100

    def broker_after(self, queue: MessageQueue, next_offset: int) -> int:
        """Return which broker a client asks next that was given the message before ``next_offset``."""
        if self._most_bytes is None:
            return bodies.MASTER_ID
        try:
            at = self._store.consume_queues[queue].entry(next_offset - 1).commit_log_offset
        except (FileNotFoundError, StoreCorrupt):
            return bodies.MASTER_ID
        is_far = self._store.state.published_to - at > self._most_bytes
        return bodies.SLAVE_ID if is_far else bodies.MASTER_ID
