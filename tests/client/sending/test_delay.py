"""Sending with a delay level: where the message waits, and who gets it when."""

from __future__ import annotations

import signal
import subprocess
import sys
import tarfile
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rmqclient import App, Message, MessageQueue, Producer, ReceivedMessage
from rmqclient.errors import InvalidName, MessageRejected
from rmqclient.names import check_topic
from rmqclient.store import SCHEDULE_TOPIC, MessageStore, open_store
from tests.client.conftest import consuming, wait_for
from tests.support.oracle import reference
from tests.support.stores import after_every_delay

GOLDEN = Path(__file__).parents[2] / "compat" / "golden" / "broker-4.9.7-stopped.tgz"


def bodies(store: MessageStore, topic: str) -> dict[int, list[bytes]]:
    """Return what stands in each queue of a topic."""
    return {
        queue.queue_id: [store.messages.at(queue, number).body for number in range(store.topics.max_offset(queue))]
        for queue in store.topics.queues(topic)
    }


def test_a_delayed_message_waits_in_its_level_and_its_topic_is_made_as_usual(
    store: MessageStore, producer: Producer
) -> None:
    result = producer.send(Message("flights", b"body"), "N14228", delay_level=5)
    assert (result.queue, result.queue_offset) == (MessageQueue(SCHEDULE_TOPIC, 4), 0)
    assert len(store.topics.queues("flights")) == 4
    assert len(store.topics.queues(SCHEDULE_TOPIC)) == 18
    waiting = store.messages.at(result.queue, 0)
    assert waiting.message_id == result.message_id
    assert waiting.properties["REAL_QID"] == str(abs(reference.java_hash("N14228")) % 4)
    assert bodies(store, "flights") == {number: [] for number in range(4)}


def test_without_a_key_the_queues_take_turns_for_what_is_delayed_too(store: MessageStore, producer: Producer) -> None:
    for _ in range(8):
        producer.send(Message("flights", b"x"), delay_level=2)
    store.schedule.now_ms = after_every_delay
    wait_for(lambda: store.schedule.look() > 0, "all is delivered")
    assert bodies(store, "flights") == {number: [b"x", b"x"] for number in range(4)}


@pytest.mark.guarantee("G18")
def test_a_delayed_batch_waits_and_arrives_in_order_in_one_queue(store: MessageStore, producer: Producer) -> None:
    sent = [b"%d" % number for number in range(20)]
    results = producer.send_batch([Message("flights", body) for body in sent], "key", delay_level=1)
    assert [result.queue_offset for result in results] == list(range(20))
    assert {result.queue for result in results} == {MessageQueue(SCHEDULE_TOPIC, 0)}
    store.schedule.now_ms = after_every_delay
    wait_for(lambda: store.schedule.look() > 0, "all is delivered")
    queue_id = abs(reference.java_hash("key")) % 4
    assert bodies(store, "flights") == {number: sent if number == queue_id else [] for number in range(4)}


def test_a_delayed_batch_with_a_message_that_is_refused_is_refused_as_a_whole(
    store: MessageStore, producer: Producer
) -> None:
    with pytest.raises(MessageRejected):
        producer.send_batch([Message("t", b"good"), Message("t", b"bad", tags="a\x01")], delay_level=1)
    assert store.state.published_to == 0


@pytest.mark.parametrize("level", [-1, 0, 19, 100, 10**30])
def test_a_level_that_does_not_exist_is_refused_with_those_that_do(producer: Producer, level: int) -> None:
    table = rf"delay_level={level}: .* 1 to 18.*1 1s, 2 5s, 3 10s.*18 2h"
    with pytest.raises(ValueError, match=table):
        producer.send(Message("t", b""), delay_level=level)
    with pytest.raises(ValueError, match=table):
        producer.send_batch([], delay_level=level)


@pytest.mark.parametrize("level", [True, 1.0, "1"])
def test_a_level_is_a_whole_number(producer: Producer, level: Any) -> None:
    for send in (producer.send, producer.send_async, partial(producer.send_once, key="k")):
        with pytest.raises(TypeError, match="delay_level"):
            send("t", b"", delay_level=level)
    with pytest.raises(TypeError, match="delay_level"):
        producer.send_batch([Message("t", b"")], delay_level=level)


