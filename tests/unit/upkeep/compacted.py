"""Compact topics that tests fill."""

from __future__ import annotations

from dataclasses import replace

from rmqclient import Message, Producer, PullConsumer, PullStatus
from rmqclient.store import MessageQueue, MessageStore
from rmqclient.store.config import CompactionConfig
from tests.support.stores import SMALL

QUEUE = MessageQueue("prices", 0)
CONFIG = replace(SMALL, compaction=CompactionConfig(delete_retention_ms=86_400_000))


def send(producer: Producer, *pairs: tuple[str, bytes], fill: int = 1_000) -> None:
    """Send prices, each a letter of which there are ``fill``: some thirty of them fill a commit log file."""
    for key, value in pairs:
        producer.send(Message("prices", value * fill, keys=[key]))


def compact(store: MessageStore, queue: MessageQueue = QUEUE) -> int:
    store.flusher.flush_thorough()
    return store.compaction.compact(queue)


def pulled(store: MessageStore, queue: MessageQueue = QUEUE) -> list[tuple[int, str, bytes]]:
    """Read a queue from its oldest message on."""
    consumer = PullConsumer(store, group="readers")
    offset, found = consumer.min_offset(queue), []
    while (result := consumer.pull(queue, offset, limit=7)).status is not PullStatus.NO_NEW_MESSAGE:
        found += [(each.queue_offset, each.keys[0], each.body[:1]) for each in result.messages]
        offset = result.next_offset
    return found
