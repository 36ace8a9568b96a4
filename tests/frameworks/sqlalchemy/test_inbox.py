"""The inbox of SQLAlchemy: a handler's changes are made once for a message."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

pytest.importorskip("sqlalchemy", reason="no sqlalchemy: make install-all brings it")

from sqlalchemy import Engine, MetaData, func, select, text
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from rmqclient import App, Producer, ReceivedMessage, RetryPolicy
from rmqclient.frameworks.sqlalchemy import Inbox
from rmqclient.store import Message, MessageStore
from tests.frameworks.sqlalchemy.shop import Base, Order, inbox

LONG_S = 60.0


@pytest.fixture
def message(store: MessageStore) -> ReceivedMessage:
    """One message of a store."""
    with Producer(store) as producer:
        sent = producer.send(Message("orders", b"1"))
    found = store.messages.by_id(sent.message_id, "orders")
    assert found is not None
    return found


def ordered(engine: Engine) -> int:
    with engine.connect() as connection:
        return connection.execute(select(func.count()).select_from(Order)).scalar_one()


@pytest.mark.guarantee("G68")
def test_what_a_failed_delivery_changed_is_undone_and_the_next_one_does_it_once(engine: Engine, tmp_path: Path) -> None:
    app, calls, done = App(tmp_path / "shop"), [], threading.Event()

    @app.handler("orders", group="billing", retry=RetryPolicy(delays=(0.01,)))
    def bill(message: ReceivedMessage) -> None:
        with Session(engine) as session, inbox.once(session, message) as is_first:
            calls.append(is_first)
            if is_first:
                session.add(Order(number=len(calls), item="apples"))
                session.flush()
            if len(calls) == 1:
                raise ConnectionError("the first time")
        if len(calls) == 2:
            raise ConnectionError("behind the commit")
        done.set()

    with app.running(), app.producer() as producer:
        producer.send("orders", b"1")
        assert done.wait(LONG_S)
    assert calls == [True, True, False]
    assert ordered(engine) == 1


def test_two_deliveries_at_once_change_once(engine: Engine, message: ReceivedMessage) -> None:
    answers: list[bool | Exception] = []
    in_block = threading.Event()

    def deliver(number: int) -> None:
        try:
            with Session(engine) as session, inbox.once(session, message) as is_first:
                in_block.set()
                if is_first:
                    session.add(Order(number=number, item="apples"))
                    time.sleep(0.1)  # while the other one waits for this transaction
                answers.append(is_first)
        except DBAPIError as error:  # SQLite may have no patience: then the message comes again
            answers.append(error)

    first, second = (threading.Thread(target=deliver, args=(number,)) for number in (1, 2))
    first.start()
    assert in_block.wait(LONG_S)
    second.start()
    first.join()
    second.join()
    assert answers.count(True) == 1
    assert ordered(engine) == 1


def test_a_statement_that_failed_is_not_lost_silently(engine: Engine, message: ReceivedMessage) -> None:
    if engine.dialect.name != "postgresql":
        pytest.skip("only PostgreSQL gives up a transaction for a failed statement")
    refused = pytest.raises(DBAPIError, match="aborted")
    with refused, engine.connect() as connection, inbox.once(connection, message), pytest.raises(DBAPIError):
        connection.execute(text("SELECT 1 / 0"))
    with Session(engine) as session:
        assert inbox.add(session, message)


def test_groups_keys_and_times_are_apart(engine: Engine, message: ReceivedMessage) -> None:
    mail = Inbox("mail", Base.metadata)
    with Session(engine) as session:
        assert [inbox.add(session, message), inbox.add(session, message)] == [True, False]
        assert mail.add(session, message)
        assert [inbox.add(session, message, key=key) for key in ("a", "A", "a")] == [True, True, False]
        with pytest.raises(ValueError, match="give a text"):
            inbox.add(session, message, key="")
        assert inbox.forget_before(session, datetime.now(UTC) + timedelta(minutes=1)) == 3
        assert not mail.add(session, message)
        session.commit()


def test_a_long_key_is_refused_where_the_database_would_cut_it(engine: Engine, message: ReceivedMessage) -> None:
    with Session(engine) as session:
        if engine.dialect.name != "mysql":
            assert inbox.add(session, message, key="k" * 300)
            return
        for key in ("k" * 256, "k "):
            with pytest.raises(ValueError, match="at most 255 characters"):
                inbox.add(session, message, key=key)


def test_an_async_session_does_the_same(async_url: str, message: ReceivedMessage) -> None:
    metadata = MetaData()
    own = Inbox("billing", metadata)

    async def deliver() -> list[bool]:
        engine = create_async_engine(async_url)
        async with engine.begin() as connection:
            await connection.run_sync(metadata.drop_all)
            await connection.run_sync(metadata.create_all)
        answers = []
        for attempt in range(3):
            try:
                async with AsyncSession(engine) as session, own.once_async(session, message) as is_first:
                    answers.append(is_first)
                    if attempt == 0:
                        raise IntegrityError("the first time", None, Exception())
            except IntegrityError:
                pass
        await engine.dispose()
        return answers

    assert asyncio.run(deliver()) == [True, True, False]


def test_an_application_without_asyncio_needs_no_greenlet() -> None:
    without = "import sys; sys.modules['greenlet'] = None; import rmqclient.frameworks.sqlalchemy"
    assert subprocess.run([sys.executable, "-c", without], check=False).returncode == 0
