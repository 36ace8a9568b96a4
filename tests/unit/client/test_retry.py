"""Retry: the policy, and the records that it makes, compared with those of a real RocketMQ 4.9.8."""

from __future__ import annotations

import tarfile
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from rmqclient import App, Message, Producer, ReceivedMessage, StoreConfig, Suspend
from rmqclient.errors import HandlerError
from rmqclient.failures.failure import HISTORY, Failure, history
from rmqclient.failures.retry import Outcome, Retries, RetryPolicy
from rmqclient.opening import open_backend
from rmqclient.store import Durability, MessageStore, open_store
from rmqclient.store.kernel._kernel import append_received, decode
from rmqclient.testing import Kit
from tests.support.stores import appender_of

GOLDEN = Path(__file__).parents[2] / "compat" / "golden" / "store-4.9.8-broker-tx-retry-dlq.tgz"
OURS = {HISTORY, "DLQ_ORIGIN_TOPIC", "DLQ_ORIGIN_MESSAGE_ID"}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with open_store(tmp_path / "store", housekeeping=False) as opened:
        yield opened


@pytest.fixture
def of_a_broker(tmp_path: Path) -> dict[tuple[str, int, int], ReceivedMessage]:
    """The records that a broker wrote, by topic, queue id and queue offset."""
    with tarfile.open(GOLDEN) as archive:
        archive.extractall(tmp_path / "golden", filter="data")
    (log,) = (tmp_path / "golden").glob("*/commitlog/0*")
    content, position, found = log.read_bytes(), 0, {}
    while isinstance(message := decode(content, position, position), ReceivedMessage):
        found[message.topic, message.queue_id, message.queue_offset] = message
        position += message.size
    return found


def records(store: MessageStore, topic: str) -> list[ReceivedMessage]:
    return [
        store.messages.at(queue, offset)
        for queue in store.topics.queues(topic)
        for offset in range(store.topics.max_offset(queue))
    ]


def deliver_until(store: MessageStore, now_ms: int) -> None:
    """Let the timer deliver the messages that are due at a time."""
    store.timer.now_ms = lambda: now_ms
    while store.timer.look() == 0:
        pass


def failed(attempt: int, error: BaseException | None = None) -> Failure:
    try:
        raise error or ValueError("no")
    except BaseException as raised:  # noqa: BLE001 - that is what a handler may raise
        return Failure.raised(raised, attempt, "me")


def fields(message: ReceivedMessage) -> dict[str, Any]:
    """What a copy shares with the broker's: all but its place, its store time and our own properties."""
    record = message.record()
    return {
        "topic": message.topic,
        "queue_id": message.queue_id,
        "body": message.body,
        "crc, queue id, flag": record[8:20],
        "sys_flag, born time, born host": record[36:56],
        "store host, reconsume times, prepared": record[64:84],
        "wait_ms": message.tags_code - message.store_timestamp if message.topic.startswith("SCHEDULE") else None,
        "properties": {name: value for name, value in message.properties.items() if name not in OURS},
    }


@pytest.mark.parametrize(("level", "queue_id"), [(3, 2), (5, 4)])
def test_a_message_that_is_sent_back_has_the_bytes_that_a_broker_gives_it(
    store: MessageStore, of_a_broker: dict[tuple[str, int, int], ReceivedMessage], level: int, queue_id: int
) -> None:
    original = next(message for (topic, _, _), message in of_a_broker.items() if topic == "TopicA")
    retries = Retries(open_backend(store), "G1", RetryPolicy(delay_levels=(level,)), "me")
    assert retries.send_back(original, failed(1)) is Outcome.RETRY
    (copy,) = records(store, "SCHEDULE_TOPIC_XXXX")
    assert fields(copy) == fields(of_a_broker["SCHEDULE_TOPIC_XXXX", queue_id, 0])


