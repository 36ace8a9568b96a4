"""Bodies of brokers and name servers that no recording holds: their forms as RocketMQ's classes write them."""

from __future__ import annotations

import contextlib
import dataclasses
import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqclient.remoting import bodies
from rmqclient.remoting.bodies import (
    Body,
    ConsumerStatus,
    ConsumeTimeSpans,
    CorrectionOffsets,
    DataVersion,
    DelayOffsets,
    OffsetTable,
    ProducerInfo,
    ProducerTable,
    QueueTimeSpan,
    Registration,
    ResetOffset,
    TopicConfig,
    TopicTable,
)
from rmqclient.remoting.bodies.body import camel_case
from rmqclient.remoting.errors import BodyError
from rmqclient.store import MessageQueue

QUEUE = MessageQueue("t", 2, "broker-a")
KEY = '{"brokerName":"broker-a","queueId":2,"topic":"t"}'


@pytest.mark.parametrize(
    ("body", "means"),
    [
        ('{"offsetTable":{"t@g":{0:5,1:7}}}', OffsetTable({"t@g": {0: 5, 1: 7}})),
        ('{"offsetTable":{1:5,18:0}}', DelayOffsets({1: 5, 18: 0})),
        ('{"correctionOffsets":{0:3}}', CorrectionOffsets({0: 3})),
        ('{"consumerTable":{"c":{' + KEY + ':9}},"messageQueueTable":{}}', ConsumerStatus({}, {"c": {QUEUE: 9}})),
        (
            '{"consumeTimeSpanSet":[{"consumeTimeStamp":3,"delayTime":4,"maxTimeStamp":2,"messageQueue":'
            + KEY
            + ',"minTimeStamp":1}]}',
            ConsumeTimeSpans((QueueTimeSpan(QUEUE, 1, 2, 3, 4),)),
        ),
        (
            '{"data":{"g":[{"clientId":"c","language":"GO","lastUpdateTimestamp":5,"remoteIP":"::1","version":3}]}}',
            ProducerTable({"g": (ProducerInfo("c", "::1", "GO", 3, 5),)}),
        ),
    ],
)
def test_a_body_has_the_form_that_fastjson_writes(body: str, means: Body) -> None:
    assert type(means).decode(body.encode()) == means
    assert means.encode(as_fastjson=True).decode() == body


def test_offsets_of_one_group_are_taken_from_those_of_all() -> None:
    table = OffsetTable({"t@g": {0: 5}, "%RETRY%g@g": {0: 1}, "t@g2": {0: 6}})
    assert table.of_group("g") == {"t": {0: 5}, "%RETRY%g": {0: 1}}


def test_new_offsets_are_written_for_go_without_blanks_and_for_cpp_as_a_list() -> None:
    reset = ResetOffset({QUEUE: 9})
    assert reset.encode() == b'{"offsetTable":{' + KEY.encode() + b":9}}"
    assert reset.encode_list() == b'{"offsetTable":[{"brokerName":"broker-a","offset":9,"queueId":2,"topic":"t"}]}'
    assert ResetOffset.decode(reset.encode()) == ResetOffset.decode(reset.encode_list()) == reset


REGISTRATION = Registration(
    TopicTable(
        DataVersion(3, 1_700_000_000_000),
        {"t": TopicConfig("t", 4, 8, 6), "%RETRY%g": TopicConfig("%RETRY%g", 1, 1)},
    ),
)


def test_a_compressed_registration_has_words_for_each_topic() -> None:
    version = b'{"counter":3,"timestamp":1700000000000}'
    texts = [b"t 4 8 6 SINGLE_TAG", b"%RETRY%g 1 1 6 SINGLE_TAG"]
    opened = zlib.decompress(REGISTRATION.encode_compressed())
    assert opened == b"".join(
        [sized(version), struct.pack(">i", 2), *map(sized, texts), sized(b"[]")],
    )
    assert Registration.decode_compressed(REGISTRATION.encode_compressed()) == REGISTRATION
    assert Registration.decode(REGISTRATION.encode()) == REGISTRATION


def test_a_5x_broker_adds_order_attributes_and_more_behind() -> None:
    texts = [b"t 4 8 6 SINGLE_TAG true", b'u 1 1 6 SINGLE_TAG false {"message.type":"FIFO"}']
    body = zlib.compress(
        sized(b"{}") + struct.pack(">i", 2) + b"".join(map(sized, texts)) + sized(b"[]") + struct.pack(">i", 0)
    )
    topics = Registration.decode_compressed(body).table.topics
    assert topics["t"] == TopicConfig("t", 4, 8, 6, order=True)
    assert topics["u"] == TopicConfig("u", 1, 1, 6, attributes={"message.type": "FIFO"})


def sized(part: bytes) -> bytes:
    return struct.pack(">i", len(part)) + part


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"nothing", "is not a zlib stream"),
        (REGISTRATION.encode_compressed()[:-4], "ends too soon, or opens to over"),
        (zlib.compress(b"\0\0"), "ends too soon, at byte 0"),
        (zlib.compress(struct.pack(">i", 9) + b"{}"), "says 9 bytes at byte 4, and has 2"),
        (zlib.compress(struct.pack(">i", -1)), "says -1 bytes"),
        (zlib.compress(sized(b"{}") + struct.pack(">i", 1) + sized(b"t 4 8")), "five to seven words, not b't 4 8'"),
        (zlib.compress(sized(b"{}") + struct.pack(">i", 1) + sized(b"t x 8 6 S")), "five to seven words"),
        (zlib.compress(bytes(65 << 20)), "opens to over"),
    ],
)
def test_a_damaged_registration_is_refused(body: bytes, said: str) -> None:
    with pytest.raises(BodyError, match=said):
        Registration.decode_compressed(body)


CLASSES = [
    kind for kind in vars(bodies).values() if isinstance(kind, type) and issubclass(kind, Body) and kind is not Body
]


@pytest.mark.parametrize("kind", CLASSES)
@given(value=st.sampled_from([1, "x", True, [], [1], [{}], {}, {"topic": 1}, {"x": []}, {"x": {"y": {}}}, {KEY: 1}]))
def test_whatever_a_field_holds_a_body_is_read_or_refused(kind: type[Body], value: object) -> None:
    names = [camel_case(field.name) for field in dataclasses.fields(kind)]  # type: ignore[arg-type]
    for name in {*names, "offsetTable", "mqSet", "topic", "clientId", "consumerGroup", "brokerAddrs", "mqTable"}:
        with contextlib.suppress(BodyError):
            read = kind.of({"topicName": "t", "groupName": "g", "clientID": "c", name: value})
            assert kind.decode(read.encode()) == read
