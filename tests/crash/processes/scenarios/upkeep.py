"""Children that remove old files, compact topics, write the history, and are the housekeeper."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

from rmqclient.store import Message, MessageQueue, open_store
from rmqclient.store.config import FlushConfig, RetentionConfig
from rmqclient.store.history.recorder import Recorder
from rmqclient.store.marks import Marks
from rmqclient.store.settings.disk import Usage
from tests.crash.processes.order import Note, Order
from tests.support.stores import SMALL, SPAN, TOPIC, appender_of, body_of, grant_of

HISTORY_BEGINS_MS = 1_800_000_000_000
"""Time of day, in ms since 1970, of the first record of a history."""
COMPACT_QUEUE = MessageQueue("prices", 0)
PRICES = 70
"""Keys of the compact topic."""


def clean(order: Order, note: Note) -> None:
    """Append until there are old files of the log and of the queue, then remove all that may go; note each pass."""
    config = replace(SMALL, retention=RetentionConfig(disk_max_used_percent=1, disk_clean_forcibly_percent=1))
    store = open_store(order.root, config, housekeeping=False)
    appender = appender_of(store)
    for number in range(5 * SMALL.consume_queue_file_entries):
        appender.append(Message(TOPIC, body_of(number, order.body_bytes)))
    store.flusher.flush_thorough()
    store.index.catch_up()
    store.disk.usage = lambda: Usage(99.0, 0)  # type: ignore[method-assign]
    order.arm()
    while removed := store.retention.clean():
        note(removed[-1])


def compact(order: Order, note: Note) -> None:
    """Change some prices again and again, each a letter, then compact and remove what may go; note when that is done.

    Every other time a price is deleted at the end.
    """
    config = replace(SMALL, retention=RetentionConfig(disk_max_used_percent=1, disk_clean_forcibly_percent=1))
    store = open_store(order.root, config, housekeeping=False)
    store.disk.usage = lambda: Usage(2.0, 0)  # type: ignore[method-assign]
    order.arm()
    for round_number in range(2):
        store.topics.create(COMPACT_QUEUE.topic, 1, "compact")
        appender = appender_of(store)
        for number in range(3 * PRICES + round_number):
            appender.append(Message(COMPACT_QUEUE.topic, price_of(number) * 300, keys=[f"key-{number % PRICES}"]))
        if round_number:
            appender.append(Message(COMPACT_QUEUE.topic, b"", keys=["key-1"]))
        for number in range(80):
            appender.append(Message(TOPIC, body_of(number, 1_500)))
        store.flusher.flush_thorough()
        while store.retention.clean():
            pass
        note("compacted")


def price_of(number: int) -> bytes:
    """Return the letter of an update."""
    return b"%c" % (97 + number % 26)


def keep_history(order: Order, note: Note) -> None:
    """Send and finish some messages, and write the history, again and again; note the messages that are finished.

    Each time half a minute has passed, so that records are summed up, too.
    """
    now_ms = HISTORY_BEGINS_MS + order.target * 30_000
    store = open_store(order.root, SMALL, housekeeping=False)
    recorder = Recorder(store.root, store.lock, wall_ms=lambda: now_ms)
    appender, grant = appender_of(store), grant_of(store)
    order.arm()
    for number in range(order.rounds or 100):
        for each in range(1 + number % 3):
            appender.append(Message(TOPIC, body_of(each)))
        taken = grant.take(SPAN, SPAN)
        if grant.acknowledge_offsets([message.queue_offset for message in taken]):
            note(len(taken))
        now_ms += 30_000
        recorder.record()


def write_marks(order: Order, note: Note) -> None:
    """Write marks, each with a number of its own; note each that is written."""
    store = open_store(order.root, SMALL, housekeeping=False)
    marks = Marks(store.root, store.lock)
    order.arm()
    for number in range(order.rounds or 100):
        marks.write("pause", f"{order.target}-{number}", "why not", author="ada")
        note(f"{order.target}-{number}")


def keep_house(order: Order, note: Note) -> None:
    """Be the housekeeper; note once it is. It ends with the process."""
    config = replace(SMALL, offset_persist_interval_ms=50, flush=FlushConfig(interval_ms=50, thorough_interval_ms=50))
    order.arm()
    store = open_store(order.root, config)
    keeper = store.housekeeper
    assert keeper is not None
    while not keeper.has_role:
        time.sleep(0.005)
    note("at work")
    threading.Event().wait()
