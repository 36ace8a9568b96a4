"""Cold reads: suggests the broker for a client's next pull, so that reads of old messages spare the primary's memory.

RocketMQ's rule [DefaultMessageStore.getMessage, PullMessageProcessor]: a message further below the log's end than 40 %
of the host's memory is assumed to be on disk only, and the client's next pull goes to the replica. The distance is in
bytes of the whole log, not an age and not per topic. A client that has caught up comes back.
"""

from __future__ import annotations

import os

from rmqclient.remoting import bodies
from rmqclient.store import MessageQueue, MessageStore
from rmqclient.store.errors import StoreCorrupt


class ColdReads:
    """Suggests the replica to clients that are far behind; never with ``memory_percent=None``."""

    def __init__(self, store: MessageStore, memory_percent: int | None) -> None:
        self._store = store
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        self._most_bytes = None if memory_percent is None else memory * memory_percent // 100

    def broker_after(self, queue: MessageQueue, next_offset: int) -> int:
        """Return the id of the broker to ask next, for a client that got the message before ``next_offset``."""
        if self._most_bytes is None:
            return bodies.MASTER_ID
        try:
            at = self._store.consume_queues[queue].entry(next_offset - 1).commit_log_offset
        except (FileNotFoundError, StoreCorrupt):
            return bodies.MASTER_ID
        is_far = self._store.state.published_to - at > self._most_bytes
        return bodies.SLAVE_ID if is_far else bodies.MASTER_ID
