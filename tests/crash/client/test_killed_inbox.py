"""The inbox: what a handler does to a database is done once, whoever is killed where, however often messages come."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from rmqclient import Message, ReceivedMessage
from rmqclient.admin import Admin
from rmqclient.databases.database import Connection, execute, is_sqlite
from rmqclient.databases.inbox import Inbox, identity_of
from rmqclient.store import MessageStore, open_store
from rmqclient.store.crash_points import CrashPoint
from tests.client.conftest import consuming, wait_for
from tests.crash.processes.nursery import Nursery
from tests.crash.processes.order import Order
from tests.crash.processes.scenarios.databases import bookkeeping, open_books
from tests.support.stores import GROUP, TOPIC, appender_of, body_of, waiting

MESSAGES = 12
INBOX = [CrashPoint.INBOX_MARKED, CrashPoint.INBOX_HANDLED, CrashPoint.INBOX_COMMITTED]
ACKNOWLEDGEMENT = [point for point in CrashPoint if CrashPoint.ACK_LOCKED <= point <= CrashPoint.ACK_FINISHED]


@pytest.fixture
def connect(connect: Callable[[], Connection]) -> Callable[[], Connection]:
    """Return what opens the database, which has empty books."""
    open_books(connect)
    return connect


def send_all(store: MessageStore) -> list[bytes]:
    """Send what is to be booked; return the bodies of everything in the topic."""
    for number in range(MESSAGES):
        appender_of(store).append(Message(TOPIC, body_of(number)))
    return [b"first", *(body_of(number) for number in range(MESSAGES))]


def books(connect: Callable[[], Connection]) -> tuple[list[bytes], int]:
    """Return what was booked, and the balance."""
    with contextlib.closing(connect()) as connection:
        booked = [bytes(row[0]) for row in execute(connection, "booked", "SELECT body FROM {table}").fetchall()]
        ((balance,),) = execute(connection, "account", "SELECT balance FROM {table}").fetchall()
    return sorted(booked), balance


def is_finished(store: MessageStore) -> bool:
    end = store.state.published_to
    queues = Admin(store).lag(GROUP)
    has_all = bool(queues) and all(queue.lag == 0 for queue in queues) and not any(waiting(store).values())
    return has_all and store.state.published_to == end  # what waited may have been delivered between the two looks


@pytest.mark.crash
@pytest.mark.guarantee("G44")
@pytest.mark.parametrize("point", [*INBOX, *ACKNOWLEDGEMENT], ids=str)
@pytest.mark.parametrize("survive", [0, 3])
def test_a_killed_handler_leaves_each_message_booked_once(
    store: MessageStore,
    root: Path,
    nursery: Nursery,
    connect: Callable[[], Connection],
    point: CrashPoint,
    survive: int,
) -> None:
    # Given a process that is killed at some point of its way through the messages
    expected = send_all(store)
    order = Order(
        scenario="handle_once", root=str(root), notes=str(root.with_name("notes")), point=point.name, survive=survive
    )
    nursery.kill_at_its_point(order)
    # When another one handles them
    again: list[str] = []
    with consuming(store, bookkeeping(root, connect, lambda said: again.append(str(said)))):
        wait_for(lambda: is_finished(store), "every message is acknowledged")
    # Then each is booked once, whatever had become of it
    assert books(connect) == (sorted(expected), len(expected))
    if point is CrashPoint.INBOX_COMMITTED:
        assert [said for said in again if said.endswith(" 0")], "the message that was committed comes again"


@pytest.mark.guarantee("G44")
def test_a_handler_that_fails_after_its_changes_books_each_message_once(
    store: MessageStore, root: Path, connect: Callable[[], Connection]
) -> None:
    expected = send_all(store)
    handled: list[str] = []
    book = bookkeeping(root, connect, lambda said: handled.append(str(said)), failing=3)
    with open_store(root) as kept, consuming(kept, book):  # somebody must deliver the retries
        wait_for(lambda: is_finished(kept) and len(handled) == len(expected), "every message is acknowledged")
    assert books(connect) == (sorted(expected), len(expected))


# --- one message, twice ---------------------------------------------------------------------------


def message_of(store: MessageStore, number: int = 0) -> ReceivedMessage:
    return store.messages.at(store.topics.queues(TOPIC)[0], number)


def add_one(connection: Connection) -> None:
    execute(connection, "account", "UPDATE {table} SET balance = balance + 1")


@pytest.mark.guarantee("G44")
@pytest.mark.parametrize("commits", [True, False], ids=["which commits", "which fails"])
def test_a_second_delivery_waits_for_the_first_one(
    store: MessageStore, connect: Callable[[], Connection], commits: bool
) -> None:
    # Given a delivery that has done its work and has not committed it
    inbox, message, answers = Inbox(GROUP), message_of(store), list[bool]()
    begun, going = threading.Event(), threading.Event()

    def deliver_again() -> None:
        begun.wait()
        with contextlib.closing(connect()) as connection:
            going.set()
            with inbox.once(connection, message) as is_first:
                answers.append(is_first)
                if is_first:
                    add_one(connection)

    second = threading.Thread(target=deliver_again)
    second.start()
    with (
        contextlib.closing(connect()) as connection,
        contextlib.suppress(KeyError),
        inbox.once(connection, message) as is_first,
    ):
        assert is_first
        add_one(connection)
        begun.set()
        going.wait()
        second.join(0.2)
        # When the same message comes to another one
        assert answers == [], "it must wait"
        if not commits:
            raise KeyError
    second.join(10)
    # Then that one does it if, and only if, the first one did not
    assert answers == [not commits]
    assert books(connect)[1] == 1


@pytest.mark.parametrize("by_itself", [False, True], ids=["as it is made", "committing by itself"])
def test_the_block_is_one_transaction_on_any_connection(
    store: MessageStore, connect: Callable[[], Connection], by_itself: bool
) -> None:
    inbox, first, second = Inbox(GROUP), message_of(store), again(store, message_of(store))
    with contextlib.closing(connect()) as connection:
        if by_itself:
            let_it_commit_by_itself(connection)
        for message, fails in ((first, True), (first, False), (second, True), (second, False)):
            with contextlib.suppress(KeyError), inbox.once(connection, message) as is_first:
                assert is_first == (books(connect)[1] == 0)
                if is_first:
                    add_one(connection)
                if fails:
                    raise KeyError
        assert books(connect)[1] == 1


def again(store: MessageStore, message: ReceivedMessage) -> ReceivedMessage:
    """Return a retry's record of a message."""
    properties = {**message.properties, "ORIGIN_MESSAGE_ID": identity_of(message)}
    sent = appender_of(store).append_copy(message, "%RETRY%billing", 0, properties, reconsume_times=1)
    return store.messages.read(sent.commit_log_offset)


