"""The processes of a run: producers, workers, and an onlooker. Each writes its own history until it is killed."""

from __future__ import annotations

import gc
import random
import signal
import struct
import threading
import time
from collections.abc import Callable
from mmap import mmap
from pathlib import Path

from rmqclient.app import App
from rmqclient.consuming.push_consumer import PushConsumer
from rmqclient.message import Message, ReceivedMessage
from rmqclient.sending.producer import Producer
from rmqclient.store import MessageQueue, open_store
from rmqclient.store.errors import QueueError, UnknownTopic
from tests.checker.history import History, Kind, now
from tests.checker.plan import HEADER, KEYS, SEQUENCE_BITS, Mode, Plan, Topic, group_name
from tests.checker.running.recording import record_queues

OUTCOME_FAILED, OUTCOME_RIGHT = 0, 1
LONGEST_DRAIN_S = 10.0
_SAMPLE_S = 0.02
_RETRY_S = 0.02


class Poison(Exception):
    """What the handler of a poison message raises."""


class Progress:
    """How far a run is, as the onlooker sees it: deliveries that are due, deliveries committed, looks so far."""

    _WORDS = struct.Struct("=QQQ")

    def __init__(self) -> None:
        self._map = mmap(-1, 4096)  # shared with every child that is forked from here on

    def show(self, due: int, committed: int, looks: int) -> None:
        """Write the three numbers; for one process. One that is half written is read again at the next look."""
        self._WORDS.pack_into(self._map, 0, due, committed, looks)

    def __call__(self) -> tuple[int, int, int]:
        """Return the three numbers."""
        due, committed, looks = self._WORDS.unpack_from(self._map, 0)
        return due, committed, looks


def produce(plan: Plan, root: Path, history: History, messages: int, ready: Callable[[], None]) -> None:
    """Send so many messages in batches of a random size, to one topic each, and end."""
    chance = random.Random(plan.seed * 1_000_003 + history.process)
    first = history.process << SEQUENCE_BITS
    end = first + messages
    with Producer(root, config=plan.store) as producer:
        ready()
        while first < end:
            count = min(chance.randint(1, plan.largest_batch), end - first)
            topic = plan.topics[chance.randrange(len(plan.topics))]
            key = chance.randrange(KEYS)
            sharding_key = f"key {key}" if topic.mode is Mode.KEYED else None
            attempt = 0
            while not _send(plan, producer, history, topic, range(first, first + count), key, sharding_key, attempt):
                attempt += 1
                time.sleep(_RETRY_S)
            first += count


def _send(
    plan: Plan, producer: Producer, history: History, topic: Topic, numbers: range, key: int,
    sharding_key: str | None, attempt: int,
) -> bool:  # fmt: skip
    """Send one batch and write down what comes of it; False when it must be sent again."""
    messages = [Message(topic.name, plan.body(number, key, attempt)) for number in numbers]
    first, count = numbers[0], len(numbers)
    history.write(Kind.SEND, now(), first, detail=count, attempt=attempt)
    try:
        results = (
            producer.send_batch(messages, sharding_key) if count > 1 else [producer.send(messages[0], sharding_key)]
        )
    except QueueError as error:
        kind = Kind.SEND_UNKNOWN if getattr(error, "stored", False) else Kind.SEND_FAILED
        history.write(kind, now(), first, detail=count, attempt=attempt)
        return not getattr(error, "retryable", False)
    place = results[0]
    queue = plan.queue_numbers[topic.name, place.queue.queue_id]
    history.write(Kind.SENT, now(), first, place.queue_offset, queue, detail=count, attempt=attempt)
    return True


def work(plan: Plan, root: Path, history: History, group: int, ready: Callable[[], None]) -> None:
    """Handle messages of one group until SIGTERM, then leave the group and the store."""
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    record_queues(plan, history, group)
    app = App(root, config=plan.store)
    for topic in plan.topics:
        if group in topic.groups:
            app.handler(topic.name, group=group_name(group), threads=plan.threads, **topic.mode.options())(
                handler(plan, history, group, topic)
            )
    with open_store(root, plan.store) as store:
        consumer = PushConsumer(store, app.handlers, client_id=f"worker{history.process:06}", config=plan.consumer)
        consumer.start()
        ready()
        ended.wait()
        consumer.stop_taking()
        consumer.drain(LONGEST_DRAIN_S)
        consumer.close()


def handler(plan: Plan, history: History, group: int, topic: Topic) -> Callable[[ReceivedMessage], None]:
    """Return a handler that writes down its begin and its end, and checks the body in between."""
    write, is_right, take_apart, numbers = history.write, plan.is_right, HEADER.unpack_from, plan.queue_numbers
    threads: dict[int, int] = {}
    thread_of, identify = threads.get, threading.get_ident
    fails = plan.is_poison if topic.mode is Mode.POISON else None

    def handle(message: ReceivedMessage) -> None:
        begin = now()
        thread = thread_of(identify(), -1)
        if thread < 0:
            thread = threads.setdefault(identify(), len(threads))
        body = message.body
        subject, seed, size, _, _ = take_apart(body)
        queue, offset = numbers[message.queue[:2]], message.queue_offset  # a retry shows the topic it was sent to
        attempt = min(message.delivery_attempt, 255)
        write(Kind.HANDLE, begin, subject, offset, queue, group, is_right(body, subject, seed, size), thread, attempt)
        if fails is not None and fails(subject):
            write(Kind.HANDLE_FAILED, now(), subject, offset, queue, group, 0, thread, attempt)
            raise Poison(f"message {subject} is poison")
        write(Kind.HANDLED, now(), subject, offset, queue, group, 0, thread, attempt)

    return handle


def look_on(plan: Plan, root: Path, history: History, progress: Progress, ready: Callable[[], None]) -> None:
    """Read every committed offset again and again until SIGTERM; write down those that changed."""
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    seen: dict[tuple[int, int], int] = {}
    with open_store(root, plan.store, housekeeping=False) as store:
        ready()
        looks = 0
        while not ended.wait(_SAMPLE_S):
            due = committed = 0
            for group, number, queue in _consumed(plan):
                try:
                    queue_slot = store.topics.slot(queue)
                except UnknownTopic:
                    continue
                due += store.topics.max_offset(queue)
                slot = store.groups.find(group_name(group), queue_slot)
                offset = slot.committed_offset if slot else 0
                committed += offset
                if seen.get((group, number)) != offset:
                    history.write(Kind.SAMPLE, now(), offset=offset, queue=number, group=group)
                    seen[group, number] = offset
            looks += 1
            progress.show(due, committed, looks)


def _consumed(plan: Plan) -> list[tuple[int, int, MessageQueue]]:
    """Return group, number and name of every queue that a group consumes, its retries included."""
    names = [(group, topic.name) for topic in plan.topics for group in topic.groups]
    names += [(group, f"%RETRY%{group_name(group)}") for group in range(plan.groups)]
    return [
        (group, plan.queue_numbers[name, queue_id], MessageQueue(name, queue_id))
        for group, name in names
        for queue_id in range(plan.queues)
    ]


def leave(history: History, root: Path) -> None:
    """Write down what this process still has of the store, now that it should have nothing."""
    gc.collect()
    descriptors = sum(_points_into(path, root) for path in Path("/proc/self/fd").iterdir())
    maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").count(f" {root}/")
    history.write(Kind.EXIT, now(), offset=descriptors, detail=min(maps, 255))


def _points_into(descriptor: Path, root: Path) -> bool:
    try:
        return descriptor.readlink().is_relative_to(root)
    except OSError:  # that of the listing itself
        return False
