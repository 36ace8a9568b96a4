"""What a child process of a crash test does until it is killed: one function for each scenario.

A child says what has happened by single writes to a file outside of the store, one line for each operation that has
returned, so that a kill cannot take back what was said. Everything else the tests must find out by themselves.
"""

from __future__ import annotations

import contextlib
import datetime
import importlib
import itertools
import json
import logging
import os
import signal
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any, cast

from rmqclient import App, Producer, RetryPolicy
from rmqclient.consuming.push_consumer import PushConsumer
from rmqclient.databases.database import Connection, execute, is_sqlite
from rmqclient.databases.inbox import Inbox
from rmqclient.databases.outbox import Outbox, Relay
from rmqclient.schedules.cron_sender import CronSender
from rmqclient.store import (
    Durability,
    Message,
    MessageQueue,
    MessageStore,
    QueueGrant,
    ReceivedMessage,
    StoreConfig,
    TagSet,
    crash_points,
    open_store,
)
from rmqclient.store.config import RetentionConfig, TransactionConfig
from rmqclient.store.crash_points import CrashPoint, arm
from rmqclient.store.errors import TransactionDecided
from rmqclient.store.kernel._kernel import Appender, delay_ms
from rmqclient.store.settings.disk import Usage
from rmqclient.store.waiting.half_messages import HALF_QUEUE, checks_of
from rmqclient.store.waiting.schedule import LEVELS, queue_of
from rmqclient.store.waiting.timer_bits import QUEUE as TIMER_QUEUE
from rmqclient.store.waiting.timer_bits import WORD

TOPIC = "orders"
QUEUE = MessageQueue(TOPIC, 0)
COMPACT_QUEUE = MessageQueue("prices", 0)
PRICES = 70
"""Keys of the compact topic."""
GROUP = "billing"
WANTED = "wanted"
SPAN = 2_000

NOON = datetime.datetime(2026, 11, 21, 12, tzinfo=datetime.UTC)
A_MINUTE = datetime.timedelta(minutes=1)
MINUTES = 6
"""For which a schedule is looked at."""

SMALL = StoreConfig(
    commit_log_file_bytes=36_864,
    max_body_bytes=2_048,
    consume_queue_file_entries=64,
    index_slots=16,
    index_entries=40,
    lock_timeout_ms=2_000,
)
"""Files of nine pages and of 64 entries: some twenty large messages roll to the next file."""

LONGEST_LIFE_S = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What one child is to do."""

    scenario: str
    root: str
    notes: str
    """File for what has returned."""

    point: str = ""
    """Name of the crash point to die at; empty for none."""

    survive: int = 0
    """How often to pass it first."""

    signal_number: int = signal.SIGKILL
    kill_at_line: int = 0
    """Die at the so many-th line of the store's Python that is reached for the first time; 0 for none."""

    rounds: int = 0
    """How often to open and close; 0 for without end."""

    batch: int = 1
    """Messages of one append; offsets of one acknowledgement."""

    body_bytes: int = 60
    pattern: str = "in order"
    """In which order to acknowledge, a key of ``PATTERNS``."""

    target: int = 0
    """Queue offset to seek to, or to be the oldest one."""

    def text(self) -> str:
        """Return the order as one line."""
        return json.dumps(asdict(self))

    def arm(self) -> None:
        """From now on, die at the point."""
        if self.point:
            arm(CrashPoint[self.point], passes=self.survive, signal_number=self.signal_number)
        if self.kill_at_line:
            die_at_line(self.kill_at_line)


Note = Callable[[object], None]
TraceFunction = Callable[[FrameType, str, object], object]


def die_at_line(number: int) -> None:
    """Kill this process when its main thread reaches the so many-th line of the store for the first time."""
    package = str(Path(crash_points.__file__).parent)
    seen: set[tuple[str, int]] = set()

    def trace(frame: FrameType, event: str, _: object) -> TraceFunction | None:
        if not frame.f_code.co_filename.startswith(package):
            return None
        if event == "line":
            seen.add((frame.f_code.co_filename, frame.f_lineno))
            if len(seen) == number:
                os.kill(os.getpid(), signal.SIGKILL)
        return trace

    sys.settrace(cast("Any", trace))  # typeshed asks for a return of its own protocol


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
    return store.appender(lambda topic: store.topics.create(topic, 1), lambda body: bytes(str(body), "utf-8"))