def test_a_dead_letter_has_the_bytes_that_a_broker_gives_it_and_the_origin_of_version_5(
    store: MessageStore, of_a_broker: dict[tuple[str, int, int], ReceivedMessage]
) -> None:
    original = next(message for (topic, _, _), message in of_a_broker.items() if topic == "TopicA")
    retries = Retries(open_backend(store), "G1", RetryPolicy(max_retries=0), "me")
    assert retries.send_back(original, failed(1)) is Outcome.DEAD_LETTER
    (copy,) = records(store, "%DLQ%G1")
    assert fields(copy) == fields(of_a_broker["%DLQ%G1", 0, 0])
    assert copy.properties["DLQ_ORIGIN_TOPIC"] == "TopicA"
    assert copy.properties["DLQ_ORIGIN_MESSAGE_ID"] == original.offset_message_id
    assert len(store.topics.queues("%DLQ%G1")) == 1


def test_what_is_set_once_stays_over_many_attempts(store: MessageStore) -> None:
    with Producer(store) as producer:
        sent = producer.send(Message("orders", b"7", tags="paid", keys=("k",), properties={"mine": "yes"}))
    original = message = store.messages.read(sent.commit_log_offset)
    retries = Retries(open_backend(store), "g", RetryPolicy(max_retries=3), "me")
    outcomes = []
    for attempt in (1, 2, 3, 4):
        outcomes.append(retries.send_back(message, failed(attempt)))
        message = records(store, "SCHEDULE_TOPIC_XXXX" if attempt < 4 else "%DLQ%g")[-1]
    assert outcomes == [Outcome.RETRY] * 3 + [Outcome.DEAD_LETTER]
    assert message.message_id == original.message_id
    assert (message.reconsume_times, message.body, message.tags, message.keys) == (4, b"7", "paid", ("k",))
    assert message.properties["RETRY_TOPIC"] == "orders"
    assert message.properties["ORIGIN_MESSAGE_ID"] == original.offset_message_id
    assert message.properties["mine"] == "yes"
    delays = [each.properties["DELAY"] for each in records(store, "SCHEDULE_TOPIC_XXXX")]
    assert delays == ["3", "4", "5"]


