"""The processes of the rig of those that stand still. All but the victims live through the rig.

Each writes what it does to a file of its own, one line a write. Times are ms of the wall clock; a place is topic, queue
and queue offset::

    sender      i number due        it is about to send a message that is due then
                o number took       the send has returned, so many ms later
                f number ms pids    it was refused, because these processes hold a lock
    consumer    s thread ms place   a handler begins
                e thread ms place   it is about to return
                r thread ms place   it is about to raise
    watcher     c place sender number due stored    a message stands in the topic, or for its retry
                w due flushed       what was published at the one time was flushed at the other
    prober      p name took ok      a probe was answered
                p name took pids    it was refused, because these processes hold a lock
    keeper      h ms                it is the housekeeper
                l ms                it is not any more
"""

from __future__ import annotations

import os
import random
import re
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from rmqclient import App, Message, Producer, ReceivedMessage, RetryPolicy
from rmqclient.consumer_config import ConsumerConfig
from rmqclient.consuming.push_consumer import PushConsumer
from rmqclient.failures.retry import retry_topic
from rmqclient.store import MessageQueue, MessageStore, StoreConfig, open_store
from rmqclient.store.config import CompactionConfig, FlushConfig
from rmqclient.store.crash_points import CrashPoint, arm
from rmqclient.store.errors import StoreBusy
from rmqclient.store.files.file_lock import LockFile
from rmqclient.store.settings.disk import Usage
from rmqclient.store.upkeep import retention_rules
from tests.crash.campaign import is_quiet
from tests.crash.processes.child_campaign import GROUP, TOPIC
from tests.torture.kills.child_delays import body_of, now_ms, parts_of
from tests.torture.lives import Say, saying, until_told

RETRY_TOPIC = retry_topic(GROUP)
PRICES = "prices"
ONCE = "once"
LEVEL_1_MS = 1_000
LONGEST_DELAY_S = 1.5
PACE_S = 0.015
PRICE_EVERY = 3
FAILS_EVERY = 17
"""Every so many messages the handler raises for the first attempt."""
KEPT_LOG_FILES = 12
"""So many files of the log stay: what is older was delivered and handled long ago."""

CONFIG = StoreConfig(
    commit_log_file_bytes=64 << 10,
    max_body_bytes=2_048,
    consume_queue_file_entries=256,
    index_slots=64,
    index_entries=512,
    default_queue_count=4,
    lock_timeout_ms=3_000,
    flush=FlushConfig(interval_ms=50, thorough_interval_ms=100, queues_interval_ms=500),
    offset_persist_interval_ms=50,
    compaction=CompactionConfig(interval_ms=500),
)
LEASE_MS = 3_000
CONSUMER = ConsumerConfig(liveness_interval_ms=100, lease_ms=LEASE_MS)
THREADS = 2


class Place(NamedTuple):
    """Where a message stands."""

    topic: str
    queue_id: int
    queue_offset: int

    def __str__(self) -> str:
        return f"{self.topic} {self.queue_id} {self.queue_offset}"


# --- those that go on ---------------------------------------------------------------------------------


def send(root: Path, evidence: Path, sender: int, seed: int) -> None:
    """Send at a pace until told: at once, by level, by timer; and update a compact topic."""
    say, is_over, chance = saying(evidence), until_told(), random.Random(seed)
    with open_store(root, CONFIG, housekeeping=False) as store, Producer(store) as producer:
        number = 0
        while not is_over():
            way, due_ms = chance.randrange(3), now_ms()
            delay_s = chance.uniform(0.05, LONGEST_DELAY_S)
            due_ms += (0, LEVEL_1_MS, int(delay_s * 1_000))[way]
            message = Message(
                TOPIC, body_of(sender, number, due_ms).ljust(chance.choice((20, 900))), keys=[f"k{number}"]
            )
            say(f"i {number} {due_ms}")
            began = now_ms()
            try:
                if way == 0:
                    producer.send(message)
                elif way == 1:
                    producer.send(message, delay_level=1)
                else:
                    producer.send(message, delay=delay_s)
            except StoreBusy as error:
                assert not error.stored
                say(f"f {number} {now_ms()} {named_in(error)}")
            else:
                say(f"o {number} {now_ms() - began}")
            if number % PRICE_EVERY == 0:
                with suppress(StoreBusy):
                    producer.send(Message(PRICES, b"%d" % number, keys=[f"price-{chance.randrange(9)}"]))
            number += 1
            time.sleep(PACE_S)


