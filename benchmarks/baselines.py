"""Baselines: the alternatives with which the store is compared. Each function runs in a child.

memcpy is the limit of the machine. SQLite in WAL mode is the usual alternative inside one process. One ``fdatasync``
for each commit is the cost of SYNC durability without sharing.
"""

from __future__ import annotations

import mmap
import os
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from itertools import cycle, islice, pairwise
from pathlib import Path
from typing import NamedTuple

from benchmarks.child import Begin
from benchmarks.measure import Span
from benchmarks.traffic import KEYS, TAG

TAKEN_AT_ONCE = 32
_LARGE_CHUNK_BYTES = 1 << 20


class Copied(NamedTuple):
    """Two passes over the same file."""

    fresh: Span
    """Into pages that were not touched since the file was allocated."""

    touched: Span
    """Into the same pages again."""


def copy(begin: Begin, path: Path, messages: int, record_bytes: int, *, one_by_one: bool) -> Copied:
    """Copy the bytes of the records into a mapped file, one record or 1 MiB at a time."""
    together = 1 if one_by_one else max(1, min(messages, _LARGE_CHUNK_BYTES // record_bytes))
    chunk = os.urandom(record_bytes * together)
    chunks = messages // together
    with path.open("w+b") as file:
        os.posix_fallocate(file.fileno(), 0, len(chunk) * chunks)
        mapping = mmap.mmap(file.fileno(), len(chunk) * chunks)
    with mapping:
        begin()
        moments = [time.monotonic_ns()]
        for _ in range(2):
            _copy_all(mapping, chunk)
            moments.append(time.monotonic_ns())
    spans = [
        Span(messages=chunks * together, record_bytes=record_bytes, begun_ns=begun_ns, ended_ns=ended_ns)
        for begun_ns, ended_ns in pairwise(moments)
    ]
    return Copied(*spans)


def insert(begin: Begin, path: Path, messages: int, body_bytes: int, per_transaction: int) -> Span:
    """Insert rows with the same fields into SQLite, one at a time or several in a transaction."""
    body = bytes(body_bytes)
    with closing(_database(path)) as database:
        begin()
        begun_ns = time.monotonic_ns()
        if per_transaction == 1:
            for key in islice(cycle(KEYS), messages):
                database.execute(_INSERT, (TAG, key, key, body))
        else:
            _insert_transactions(database, messages, body, per_transaction)
        ended_ns = time.monotonic_ns()
    return Span(messages=messages, record_bytes=0, begun_ns=begun_ns, ended_ns=ended_ns)


def take(begin: Begin, path: Path, messages: int, body_bytes: int, handler: Callable[[object], None]) -> Span:
    """Take rows from SQLite, 32 in a transaction: fetch the oldest, call the handler for each, delete them."""
    taken = 0
    with closing(_database(path)) as database:
        _insert_transactions(database, messages, bytes(body_bytes), 1_000)
        begin()
        begun_ns = time.monotonic_ns()
        while taken < messages:
            database.execute("BEGIN IMMEDIATE")
            rows = database.execute(_OLDEST, (TAKEN_AT_ONCE,)).fetchall()
            for row in rows:
                handler(row)
            database.execute("DELETE FROM messages WHERE number <= ?", (rows[-1][0],))
            database.execute("COMMIT")
            taken += len(rows)
        ended_ns = time.monotonic_ns()
    return Span(messages=taken, record_bytes=0, begun_ns=begun_ns, ended_ns=ended_ns)


def commit_alone(begin: Begin, path: Path, number: int, processes: int, body_bytes: int, duration_s: float) -> Span:
    """Write into a file shared by all processes, each at its own positions; ``fdatasync`` after each body."""
    body = os.urandom(body_bytes)
    commits = 0
    with path.open("r+b", buffering=0) as file, mmap.mmap(file.fileno(), 0) as mapping:
        places = len(mapping) // body_bytes
        begin()
        begun_ns = time.monotonic_ns()
        end_ns = begun_ns + int(duration_s * 1e9)
        while time.monotonic_ns() < end_ns:
            at = (commits * processes + number) % places * body_bytes
            mapping[at : at + body_bytes] = body
            os.fdatasync(file.fileno())
            commits += 1
        ended_ns = time.monotonic_ns()
    return Span(messages=commits, record_bytes=body_bytes, begun_ns=begun_ns, ended_ns=ended_ns)


def _copy_all(mapping: mmap.mmap, chunk: bytes) -> None:
    size = len(chunk)
    for at in range(0, len(mapping), size):
        mapping[at : at + size] = chunk


_INSERT = "INSERT INTO messages (tag, key, sharding_key, body) VALUES (?, ?, ?, ?)"
_OLDEST = "SELECT number, tag, key, sharding_key, body FROM messages ORDER BY number LIMIT ?"


def _database(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = NORMAL")
    database.execute(
        "CREATE TABLE messages (number INTEGER PRIMARY KEY, tag TEXT, key TEXT, sharding_key TEXT, body BLOB)"
    )
    return database


def _insert_transactions(database: sqlite3.Connection, messages: int, body: bytes, per_transaction: int) -> None:
    keys = islice(cycle(KEYS), messages)
    while rows := [(TAG, key, key, body) for key in islice(keys, per_transaction)]:
        database.execute("BEGIN")
        database.executemany(_INSERT, rows)
        database.execute("COMMIT")
