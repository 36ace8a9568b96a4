"""What readers, tables, schedules, outboxes and the command line are promised, at every place."""

from __future__ import annotations

import datetime
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import orjson
import pytest

from rmqclient import (
    App,
    Inbox,
    Message,
    Outbox,
    Producer,
    PullConsumer,
    PullStatus,
    ReceivedMessage,
    Relay,
    Table,
)
from rmqclient.admin import Admin
from rmqclient.errors import NotOnCluster, OffsetOutOfRange, QueueError
from tests.interop.cluster.behaviour.place import SERVE, STORE, Place, eventually, nothing_more
from tests.interop.rocketmq import BROKER_4_9_7, BROKER_5_3_3, TOP


def numbers(count: int, begin: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(begin, begin + count)]


def test_a_pull_says_what_the_queue_has(place: Place) -> None:
    topic = place.topic("Pulled", 1)
    with PullConsumer(place.address, group=place.name("g")) as consumer:
        queue = consumer.queues(topic)[0]
        assert consumer.pull(queue, 0).status is PullStatus.NO_NEW_MESSAGE
        with Producer(place.address) as producer:
            for number, body in enumerate(numbers(10)):
                while producer.send(Message(topic, body, tags="even" if number % 2 == 0 else "odd")).queue != queue:
                    pass  # the other brokers of a cluster have a queue, too
        assert (consumer.min_offset(queue), consumer.max_offset(queue)) == (0, 10)
        found = consumer.pull(queue, 2, limit=5)
        assert found.status is PullStatus.FOUND
        assert [message.queue_offset for message in found.messages] == list(range(2, 7))
        assert (found.next_offset, found.min_offset, found.max_offset) == (7, 0, 10)
        assert [message.queue_offset for message in consumer.pull(queue, 0, "odd").messages] == [1, 3, 5, 7, 9]
        assert consumer.pull(queue, 0, "none").status is PullStatus.NO_MATCHED_MESSAGE
        illegal = consumer.pull(queue, 99)
        assert (illegal.status, illegal.next_offset) == (PullStatus.OFFSET_ILLEGAL, 10)


def test_a_pull_waits_for_a_message(place: Place) -> None:
    topic = place.topic("Awaited", 1)
    with PullConsumer(place.address, group=place.name("g")) as consumer, Producer(place.address) as producer:
        queue = consumer.queues(topic)[0]
        begun = time.monotonic()
        assert consumer.pull(queue, 0, wait=1.0).status is PullStatus.NO_NEW_MESSAGE
        assert 0.9 < time.monotonic() - begun < 10
        while producer.send(Message(topic, b"here")).queue != queue:
            pass
        assert [message.body for message in consumer.pull(queue, 0, wait=30).messages] == [b"here"]


def test_a_committed_offset_is_kept(place: Place) -> None:
    topic = place.topic("Committed")
    sent = place.send(topic, *numbers(8))
    queue = sent[0].queue
    with PullConsumer(place.address, group=place.name("g")) as consumer:
        assert consumer.committed_offset(queue) is None
        consumer.commit(queue, 1)
        with pytest.raises(OffsetOutOfRange):
            consumer.commit(queue, 99)
    with PullConsumer(place.address, group=place.name("g")) as consumer:
        assert consumer.committed_offset(queue) == 1
    with PullConsumer(place.address, group=place.name("other")) as consumer:
        assert consumer.committed_offset(queue) is None


def test_an_offset_is_found_by_its_time(place: Place) -> None:
    topic = place.topic("Timed", 1)
    place.send(topic, *numbers(8))
    time.sleep(1.1)
    between = datetime.datetime.now(datetime.UTC)
    time.sleep(0.1)
    place.send(topic, *numbers(8))
    with PullConsumer(place.address, group=place.name("g")) as consumer:
        for queue in consumer.queues(topic):
            first = consumer.offset_by_time(queue, between)
            found = consumer.pull(queue, 0).messages
            assert first == sum(message.store_timestamp < between.timestamp() * 1000 for message in found)
            assert consumer.offset_by_time(queue, between + datetime.timedelta(days=1)) == consumer.max_offset(queue)