def grant_of(
    store: MessageStore, group: str = GROUP, queue: MessageQueue = QUEUE, tags: Iterable[str] = ()
) -> QueueGrant:
    """Become the next owner of a queue in a group, as a member does."""
    slot = store.groups.find_or_add(group, store.topics.slot(queue), 0)
    with slot.locked(store.config.lock_timeout_ms):
        epoch = slot.load("epoch") + 1
        slot.store("epoch", epoch)
        slot.finish_seek()
    return store.grant(slot, epoch, TagSet(tags))


# --- scenarios ------------------------------------------------------------------------------------


def append(order: Order, note: Note) -> None:
    """Append batches of consecutive messages; note the number after the last one of each."""
    store = open_store(order.root, housekeeping=False)
    appender = appender_of(store)
    order.arm()
    for first in itertools.count(0, order.batch):
        messages = [Message(TOPIC, body_of(first + step, order.body_bytes)) for step in range(order.batch)]
        if order.batch == 1:
            appender.append(messages[0])
        else:
            appender.append_batch(messages)
        note(first + order.batch)


def append_durably(order: Order, note: Note) -> None:
    """Append with SYNC durability; note the number after each message and how far the log was flushed."""
    store = open_store(order.root, replace(SMALL, durability=Durability.SYNC), housekeeping=False)
    appender = appender_of(store)
    order.arm()
    for number in itertools.count():
        result = appender.append(Message(TOPIC, body_of(number, order.body_bytes)))
        store.flusher.wait_until_flushed(result.commit_log_end)
        note(f"{number + 1} {store.state.flushed_to - result.commit_log_end}")


def acknowledge(order: Order, note: Note) -> None:
    """Take everything there is and acknowledge it; note the offsets whose acknowledgement was taken."""
    grant = grant_of(open_store(order.root, housekeeping=False))
    taken = [message.queue_offset for message in grant.take(SPAN, SPAN)]
    order.arm()
    for offsets in chunks(PATTERNS[order.pattern](taken), order.batch):
        if grant.acknowledge_offsets(offsets):
            note(" ".join(map(str, offsets)))


def skip(order: Order, note: Note) -> None:
    """Take what has the wanted tag, some at a time, and acknowledge it; note the offsets that were taken back."""
    grant = grant_of(open_store(order.root, housekeeping=False), tags=[WANTED])
    order.arm()
    while taken := [message.queue_offset for message in grant.take(order.batch, SPAN)]:
        for offsets in chunks(PATTERNS[order.pattern](taken), order.batch):
            if grant.acknowledge_offsets(offsets):
                note(" ".join(map(str, offsets)))


def write_offsets(order: Order, note: Note) -> None:
    """Acknowledge message after message and write ``consumerOffset.json`` each time; note what it then says."""
    store = open_store(order.root, housekeeping=False)
    grant = grant_of(store)
    taken = [message.queue_offset for message in grant.take(SPAN, SPAN)]
    order.arm()
    for offset in taken:
        assert grant.acknowledge_offsets([offset])
        store.persist_offsets()
        note(grant.committed_offset)


def seek(order: Order, note: Note) -> None:
    """Move the group to the target, and say so."""
    store = open_store(order.root, housekeeping=False)
    slot = store.groups.find_or_add(GROUP, store.topics.slot(QUEUE), 0)
    order.arm()
    with slot.locked(store.config.lock_timeout_ms):
        slot.seek(order.target)
    note(order.target)


def step_over(order: Order, note: Note) -> None:
    """Take from a queue whose messages below the target were removed, and say so."""
    store = open_store(order.root, housekeeping=False)
    grant = grant_of(store)
    store.topics.raise_min_offset(QUEUE, order.target)
    order.arm()
    note(len(grant.take(1, SPAN)))


def begin(order: Order, note: Note) -> None:
    """Make the slots of a new group for every queue there is, at their ends."""
    store = open_store(order.root, housekeeping=False)
    store.topics.create("latecomers", 3)
    ends = {store.topics.slot(queue): store.topics.max_offset(queue) for queue in store.topics.all_queues()}
    order.arm()
    note(store.groups.begin("new", ends))


