"""Sending: where messages go, what comes back, and what is refused."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqclient import Decision, Durability, Message, MessageQueue, Producer, StoreConfig, TransactionProducer
from rmqclient.errors import InvalidName, MessageRejected, StoreClosed, TableFull
from rmqclient.store import MessageStore, open_store
from rmqclient.store.runtime.shared_state import queue_slot_at
from tests.support.oracle import reference
from tests.support.threads import no_thread_left


def test_a_result_says_where_the_message_stands(store: MessageStore, producer: Producer) -> None:
    result = producer.send(Message("flights", b"body", tags="departed", keys=["UA1545"]), sharding_key="N14228")
    found = store.messages.at(result.queue, result.queue_offset)
    assert found.message_id == result.message_id
    assert found.commit_log_offset == result.commit_log_offset
    assert (found.body, found.tags, found.keys, found.sharding_key) == (b"body", "departed", ("UA1545",), "N14228")


def test_a_topic_is_made_by_its_first_message_with_four_queues(store: MessageStore, producer: Producer) -> None:
    producer.send(Message("flights", b""))
    assert store.topics.queues("flights") == [MessageQueue("flights", number) for number in range(4)]


def test_a_topic_can_have_any_number_of_queues_and_keeps_it(store: MessageStore, producer: Producer) -> None:
    assert len(producer.create_topic("audit", 7)) == 7
    assert len(producer.create_topic("audit", 3)) == 7
    with Producer(store) as other:
        queues = {other.send(Message("audit", b"")).queue.queue_id for _ in range(7)}
    assert queues == set(range(7))


@pytest.mark.parametrize("key", ["N14228", "polygenelubricants", "中文", "𝄞 clef", "x" * 500])
def test_a_sharding_key_chooses_the_queue_as_rocketmq_does(producer: Producer, key: str) -> None:
    producer.create_topic("flights", 5)
    hashed = reference.java_hash(key)
    expected = abs(hashed) % 5 if hashed != -(2**31) else 2**31 % 5
    assert {producer.send(Message("flights", b""), key).queue.queue_id for _ in range(3)} == {expected}


def test_without_a_key_the_queues_take_turns(producer: Producer) -> None:
    counts = [0] * 4
    for _ in range(40):
        counts[producer.send(Message("flights", b"")).queue.queue_id] += 1
    assert counts == [10] * 4


@pytest.mark.guarantee("G4")
def test_the_messages_of_a_queue_are_numbered_without_gaps_in_the_order_of_sending(producer: Producer) -> None:
    results = [producer.send(Message("flights", b"%d" % number), "one key") for number in range(100)]
    assert [result.queue_offset for result in results] == list(range(100))
    assert [result.commit_log_offset for result in results] == sorted(result.commit_log_offset for result in results)


def test_a_batch_goes_to_one_queue_in_order(store: MessageStore, producer: Producer) -> None:
    results = producer.send_batch([Message("flights", b"%d" % number) for number in range(50)])
    assert len({result.queue for result in results}) == 1
    assert [result.queue_offset for result in results] == list(range(50))
    assert [store.messages.at(r.queue, r.queue_offset).body for r in results] == [
        b"%d" % number for number in range(50)
    ]
    assert producer.send_batch([]) == []


def test_message_ids_are_unique_over_producers(store: MessageStore) -> None:
    with Producer(store) as first, Producer(store) as second:
        ids = {p.send(Message("flights", b"")).message_id for p in (first, second) for _ in range(1_000)}
    assert len(ids) == 2_000


def test_a_body_that_is_not_bytes_is_stored_as_json(store: MessageStore, producer: Producer) -> None:
    result = producer.send(Message("flights", {"carrier": "UA", "minutes": [1, 2]}))
    assert store.messages.read(result.commit_log_offset).body == b'{"carrier":"UA","minutes":[1,2]}'


@pytest.mark.guarantee("G2")
def test_a_sync_send_returns_with_its_record_flushed(tmp_path: Path) -> None:
    config = StoreConfig(durability=Durability.SYNC)
    with open_store(tmp_path / "store", config) as store, Producer(store) as producer:
        for _ in range(3):
            result = producer.send(Message("flights", b"must stay"))
            assert store.state.flushed_to >= result.commit_log_end
        results = producer.send_batch([Message("flights", b"")] * 9)
        assert store.state.flushed_to >= results[-1].commit_log_end


BAD_MESSAGES = {
    "a topic with a slash": (Message("a/b", b""), InvalidName, "a/b"),
    "a topic with a dot": (Message("..", b""), InvalidName, "'.'"),
    "an empty topic": (Message("", b""), InvalidName, "1 to 127"),
    "a long topic": (Message("t" * 128, b""), InvalidName, "128"),
    "a reserved topic": (Message("%RETRY%group", b""), InvalidName, "%RETRY%"),
    "a long body": (Message("t", bytes(4 * 1024 * 1024 + 1)), MessageRejected, "4194305"),
    "long properties": (Message("t", b"", properties={"k": "v" * 31_000}), MessageRejected, "31000"),
    "a separator in a value": (Message("t", b"", properties={"k": "a\x01b"}), MessageRejected, "0x01"),
    "a separator in a name": (Message("t", b"", properties={"k\x02": "a"}), MessageRejected, "0x02"),
    "a separator in tags": (Message("t", b"", tags="a\x02b"), MessageRejected, "0x02"),
    "a space in a key": (Message("t", b"", keys=["a b"]), MessageRejected, "space"),
    "a reserved property": (Message("t", b"", properties={"TAGS": "a"}), MessageRejected, "TAGS"),
    "an empty property": (Message("t", b"", properties={"k": ""}), MessageRejected, "empty"),
    "a lone surrogate": (Message("t", b"", tags="\ud800"), MessageRejected, "UTF-8"),
    "a body that is not JSON": (Message("t", {"x": object()}), MessageRejected, "dict"),
}


@pytest.mark.parametrize("key", ["", "\ud800"], ids=["empty", "a lone surrogate"])
@pytest.mark.parametrize("way", ["send", "send_batch", "send_async", "request"])
def test_a_sharding_key_that_cannot_be_stored_is_refused_before_a_byte_is_written(
    store: MessageStore, producer: Producer, key: str, way: str
) -> None:
    producer.create_topic("t", 4)
    before = (store.state.published_to, store.state.written_to)
    message, options = Message("t", b""), {"timeout": 5} if way == "request" else {}
    with pytest.raises(MessageRejected):
        getattr(producer, way)([message] if way == "send_batch" else message, sharding_key=key, **options)
    assert (store.state.published_to, store.state.written_to) == before


@pytest.mark.guarantee("G9")
@pytest.mark.parametrize("what", BAD_MESSAGES)
def test_a_bad_message_raises_a_typed_error_before_a_byte_is_written(
    store: MessageStore, producer: Producer, what: str
) -> None:
    message, expected, named = BAD_MESSAGES[what]
    producer.create_topic("t", 4)
    before = (store.state.published_to, store.state.written_to, store.topics.topics())
    with pytest.raises(expected, match=named.replace("%", ".")):
        producer.send(message)
    with pytest.raises(expected):
        producer.send_batch([message])
    assert (store.state.published_to, store.state.written_to, store.topics.topics()) == before
    producer.send(Message("t", b"good"))


@pytest.mark.guarantee("G9")
def test_a_batch_of_two_topics_is_refused_as_a_whole(store: MessageStore, producer: Producer) -> None:
    producer.create_topic("t", 1)
    before = store.state.published_to
    with pytest.raises(MessageRejected, match="one queue"):
        producer.send_batch([Message("t", b""), Message("other", b"")])
    assert store.state.published_to == before


@pytest.mark.parametrize(("count", "error"), [(0, ValueError), (-1, ValueError), (1_025, TableFull)])
def test_a_topic_has_a_sensible_number_of_queues(producer: Producer, count: int, error: type[Exception]) -> None:
    with pytest.raises(error, match=str(count)):
        producer.create_topic("t", count)


def test_a_closed_producer_says_so(tmp_path: Path) -> None:
    producer = Producer(tmp_path / "store")
    producer.close()
    producer.close()
    with pytest.raises(StoreClosed, match="closed"):
        producer.send(Message("t", b""))


def test_a_forked_child_cannot_use_the_producer_of_its_parent(store: MessageStore, producer: Producer) -> None:
    producer.send(Message("t", b""))
    before = store.state.published_to
    child = os.fork()
    if child == 0:
        try:
            producer.send(Message("t", b"from the child"))
        except StoreClosed:
            os._exit(0)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert store.state.published_to == before


def test_sending_to_sixty_four_queues_keeps_each_contiguous(store: MessageStore, producer: Producer) -> None:
    queues = producer.create_topic("wide", 64)
    for number in range(640):
        producer.send(Message("wide", b"%d" % number))
    assert [store.topics.max_offset(queue) for queue in queues] == [10] * 64
    at = queue_slot_at(store.topics.slot(queues[0]))
    assert at % 64 == 0


def test_a_closed_producer_leaves_no_thread_on_a_store_that_stays_open(store: MessageStore) -> None:
    with no_thread_left("rmq-preparer"):
        for number in range(3):
            with Producer(store) as producer:
                producer.send(Message("orders", b"%d" % number))
    with Producer(store) as producer:
        assert producer.send(Message("orders", b"3")).commit_log_end == store.state.published_to


@pytest.mark.parametrize("tags", ["a || b", " a", "a\t", "*"])
def test_tags_that_no_expression_selects_are_refused(tags: str) -> None:
    with pytest.raises(MessageRejected, match="no expression but"):
        Message("orders", b"", tags=tags)


@pytest.mark.parametrize(
    ("given", "name"), [({"key": 17}, "key 17"), ({"properties": {"n": 1}}, "properties: 'n': 1")], ids=str
)
def test_what_is_no_text_is_named(producer: Producer, given: dict[str, Any], name: str) -> None:
    with pytest.raises(TypeError, match=name):
        producer.send("orders", b"", **given)


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda producer: producer.send_buffered("orders"), "send"),
        (lambda producer: producer.send_buffered(None), "send_buffered"),
        (lambda producer: producer.transaction("orders"), "send"),
        (lambda producer: producer.transaction({}), "transaction"),
        (lambda producer: producer.send_in_transaction("orders", b"7"), "send_in_transaction"),
        (lambda producer: producer.send_batch("orders", [b"7"]), "send_batch"),
        (lambda producer: producer.send_batch(Message("orders", b"7")), "send_batch"),
        (lambda producer: producer.send_batch(["orders"]), "batch"),
        (lambda producer: producer.send_reply("orders", b"7"), "send_reply"),
        (lambda producer: producer.cancel(None), "message_id"),
        (lambda producer: producer.signal(7, "paid", group="shop"), "message_id"),
        (lambda producer: producer.send(7), "send"),
        (lambda producer: producer.send_async(7), "send"),
        (lambda producer: producer.send_once(7, "key"), "send"),
        (lambda producer: producer.request(7, 1), "send"),
        (lambda producer: producer.send_buffered(Message("orders", b"7"), 7), "sharding_key"),
        (lambda producer: producer.send_batch([Message("orders", b"7")], 7), "sharding_key"),
        (lambda producer: producer.transaction(Message("orders", b"7"), 7), "sharding_key"),
        (lambda producer: made(Producer, producer, middleware=print), "middleware"),
        (lambda producer: made(Producer, producer, compression="zstd"), "compression"),
        (lambda producer: made(TransactionProducer, producer, group="shop", check="check"), "check"),
    ],
)
def test_an_argument_of_another_kind_is_named_by_every_sender(
    store: MessageStore, call: Callable[[Any], object], named: str
) -> None:
    end = store.state.published_to
    with TransactionSender(store) as producer, pytest.raises(TypeError, match=named):
        call(producer)
    assert store.state.published_to == end


def made(kind: Any, producer: Producer, **settings: object) -> object:
    return kind(producer._backend, **settings)


def test_every_sender_takes_a_topic_and_a_body(store: MessageStore) -> None:
    # Given the words of `send`
    words: dict[str, Any] = {"key": "7", "tags": "paid", "properties": {"by": "ada"}, "sharding_key": "ada"}

    # When one message is sent through the buffer, and one in a transaction
    with TransactionSender(store) as producer:
        producer.send_buffered("orders", {"number": 7}, **words)
        producer.flush()
        with producer.transaction("orders", {"number": 7}, **words):
            pass
        producer.send("orders", {"number": 7}, **words)

    # Then all are the same
    found = store.messages.by_key("orders", "7")
    assert [(each.body, each.tags, each.properties["by"]) for each in found] == [(b'{"number":7}', "paid", "ada")] * 3
    assert len({each.queue for each in found}) == 1


class TransactionSender(TransactionProducer):
    """A transaction producer with a write buffer: it has every way of sending."""

    def __init__(self, store: MessageStore) -> None:
        super().__init__(store, group="shop", execute=lambda *_: Decision.ROLLBACK)
        self._buffer = self._sender.buffer(1 << 16)
