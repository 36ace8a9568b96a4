"""The outbox of SQLAlchemy: what a session wrote is sent if the session committed, once, through kills."""

from __future__ import annotations

import asyncio
import importlib
import random
import signal
import sqlite3
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest

pytest.importorskip("sqlalchemy", reason="no sqlalchemy: make install-all brings it")

from sqlalchemy import Engine, MetaData, create_engine, select, text, update
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from rmqclient import Message, Relay
from rmqclient.databases.outbox import CLAIMED
from rmqclient.databases.outbox import Outbox as PlainOutbox
from rmqclient.frameworks.sqlalchemy import Outbox
from rmqclient.store import MessageStore, open_store
from tests.frameworks.sqlalchemy.shop import Order, outbox
from tests.support.stores import SMALL

REPOSITORY = Path(__file__).parents[3]
LONG_S = 60.0


def bodies(store: MessageStore, topic: str = "orders") -> list[bytes]:
    """Return what was sent to a topic."""
    if topic not in store.topics:
        return []
    found = []
    for queue in store.topics.queues(topic):
        for offset in range(store.topics.max_offset(queue)):
            message = store.messages.at(queue, offset)
            assert message is not None
            found.append(message.body)
    return found


def send_all(relay: Relay, engine: Engine) -> None:
    """Send until every row is sent; a server may need a moment to find out that the relay before is dead."""
    deadline = time.monotonic() + LONG_S
    while states(engine) - {2}:
        assert time.monotonic() < deadline, states(engine)
        relay.send()


def states(engine: Engine) -> set[int]:
    with engine.connect() as connection:
        return {*connection.scalars(select(outbox.sql.c.state))}


def test_a_message_goes_with_its_session(engine: Engine, store: MessageStore) -> None:
    whole = Message("orders", {"item": "pears"}, tags="t", keys=["k"], properties={"a": "b"}, flag=7)
    with outbox.relay(store, engine) as relay, Session(engine) as session:
        outbox.add(session, Message("orders", b"never"))
        session.rollback()
        session.add(Order(number=1, item="pears"))
        key = outbox.add(session, whole, "c4")
        assert relay.send() == 0
        session.commit()
        assert relay.send() == 1
        assert relay.send() == 0
        (sent,) = store.messages.by_key("orders", key)
        assert (sent.body, sent.tags, sent.keys, sent.flag) == (b'{"item":"pears"}', "t", ("k", key), 7)
        assert outbox.forget_sent(session) == 1
        session.commit()
    assert bodies(store) == [b'{"item":"pears"}']


def test_a_message_waits_for_its_time(engine: Engine, store: MessageStore) -> None:
    due = datetime.now(UTC) + timedelta(hours=1)
    with outbox.relay(store, engine) as relay:
        with Session(engine) as session, session.begin():
            outbox.add(session, Message("orders", b"later"), deliver_at=due)
            outbox.add(session, Message("orders", b"now"))
        assert relay.send() == 2
    assert bodies(store) == [b"now"]
    (waiting,) = bodies(store, "rmq_sys_wheel_timer")
    assert waiting == b"later"


@pytest.mark.guarantee("G106")
def test_a_text_that_is_not_utf8_is_refused_alone(url: str, engine: Engine, store: MessageStore) -> None:
    if not url.startswith("sqlite"):
        pytest.skip("other databases take no such text")
    with Session(engine) as session, session.begin():
        outbox.add(session, Message("orders", b"bad"))
        session.execute(text("UPDATE rmq_outbox SET tags = CAST(x'ff31' AS TEXT)"))
        outbox.add(session, Message("orders", b"good"))
    with outbox.relay(store, engine) as relay:
        assert relay.send() == 2
    assert bodies(store) == [b"good"]


def test_a_relay_that_died_behind_its_send_finds_the_message_that_waits(engine: Engine, store: MessageStore) -> None:
    with Session(engine) as session, session.begin():
        outbox.add(session, Message("orders", b"later"), delay=timedelta(hours=1))
    with outbox.relay(store, engine) as relay:
        assert relay.send() == 1
    with engine.begin() as connection:  # as a relay leaves it that is killed between the send and the mark
        connection.execute(update(outbox.sql).values(state=CLAIMED, message_id=None))
    with outbox.relay(store, engine) as relay:
        send_all(relay, engine)
    assert bodies(store, "rmq_sys_wheel_timer") == [b"later"]


