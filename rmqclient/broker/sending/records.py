"""Records: stored messages by log offset."""

from __future__ import annotations

from rmqclient.store import MessageQueue, MessageStore, ReceivedMessage
from rmqclient.store.errors import MessageExpired, StoreCorrupt, UnknownTopic


def record_at(store: MessageStore, commit_log_offset: int) -> ReceivedMessage | None:
    """Return the message at a log offset; None if no message begins there, or if it was removed or is damaged.

    The offset comes from a client, and a body may contain bytes that look like a record. So the entry in the message's
    queue must have this offset.
    """
    if not store.state.min_offset <= commit_log_offset < store.state.published_to:
        return None
    try:
        found = store.messages.read(commit_log_offset)
        queue = MessageQueue(found.topic, found.queue_id)
        store.topics.slot(queue)
        entry = store.consume_queues[queue].entry_or_none(found.queue_offset)
    except (MessageExpired, StoreCorrupt, UnknownTopic, FileNotFoundError):
        return None
    return found if entry is not None and entry.commit_log_offset == commit_log_offset else None
