"""Batches: one request where they fit, several in order where they do not, and what is said when one of these fails."""

from __future__ import annotations

import pickle
import struct

import pytest

from rmqclient import Compression, Message
from rmqclient.errors import BatchStoredInPart, MessageRejected, PropertiesTooLarge, QueueError, RequestTimedOut
from rmqclient.remoting.frame import Frame
from rmqclient.remoting.table import request_fields, response
from tests.cluster.sending.conftest import BATCH, SEND, TWO, broker_of, in_turn, no, nothing, parsed, producing

MIB = 1 << 20


def messages_in(body: bytes) -> list[tuple[bytes, dict[str, str]]]:
    """Return body and properties of each message in the body of a batch."""
    found, at = [], 0
    while at < len(body):
        size, _, _, flag, length = struct.unpack_from(">iiiii", body, at)
        assert flag == 0
        content = body[at + 20 : at + 20 + length]
        (count,) = struct.unpack_from(">h", body, at + 20 + length)
        properties = body[at + 22 + length : at + 22 + length + count].decode()
        assert size == 22 + length + count
        found.append((content, parsed(properties)))
        at += size
    return found


def all_stored(asked: Frame) -> Frame:
    """Return the answer to a batch: an offset id for each message."""
    ids = ",".join(f"7F00000100002A9F{number:016X}" for number in range(len(messages_in(asked.body))))
    return response(asked, msgId=ids, queueId=request_fields(asked)["queueId"], queueOffset=100)


def test_a_batch_is_one_request_for_one_queue() -> None:
    with producing({BATCH: all_stored}, brokers=TWO) as (cluster, producer):
        messages = [Message("orders", b"%d" % number, tags="t", keys=[f"k{number}"]) for number in range(3)]
        results = producer.send_batch(messages)
    (asked,) = cluster.asked(BATCH)
    sent = messages_in(asked.body)
    assert request_fields(asked)["batch"] is True
    assert [body for body, _ in sent] == [b"0", b"1", b"2"]
    assert [properties["UNIQ_KEY"] for _, properties in sent] == [result.message_id for result in results]
    assert [(properties["TAGS"], properties["KEYS"]) for _, properties in sent] == [("t", f"k{n}") for n in range(3)]
    assert {result.queue for result in results} == {results[0].queue}
    assert [(result.queue_offset, result.commit_log_offset) for result in results] == [(100, 0), (101, 1), (102, 2)]


def test_what_has_no_room_in_one_request_goes_to_the_same_queue_in_order() -> None:
    with producing({BATCH: all_stored}, brokers=TWO) as (cluster, producer):
        sizes = [3 * MIB, MIB // 2, MIB, 4 * MIB, 10, 10]
        results = producer.send_batch([Message("orders", bytes(size)) for size in sizes])
        requests = [asked for asked in cluster.requests if asked.code in {SEND, BATCH}]
    assert [asked.code for asked in requests] == [BATCH, SEND, SEND, BATCH]
    assert len({(broker_of(asked), request_fields(asked)["queueId"]) for asked in requests}) == 1
    assert len(results) == len({result.message_id for result in results}) == len(sizes)
    assert all(len(asked.body) <= 4 * MIB for asked in requests)


def test_a_body_that_is_compressed_goes_alone() -> None:
    with producing({BATCH: all_stored}, producer={"compression": Compression.ZLIB}) as (cluster, producer):
        producer.send_batch([Message("orders", body) for body in (b"a", b"b", b"long " * 2_000, b"c", b"d")])
        requests = [asked for asked in cluster.requests if asked.code in {SEND, BATCH}]
    assert [asked.code for asked in requests] == [BATCH, SEND, BATCH]
    assert request_fields(requests[1])["sysFlag"] == 0x301


def test_an_empty_batch_sends_nothing() -> None:
    with producing() as (cluster, producer):
        assert producer.send_batch([]) == []
        assert not cluster.asked(BATCH)


def test_a_batch_has_one_topic() -> None:
    with producing() as (cluster, producer):
        with pytest.raises(MessageRejected, match=r"'bills'.*'orders'"):
            producer.send_batch([Message("orders", b""), Message("bills", b"")])
        assert not cluster.asked(BATCH)


def test_every_message_is_checked_before_the_first_is_sent() -> None:
    with producing({BATCH: all_stored}) as (cluster, producer):
        with pytest.raises(PropertiesTooLarge):
            producer.send_batch([Message("orders", b"")] * 3 + [Message("orders", b"", keys=["k" * 40_000])])
        assert not cluster.asked(BATCH)


def test_a_batch_that_one_broker_refuses_for_now_goes_to_another_one() -> None:
    with producing({BATCH: in_turn(no(2), all_stored)}, brokers=TWO) as (cluster, producer):
        results = producer.send_batch([Message("orders", b"")] * 3)
        assert [broker_of(asked) for asked in cluster.asked(BATCH)] == list(TWO)
    assert {result.queue.broker_name for result in results} == {"broker-b"}


def test_a_batch_that_stops_half_way_says_what_is_stored() -> None:
    script = {BATCH: in_turn(all_stored, no(13, "too long"))}
    with producing(script) as (_, producer), pytest.raises(BatchStoredInPart) as told:
        producer.send_batch([Message("orders", bytes(MIB))] * 6)
    assert len(told.value.results) == 3
    assert "the first 3 of 6 messages are stored, the others are not" in str(told.value)
    assert told.value.stored
    assert isinstance(told.value.__cause__, MessageRejected)
    again = pickle.loads(pickle.dumps(told.value))
    assert (str(again), again.results) == (str(told.value), told.value.results)


def test_a_batch_whose_next_request_has_no_answer_says_that_it_may_be_stored() -> None:
    script = {BATCH: in_turn(all_stored, nothing, nothing, nothing)}
    with producing(script, options="timeout=1") as (_, producer), pytest.raises(QueueError) as told:
        producer.send_batch([Message("orders", bytes(MIB))] * 6)
    assert "the first 3 of 6 messages are stored, the next 3 may be" in str(told.value)
    assert isinstance(told.value.__cause__, RequestTimedOut)


def test_a_write_buffer_sends_batches() -> None:
    with producing({BATCH: all_stored}, producer={"write_buffer_bytes": 1 << 20}) as (cluster, producer):
        for number in range(10):
            producer.send_buffered(Message("orders", b"%d" % number))
        producer.flush()
        sent = [body for asked in cluster.asked(BATCH) for body, _ in messages_in(asked.body)]
    alone = [asked.body for asked in cluster.asked(SEND)]
    assert sorted(sent + alone) == [b"%d" % number for number in range(10)]
    assert len(cluster.asked(BATCH)) + len(alone) <= 3