@pytest.mark.guarantee("G67")
def test_a_killed_shop_has_sent_what_it_sold_once_and_nothing_else(engine: Engine, url: str, tmp_path: Path) -> None:
    root = tmp_path / "store"
    open_store(root, SMALL).close()
    # Given a shop that was killed while it sold and sent
    kill_at_work(url, root)
    # When another relay goes on
    with open_store(root, SMALL) as store, outbox.relay(store, engine) as relay:
        send_all(relay, engine)
        sent = sorted(int(body) for body in bodies(store))
    # Then what was committed is what was sent
    with Session(engine) as session:
        sold = sorted(session.scalars(select(Order.number)))
    assert len(sold) > 10
    assert not [number for number in sold if number % 3 == 0]
    assert sent == sold


def kill_at_work(url: str, root: Path) -> None:
    """Run a shop, and kill it a moment after it has begun."""
    command = [sys.executable, "-m", "tests.frameworks.sqlalchemy.shop", url, str(root)]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == "selling\n"
            time.sleep(random.Random().uniform(0, 0.05))  # any moment will do
        finally:
            child.send_signal(signal.SIGKILL)


def alone(engine: Engine) -> Any:
    """Return a connection that SQLAlchemy knows nothing of."""
    if engine.dialect.name == "sqlite":
        return sqlite3.connect(str(engine.url.database))
    return importlib.import_module("psycopg").connect(host=engine.url.query["host"], user="tests", dbname="postgres")


def test_one_relay_works_at_a_time_also_beside_a_plain_one(engine: Engine, store: MessageStore) -> None:
    with engine.begin() as connection:
        outbox.add(connection, Message("orders", b"1"))
        outbox.add(connection, Message("orders", b"2"))
    with outbox.relay(store, engine, batch=1) as first, outbox.relay(store, engine, batch=1) as second:
        assert (first.send(), second.send()) == (1, 0)
        if engine.dialect.name != "mysql":
            plain = Relay(store, PlainOutbox(), lambda: alone(engine), batch=1)
            assert plain.send() == 0
            plain.close()
        first.close()
        send_all(second, engine)
    assert sorted(bodies(store)) == [b"1", b"2"]


def test_a_plain_outbox_has_the_same_table(engine: Engine, store: MessageStore) -> None:
    if engine.dialect.name == "mysql":
        pytest.skip("a plain outbox knows SQLite and PostgreSQL")
    driver = alone(engine)
    PlainOutbox().create(driver)
    PlainOutbox().add(driver, Message("orders", b"plain"))
    driver.commit()
    driver.close()
    with outbox.relay(store, engine) as relay:
        assert relay.send() == 1
    assert bodies(store) == [b"plain"]


def test_an_async_session_writes_too(url: str, async_url: str, store: MessageStore) -> None:
    engine = create_async_engine(async_url)
    metadata = MetaData()
    own = Outbox(metadata)

    async def order() -> None:
        async with engine.begin() as connection:
            await connection.run_sync(metadata.drop_all)
            await connection.run_sync(metadata.create_all)
        async with AsyncSession(engine) as session:
            await own.add_async(session, Message("orders", b"1"))
            await session.commit()
            await own.add_async(session, Message("orders", b"never"))
            await session.rollback()
        await engine.dispose()

    asyncio.run(order())
    plain = create_engine(url)
    with own.relay(store, plain) as relay:
        assert relay.send() == 1
    plain.dispose()
    with pytest.raises(TypeError, match="cannot use AsyncEngine"):
        own.relay(store, cast("Any", engine))
    assert bodies(store) == [b"1"]


def test_a_connection_that_commits_by_itself_is_refused(engine: Engine) -> None:
    refused = pytest.raises(ValueError, match="commits every statement by itself")
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection, refused:
        outbox.add(connection, Message("orders", b"1"))
    assert states(engine) == set()
