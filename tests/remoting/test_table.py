"""Headers by the table: names, types, what is required, and the errors that say so."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqclient.remoting.codes import RequestCode, ResponseCode
from rmqclient.remoting.declarations.fields import Header
from rmqclient.remoting.errors import HeaderError
from rmqclient.remoting.frame import Frame, FrameReader, Serialization, encode
from rmqclient.remoting.table import (
    REQUESTS,
    SECTIONS,
    request,
    request_fields,
    response,
    response_field,
    response_fields,
)

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "s": st.text(st.characters(exclude_categories=["Cs"]), max_size=10),
    "i": st.integers(-(2**31), 2**31 - 1),
    "l": st.integers(-(2**63), 2**63 - 1),
    "b": st.booleans(),
}
DECLARED = st.sampled_from([RequestCode(code) for code in REQUESTS])
QUEUE: dict[str, Any] = {"topic": "orders", "queueId": 1}


def values_of(header: Header) -> st.SearchStrategy[dict[str, Any]]:
    required = {field.name: VALUES[field.type.letter] for field in header.fields if field.is_required}
    optional = {field.name: VALUES[field.type.letter] for field in header.fields if not field.is_required}
    return st.fixed_dictionaries(required, optional=optional)


def over_the_wire(frame: Frame) -> Frame:
    (received,) = FrameReader().feed(encode(frame))
    return received


@given(DECLARED, st.data())
def test_a_request_comes_with_the_values_that_were_sent(code: RequestCode, data: st.DataObject) -> None:
    values = data.draw(values_of(REQUESTS[code].header))
    received = over_the_wire(request(code, b"body", **values))
    assert received.code == code
    assert request_fields(received) == values
    assert received.body == b"body"


@given(DECLARED, st.data())
def test_an_answer_comes_with_the_values_that_were_sent(code: RequestCode, data: st.DataObject) -> None:
    values = data.draw(values_of(REQUESTS[code].answer))
    received = over_the_wire(response(Frame(code, opaque=-5), **values))
    assert response_fields(code, received) == values
    assert {name: response_field(code, received, name) for name in values} == values
    assert received.is_response
    assert received.opaque == -5


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"minOffset": "0"}, "needs nextBeginOffset: it has"),
        ({"nextBeginOffset": ""}, "needs nextBeginOffset: it has"),
        ({"nextBeginOffset": "soon"}, "nextBeginOffset is 'soon'"),
        ({"nextBeginOffset": str(2**63)}, f"nextBeginOffset is '{2**63}': a whole number from"),
    ],
)
def test_a_single_field_of_an_answer_has_to_be_there_and_of_its_type(fields: dict[str, str], reason: str) -> None:
    with pytest.raises(HeaderError, match=reason):
        response_field(RequestCode.PULL_MESSAGE, Frame(0, fields), "nextBeginOffset")


@given(DECLARED, st.dictionaries(st.sampled_from(["topic", "queueId", "offset", "e"]), st.text(max_size=5)))
def test_any_text_is_read_or_refused(code: RequestCode, fields: dict[str, str]) -> None:
    try:
        request_fields(Frame(code, fields))
    except HeaderError as error:
        assert str(code.value) in str(error)


def test_a_send_is_written_with_short_names() -> None:
    frame = request(
        RequestCode.SEND_MESSAGE_V2,
        b"body",
        producerGroup="g",
        topic="orders",
        defaultTopic="TBW102",
        defaultTopicQueueNums=4,
        queueId=2,
        sysFlag=0,
        bornTimestamp=1_700_000_000_000,
        flag=0,
        properties="TAGS\x01a",
        reconsumeTimes=0,
        unitMode=False,
        batch=None,
        bname="broker-a",
    )
    assert frame.fields == {
        "a": "g",
        "b": "orders",
        "c": "TBW102",
        "d": "4",
        "e": "2",
        "f": "0",
        "g": "1700000000000",
        "h": "0",
        "i": "TAGS\x01a",
        "j": "0",
        "k": "false",
        "n": "broker-a",
    }


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"topic": "orders"}, "30 GET_MAX_OFFSET needs queueId"),
        ({}, "30 GET_MAX_OFFSET needs queueId, topic"),
        ({**QUEUE, "topic": None}, "30 GET_MAX_OFFSET needs topic"),
        ({**QUEUE, "queueid": 1}, "30 GET_MAX_OFFSET has no field queueid: it has topic, queueId, committed"),
        ({**QUEUE, "topic": 7}, "30 GET_MAX_OFFSET: topic is 7: a string is expected"),
        ({**QUEUE, "queueId": "1"}, "30 GET_MAX_OFFSET: queueId is '1': a whole number"),
        ({**QUEUE, "queueId": 1.0}, "30 GET_MAX_OFFSET: queueId is 1.0: a whole number"),
        ({**QUEUE, "queueId": True}, "30 GET_MAX_OFFSET: queueId is True: a whole number"),
        ({**QUEUE, "queueId": 2**31}, "queueId is 2147483648: a whole number from -2147483648 to 2147483647"),
        ({**QUEUE, "committed": 1}, "30 GET_MAX_OFFSET: committed is 1: True or False"),
    ],
)
def test_a_request_that_does_not_fit_the_table_is_refused(fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(HeaderError, match=reason):
        request(RequestCode.GET_MAX_OFFSET, **fields)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"topic": "orders"}, "30 GET_MAX_OFFSET needs queueId: it has {'topic': 'orders'}"),
        ({"topic": "orders", "queueId": ""}, "30 GET_MAX_OFFSET needs queueId"),
        ({"topic": "orders", "queueId": "one"}, "30 GET_MAX_OFFSET: queueId is 'one'"),
        ({"topic": "orders", "queueId": "1.0"}, "30 GET_MAX_OFFSET: queueId is '1.0'"),
        ({"topic": "orders", "queueId": "9999999999"}, "queueId is '9999999999': a whole number from -2147483648"),
    ],
)
def test_a_received_request_that_does_not_fit_the_table_is_refused(fields: dict[str, str], reason: str) -> None:
    with pytest.raises(HeaderError, match=reason):
        request_fields(Frame(RequestCode.GET_MAX_OFFSET, fields))


def test_a_number_that_no_header_can_hold_is_refused() -> None:
    for offset in (2**63, -(2**63) - 1, 0.5, "7"):
        with pytest.raises(HeaderError, match="commitOffset is"):
            request(RequestCode.UPDATE_CONSUMER_OFFSET, consumerGroup="g", **QUEUE, commitOffset=offset)
    fields = {"consumerGroup": "g", "topic": "orders", "queueId": "0", "commitOffset": str(2**63)}
    with pytest.raises(HeaderError, match="commitOffset is '9223372036854775808': a whole number from"):
        request_fields(Frame(RequestCode.UPDATE_CONSUMER_OFFSET, fields))


@pytest.mark.parametrize(
    ("text", "value"), [("true", True), ("TRUE", True), ("false", False), ("0", False), ("1", False)]
)
def test_booleans_are_read_as_java_does(text: str, value: bool) -> None:
    fields = {"topic": "orders", "queueId": "1", "committed": text}
    assert request_fields(Frame(RequestCode.GET_MAX_OFFSET, fields)) == {**QUEUE, "committed": value}


def test_unknown_fields_are_kept_in_the_frame_and_have_no_value() -> None:
    frame = Frame(RequestCode.GET_MAX_OFFSET, {"topic": "orders", "queueId": "1", "ReqT": "0"})
    assert request_fields(frame) == QUEUE
    assert frame.fields["ReqT"] == "0"


def test_an_answer_has_the_serialization_of_its_request() -> None:
    asked = request(RequestCode.GET_MAX_OFFSET, **QUEUE)
    asked.serialization = Serialization.ROCKETMQ
    assert over_the_wire(response(over_the_wire(asked), offset=7)).serialization == Serialization.ROCKETMQ


def test_only_a_success_needs_all_fields() -> None:
    asked = request(RequestCode.GET_MAX_OFFSET, **QUEUE)
    refused = response(asked, ResponseCode.NO_PERMISSION, remark="no")
    assert (refused.code, refused.remark, refused.fields) == (ResponseCode.NO_PERMISSION, "no", {})
    with pytest.raises(HeaderError, match="the answer to 30 GET_MAX_OFFSET needs offset"):
        response(asked)
    with pytest.raises(HeaderError, match="the answer to 30 GET_MAX_OFFSET needs offset"):
        response_fields(RequestCode.GET_MAX_OFFSET, refused)


def test_a_request_that_nobody_knows_can_be_answered_and_has_no_fields() -> None:
    unknown = Frame(9999, {"a": "b"}, opaque=4)
    assert response(unknown, ResponseCode.REQUEST_CODE_NOT_SUPPORTED).opaque == 4
    with pytest.raises(HeaderError, match="9999 is not in the table"):
        request_fields(unknown)


def test_a_request_is_declared_once_and_its_fields_have_names_of_their_own() -> None:
    declared = [request for section in SECTIONS.values() for request in section]
    assert len(declared) == len(REQUESTS)
    for one in declared:
        for header in (one.header, one.answer):
            assert len({field.name for field in header.fields}) == len(header.fields)
            assert len({field.wire_name for field in header.fields}) == len(header.fields)