def index(order: Order, note: Note) -> None:
    """Append messages with two keys and index them, one by one; note the number after each message that is indexed."""
    store = open_store(order.root, housekeeping=False)
    appender = appender_of(store)
    order.arm()
    for number in itertools.count():
        appender.append(Message(TOPIC, body_of(number, order.body_bytes), keys=keys_of(number)))
        store.build_index()
        note(number + 1)


def keys_of(number: int) -> list[str]:
    """Return the keys of a message: one of its own, and one that it shares with others."""
    return [f"key{number}", f"shared{number % 3}"]


def open_and_close(order: Order, note: Note) -> None:
    """Open the store, append one message, close the store, again and again; note the number after each message."""
    order.arm()
    for number in range(order.rounds) if order.rounds else itertools.count():
        with open_store(order.root, SMALL, housekeeping=False) as store:
            appender_of(store).append(Message(TOPIC, body_of(number, order.body_bytes)))
            note(number + 1)


def clean(order: Order, note: Note) -> None:
    """Append until there are old files of the log and of the queue, then remove all that may go; note each pass."""
    config = replace(SMALL, retention=RetentionConfig(disk_max_used_percent=1, disk_clean_forcibly_percent=1))
    store = open_store(order.root, config, housekeeping=False)
    appender = appender_of(store)
    for number in range(5 * SMALL.consume_queue_file_entries):
        appender.append(Message(TOPIC, body_of(number, order.body_bytes)))
    store.flush_thorough()
    store.build_index()
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
        store.flush_thorough()
        while store.retention.clean():
            pass
        note("compacted")


def price_of(number: int) -> bytes:
    """Return the letter of an update."""
    return b"%c" % (97 + number % 26)


def deliver(order: Order, note: Note) -> None:
    """Deliver what waits in the delay levels, as if the longest delay were over; note when all is delivered."""
    store = open_store(order.root, housekeeping=False)
    store.schedule.now_ms = after_every_delay
    order.arm()
    while any(waiting(store).values()):
        store.schedule.look()
    note("delivered")


def persist_schedule(order: Order, note: Note) -> None:
    """Deliver one message after the other, and write down after each how far that is."""
    store = open_store(order.root, housekeeping=False)
    appender = appender_of(store)
    store.schedule.now_ms = after_every_delay
    order.arm()
    for number in itertools.count():
        appender.append(Message(TOPIC, body_of(number)), delay_level=1)
        store.schedule.look()
        store.persist_schedule()
        note(number + 1)


def deliver_timed(order: Order, note: Note) -> None:
    """Deliver what waits in the timer, as if all of it were due; note when all is delivered."""
    store = open_store(order.root, housekeeping=False)
    store.timer.now_ms = lambda: 1 << 42
    order.arm()
    while store.timer.look() == 0 or any(True for _ in store.timer.pending()):
        pass
    store.timer.look()  # with nothing to deliver, it moves on over what is done
    note("delivered")


def cancel_timed(order: Order, note: Note) -> None:
    """Cancel every second message that waits in the timer; note the id of each."""
    store = open_store(order.root, housekeeping=False)
    appender = appender_of(store)
    waiting_now = list(store.timer.pending())
    order.arm()
    for pending in waiting_now[::2]:
        assert store.timer.cancel(pending.message_id, appender)
        note(pending.message_id)


def roll_timed(order: Order, note: Note) -> None:
    """Append everything again that waits in the timer, as before its files are removed."""
    store = open_store(order.root, housekeeping=False)
    end = store.state.published_to
    order.arm()
    store.timer.roll_below(end)
    note("rolled")


def persist_timer(order: Order, note: Note) -> None:
    """Deliver sixty-four messages after the other, and write down after each what is done."""
    store = open_store(order.root, housekeeping=False)
    appender = appender_of(store)
    store.timer.now_ms = after_every_delay
    order.arm()
    for number in itertools.count():
        due_ms = after_every_delay()
        appender.append_batch([Message(TOPIC, body_of(number)) for _ in range(WORD)], due_ms=due_ms)
        while store.timer.look() == 0 or store.timer.bits.begin < store.topics.max_offset(TIMER_QUEUE):
            pass
        store.timer.persist()
        note(number + 1)