def test_a_group_is_moved_and_handles_its_messages_again(place: Place) -> None:
    topic, group, seen, app = place.topic("Moved"), place.name("g"), [], App(place.address)

    @app.handler(topic, group=group)
    def handle(message: ReceivedMessage) -> None:
        seen.append(message.body)

    place.send(topic, *numbers(20))
    with place.running(app):
        eventually(lambda: len(seen) == 20, "every message")
    with Admin(place.address) as admin:
        eventually(lambda: sum(each.lag for each in admin.lag(group)) == 0, "every message is committed")
        moved = admin.seek(group, topic, "earliest")
        assert {info.to_offset for info in moved} == {0}
        assert sum(each.lag for each in admin.lag(group)) == 20
    with place.running(app):
        eventually(lambda: len(seen) == 40, "every message again")
        nothing_more(seen)
    with Admin(place.address) as admin:
        admin.seek(group, topic, "latest")
        assert sum(each.lag for each in admin.lag(group)) == 0


def test_a_group_is_moved_while_it_is_at_work(place: Place) -> None:
    topic, group, seen, app = place.topic("MovedAtWork"), place.name("g"), [], App(place.address)

    @app.handler(topic, group=group)
    def handle(message: ReceivedMessage) -> None:
        seen.append(message.body)

    place.send(topic, *numbers(20))
    with place.running(app), Admin(place.address) as admin:
        eventually(lambda: len(seen) == 20, "every message")
        admin.seek(group, topic, "earliest")
        eventually(lambda: len(seen) == 40, "every message again")
        nothing_more(seen)
    assert sorted(seen, key=int) == sorted(2 * numbers(20), key=int)


def test_the_administration_shows_topics_groups_and_members(place: Place) -> None:
    topic, group, seen, app = place.topic("Shown"), place.name("g"), [], App(place.address)

    @app.handler(topic, group=group)
    def handle(message: ReceivedMessage) -> None:
        seen.append(message.body)

    place.send(topic, *numbers(20))
    with Admin(place.address) as admin:
        with place.running(app) as consumer:
            eventually(lambda: len(seen) == 20, "every message")
            eventually(lambda: sum(each.lag for each in admin.lag(group)) == 0, "every message is committed")
            found = admin.topic(topic)
            assert found.messages == 20
            assert topic in [each.topic for each in admin.topics()]
            (info,) = [each for each in admin.groups() if each.group == group]
            assert info.members
            assert info.lag == 0
            assert topic in info.topics
            owners = {each.owner for each in admin.lag(group) if each.topic == topic}
            assert owners == {consumer.client_id}
            assert consumer.client_id in {each.client_id for each in admin.assignment(group)}
            assert topic in {each.topic for each in admin.subscriptions(group)}
        eventually(lambda: [each.members for each in admin.groups() if each.group == group] == [()], "the member left")


def rmq(place: Place, *arguments: str) -> list[dict[str, object]]:
    """Run the command on this place; return the rows that it prints."""
    command = [sys.executable, "-m", "rmqclient.workers", *arguments, "--store", place.address, "-o", "jsonl"]
    done = subprocess.run(command, cwd=TOP, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}"
    return [orjson.loads(line) for line in done.stdout.splitlines()]


def test_the_command_finds_what_was_sent(place: Place) -> None:
    topic, key = place.topic("Commanded"), place.name("key")
    (sent,) = place.send(topic, b"body", keys=[key])
    (made,) = rmq(place, "send", topic, "from the command")
    assert topic in str(rmq(place, "topic", "ls"))
    assert rmq(place, "topic", "info", topic)
    eventually(lambda: rmq(place, "message", "find", topic, key), "the index has the key")
    (found,) = rmq(place, "message", "find", topic, key)
    assert found["message_id"] == sent.message_id
    (shown,) = rmq(place, "message", "show", sent.message_id, "--topic", topic)
    assert shown == found
    assert made["message_id"]
    assert {message.body for message in place.stored(topic)} == {b"body", b"from the command"}


