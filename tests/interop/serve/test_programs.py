"""Small programs around RocketMQ's Java and Go clients against ``rmq serve``: every way to send, every way to take."""

from __future__ import annotations

import itertools
import shutil
from base64 import b64decode
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress

import pytest

from rmqclient import App, Message, Producer, PullConsumer, ReceivedMessage
from rmqclient.admin import Admin
from rmqclient.broker.topics.system_topics import TRACE_TOPIC
from rmqclient.consuming.push_consumer import PushConsumer
from rmqclient.store import StoreConfig, open_store
from rmqclient.store.config import TransactionConfig
from rmqclient.store.errors import UnknownTopic
from rmqclient.testing import Server, serve
from tests.interop.rocketmq import BROKER_4_9_7, BROKER_5_3_3, why_not
from tests.interop.serve.members import eventually
from tests.interop.serve.programs import Program, Taker, go, java, taker
from tests.support.lines import of_kind

JAVA_4, JAVA_5, GO = "Java 4.9.7", "Java 5.3.3", "Go 2.1.2"
LONG_S = 60.0
WAYS = ("sync", "async", "oneway", "batch", "delayed")
"""Of each of them a program sends five messages."""
MESSAGES = 60
"""Sent to a consumer: their tags are a, b and c in turn, and their numbers count."""