def decide(order: Order, note: Note) -> None:
    """Commit every second transaction and roll the others back, by their first half messages; note each."""
    store = open_store(order.root, housekeeping=False)
    halves = first_halves(store)
    order.arm()
    for number, half in enumerate(halves):
        try:
            store.transactions.decide(half, commit=number % 2 == 0)
        except TransactionDecided as error:
            assert error.committed == (number % 2 == 0)
        note(number)


def check(order: Order, note: Note) -> None:
    """Run round after round of checks until every transaction is given up; note each round."""
    logging.getLogger("rmqclient.store").setLevel(
        logging.CRITICAL
    )  # what is given up is reported, and this is meant to be
    store = open_store(order.root, replace(SMALL, transactions=TransactionConfig(check_max=CHECKS)), housekeeping=False)
    store.transactions.now_ms = in_an_hour
    order.arm()
    while store.transactions.pending():
        store.transactions.check()
        note("round")


CHECKS = 3


def relay(order: Order, note: Note) -> None:
    """Send what is in the outbox beside the store; note each batch."""
    sending = Relay(open_store(order.root, housekeeping=False), Outbox(), connector_beside(Path(order.root)), batch=3)
    order.arm()
    while sent := sending.send():
        note(sent)


def send_once(order: Order, note: Note) -> None:
    """Send so many messages by their numbers as keys; note each number, if it was a duplicate, and where it stands."""
    with open_store(order.root, housekeeping=False) as store, Producer(store) as producer:
        order.arm()
        for number in range(order.rounds):
            sent = producer.send_once(Message(TOPIC, body_of(number, order.body_bytes)), f"key-{number}")
            note(f"{number} {int(sent.is_duplicate)} {sent.commit_log_offset}")


def handle_once(order: Order, note: Note) -> None:
    """Handle what is in the topic, each message in its own transaction; note each call, and if it was the first."""
    app = bookkeeping(Path(order.root), connector_beside(Path(order.root)), note)
    consumer = PushConsumer(open_store(order.root, housekeeping=False), app.handlers)
    order.arm()
    consumer.start()
    threading.Event().wait()


def open_books(connect: Callable[[], Connection]) -> None:
    """Make the tables of the bookkeeping, empty."""
    with contextlib.closing(connect()) as connection:
        Inbox(GROUP).create(connection)
        kind = "BLOB" if is_sqlite(connection) else "BYTEA"
        for table, column in (("account", "balance INTEGER"), ("booked", f"body {kind}")):
            execute(connection, table, f"CREATE TABLE IF NOT EXISTS {{table}} ({column})")
        for table in (Inbox(GROUP).table, "account", "booked"):
            execute(connection, table, "DELETE FROM {table}")
        execute(connection, "account", "INSERT INTO {table} VALUES (0)")
        connection.commit()


def bookkeeping(root: Path, connect: Callable[[], Connection], note: Note, failing: int = 0) -> App:
    """Return an application that adds to a balance and books each message, once; every ``failing``-th call fails."""
    app, inbox, calls = App(root), Inbox(GROUP), itertools.count(1)

    @app.handler(TOPIC, group=GROUP, threads=2, retry=RetryPolicy(delay_levels=(1,)))
    def book(message: ReceivedMessage) -> None:
        with contextlib.closing(connect()) as connection:
            with inbox.once(connection, message) as is_first:
                if is_first:
                    execute(connection, "account", "UPDATE {table} SET balance = balance + 1")
                    execute(connection, "booked", "INSERT INTO {table} VALUES (?)", (message.body,))
                if failing and next(calls) % failing == 0:
                    raise ValueError("the handler fails after its changes")
            note(f"{message.message_id} {int(is_first)}")

    return app


def tick(order: Order, note: Note) -> None:
    """Send the messages of a schedule, one a minute, as time passes quickly; note each minute."""
    look_at = minutes_of(open_store(order.root, housekeeping=False))
    order.arm()
    for minute in range(MINUTES):
        look_at(minute)
        note(minute)


def minutes_of(store: MessageStore) -> Callable[[int], float]:
    """Return what looks at a schedule as it is at the so many-th minute."""
    app, clock = App(), [NOON]
    app.schedule("* * * * *", topic=TOPIC, name="minute", misfire_grace=MINUTES * A_MINUTE, coalesce=False)(
        body_of_tick
    )
    sender = CronSender(store, Producer(store), app.crons[0], lambda: clock[0])

    def look_at(minute: int) -> float:
        clock[0] = NOON + minute * A_MINUTE
        return sender.look()

    return look_at


