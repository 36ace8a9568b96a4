"""The outbox: a message is sent once if its transaction was committed, and not if it was not, through kills."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from rmqclient import Message
from rmqclient.databases.database import Connection
from rmqclient.databases.outbox import Outbox
from rmqclient.databases.relay import Relay
from rmqclient.store import TIMER_TOPIC, MessageStore
from rmqclient.store.crash_points import CrashPoint
from tests.crash.processes.nursery import Nursery
from tests.crash.processes.order import Order
from tests.crash.processes.scenarios.databases import fill_outbox
from tests.support.oracle import reference
from tests.support.oracle.views import bodies, queued_records
from tests.support.stores import TOPIC, body_of

ROWS = 8
APPEND = [
    point for point in CrashPoint if point < CrashPoint.PROGRESS_ADVANCED and point is not CrashPoint.BLANK_WRITTEN
]


@pytest.fixture
def connect(connect: Callable[[], Connection]) -> Callable[[], Connection]:
    """Return what opens the database, which has an empty outbox."""
    with contextlib.closing(connect()) as connection:
        Outbox().create(connection)
        Outbox().execute(connection, "DELETE FROM {table}")
        connection.commit()
    return connect


def seen(store: MessageStore) -> list[bytes]:
    """Return what was sent, but for the first message, which is no test's."""
    return bodies(queued_records(store))[1:]


def states(connect: Callable[[], Connection]) -> list[int]:
    with contextlib.closing(connect()) as connection:
        return [row[0] for row in Outbox().execute(connection, "SELECT state FROM {table} ORDER BY id").fetchall()]


def send_all(relay: Relay, connect: Callable[[], Connection]) -> None:
    """Send until every row is sent; a server may need a moment to find out that the one before is dead."""
    deadline = time.monotonic() + 20
    while {*states(connect)} != {2}:
        assert time.monotonic() < deadline
        relay.send()


@pytest.mark.crash
@pytest.mark.guarantee("G32")
@pytest.mark.parametrize("point", [*APPEND, CrashPoint.OUTBOX_CLAIMED, CrashPoint.OUTBOX_SENT], ids=str)
@pytest.mark.parametrize("survive", [0, 1])
def test_a_killed_relay_leaves_each_row_sent_once(
    store: MessageStore,
    root: Path,
    nursery: Nursery,
    connect: Callable[[], Connection],
    point: CrashPoint,
    survive: int,
) -> None:
    # Given a relay that is killed at some point of its way
    fill_outbox(root, ROWS)
    notes = str(root.with_name("notes"))
    nursery.kill_at_its_point(Order(scenario="relay", root=str(root), notes=notes, point=point.name, survive=survive))
    # When another one goes on
    with Relay(store, Outbox(), connect, batch=3) as relay:
        send_all(relay, connect)
    # Then each row was sent once, in order, and the database says so
    assert seen(store) == [body_of(number) for number in range(ROWS)]
    assert states(connect) == [2] * ROWS
    store.close()
    assert reference.check_store(root) == []


def test_a_message_is_sent_when_its_transaction_is_committed_and_not_otherwise(
    store: MessageStore, connect: Callable[[], Connection]
) -> None:
    outbox = Outbox()
    message = Message(TOPIC, b"paid", tags="t", keys=["k"], properties={"a": "b"}, flag=7)
    with contextlib.closing(connect()) as connection, Relay(store, outbox, connect) as relay:
        outbox.execute(connection, "CREATE TABLE IF NOT EXISTS account (balance INTEGER)")
        connection.commit()
        outbox.add(connection, Message(TOPIC, b"never paid"))
        connection.rollback()
        outbox.execute(connection, "INSERT INTO account VALUES (1)")
        key = outbox.add(connection, message)
        assert relay.send() == 0  # not committed yet
        connection.commit()
        assert relay.send() == 1
        assert relay.send() == 0
        (sent,) = store.messages.by_key(TOPIC, key)
        assert (sent.body, sent.tags, sent.keys, sent.flag) == (b"paid", "t", ("k", key), 7)
        assert sent.properties["a"] == "b"
        assert outbox.forget_sent(connection) == 1
        connection.commit()
    assert seen(store) == [b"paid"]