@pytest.mark.guarantee("G106")
@pytest.mark.parametrize("text", ["a\x01b", "x" * 30_800])
def test_a_message_that_was_accepted_can_be_tried_again_and_die(store: MessageStore, text: str) -> None:
    appender = appender_of(store)
    store.topics.create("t", 1)
    sent = append_received(
        appender, "t", 0, b"body", f"p\x01{text}\x02KEYS\x01a\x01b\x02", flag=0, sys_flag=0, born_timestamp=0,
        born_host=bytes(8), store_host=bytes(8),
    )  # fmt: skip
    message, group = store.messages.read(sent.commit_log_offset), "g" * 120
    retries = Retries(open_backend(store), group, RetryPolicy(max_retries=1, delays=(0.1,)), "me")
    assert retries.send_back(message, failed(1)) is Outcome.RETRY
    deliver_until(store, time.time_ns() // 1_000_000 + 1_000)
    (retried,) = records(store, f"%RETRY%{group}")
    assert retries.send_back(retried, failed(2)) is Outcome.DEAD_LETTER
    (letter,) = records(store, f"%DLQ%{group}")
    assert letter.body == b"body"
    assert (letter.properties["p"], letter.properties["KEYS"]) == (text, "a\x01b")


@pytest.mark.guarantee("G106")
def test_a_message_without_room_for_a_retry_is_a_dead_letter_at_once(store: MessageStore) -> None:
    appender = appender_of(store)
    store.topics.create("t", 1)
    first = appender.append(Message("t", b"body"))
    full = {"a": "short", "p": "x" * 32_700}  # as a broker stores it
    sent = appender.append_copy(store.messages.read(first.commit_log_offset), "t", 0, full, reconsume_times=0)
    retries = Retries(open_backend(store), "g", RetryPolicy(max_retries=3), "me")
    assert retries.send_back(store.messages.read(sent.commit_log_offset), failed(1)) is Outcome.DEAD_LETTER
    (letter,) = records(store, "%DLQ%g")
    assert letter.body == b"body"
    assert (letter.properties["a"], letter.properties["RETRY_TOPIC"]) == ("short", "t")
    assert "p" not in letter.properties


@pytest.mark.guarantee("G21")
def test_with_a_delay_of_its_own_a_retry_waits_in_the_timer(store: MessageStore) -> None:
    with Producer(store) as producer:
        sent = producer.send(Message("orders", b"7", tags="paid", keys=("k",), properties={"mine": "yes"}))
        message = store.messages.read(sent.commit_log_offset)
        retries = Retries(open_backend(store), "g", RetryPolicy(delays=(90.0, timedelta(days=3))), "me")
        for attempt, delay_ms in ((1, 90_000), (2, 259_200_000), (3, 259_200_000)):
            # When an attempt has failed, then it waits for the delay of this attempt
            before = time.time_ns() // 1_000_000
            assert retries.send_back(message, failed(attempt)) is Outcome.RETRY
            (waiting,) = store.timer.pending()
            assert 0 <= waiting.due_ms - before - delay_ms <= 10_000
            assert (waiting.topic, waiting.queue_id, waiting.message_id) == ("%RETRY%g", 0, sent.message_id)

            # And it is no message that a sender can cancel: it was delivered
            assert not producer.cancel(sent.message_id)

            # And it comes out as it went in
            deliver_until(store, waiting.due_ms)
            message = records(store, "%RETRY%g")[-1]
            assert (message.reconsume_times, message.body, message.keys) == (attempt, b"7", ("k",))
            assert (message.message_id, message.properties["mine"]) == (sent.message_id, "yes")
            assert len(history(message.properties)) == attempt
            assert list(store.timer.pending()) == []


def test_a_retry_without_a_delay_is_in_the_retry_topic_at_once(store: MessageStore) -> None:
    with Producer(store) as producer:
        message = store.messages.read(producer.send(Message("orders", b"7")).commit_log_offset)
    Retries(open_backend(store), "g", RetryPolicy(delays=(0,)), "me").send_back(message, failed(1))
    assert [each.body for each in records(store, "%RETRY%g")] == [b"7"]


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        ({"delays": (-1.0,)}, r"delays=\(-1.0,\): delay=-1.0: must be from 0 s"),
        ({"delays": (timedelta(days=4_000),)}, "must be from 0 s"),
        ({"delays": ("1",)}, "give a timedelta, or a number of seconds"),
        ({"delays": 5}, r"must be a tuple of durations, such as \(1.0, 30.0\)"),
        ({"delays": (1,), "delay_levels": (1,)}, "give one of them"),
        ({"delays": (1, 2, 3), "max_retries": 2}, "3 pauses are more than the retries"),
        ({"delay_levels": (1,), "max_retries": 0}, "1 pauses are more than the retries"),
        ({"retry_on": (KeyError,), "dead_letter_on": (LookupError,)}, "KeyError is never retried"),
    ],
)
def test_delays_that_cannot_be_are_refused(policy: dict[str, Any], words: str) -> None:
    with pytest.raises(HandlerError, match=words):
        RetryPolicy(**policy)


def test_with_sync_durability_a_retry_is_on_the_disk_before_the_original_is_acknowledged(tmp_path: Path) -> None:
    with open_store(tmp_path, StoreConfig(durability=Durability.SYNC), housekeeping=False) as store:
        with Producer(store) as producer:
            sent = producer.send(Message("t", b""))
        Retries(open_backend(store), "g", RetryPolicy(), "me").send_back(
            store.messages.read(sent.commit_log_offset), failed(1)
        )
        assert store.state.flushed_to == store.state.published_to