def consume(root: Path, evidence: Path) -> None:
    """Be a member of the group, until told."""
    with _member(root, saying(evidence)):
        _wait_for_the_end()


def keep_house(root: Path, evidence: Path, orders: int, *, prefer: bool = False) -> None:
    """Be the housekeeper, or be there to become it, until told; arm a crash point for each line of ``orders``."""
    say, is_over = saying(evidence), until_told()
    with open_store(root, CONFIG) as store:
        assert store.housekeeper is not None
        if prefer:
            store.housekeeper.prefer()
        had = False
        while not is_over():
            has = store.housekeeper.has_role
            if has != had:
                say(f"{'h' if has else 'l'} {now_ms()}")
            had = has
            if select.select([orders], [], [], 0.005)[0]:
                name, passes = os.read(orders, 100).split()
                stop_at(CrashPoint[name.decode()], int(passes))


def watch(root: Path, evidence: Path) -> None:
    """Write down each message of the topic and its retries that is published, and how soon the log is flushed."""
    say, is_over = saying(evidence), until_told()
    with open_store(root, CONFIG, housekeeping=False) as store:
        seen: dict[MessageQueue, int] = {}
        published, since_ms = store.state.published_to, now_ms()
        while not is_over():
            for queue in store.topics.all_queues():
                if queue.topic in (TOPIC, RETRY_TOPIC):
                    _tell_new(store, queue, seen, say)
            if store.state.flushed_to >= published:
                say(f"w {since_ms} {now_ms()}")
                published, since_ms = store.state.published_to, now_ms()
            time.sleep(0.01)


def _tell_new(store: MessageStore, queue: MessageQueue, seen: dict[MessageQueue, int], say: Say) -> None:
    for queue_offset in range(seen.get(queue, 0), store.topics.max_offset(queue)):
        message = store.messages.at(queue, queue_offset)
        sender, number, due_ms = parts_of(message.body)
        place = Place(queue.topic, queue.queue_id, queue_offset)
        say(f"c {place} {sender} {number} {due_ms} {message.store_timestamp}")
        seen[queue] = queue_offset + 1


def probe(root: Path, evidence: Path, orders: int) -> None:
    """Do what each line of ``orders`` names, until they end."""
    say = saying(evidence)
    with open_store(root, CONFIG, housekeeping=False) as store, Producer(store) as producer:
        probes: dict[str, Callable[[int], object]] = {
            "open": lambda _: open_store(root, CONFIG, housekeeping=False).close(),
            "topic": lambda number: producer.create_topic(f"more-{number}", 1),
            "once": lambda number: producer.send_once(Message(ONCE, b"%d" % number), f"key-{number}"),
            "key": lambda _: producer.send_once(Message(ONCE, b"held"), KEY),
        }
        number = 0
        while order := os.read(orders, 20):
            name, number, began = order.decode().strip(), number + 1, now_ms()
            try:
                probes[name](number)
            except StoreBusy as error:
                assert not error.stored
                say(f"p {name} {now_ms() - began} {named_in(error)}")
            else:
                say(f"p {name} {now_ms() - began} ok")


KEY = "held"


def wait_until_quiet(root: Path) -> None:
    """Return when nothing waits and all is handled."""
    with open_store(root, CONFIG, housekeeping=False) as store:
        while not is_quiet(store):
            time.sleep(0.02)


def named_in(error: StoreBusy) -> str:
    """Return the processes that an error names, or ``nobody``."""
    named = {*map(int, re.findall(r"process (\d+)", str(error))), *error.holders}
    return ",".join(map(str, sorted(named))) or f"nobody: {' '.join(str(error).split())}"