REASON = why_not(BROKER_4_9_7, BROKER_5_3_3) or ("" if shutil.which("go") else "there is no Go")
pytestmark = pytest.mark.skipif(bool(REASON), reason=REASON)


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Program]:
    """The programs by the names of their clients."""
    home = tmp_path_factory.mktemp("clients")
    return {JAVA_4: java(BROKER_4_9_7, home / "4"), JAVA_5: java(BROKER_5_3_3, home / "5"), GO: go(home)}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server for all tests, which looks for undecided transactions every second."""
    root = tmp_path_factory.mktemp("served") / "store"
    open_store(root, StoreConfig(transactions=TransactionConfig(check_interval_ms=1_000))).close()
    with serve(root) as server:
        yield server


_numbers = itertools.count(1)


@pytest.fixture
def topic(server: Server) -> str:
    """Return a topic of four queues, for this test alone."""
    name = f"Topic{next(_numbers)}"
    with Producer(str(server.root)) as producer:
        producer.create_topic(name, 4)
    return name


# --- sending ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("client", [JAVA_4, JAVA_5, GO])
def test_what_a_client_sends_in_every_way_is_there_once(
    client: str, programs: dict[str, Program], server: Server, topic: str
) -> None:
    lines = programs[client].run("produce", server.address, topic)
    sent = {(line["way"], line["number"]): line for line in of_kind(lines, "sent")}
    assert {line["status"] for line in sent.values()} == {"SEND_OK"}
    assert {line["body"] for line in of_kind(lines, "asked")} == {"open 0"}
    expected = [f"{way} {number}" for way in WAYS for number in range(5)] + ["committed 0", "open 0"]
    eventually(lambda: len(messages_of(server, topic)) >= len(expected), "every message", LONG_S)
    there = messages_of(server, topic)
    assert Counter(message.body.decode() for message in there) == Counter(expected)
    for message in there:
        way, number = message.body.decode().split()
        assert (message.tags, message.keys, message.properties["number"]) == (way, (f"{way}-{number}",), number)
        if way not in ("oneway", "batch"):
            assert message.message_id == sent[way, int(number)]["id"]
        if way == "delayed":
            assert message.store_timestamp - message.born_timestamp >= 900
    traced = [line["id"] for (way, _), line in sent.items() if way == "sync"]
    eventually(lambda: all(identity in traces(server, "Pub") for identity in traced), "the traces", LONG_S)


# --- taking -------------------------------------------------------------------------------------------

WANTED = {
    "plain": ("", range(MESSAGES)),
    "ordered": ("", range(MESSAGES)),
    "broadcast": ("", range(MESSAGES)),
    "tags": ("a || b", [number for number in range(MESSAGES) if number % 3 != 2]),
    "sql92": ("number >= 30 AND TAGS = 'c'", range(32, MESSAGES, 3)),
    "traced": ("", range(MESSAGES)),
    "lite": ("", range(MESSAGES)),
}
"""For each way to take, the expression, and the numbers of the messages that are to come."""


@pytest.mark.parametrize("way", WANTED)
@pytest.mark.parametrize("client", [JAVA_4, JAVA_5, GO])
def test_a_consumer_gets_what_it_asks_for(
    client: str, way: str, programs: dict[str, Program], server: Server, topic: str
) -> None:
    expression, wanted = WANTED[way]
    group = f"{way}-{topic}"
    send(str(server.root), topic, range(MESSAGES // 2))
    with taker(programs[client], server.address, group, topic, way, expression) as one, ExitStack() as more:
        everybody = [one]
        if way == "broadcast":
            everybody.append(more.enter_context(taker(programs[client], server.address, group, topic, way, expression)))
        send(f"rocketmq://{server.address}", topic, range(MESSAGES // 2, MESSAGES))
        eventually(lambda: all(len(each.bodies) >= len(wanted) for each in everybody), "what is wanted", LONG_S)
        if way == "traced":  # a client that leaves waits for its traces for half a second only
            eventually(lambda: group in traces(server, "SubBefore") and traces(server, "SubAfter"), "traces", LONG_S)
    for each in everybody:
        assert Counter(each.bodies) == Counter(str(number) for number in wanted)
        if way == "ordered":
            assert all(offsets == sorted(offsets) for offsets in by_queue(each).values())
    if way not in ("broadcast", "tags", "sql92"):  # there the end of a queue may be a message that nobody wants
        with Admin(str(server.root)) as admin:
            lags = [queue.lag for queue in admin.lag(group) if queue.topic == topic]
        assert lags == [0, 0, 0, 0]


# --- requests -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("asking", "answering"), [(JAVA_4, GO), (JAVA_4, JAVA_5), (GO, GO)])
def test_a_client_asks_and_another_one_replies(
    asking: str, answering: str, programs: dict[str, Program], server: Server, topic: str
) -> None:
    with programs[answering].running("reply", server.address, f"answering-{topic}", 1, topic):
        (reply,) = of_kind(programs[asking].run("request", server.address, "asking", topic, "question"), "reply")
    assert b64decode(reply["body"]) == b"re question"


@pytest.mark.parametrize("client", [JAVA_4, GO])
def test_a_client_asks_and_a_local_handler_replies(
    client: str, programs: dict[str, Program], server: Server, topic: str
) -> None:
    app = App(str(server.root))

    @app.handler(topic, group=f"local-{topic}", replies=True)
    def answer(message: ReceivedMessage) -> bytes:
        return b"re " + message.body

    consumer = PushConsumer(str(server.root), app.handlers)
    consumer.start()
    try:
        (reply,) = of_kind(programs[client].run("request", server.address, "asking", topic, "question"), "reply")
    finally:
        consumer.close()
    assert b64decode(reply["body"]) == b"re question"


@pytest.mark.parametrize("client", [JAVA_4, JAVA_5, GO])
def test_a_local_producer_asks_and_a_client_replies(
    client: str, programs: dict[str, Program], server: Server, topic: str
) -> None:
    with (
        Producer(str(server.root), group=f"asking-{topic}") as producer,
        programs[client].running("reply", server.address, f"answering-{topic}", 1, topic),
    ):
        assert producer.request(Message(topic, b"question"), LONG_S).body == b"re question"


# --- members ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["plain", "ordered"])
@pytest.mark.parametrize(("first", "second"), [(JAVA_4, JAVA_5), (JAVA_4, GO), (GO, JAVA_4), (GO, GO)])
def test_a_member_joins_and_leaves_and_every_message_comes_once(
    first: str, second: str, way: str, programs: dict[str, Program], server: Server, topic: str
) -> None:
    arguments = (server.address, group := f"{way}-{topic}", topic, way, "")
    with Admin(str(server.root)) as admin:

        def owners() -> set[str | None]:
            return {queue.owner for queue in admin.lag(group) if queue.topic == topic}

        def is_committed() -> bool:
            return not any(queue.lag for queue in admin.lag(group))

        with taker(programs[first], *arguments) as one:
            send(str(server.root), topic, range(100))
            eventually(lambda: len(one.bodies) >= 100, "every message at the first", LONG_S)
            eventually(is_committed, "commits; Go's client loses those of queues that move", LONG_S)
            with taker(programs[second], *arguments) as two:
                eventually(lambda: len(owners()) == 2 and None not in owners(), "the queues are divided", LONG_S)
                send(str(server.root), topic, range(100, 300))
                eventually(lambda: len(one.bodies + two.bodies) >= 300, "every message at one of them", LONG_S)
                eventually(is_committed, "commits", LONG_S)
                assert len(two.queues) == 2
            eventually(lambda: len(owners()) == 1 and None not in owners(), "all queues with the first", LONG_S)
            send(str(server.root), topic, range(300, 400))
            eventually(lambda: len(one.bodies + two.bodies) >= 400, "every message at the first again", LONG_S)
    assert Counter(one.bodies + two.bodies) == Counter(str(number) for number in range(400))
    if way == "ordered":
        for each in (one, two):
            assert all(offsets == sorted(offsets) for offsets in by_queue(each).values())


# --- looking ------------------------------------------------------------------------------------------


def send(place: str, topic: str, numbers: Sequence[int]) -> None:
    """Send messages through the store's directory or through the server."""
    with Producer(place) as producer:
        for number in numbers:
            producer.send(Message(topic, b"%d" % number, tags="abc"[number % 3], properties={"number": str(number)}))


def messages_of(server: Server, topic: str) -> list[ReceivedMessage]:
    """Return every message of a topic, read from the store's directory."""
    with PullConsumer(str(server.root), group="looking") as consumer, suppress(UnknownTopic):
        pulled = [consumer.pull(queue, 0, limit=1_000) for queue in consumer.queues(topic)]
        return [message for result in pulled for message in result.messages]
    return []


def traces(server: Server, kind: str) -> str:
    """Return the traces of a kind that clients have sent: Pub, SubBefore or SubAfter."""
    found = [line for message in messages_of(server, TRACE_TOPIC) for line in message.body.decode().split("\x02")]
    return "\n".join(line for line in found if line.startswith(kind))


def by_queue(taken: Taker) -> dict[int, list[int]]:
    """Return the offsets of what a consumer took, in the order in which it took them."""
    found: defaultdict[int, list[int]] = defaultdict(list)
    for line in taken.messages:
        found[line["queue_id"]].append(line["queue_offset"])
    return found
