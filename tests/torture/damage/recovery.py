"""How long it takes to open a store that nobody closed and that has no checkpoint, beside reading the same bytes."""

from __future__ import annotations

import os
import statistics
import time
from pathlib import Path

from rmqclient.store import Message, StoreConfig, open_store
from rmqclient.store.kernel._kernel import crc32
from rmqclient.store.recovery.recovery import ABORT
from rmqclient.store.runtime.shared_state import FILE_NAME as RUNTIME_FILE
from rmqclient.store.settings.checkpoint import FILE_NAME as CHECKPOINT
from tests.torture.result import Result, Rig

CLAIM = "Opening a store without a checkpoint takes at most twice as long as reading its log with pread and CRC-32."

_MOST = 2.0
_REPETITIONS = 5
_BODIES = (100, 1_024)
_CONFIG = StoreConfig()
"""The default. Every such opening also removes the index, which is made again behind the writers."""
_WITHOUT_INDEX = StoreConfig(message_index=False)
"""Shown beside it."""


def run(seed: int, rounds: int, scratch: Path) -> Result:
    """Write so many MiB for each size of body, and open them again and again. ``seed`` changes nothing."""
    del seed
    result = Result(CLAIM, {"MiB of log": rounds})
    for body_bytes in _BODIES:
        root = scratch / str(body_bytes)
        messages = _write(root, body_bytes, rounds << 20)
        without_index, _ = zip(*(_once(root, _WITHOUT_INDEX) for _ in range(_REPETITIONS)), strict=True)
        _once(root, _CONFIG)  # makes the index, when it closes
        opened, read = zip(*(_once(root, _CONFIG) for _ in range(_REPETITIONS)), strict=True)
        ratio = statistics.median(opened) / statistics.median(read)
        if ratio > _MOST:
            result.problems.append(f"{body_bytes} B: opening took {ratio:.1f} times as long as reading")
        result.figures |= {
            f"{body_bytes} B: messages": messages,
            f"{body_bytes} B: opened in s": round(statistics.median(opened), 3),
            f"{body_bytes} B: pread and CRC in s": round(statistics.median(read), 3),
            f"{body_bytes} B: ratio": round(ratio, 2),
            f"{body_bytes} B: opened without an index to remove in s": round(statistics.median(without_index), 3),
        }
    return result


def _write(root: Path, body_bytes: int, log_bytes: int) -> int:
    with open_store(root, _WITHOUT_INDEX) as store:
        appender = store.appenders.make(
            lambda topic: store.topics.create(topic, 4), lambda body: bytes(str(body), "utf-8")
        )
        batch = [Message("orders", os.urandom(body_bytes), tags="paid", keys=[f"k{number}"]) for number in range(100)]
        while store.state.published_to < log_bytes:
            appender.append_batch(batch)
        return sum(store.topics.max_offset(queue) for queue in store.topics.all_queues())


def _once(root: Path, config: StoreConfig) -> tuple[float, float]:
    """Return the seconds of one opening, and of reading the log once."""
    started = time.perf_counter()
    for path in sorted((root / "commitlog").iterdir()):
        _read(path)
    read = time.perf_counter() - started
    for name in (RUNTIME_FILE, CHECKPOINT):
        (root / name).unlink(missing_ok=True)
    (root / ABORT).touch()
    started = time.perf_counter()
    store = open_store(root, config, housekeeping=False)
    opened = time.perf_counter() - started
    store.close()
    return opened, read


def _read(path: Path) -> None:
    buffer = bytearray(1 << 20)
    with path.open("rb", buffering=0) as file:
        while size := file.readinto(buffer):
            crc32(memoryview(buffer)[:size])


RIG = Rig("recovery", 1_024, run)