def test_nobody_sends_into_a_level_directly(store: MessageStore, producer: Producer) -> None:
    producer.send(Message("t", b""), delay_level=1)
    for send in (
        lambda: producer.send(Message(SCHEDULE_TOPIC, b"")),
        lambda: producer.send_batch([Message(SCHEDULE_TOPIC, b"")]),
    ):
        with pytest.raises(MessageRejected, match="delay_level"):
            send()
    with pytest.raises(InvalidName, match="delay_level"):
        check_topic(SCHEDULE_TOPIC, reserved=True)
    assert store.topics.max_offset(MessageQueue(SCHEDULE_TOPIC, 0)) == 1


@pytest.mark.guarantee("G10")
def test_a_delayed_record_has_the_bytes_that_a_client_and_a_broker_write(
    store: MessageStore, producer: Producer, tmp_path: Path
) -> None:
    with tarfile.open(GOLDEN) as archive:
        archive.extractall(tmp_path, filter="data")
    (golden,) = (
        record
        for _, record in reference.read_commit_log(tmp_path / "broker-4.9.7-stopped")
        if record.topic == SCHEDULE_TOPIC and record.body == b"soon"
    )
    result = producer.send(Message("Delayed", b"soon", tags="soon", keys=["delayed-soon"]), delay_level=1)
    ours = dict(reference.read_commit_log(store.root))[result.commit_log_offset]
    theirs = golden.property_map
    # What only a broker that is reached by wire adds, and what differs from message to message
    for name in ("CLUSTER", "WAIT"):
        del theirs[name]
    theirs |= {name: ours.property_map[name] for name in ("UNIQ_KEY", "REAL_QID")}
    expected = replace(
        golden,
        properties=reference.format_properties(theirs),
        queue_offset=0,
        commit_log_offset=0,
        born_timestamp=ours.born_timestamp,
        born_host=ours.born_host,
        born_port=ours.born_port,
        store_host=ours.store_host,
        store_port=ours.store_port,
        store_timestamp=ours.store_timestamp,
    )
    assert store.messages.at(result.queue, 0).record() == reference.encode(expected)


@pytest.mark.guarantee("G18")
def test_a_handler_gets_a_delayed_message_once_and_not_before_its_time(tmp_path: Path) -> None:
    app = App()
    handled: list[tuple[bytes, float]] = []

    @app.handler("flights", group="delayed")
    def handle(message: ReceivedMessage) -> None:
        handled.append((message.body, time.monotonic()))

    with open_store(tmp_path) as store, Producer(store) as producer, consuming(store, app):
        producer.send(Message("flights", b"now"))
        sent = time.monotonic()
        producer.send(Message("flights", b"later"), delay_level=1)
        wait_for(lambda: len(handled) == 2, "both are handled")
    assert [body for body, _ in handled] == [b"now", b"later"]
    assert handled[1][1] - sent >= 1.0


@pytest.mark.guarantee("G19")
def test_when_the_housekeeper_is_killed_another_process_delivers(tmp_path: Path) -> None:
    code = (
        "import sys, signal, time; from rmqclient.store import open_store; s = open_store(sys.argv[1])\n"
        "while not s.housekeeper.has_role: time.sleep(0.01)\n"
        "print('has it', flush=True); signal.pause()"
    )
    with (
        subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True) as child,
        open_store(tmp_path, housekeeping=False) as sending,
        Producer(sending) as producer,
    ):
        assert child.stdout is not None
        assert child.stdout.readline() == "has it\n"
        with open_store(tmp_path) as other:
            producer.create_topic("flights", 1)
            for number in range(10):
                producer.send(Message("flights", b"%d" % number), delay_level=1)
            child.send_signal(signal.SIGKILL)
            wait_for(lambda: len(bodies(other, "flights")[0]) == 10, "all are delivered")
        assert bodies(sending, "flights") == {0: [b"%d" % number for number in range(10)]}