def test_a_table_has_the_latest_value_of_each_key(place: Place) -> None:
    topic = place.topic("Table")
    with Producer(place.address) as producer:
        for value in (b"1", b"2"):
            for key in ("a", "b", "c"):
                producer.send(Message(topic, value + key.encode(), keys=[key]), key)
        expected = {"a": b"2a", "b": b"2b", "c": b"2c"}
        if place.differs(BROKER_5_3_3, because="no key is deleted: a 5.x broker refuses a message without a body"):
            with pytest.raises(QueueError):
                producer.send(Message(topic, b"", keys=["c"]), "c")
        else:
            producer.send(Message(topic, b"", keys=["c"]), "c")
            del expected["c"]
        with Table(place.address, topic) as table:
            assert dict(table) == expected
            sent = producer.send(Message(topic, b"3a", keys=["a"]), "a")
            table.wait_for(sent, timeout=30)
            assert table["a"] == b"3a"


def test_a_compact_topic_is_made(place: Place) -> None:
    with Producer(place.address) as producer:
        because = "create_topic(cleanup_policy='compact') raises: 4.9 compacts nothing"
        if place.differs(BROKER_4_9_7, SERVE, because=because):
            with pytest.raises(NotOnCluster):
                producer.create_topic(place.name("Compact"), 1, cleanup_policy="compact")
            return
        producer.create_topic(place.name("Compact"), 1, cleanup_policy="compact")
    with Admin(place.address) as admin:
        assert admin.topic(place.name("Compact")).cleanup_policy == "compact"


def test_a_schedule_sends_one_message_for_each_time(place: Place) -> None:
    topic, seen = place.topic("Reports"), []

    def application() -> App:
        app = App(place.address)

        @app.schedule(every=1, topic=topic, name=place.name("report"))
        def report(tick: datetime.datetime) -> str:
            return tick.isoformat()

        @app.handler(topic, group=place.name("g"))
        def handle(message: ReceivedMessage) -> None:
            seen.append(message.body)

        return app

    with place.running(application()), place.running(application()):
        eventually(lambda: len(seen) >= 5, "five times")
    eventually(lambda: len(place.stored(topic)) >= len(seen), "what was seen is stored")
    sent = [message.body for message in place.stored(topic)]
    assert len(sent) == len(set(sent))


def test_an_outbox_and_an_inbox_make_one_change_of_each_row(place: Place, tmp_path: Path) -> None:
    topic, group, app = place.topic("Payments"), place.name("g"), App(place.address)
    database = tmp_path / "shop.db"
    outbox, inbox = Outbox(), Inbox(group)
    with closing(sqlite3.connect(database)) as connection, connection:
        outbox.create(connection)
        inbox.create(connection)
        connection.execute("CREATE TABLE account (body TEXT)")
        for body in numbers(10):
            outbox.add(connection, Message(topic, body))

    @app.handler(topic, group=group)
    def book(message: ReceivedMessage) -> None:
        with closing(sqlite3.connect(database, timeout=30)) as own, own, inbox.once(own, message) as is_first:
            if is_first:
                own.execute("INSERT INTO account VALUES (?)", (message.body.decode(),))

    def booked() -> list[str]:
        with closing(sqlite3.connect(database)) as reading:
            return sorted((row[0] for row in reading.execute("SELECT body FROM account")), key=int)

    with place.running(app):
        with Relay(place.address, outbox, lambda: sqlite3.connect(database, timeout=30)) as relay:
            while relay.send():
                pass
        eventually(lambda: len(booked()) == 10, "every row")
    assert booked() == [str(number) for number in range(10)]


def test_a_queue_that_is_not_there_is_named(place: Place) -> None:
    topic = place.topic("Queues")
    with PullConsumer(place.address, group=place.name("g")) as consumer:
        known = consumer.queues(topic)
        assert known == sorted(known, key=lambda queue: queue.sort_key)
        assert {queue.topic for queue in known} == {topic}
        assert bool(known[0].broker_name) == (place.kind != STORE)
