"""Compact topics, as handlers and producers see them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest

from rmqclient import App, Message, Producer, ReceivedMessage, RetryPolicy, TransactionProducer
from rmqclient.errors import MessageRejected
from rmqclient.failures.dead_letters import Selection, replay, select
from rmqclient.store import MessageQueue, MessageStore, open_store
from rmqclient.store.settings.disk import Usage
from rmqclient.store.upkeep import retention
from tests.client.conftest import consuming, wait_for

TOPIC = "prices"
KEYS = 40


@pytest.fixture
def compacted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MessageStore]:
    """Open a store whose log has lost all but the end of a compact topic.

    It has no housekeeper: a housekeeper would remove the old files itself, before or while the fixture does.
    """
    store = open_store(tmp_path / "compacted", housekeeping=False)
    monkeypatch.setattr(retention, "PAUSE_S", 0)
    monkeypatch.setattr(store.disk, "usage", lambda: Usage(86.0, 1 << 40))
    producer = Producer(store)
    producer.create_topic(TOPIC, 2, cleanup_policy="compact")
    for number in range(5_000):
        producer.send(Message(TOPIC, {"number": number}, keys=[f"key-{number % KEYS}"], tags=f"t{number % 2}"))
    for _ in range(24):
        producer.send(Message("others", b"x" * (3 << 20)))
    store.flusher.flush_thorough()
    assert store.retention.clean()
    yield store
    producer.close()
    store.close()


@pytest.mark.guarantee("G40")
@pytest.mark.parametrize("order", [None, "queue"])
def test_a_new_group_gets_the_compacted_messages_and_those_that_come(
    compacted: MessageStore, order: Literal["queue"] | None
) -> None:
    app = App()
    got: dict[str, int] = {}
    received: list[tuple[MessageQueue, int]] = []

    @app.handler(TOPIC, group="readers", order=order)
    def note(message: ReceivedMessage) -> None:
        got[message.keys[0]] = json.loads(message.body)["number"]
        received.append((message.queue, message.queue_offset))

    with consuming(compacted, app):
        wait_for(lambda: len(got) == KEYS, "a message of each key")
        Producer(compacted).send(Message(TOPIC, {"number": -1}, keys=["key-0"]))
        wait_for(lambda: got["key-0"] == -1, "the next message")
    assert got == {f"key-{number % KEYS}": number for number in range(4_960, 5_000)} | {"key-0": -1}
    assert len(received) == len(set(received)) == KEYS + 1


def test_a_handler_gets_of_the_compacted_messages_those_with_its_tag(compacted: MessageStore) -> None:
    app = App()
    got: list[int] = []

    @app.handler(TOPIC, group="readers", tags="t1")
    def note(body: dict[str, int]) -> None:
        got.append(body["number"])

    with consuming(compacted, app):
        wait_for(lambda: len(got) == KEYS // 2, "the messages with the tag")
    assert sorted(got) == list(range(4_961, 5_000, 2))


def test_a_transaction_needs_a_key_and_goes_to_the_queue_of_the_key(store: MessageStore) -> None:
    with TransactionProducer(store, group="checkout") as producer:
        producer.create_topic(TOPIC, 5, cleanup_policy="compact")
        with pytest.raises(MessageRejected, match="this one has no key"):
            producer.transaction(Message(TOPIC, b"1"))
        for key in ("a", "b", "c", "d"):
            home = producer.send(Message(TOPIC, b"1", keys=[key])).queue
            end = store.topics.max_offset(home)
            with producer.transaction(Message(TOPIC, b"2", keys=[key])):
                pass
            assert store.messages.at(home, end).body == b"2"


def test_a_dead_letter_is_sent_again_to_the_queue_of_its_key(store: MessageStore) -> None:
    producer = Producer(store)
    producer.create_topic(TOPIC, 5, cleanup_policy="compact")
    app = App()

    @app.handler(TOPIC, group="readers", retry=RetryPolicy(max_retries=0))
    def fail(message: ReceivedMessage) -> None:
        raise ValueError(message.keys)

    homes = {key: producer.send(Message(TOPIC, b"1", keys=[key])).queue for key in ("a", "b", "c", "d")}
    with consuming(store, app):
        wait_for(lambda: len(list(select(store, "readers", Selection()))) == 4, "the dead letters")
    sent = {letter.message.keys[0]: result.queue for letter, result in replay(store, "readers", Selection())}
    assert sent == homes


def test_a_delayed_message_needs_a_key_too(store: MessageStore) -> None:
    producer = Producer(store)
    producer.create_topic(TOPIC, 2, cleanup_policy="compact")
    with pytest.raises(MessageRejected, match="this one has no key"):
        producer.send(Message(TOPIC, b"1"), delay_level=1)
