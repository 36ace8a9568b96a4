"""Questions about stored messages and queues, asked of a whole broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rmqclient import Message, Producer
from rmqclient.local.backend import local_backend
from rmqclient.remoting.bodies import CorrectionOffsets, QueueEntries
from rmqclient.remoting.codes import RequestCode, ResponseCode
from rmqclient.remoting.frame import Frame
from rmqclient.store import MessageQueue, ReceivedMessage, SendResult, java_hash
from rmqclient.store.wire import decode_records, parse_offset_id
from tests.broker.asking import Asking, asking

TOPIC = "orders"
EVER: dict[str, Any] = {"beginTimestamp": 0, "endTimestamp": 2**63 - 1, "maxNum": 10}


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Asking]:
    with asking(tmp_path / "store") as opened:
        yield opened


def sent(client: Asking, *messages: Message, sharding_key: str = "one queue") -> list[SendResult]:
    client.broker.store.topics.create(TOPIC, 1)
    with Producer(client.broker.store.root) as producer:
        return [producer.send(message, sharding_key) for message in messages]


def order(number: int, *keys: str, tags: str | None = None) -> Message:
    return Message(TOPIC, b"order %d" % number, keys=keys, tags=tags)


def bodies(answer: Frame) -> list[bytes]:
    return [message.body for message in decode_records(answer.body)]


def of_queue(client: Asking, code: RequestCode, topic: str = TOPIC, **fields: Any) -> int:
    answer = client.ask(code, topic=topic, queueId=0, **fields)
    assert answer.code == 0
    (value,) = answer.fields.values()
    return int(value)


def stored(client: Asking, number: int) -> ReceivedMessage:
    return client.broker.store.messages.at(MessageQueue(TOPIC, 0), number)


def test_messages_are_found_by_a_key_the_oldest_first(client: Asking) -> None:
    sent(client, order(0, "a", "b"), order(1, "b"), order(2, "c"), order(3, "b"))
    found = client.ask(RequestCode.QUERY_MESSAGE, topic=TOPIC, key="b", **EVER)
    assert bodies(found) == [b"order 0", b"order 1", b"order 3"]
    assert int(found.fields["indexLastUpdatePhyoffset"]) == stored(client, 3).commit_log_offset
    assert int(found.fields["indexLastUpdateTimestamp"]) == stored(client, 3).store_timestamp
    newest = client.ask(RequestCode.QUERY_MESSAGE, topic=TOPIC, key="b", **EVER | {"maxNum": 2})
    assert bodies(newest) == [b"order 1", b"order 3"]


def test_a_message_is_found_by_its_unique_id(client: Asking) -> None:
    results = sent(client, order(0), order(1))
    key = results[1].message_id
    found = client.ask(RequestCode.QUERY_MESSAGE, topic=TOPIC, key=key, _UNIQUE_KEY_QUERY=True, **EVER)
    assert bodies(found) == [b"order 1"]


@pytest.mark.parametrize("fields", [{"key": "z"}, {"topic": "other"}, {"endTimestamp": 1}, {"maxNum": -1}])
def test_what_is_not_there_is_not_found(client: Asking, fields: dict[str, Any]) -> None:
    sent(client, order(0, "a"))
    found = client.ask(RequestCode.QUERY_MESSAGE, **{"topic": TOPIC, "key": "a", **EVER, **fields})
    assert (found.code, found.body) == (ResponseCode.QUERY_NOT_FOUND, b"")
    assert found.fields.keys() == {"indexLastUpdatePhyoffset", "indexLastUpdateTimestamp"}


def test_an_offset_id_that_a_pull_gave_leads_back_to_the_message(client: Asking) -> None:
    (result,) = sent(client, order(7))
    answer = client.ask(RequestCode.VIEW_MESSAGE_BY_ID, offset=result.commit_log_offset)
    (message,) = decode_records(answer.body)
    found = parse_offset_id(message.offset_message_id)
    assert (message.body, found.address) == (b"order 7", str(client.local))
    assert found.commit_log_offset == result.commit_log_offset


@pytest.mark.parametrize("offset", [-1, 1, 10**15])
def test_where_no_record_begins_nothing_is_found(client: Asking, offset: int) -> None:
    sent(client, order(0))
    answer = client.ask(RequestCode.VIEW_MESSAGE_BY_ID, offset=offset)
    assert (answer.code, answer.remark) == (1, f"can not find message by the offset, {offset}")


def test_a_queue_begins_and_ends_where_its_messages_do(client: Asking) -> None:
    sent(client, *map(order, range(3)))
    assert of_queue(client, RequestCode.GET_MAX_OFFSET) == 3
    assert of_queue(client, RequestCode.GET_MIN_OFFSET) == 0
    assert of_queue(client, RequestCode.GET_EARLIEST_MSG_STORETIME) == stored(client, 0).store_timestamp


def test_a_queue_that_nobody_made_begins_and_ends_at_zero(client: Asking) -> None:
    assert of_queue(client, RequestCode.GET_MAX_OFFSET, "none") == 0
    assert of_queue(client, RequestCode.GET_MIN_OFFSET, "none") == 0
    assert of_queue(client, RequestCode.GET_EARLIEST_MSG_STORETIME, "none") == -1
    assert of_queue(client, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, "none", timestamp=5) == 0


def test_a_time_stands_before_the_first_message_that_is_not_older(client: Asking) -> None:
    sent(client, *map(order, range(5)))
    times = [stored(client, number).store_timestamp for number in range(5)]
    for asked in {0, *times, times[-1] + 1, 2**63 - 1}:
        lower = of_queue(client, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, timestamp=asked)
        upper = of_queue(client, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, timestamp=asked, boundaryType="UPPER")
        assert lower == sum(time < asked for time in times)
        assert upper == max(0, sum(time <= asked for time in times) - 1)


def test_the_entries_of_a_queue_are_shown(client: Asking) -> None:
    results = sent(client, order(0, tags="a"), order(1, tags="b"), order(2))
    asked: dict[str, Any] = {"topic": TOPIC, "queueId": 0, "consumerGroup": ""}
    answer = client.ask(RequestCode.QUERY_CONSUME_QUEUE, index=1, count=10, **asked)
    found = QueueEntries.decode(answer.body)
    assert (found.min_offset, found.max_offset) == (0, 3)
    assert [(each.commit_log_offset, each.tags_code, each.passes) for each in found.entries] == [
        (results[1].commit_log_offset, java_hash("b"), False),
        (results[2].commit_log_offset, 0, False),
    ]
    missing = client.ask(RequestCode.QUERY_CONSUME_QUEUE, index=3, count=10, **asked)
    assert (missing.code, missing.remark, missing.body) == (0, f"Index 3 of 0@{TOPIC} is not exist!", b"")


def test_the_slowest_group_is_compared_with_another_one(client: Asking) -> None:
    sent(client, *map(order, range(9)))
    backend = local_backend(client.broker.store)
    for group, offset in {"slow": 2, "fast": 8, "left-out": 1}.items():
        backend.groups.commit(group, MessageQueue(TOPIC, 0), offset)

    def corrected(compare: str) -> dict[int, int]:
        asked: dict[str, Any] = {"filterGroups": "left-out", "compareGroup": compare, "topic": TOPIC}
        return CorrectionOffsets.decode(client.ask(RequestCode.QUERY_CORRECTION_OFFSET, **asked).body).offsets

    assert corrected("fast") == {0: 2}
    assert corrected("left-out") == {0: 2**63 - 1}
