"""Stores with something in them, and copies of them to be damaged.

``python -m tests.support.written ROOT`` appends to a store until its standard input ends, and says on standard output
when it has begun.
"""

from __future__ import annotations

import os
import select
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from click.testing import CliRunner, Result

from rmqclient.store import Message, MessageStore, StoreConfig, TagSet, layout, open_store
from rmqclient.store.kernel._kernel import Appender
from rmqclient.store.runtime import shared_state
from rmqclient.store.settings.disk import Usage
from rmqclient.workers.cli import rmq

SMALL = StoreConfig(
    commit_log_file_bytes=36_864,
    max_body_bytes=2_048,
    consume_queue_file_entries=64,
    index_slots=64,
    index_entries=256,
)
"""Files of nine pages and of 64 entries."""

TOP = Path(__file__).parents[2]

RMQ_STORE = (sys.executable, "-m", "rmqclient.workers", "store")
"""The command on directories of stores, as a child process."""

ORDERS, PAYMENTS = "orders", "payments"
QUEUES = {ORDERS: 1, PAYMENTS: 2}
GROUP = "billing"


def message(number: int) -> Message:
    """Return message ``number``: two of three are orders, some have a tag, keys, a property or no body."""
    return Message(
        PAYMENTS if number % 3 == 2 else ORDERS,
        b"body %d " % number * (number * 7 % 130),
        tags=f"tag{number % 4}" if number % 5 else None,
        keys=[f"k{number}", "ключ"] if number % 2 else (),
        properties={"number": str(number)} if number % 7 else None,
    )


def appender_of(store: MessageStore) -> Appender:
    """Return what appends to the topics above."""
    return store.appenders.make(
        lambda topic: store.topics.create(topic, QUEUES[topic]), lambda body: str(body).encode()
    )


def fill(store: MessageStore, messages: int = 180) -> None:
    """Append messages: more than two files of the log and of a consume queue."""
    appender = appender_of(store)
    for number in range(messages):
        appender.append(message(number))


def acknowledge(store: MessageStore, offsets: list[int]) -> None:
    """Finish orders for the group, as a member does that was granted the queue."""
    (queue,) = store.topics.queues(ORDERS)
    slot = store.groups.find_or_add(GROUP, store.topics.slot(queue), 0)
    with slot.locked(store.config.lock_timeout_ms):
        epoch = slot.load("epoch") + 1
        slot.store("epoch", epoch)
    grant = store.grants.grant(slot, epoch, TagSet(()))
    grant.take(64, 2_000)
    assert grant.acknowledge_offsets(offsets)


def forget_oldest(store: MessageStore) -> None:
    """Remove every file that may go, as retention does on a disk that is nearly full."""
    store.flusher.flush_thorough()
    store.disk.usage = lambda: Usage(99.0, 0)  # type: ignore[method-assign]
    while store.retention.clean():
        pass


def written_store(root: Path) -> Path:
    """Make a store, closed: files of every kind, and a group that has finished some messages out of order."""
    with open_store(root, SMALL, housekeeping=False) as store:
        fill(store)
        acknowledge(store, [*range(20), 25, 26])
    return root


def copy_with_runtime_file(root: Path, target: Path) -> Path:
    """Copy a store as if it were the original: its runtime file is believed."""
    shutil.copytree(root, target)
    path = target / shared_state.FILE_NAME
    with path.open("r+b") as file:
        for name, value in (("device", path.stat().st_dev), ("inode", path.stat().st_ino)):
            file.seek(layout.RUNTIME_HEADER.at[name])
            file.write(value.to_bytes(8, sys.byteorder))
    return target


def copy_of_files(root: Path, target: Path) -> Path:
    """Copy a store; the runtime file of a copy is not believed, the durable mark is."""
    return Path(shutil.copytree(root, target))


def copy_as_of_a_broker(root: Path, target: Path) -> Path:
    """Copy only what a RocketMQ broker knows."""
    return Path(shutil.copytree(root, target, ignore=shutil.ignore_patterns("shared", "store.json", "checkpoint")))


COPIES: dict[str, Callable[[Path, Path], Path]] = {
    "with its runtime file": copy_with_runtime_file,
    "without": copy_of_files,
    "as of a broker": copy_as_of_a_broker,
}
"""Ways to copy a store, by what a reader then goes by."""


def overwrite(path: Path, position: int, content: bytes) -> None:
    """Write into a file in place."""
    with path.open("r+b") as file:
        file.seek(position)
        file.write(content)


def state_of_files(root: Path) -> dict[str, tuple[int, ...]]:
    """Return what would differ after somebody wrote to a file, made one or removed one."""
    found: dict[str, tuple[int, ...]] = {}
    for path in [root, *root.rglob("*")]:
        status = path.stat()
        found[str(path)] = (status.st_ino, status.st_mode, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    return found


@contextmanager
def appending(root: Path) -> Iterator[None]:
    """Let another process append to a store meanwhile."""
    command = [sys.executable, "-m", "tests.support.written", str(root)]
    with subprocess.Popen(command, cwd=TOP, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdin is not None
        try:
            assert child.stdout.readline() == b"begun\n"
            yield
        finally:
            child.stdin.close()
            assert child.wait(30) == 0


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run ``rmq store`` to its end."""
    return subprocess.run(
        [*RMQ_STORE, *map(str, arguments)], cwd=TOP, capture_output=True, text=True, timeout=120, check=False
    )


def run_here(*arguments: object) -> Result:
    """Run ``rmq store`` in this process."""
    return CliRunner().invoke(rmq, ["store", *map(str, arguments)])


def append_until_told(root: str) -> None:
    """Append until standard input ends."""
    with open_store(root) as store:
        appender = appender_of(store)
        for number in count():
            appender.append(message(number))
            appender.append_batch([message(0)] * 20)
            if number == 20:
                os.write(1, b"begun\n")
            # Not at full speed, because a reader would never get to the end of the first look
            if select.select([sys.stdin], [], [], 0.002)[0]:
                break


if __name__ == "__main__":
    append_until_told(sys.argv[1])
