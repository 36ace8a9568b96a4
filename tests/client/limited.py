"""Processes that meet a limit of theirs: ``python -m tests.client.limited SCENARIO ROOT`` in the tests of limits.

Each asserts what it sees, and says nothing when all is well.
"""

from __future__ import annotations

import logging
import os
import resource
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from rmqclient import App, Durability, Message, Producer, StoreConfig
from rmqclient.consumer_config import ConsumerConfig
from rmqclient.consuming.push_consumer import PushConsumer
from rmqclient.errors import LimitReached, NotFlushed, QueueError, StoreFull
from rmqclient.message import ReceivedMessage
from rmqclient.store import open_store

SMALL = StoreConfig(
    commit_log_file_bytes=65_536, max_body_bytes=8_192, consume_queue_file_entries=16, max_mapped_files=8
)
DESCRIPTORS = 64
BODY = bytes(8_000)
"""Seven of them fill a commit log file."""


@contextmanager
def limited(name: int, soft: int) -> Iterator[None]:
    """Have a lower soft limit for the length of a ``with`` block."""
    before = resource.getrlimit(name)
    resource.setrlimit(name, (soft, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(name, before)


@contextmanager
def without_descriptors() -> Iterator[None]:
    """Have no descriptor left for the length of a ``with`` block."""
    taken: list[int] = []
    with limited(resource.RLIMIT_NOFILE, DESCRIPTORS):
        try:
            with suppress(OSError):
                while True:
                    taken.append(os.dup(0))
            yield
        finally:
            for descriptor in taken:
                os.close(descriptor)


def refused(action: Callable[[], object]) -> QueueError:
    """Return the error of an action that must be refused."""
    try:
        action()
    except QueueError as error:
        return error
    raise AssertionError("nothing was refused")


def send_until_refused(producer: Producer) -> tuple[int, QueueError]:
    """Return how many messages were taken, and the error."""
    for sent in range(10_000):
        try:
            producer.send(Message("t", BODY))
        except QueueError as error:
            return sent, error
    raise AssertionError("no limit was met")


def few_descriptors(root: Path) -> None:
    """64 descriptors are enough for a store of a thousand files, because a mapping keeps none."""
    with limited(resource.RLIMIT_NOFILE, DESCRIPTORS), Producer(root, config=SMALL) as producer:
        for number in range(100):
            producer.create_topic(f"t{number}", 4)
        for _ in range(2):
            for number in range(100):
                producer.send_batch([Message(f"t{number}", b"body")] * 5, f"key {number}")
        for _ in range(300):
            producer.send(Message("t0", BODY))


def no_descriptors(root: Path) -> None:
    """A sender without a descriptor for the next file is told the limit, and goes on when there is one."""
    with Producer(open_store(root, SMALL, housekeeping=False)) as producer:
        producer.send(Message("t", BODY))
        with without_descriptors():
            sent, error = send_until_refused(producer)
            assert type(error) is LimitReached, repr(error)
            assert error.retryable
            assert not error.stored
            assert f"RLIMIT_NOFILE (ulimit -n), now {DESCRIPTORS}" in str(error), error
            assert str(root) in str(error), error
        for _ in range(50):
            producer.send(Message("t", BODY))
    check_stored(root, sent + 51)


def durable_sender_without_descriptors(root: Path) -> None:
    """A flush that cannot begin poisons nothing: the sender is told that its message is stored, and not yet durable."""
    config = replace(SMALL, durability=Durability.SYNC)
    store = open_store(root, config, housekeeping=False)
    producer = Producer(store, config=config)
    producer.send(Message("t", b"body"), "key")
    store.mappings.synced.close()  # as in a process that has not flushed this file before
    with without_descriptors():
        error = refused(lambda: producer.send(Message("t", b"body"), "key"))
        assert type(error) is NotFlushed, repr(error)
        assert error.stored
        assert not error.retryable
        assert "RLIMIT_NOFILE" in str(error), error
        for flush in (store.flusher.flush_thorough, store.flusher.flush_queues, store.flusher.write_checkpoint):
            assert type(refused(flush)) is LimitReached
    assert not store.state.poisoned
    producer.send(Message("t", b"body"), "key")
    with without_descriptors():  # the file that it flushed last is still open
        producer.send(Message("t", b"body"), "key")
    store.close()
    check_stored(root, 4)


def no_address_space(root: Path) -> None:
    """A sender that may not map the next file is told so."""
    config = StoreConfig(commit_log_file_bytes=128 << 20, max_body_bytes=60 << 20)
    with Producer(open_store(root, config, housekeeping=False)) as producer:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        soft = pages * resource.getpagesize() + (64 << 20)
        with limited(resource.RLIMIT_AS, soft):
            sent, error = send_until_refused(producer)
            assert type(error) is LimitReached, repr(error)
            assert f"RLIMIT_AS (ulimit -v), now {soft}" in str(error), error
            assert "vm.max_map_count, now " in str(error), error
        producer.send(Message("t", BODY))
    check_stored(root, sent + 1)


def no_large_files(root: Path) -> None:
    """A limit on the size of files is a full disk, and the error says which limit."""
    with Producer(open_store(root, SMALL, housekeeping=False)) as producer:
        producer.send(Message("t", BODY))
        with limited(resource.RLIMIT_FSIZE, 40_000):
            sent, error = send_until_refused(producer)
            assert type(error) is StoreFull, repr(error)
            assert error.retryable
            assert "RLIMIT_FSIZE (ulimit -f), now 40000" in str(error), error
        producer.send(Message("t", BODY))
    check_stored(root, sent + 2)


def consumer_without_descriptors(root: Path) -> None:
    """A consumer that cannot open the next file tries again, and has everything in the end."""
    with Producer(root, config=SMALL) as producer:
        for _ in range(100):
            producer.send(Message("t", BODY))
    app = App(root, config=SMALL)
    handled: list[int] = []
    refuse, has_refused = threading.Event(), threading.Event()

    @app.handler("t", group="g", threads=1)
    def handle(message: ReceivedMessage) -> None:
        handled.append(message.queue_offset)
        if len(handled) == 20:  # the next files have not been opened yet
            has_refused.set()
            assert refuse.wait(10)

    store = open_store(root, SMALL, housekeeping=False)
    consumer = PushConsumer(store, app.handlers, config=ConsumerConfig(batch_messages=1))
    consumer.start()
    assert has_refused.wait(10)
    told = Told()
    with without_descriptors():
        refuse.set()
        assert told.wait(10), "nothing was refused"
    wait_until(lambda: len(handled) == 100)
    consumer.close()
    store.close()


class Told(logging.Handler):
    """Waits for the log to say that a queue cannot be read."""

    def __init__(self) -> None:
        super().__init__()
        self._event = threading.Event()
        self.wait = self._event.wait
        logging.getLogger("rmqclient").addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Look at one line."""
        if "RLIMIT_NOFILE" in record.getMessage() and "trying again" in record.getMessage():
            self._event.set()


def check_stored(root: Path, count: int) -> None:
    """Assert that a store holds so many messages."""
    with open_store(root, housekeeping=False) as store:
        stored = sum(store.topics.max_offset(queue) for queue in store.topics.queues("t"))
        assert stored == count, f"{stored} messages of {count}"


def wait_until(is_so: Callable[[], bool]) -> None:
    """Poll, with a deadline."""
    deadline = time.monotonic() + 10
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


SCENARIOS: dict[str, Callable[[Path], None]] = {
    function.__name__: function
    for function in (
        few_descriptors,
        no_descriptors,
        durable_sender_without_descriptors,
        no_address_space,
        no_large_files,
        consumer_without_descriptors,
    )
}

if __name__ == "__main__":
    SCENARIOS[sys.argv[1]](Path(sys.argv[2]))