@pytest.mark.guarantee("G32")
def test_a_message_that_waits_for_its_time_is_found_by_the_next_relay(
    store: MessageStore, connect: Callable[[], Connection]
) -> None:
    with contextlib.closing(connect()) as connection:
        key = Outbox().add(connection, Message(TOPIC, b"later"), delay=timedelta(hours=1))
        connection.commit()
        with Relay(store, Outbox(), connect) as relay:
            assert relay.send() == 1
        # As a relay leaves it that is killed between the send and the mark
        Outbox().execute(connection, "UPDATE {table} SET state = 1")
        connection.commit()
    with Relay(store, Outbox(), connect) as relay:
        send_all(relay, connect)
    assert [each.body for each in store.messages.by_key(TIMER_TOPIC, key)] == [b"later"]
    assert seen(store) == []


def test_the_transaction_of_a_with_block_decides(store: MessageStore, connect: Callable[[], Connection]) -> None:
    outbox = Outbox()
    with contextlib.closing(connect()) as connection, Relay(store, outbox, connect) as relay:
        for body in (b"done", b"failed", b"done, too"):
            block = connection if isinstance(connection, sqlite3.Connection) else connection.transaction()  # type: ignore[attr-defined]
            with contextlib.suppress(KeyError), block:
                outbox.add(connection, Message(TOPIC, body))
                if body == b"failed":
                    raise KeyError(body)
        assert relay.send() == 2
    assert seen(store) == [b"done", b"done, too"]


def test_one_relay_works_at_a_time(store: MessageStore, root: Path, connect: Callable[[], Connection]) -> None:
    fill_outbox(root, 2)
    with Relay(store, Outbox(), connect, batch=1) as first, Relay(store, Outbox(), connect, batch=1) as second:
        assert (first.send(), second.send()) == (1, 0)
        first.close()
        send_all(second, connect)
    assert seen(store) == [body_of(0), body_of(1)]


def test_a_row_that_can_never_be_sent_does_not_hold_up_the_others(
    store: MessageStore, connect: Callable[[], Connection]
) -> None:
    with contextlib.closing(connect()) as connection, Relay(store, Outbox(), connect) as relay:
        for message in (Message("no such name!", b"a"), Message(TOPIC, b"x" * 3_000), Message(TOPIC, b"b")):
            Outbox().add(connection, message)
        connection.commit()
        assert relay.send() == 3
        refusals = Outbox().execute(connection, "SELECT refusal FROM {table} ORDER BY id").fetchall()
    assert states(connect) == [3, 3, 2]
    assert ["name has" in refusals[0][0], "over the limit" in refusals[1][0]] == [True, True]
    assert seen(store) == [b"b"]


def test_a_relay_that_fails_goes_on_where_it_was(
    store: MessageStore, root: Path, connect: Callable[[], Connection], monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_outbox(root, 3)
    with Relay(store, Outbox(), connect) as relay:
        monkeypatch.setattr(store.flusher, "wait_until_flushed", fails)
        with pytest.raises(OSError, match="no disk"):
            relay.send()
        monkeypatch.undo()
        ended = threading.Event()
        thread = threading.Thread(target=relay.run, args=(ended,))
        thread.start()
        while states(connect) != [2, 2, 2]:
            assert thread.is_alive()
        ended.set()
        thread.join(10)
    assert seen(store) == [body_of(number) for number in range(3)]


def fails(_: int) -> None:
    raise OSError("no disk")


def test_a_connection_that_commits_by_itself_is_refused(root: Path, connect: Callable[[], Connection]) -> None:
    with contextlib.closing(connect()) as connection:
        if isinstance(connection, sqlite3.Connection):
            connection.isolation_level = None
        else:
            connection.autocommit = True  # type: ignore[attr-defined]
        with pytest.raises(ValueError, match="in no transaction"):
            Outbox().add(connection, Message(TOPIC, b""))
        Outbox().execute(connection, "BEGIN")
        Outbox().add(connection, Message(TOPIC, b""))
        connection.rollback()
    assert states(connect) == []


@pytest.mark.parametrize("table", ["", "1st", "a b", "x; DROP TABLE account"])
def test_a_name_that_is_none_is_refused(table: str) -> None:
    with pytest.raises(ValueError, match="give a letter"):
        Outbox(table)