def let_it_commit_by_itself(connection: Connection) -> None:
    if isinstance(connection, sqlite3.Connection):
        connection.isolation_level = None
    else:
        connection.autocommit = True  # type: ignore[attr-defined]


def test_a_block_that_went_on_after_a_failed_statement_is_not_taken_for_committed(
    store: MessageStore, connect: Callable[[], Connection]
) -> None:
    inbox, message = Inbox(GROUP), message_of(store)
    with contextlib.closing(connect()) as connection:
        one_statement = is_sqlite(connection)  # is all that SQLite undoes
        fails = contextlib.nullcontext() if one_statement else pytest.raises(RuntimeError, match="has failed")
        with fails, inbox.once(connection, message):
            add_one(connection)
            with contextlib.suppress(Exception):
                execute(connection, "nothing", "SELECT * FROM {table}")
        with inbox.once(connection, message) as is_first:
            assert is_first is not one_statement
    assert books(connect)[1] == one_statement


def test_a_message_of_a_client_that_gave_no_id_is_known_by_its_first_record(store: MessageStore) -> None:
    sent = appender_of(store).append_copy(message_of(store), TOPIC, 0, {"KEYS": "k"}, reconsume_times=0)
    foreign = store.messages.read(sent.commit_log_offset)
    assert identity_of(foreign) == foreign.offset_message_id == foreign.message_id
    assert identity_of(again(store, again(store, foreign))) == identity_of(foreign)
    assert identity_of(again(store, message_of(store))) == message_of(store).message_id


def test_a_message_counts_for_its_group_and_by_the_key_it_is_given(
    store: MessageStore, connect: Callable[[], Connection]
) -> None:
    appender_of(store).append(Message(TOPIC, b"another"))
    message, another = message_of(store), message_of(store, 1)
    with contextlib.closing(connect()) as connection:
        billing, shipping = Inbox(GROUP), Inbox("shipping")
        assert [billing.add(connection, message), shipping.add(connection, message)] == [True, True]
        assert [billing.add(connection, message), billing.add(connection, another)] == [False, True]
        assert [billing.add(connection, each, key="order-17") for each in (message, another)] == [True, False]
        assert [shipping.add(connection, each, key="order-17") for each in (message, another)] == [True, False]
        with pytest.raises(ValueError, match="have in common"):
            billing.add(connection, message, key="")
        connection.rollback()
        assert billing.add(connection, message)


def test_old_rows_are_forgotten_for_one_group(store: MessageStore, connect: Callable[[], Connection]) -> None:
    message, inbox = message_of(store), Inbox(GROUP)
    now = datetime.now(UTC)
    with contextlib.closing(connect()) as connection:
        inbox.create(connection)
        for each in (inbox, Inbox("shipping")):
            assert each.add(connection, message)
        assert inbox.forget_before(connection, now - timedelta(minutes=1)) == 0
        assert not inbox.add(connection, message)
        assert inbox.forget_before(connection, now + timedelta(minutes=1)) == 1
        assert inbox.add(connection, message)
        assert not Inbox("shipping").add(connection, message)


def test_a_row_outside_of_a_transaction_is_refused(store: MessageStore, connect: Callable[[], Connection]) -> None:
    inbox = Inbox(GROUP)
    with contextlib.closing(connect()) as connection:
        let_it_commit_by_itself(connection)
        with pytest.raises(ValueError, match="in no transaction"):
            inbox.add(connection, message_of(store))
        execute(connection, "", "BEGIN")
        assert inbox.add(connection, message_of(store))


class _Awaited:
    """As psycopg.AsyncConnection has it: what is not awaited does nothing."""

    async def commit(self) -> None:
        """Never called."""


def test_a_connection_that_is_to_be_awaited_is_refused(store: MessageStore) -> None:
    awaited: Any = _Awaited()
    with pytest.raises(TypeError, match="has coroutines for methods"), Inbox(GROUP).once(awaited, message_of(store)):
        pass


@pytest.mark.parametrize("table", ["", "1st", "a b", "x; DROP TABLE account"])
def test_a_name_that_is_none_is_refused(table: str) -> None:
    with pytest.raises(ValueError, match="give a letter"):
        Inbox(GROUP, table)
