"""Bodies of brokers and name servers that no recording holds: their forms as RocketMQ's classes write them."""

from __future__ import annotations

import contextlib
import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqclient.remoting import bodies
from rmqclient.remoting.bodies import (
    Body,
    ConsumerStatus,
    ConsumeTimeSpans,
    CorrectionOffsets,
    DelayOffsets,
    OffsetTable,
    ProducerInfo,
    ProducerTable,
    QueueTimeSpan,
    ResetOffset,
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
