"""Small stores that tests build, fill, own a queue of, and leave as a killed process does."""

from __future__ import annotations

import time
from collections.abc import Iterable

from rmqclient.store import Message, MessageQueue, MessageStore, QueueGrant, ReceivedMessage, StoreConfig, TagSet
from rmqclient.store.append.releaser import Releaser
from rmqclient.store.kernel._kernel import Appender, delay_ms
from rmqclient.store.waiting.half_messages import HALF_QUEUE, checks_of
from rmqclient.store.waiting.schedule import DELAY_LEVELS, queue_of

TOPIC = "orders"
QUEUE = MessageQueue(TOPIC, 0)
GROUP = "billing"
SPAN = 2_000

SMALL = StoreConfig(
    commit_log_file_bytes=36_864,
    max_body_bytes=2_048,
    consume_queue_file_entries=64,
    index_slots=16,
    index_entries=40,
    lock_timeout_ms=2_000,
)
"""Files of nine pages and of 64 entries: some twenty large messages roll to the next file."""


def body_of(number: int, size: int = 60) -> bytes:
    """Return the only right body of a message: at least ``size`` bytes that all depend on its number."""
    text = b"message %d; " % number
    return text * -(-size // len(text))


def number_of(body: bytes) -> int:
    """Return the number of a message; raises ValueError for a body that is damaged."""
    number = int(body.partition(b";")[0].removeprefix(b"message "))
    if body != body_of(number, len(body)):
        raise ValueError(f"the body of message {number} is damaged")
    return number


def appender_of(store: MessageStore) -> Appender:
    """Return what appends to the one queue of the topic."""
    return store.appenders.make(lambda topic: store.topics.create(topic, 1), lambda body: bytes(str(body), "utf-8"))


def grant_of(
    store: MessageStore, group: str = GROUP, queue: MessageQueue = QUEUE, tags: Iterable[str] = ()
) -> QueueGrant:
    """Become the next owner of a queue in a group, as a member does."""
    slot = store.groups.find_or_add(group, store.topics.slot(queue), 0)
    with slot.locked(store.config.lock_timeout_ms):
        epoch = slot.load("epoch") + 1
        slot.store("epoch", epoch)
        slot.finish_seek()
    return store.grants.grant(slot, epoch, TagSet(tags))


def begin_transactions(store: MessageStore, count: int, size: int = 60) -> None:
    """Store so many half messages, for the one queue of the topic."""
    appender = appender_of(store)
    for number in range(count):
        appender.append_half(Message(TOPIC, body_of(number, size), tags="half"), "producers")


def first_halves(store: MessageStore) -> list[ReceivedMessage]:
    """Return the half messages as they were stored first, decided or not."""
    known = range(store.topics.max_offset(HALF_QUEUE))
    return [half for number in known if checks_of(half := store.messages.at(HALF_QUEUE, number)) == 0]


def in_an_hour() -> int:
    """Return a time, in ms, at which every half message that is there now is to be checked."""
    return time.time_ns() // 1_000_000 + 3_600_000


def after_every_delay() -> int:
    """Return a time, in ms, at which everything that waits now is due, and no clock was set back."""
    return time.time_ns() // 1_000_000 + delay_ms(18) + 1_000


def waiting(store: MessageStore) -> dict[int, int]:
    """Return how many messages wait in each delay level that has a queue."""
    found = {}
    for level in DELAY_LEVELS:
        if queue_of(level) in store.topics.all_queues():
            found[level] = store.topics.max_offset(queue_of(level)) - store.schedule.next_offset(level)
    return found


def abandon(store: MessageStore) -> None:
    """Leave the store as a killed process does: its threads end, its locks go, and nothing else is done."""
    for thread in store.threads:
        if isinstance(thread, Releaser):
            thread.close()
    store.appenders.close()
    store.life.is_closed = True
    store.lock.close()