# --- victims ------------------------------------------------------------------------------------------


def be_member(root: Path, evidence: Path, where: str, passes: int) -> None:
    """Be a member that stops in or behind the so-many-th handler call, at a crash point, or nowhere."""
    say, calls = saying(evidence), [passes]
    if where in CrashPoint.__members__:
        stop_at(CrashPoint[where], passes)

    def called() -> None:
        calls[0] -= 1
        if calls[0] == 0 and where == "in its handler":
            stand()
        if calls[0] == 0 and where == "behind its handler":
            sys.setprofile(_stand_when_the_call_has_returned)

    with _member(root, say, called):
        _wait_for_the_end()


def _stand_when_the_call_has_returned(frame: FrameType, event: str, called: object) -> None:
    del frame
    if event == "c_return" and getattr(called, "__name__", "") == "run":  # of the handler's context
        sys.setprofile(None)
        stand()


def hold(root: Path, byte: int) -> None:
    """Stand still with a byte of the lock file."""
    with LockFile(root / "lock").held(byte):
        stand()


def append(root: Path, evidence: Path, sender: int, point: CrashPoint) -> None:
    """Stop in the midst of sending some messages; SYNC, so that a flush is a step of it."""
    say = saying(evidence)
    with open_store(root, CONFIG, housekeeping=False) as store, Producer(store) as producer:
        stop_at(point, 2)
        for number in range(6):
            due_ms = now_ms()
            say(f"i {number} {due_ms}")
            sent = producer.send(Message(TOPIC, body_of(sender, number, due_ms)))
            store.flusher.wait_until_flushed(sent.commit_log_end)
            say(f"o {number} {now_ms() - due_ms}")


def send_once(root: Path) -> None:
    """Stop with the lock of a key."""
    with open_store(root, CONFIG, housekeeping=False) as store, Producer(store) as producer:
        stop_at(CrashPoint.ONCE_NOT_FOUND, 0)
        with refused():
            producer.send_once(Message(ONCE, b"held"), KEY, within=timedelta(milliseconds=1))


def clean(root: Path, point: CrashPoint) -> None:
    """Stop while the oldest file of the log is removed, of so many that nobody needs it."""
    retention_rules.FILES_A_PASS = 1
    with open_store(root, CONFIG, housekeeping=False) as store:
        store.disk.usage = lambda: Usage(86.0, 0)  # type: ignore[method-assign]
        stop_at(point, 0)
        with refused():
            while len(store.log_files.bases()) > KEPT_LOG_FILES and store.retention.clean():
                pass


@contextmanager
def refused() -> Iterator[None]:
    """Let a victim be told, instead of its stop, whom it waits for: another victim that stands still."""
    try:
        yield
    except StoreBusy as error:
        assert named_in(error)[0].isdigit(), error


def stop_at(point: CrashPoint, passes: int) -> None:
    """Let this process stop itself at a crash point."""
    arm(point, passes=passes, signal_number=signal.SIGSTOP)


def stand() -> None:
    """Stop this process, here."""
    os.kill(os.getpid(), signal.SIGSTOP)


def _member(root: Path, say: Say, called: Callable[[], None] = lambda: None) -> PushConsumer:
    app = App(root, config=CONFIG)

    @app.handler(TOPIC, group=GROUP, threads=THREADS, retry=RetryPolicy(max_retries=1_000, delay_levels=(1,)))
    def handle(message: ReceivedMessage) -> None:
        place = Place(message.queue.topic, message.queue_id, message.queue_offset)
        thread = threading.get_ident()
        say(f"s {thread} {now_ms()} {place}")
        called()
        if parts_of(message.body)[1] % FAILS_EVERY == 0 and place.topic == TOPIC:
            say(f"r {thread} {now_ms()} {place}")
            raise RuntimeError("to be tried again")
        say(f"e {thread} {now_ms()} {place}")

    return PushConsumer(open_store(root, CONFIG, housekeeping=False), app.handlers, config=CONSUMER)


def _wait_for_the_end() -> None:
    is_over = until_told()
    while not is_over():
        time.sleep(0.01)