def body_of_tick(tick: datetime.datetime) -> bytes:
    """Return what the message of a minute holds."""
    return body_of((tick - NOON) // A_MINUTE)


def connector_beside(root: Path) -> Callable[[], Connection]:
    """Return what opens the database of an outbox: what a file beside the store names, or an SQLite one there."""
    name = root.with_name("database")
    if name.exists():
        psycopg = importlib.import_module("psycopg")  # a test that needs it is skipped without
        return lambda: cast("Connection", psycopg.connect(name.read_text(encoding="ascii")))
    return lambda: sqlite3.connect(root.with_name("outbox.db"))


def fill_outbox(root: Path, count: int) -> None:
    """Commit so many messages to the outbox beside a store, one transaction each."""
    with contextlib.closing(connector_beside(root)()) as connection:
        Outbox().create(connection)
        for number in range(count):
            Outbox().add(connection, Message(TOPIC, body_of(number)))
            connection.commit()


def begin_transactions(store: MessageStore, count: int, size: int = 60) -> None:
    """Store so many half messages, for the one queue of the topic."""
    appender = appender_of(store)
    for number in range(count):
        appender.append_half(Message(TOPIC, body_of(number, size), tags="half"), "producers")


def first_halves(store: MessageStore) -> list[ReceivedMessage]:
    """Return the half messages as they were stored first, decided or not."""
    known = range(store.topics.max_offset(HALF_QUEUE))
    return [half for number in known if checks_of(half := store.message_at(HALF_QUEUE, number)) == 0]


def in_an_hour() -> int:
    """Return a time, in ms, at which every half message that is there now is to be checked."""
    return time.time_ns() // 1_000_000 + 3_600_000


def after_every_delay() -> int:
    """Return a time, in ms, at which everything that waits now is due, and no clock was set back."""
    return time.time_ns() // 1_000_000 + delay_ms(18) + 1_000


def waiting(store: MessageStore) -> dict[int, int]:
    """Return how many messages wait in each delay level that has a queue."""
    found = {}
    for level in LEVELS:
        if queue_of(level) in store.topics.all_queues():
            found[level] = store.topics.max_offset(queue_of(level)) - store.schedule.next_offset(level)
    return found


SCENARIOS: dict[str, Callable[[Order, Note], None]] = {
    function.__name__: function
    for function in (
        append,
        append_durably,
        acknowledge,
        skip,
        seek,
        step_over,
        begin,
        index,
        write_offsets,
        open_and_close,
        clean,
        compact,
        deliver,
        persist_schedule,
        deliver_timed,
        cancel_timed,
        roll_timed,
        persist_timer,
        decide,
        check,
        relay,
        send_once,
        handle_once,
        tick,
    )
}


def chunks(offsets: list[int], size: int) -> Iterator[list[int]]:
    """Split into lists of ``size``."""
    return (offsets[at : at + size] for at in range(0, len(offsets), size))


def _blocks_reversed(offsets: list[int]) -> list[int]:
    """Each hundredth message is late, and the committed offset then moves over whole words of the bitmap."""
    return [offset for block in chunks(offsets, 100) for offset in reversed(block)]


def _pairs_swapped(offsets: list[int]) -> list[int]:
    return [offset for pair in chunks(offsets, 2) for offset in reversed(pair)]


def _first_one_never(offsets: list[int]) -> list[int]:
    """The committed offset does not move at all: everything is known from the bitmap alone."""
    return offsets[1:]


PATTERNS: dict[str, Callable[[list[int]], list[int]]] = {
    "in order": lambda offsets: offsets,
    "pairs swapped": _pairs_swapped,
    "blocks reversed": _blocks_reversed,
    "first one never": _first_one_never,
}


# --- running one ----------------------------------------------------------------------------------


def run(order: Order) -> None:
    """Do what the order says, in this process."""
    signal.alarm(LONGEST_LIFE_S)  # a child that hangs must not outlive its test
    notes = os.open(order.notes, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    SCENARIOS[order.scenario](order, lambda said: _write(notes, said))


def _write(descriptor: int, said: object) -> None:
    os.write(descriptor, f"{said}\n".encode())


if __name__ == "__main__":
    run(Order(**json.loads(sys.argv[1])))