def test_delay_levels_go_on_as_in_rocketmq() -> None:
    # DefaultMQPushConsumerImpl and consumerSendMsgBack: 3 + reconsumeTimes, 16 retries, then a dead letter
    policy = RetryPolicy()
    assert [policy.delay_level(attempt) for attempt in range(1, 17)] == list(range(3, 19))
    assert policy.delay_level(17) == 18
    assert [policy.outcome(attempt, None) for attempt in (1, 16)] == [Outcome.RETRY] * 2
    assert policy.outcome(17, None) is Outcome.DEAD_LETTER


def test_levels_of_ones_own_are_taken_in_turn_and_the_last_one_goes_on() -> None:
    policy = RetryPolicy(delay_levels=(1, 5))
    assert [policy.delay_level(attempt) for attempt in (1, 2, 3, 9)] == [1, 5, 5, 5]


@pytest.mark.parametrize(
    ("policy", "error", "outcome"),
    [
        (RetryPolicy(), SystemExit(1), Outcome.RETRY),
        (RetryPolicy(retry_on=(OSError,)), FileNotFoundError(), Outcome.RETRY),
        (RetryPolicy(retry_on=(OSError,)), ValueError(), Outcome.DEAD_LETTER),
        (RetryPolicy(retry_on=(OSError,)), None, Outcome.RETRY),
        (RetryPolicy(dead_letter_on=(LookupError,)), KeyError(), Outcome.DEAD_LETTER),
        (RetryPolicy(dead_letter_on=(LookupError,)), None, Outcome.RETRY),
        (RetryPolicy(retry_on=(LookupError,), dead_letter_on=(KeyError,)), KeyError(), Outcome.DEAD_LETTER),
        (RetryPolicy(max_retries=0), ValueError(), Outcome.DEAD_LETTER),
    ],
)
def test_exceptions_choose_between_a_retry_and_a_dead_letter(
    policy: RetryPolicy, error: BaseException | None, outcome: Outcome
) -> None:
    assert policy.outcome(1, error) is outcome


@pytest.mark.guarantee("G9")
@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"max_retries": -1}, "max_retries=-1: must be "),
        ({"max_retries": 2.5}, "max_retries=2.5: must be "),
        ({"max_retries": True}, "max_retries=True: must be "),
        ({"delay_levels": (1, 19)}, r"delay_levels=\(1, 19\): 19 is not a delay level; use 1 to 18"),
        ({"delay_levels": (0,)}, r"delay_levels=\(0,\): 0 is not a delay level; use 1 to 18"),
        ({"delay_levels": [1]}, r"delay_levels=\[1\]: must be a tuple, such as"),
        ({"retry_on": ValueError}, "retry_on=<class 'ValueError'>: must be a tuple of exception classes"),
        ({"dead_letter_on": (int,)}, "dead_letter_on: <class 'int'> is not an exception class"),
        ({"dead_letter_on": (ValueError("x"),)}, r"dead_letter_on: ValueError\('x'\) is not an exception class"),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused_with_what_to_do(options: dict[str, Any], text: str) -> None:
    with pytest.raises(HandlerError, match=text):
        RetryPolicy(**options)


@pytest.mark.parametrize("order", [None, "key"])
def test_a_handler_that_suspends_gets_its_message_after_that_pause(order: Any) -> None:
    app, seen = App(), list[int]()

    policy = RetryPolicy(delays=(1000.0,)) if order is None else None  # one with an order has no delays

    @app.handler("orders", group="billing", order=order, retry=policy)
    def bill(message: ReceivedMessage) -> None:
        seen.append(message.delivery_attempt)
        raise Suspend(120)

    with Kit(app) as kit:
        kit.send("orders", b"", sharding_key="a")
        for seconds, calls in ((0, 1), (119, 1), (2, 2)):
            kit.advance(seconds=seconds)
            kit.drain(raises=False)
            assert len(seen) == calls
