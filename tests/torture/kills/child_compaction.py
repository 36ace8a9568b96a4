"""What a child process of the rig ``compaction`` does until it is killed, or until it is done."""

from __future__ import annotations

import contextlib
import json
import random
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from rmqclient import Message, Producer
from rmqclient.local.backend import store_of
from rmqclient.store import StoreConfig, java_hash, open_store
from rmqclient.store.config import RetentionConfig
from rmqclient.store.crash_points import CrashPoint, arm
from rmqclient.store.errors import StoreBusy
from rmqclient.store.settings.disk import Usage
from rmqclient.store.upkeep import compaction, retention

TOPIC = "prices"
QUEUES = 4
BLOCK = 1_000
"""Updates that are made at once."""

_VALUE_BYTES = 100
_TOMBSTONES = 20
"""One update of so many deletes its key."""
_LEAST_NEW = 2_000
_HINT_EVERY = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What one child is to do."""

    role: str
    """``send`` or ``clean``."""
    root: str
    seed: int
    blocks: int
    keys: int
    log_file_bytes: int
    point: str = ""
    """Name of the crash point to die at; empty for none."""
    survive: int = 0
    hints: str = ""
    """File in which senders say how far they have come, so that the next one need not make all updates again."""
    until_done: bool = False
    """Clean until nothing is left to do, and end."""

    @property
    def config(self) -> StoreConfig:
        """The settings of the store."""
        return StoreConfig(
            commit_log_file_bytes=self.log_file_bytes,
            max_body_bytes=4_096,
            index_slots=1_000,
            index_entries=4_000,
            retention=RetentionConfig(disk_full_percent=100),  # whoever else uses the disk
        )

    def text(self) -> str:
        """Return the order as one line."""
        return json.dumps(asdict(self))


def updates(order: Order, block: int) -> Iterator[tuple[str, bytes]]:
    """Yield key and value of each update of a block; an empty value deletes the key."""
    chance = random.Random(order.seed << 24 | block)
    for number, key in enumerate(chance.choices(range(order.keys), k=BLOCK), block * BLOCK):
        is_tombstone = chance.random() * _TOMBSTONES < 1
        yield f"key-{key}", b"" if is_tombstone else (b"value %d of key %d; " % (number, key)).ljust(_VALUE_BYTES, b".")


def queue_of(key: str) -> int:
    """Return the queue of a key, as a producer chooses it."""
    return abs(java_hash(key)) % QUEUES


def send(order: Order) -> None:
    """Send all updates in order, each once: a queue's messages are counted to know where the last sender was killed."""
    with Producer(order.root, config=order.config) as producer:
        queues = producer.create_topic(TOPIC, QUEUES, cleanup_policy="compact")
        store = store_of(producer._backend, "a test")
        store.appenders.settle()  # which the last sender may have left between its records and their queue
        ends = [store.topics.max_offset(queue) for queue in queues]
        first, before = _hint(order)
        there = [end - sent for end, sent in zip(ends, before, strict=True)]
        _tell_ready()
        if order.point:
            arm(CrashPoint[order.point], passes=order.survive)
        for block in range(first, order.blocks):
            if block % _HINT_EVERY == 0:
                _note_hint(order, block, before)
            batches: list[list[Message]] = [[] for _ in queues]
            for key, value in updates(order, block):
                batches[queue_of(key)].append(Message(TOPIC, value, keys=[key]))
            for number, batch in enumerate(batches):
                before[number] += len(batch)
                done = min(there[number], len(batch))  # a batch half copied, when the host starts again, stays half
                there[number] -= done
                if done < len(batch):
                    producer.send_batch(batch[done:])


def clean(order: Order) -> None:
    """Compact, and remove every commit log file but the newest, over and over."""
    retention.PAUSE_S = 0
    compaction.LEAST_NEW = _LEAST_NEW
    with open_store(order.root, order.config, housekeeping=False) as store:
        store.disk.usage = lambda: Usage(89.0, 1 << 40)  # type: ignore[method-assign]
        if order.point:
            arm(CrashPoint[order.point], passes=order.survive)
        _tell_ready()
        while True:
            with contextlib.suppress(StoreBusy):  # as the housekeeper, which the sender is, too
                store.flusher.flush_thorough()
                store.compaction.run()
                removed = store.retention.clean()
                if order.until_done and not removed:
                    return


def _tell_ready() -> None:
    print("ready", flush=True)


def _hint(order: Order) -> tuple[int, list[int]]:
    """Return a block that was begun, and how many updates of each queue come before it."""
    try:
        lines = Path(order.hints).read_text(encoding="ascii").splitlines(keepends=True)
    except FileNotFoundError:
        lines = []
    whole = [line for line in lines if line.endswith("\n") and len(line.split()) == 1 + QUEUES]
    block, *before = map(int, whole[-1].split()) if whole else [0] * (1 + QUEUES)
    return block, before


def _note_hint(order: Order, block: int, before: list[int]) -> None:
    line = " ".join(map(str, (block, *before)))
    with Path(order.hints).open("a", encoding="ascii") as file:
        file.write(f"\n{line}\n")


def main() -> None:
    """Do what the argument says."""
    order = Order(**json.loads(sys.argv[1]))
    Path(order.root).mkdir(exist_ok=True)
    {"send": send, "clean": clean}[order.role](order)


if __name__ == "__main__":
    main()
