"""Children that work beside a database: a relay of an outbox, and a handler with an inbox."""

from __future__ import annotations

import contextlib
import importlib
import itertools
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import cast

from rmqclient import App, RetryPolicy
from rmqclient.consuming.push_consumer import PushConsumer
from rmqclient.databases.database import Connection, execute, is_sqlite
from rmqclient.databases.inbox import Inbox
from rmqclient.databases.outbox import Outbox
from rmqclient.databases.relay import Relay
from rmqclient.store import Message, ReceivedMessage, open_store
from tests.crash.processes.order import Note, Order
from tests.support.stores import GROUP, TOPIC, body_of


def relay(order: Order, note: Note) -> None:
    """Send what is in the outbox beside the store; note each batch."""
    sending = Relay(open_store(order.root, housekeeping=False), Outbox(), connector_beside(Path(order.root)), batch=3)
    order.arm()
    while sent := sending.send():
        note(sent)


def handle_once(order: Order, note: Note) -> None:
    """Handle what is in the topic, each message in its own transaction; note each call, and if it was the first.

    With one thread each message moves the group on, so that a point is reached as often as there are messages. Of two,
    one may hold the first message until the other has handled the rest.
    """
    threads = 1 if order.survive else 2
    app = bookkeeping(Path(order.root), connector_beside(Path(order.root)), note, threads=threads)
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


def bookkeeping(root: Path, connect: Callable[[], Connection], note: Note, failing: int = 0, threads: int = 2) -> App:
    """Return an application that adds to a balance and books each message, once; every ``failing``-th call fails."""
    app, inbox, calls = App(root), Inbox(GROUP), itertools.count(1)

    @app.handler(TOPIC, group=GROUP, threads=threads, retry=RetryPolicy(delay_levels=(1,)))
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
