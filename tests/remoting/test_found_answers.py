"""Answers that found messages, as the kernel reads them: what it takes, a frame reader reads in the same way."""

from __future__ import annotations

import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqclient.remoting.frame import RESPONSE, Frame, FrameReader, Serialization, encode
from rmqclient.store.wire import found_in

FIELDS = {"suggestWhichBrokerId": "0", "nextBeginOffset": "1032", "minOffset": "0", "maxOffset": "100000"}
OTHER_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
FOUND = st.builds(
    lambda following, more, body, opaque, remark: Frame(
        0, {**more, "nextBeginOffset": str(following)}, body, opaque, RESPONSE, remark
    ),
    st.integers(-(10**17), 10**17),
    st.dictionaries(OTHER_TEXTS, OTHER_TEXTS, max_size=4),
    st.binary(max_size=50),
    st.integers(-(2**31), 2**31 - 1),
    st.none() | OTHER_TEXTS.filter(bool),
)


def found(data: bytes, at: int = 0, end: int | None = None) -> tuple[list[tuple[int, int, bytes]], int]:
    answers, at = found_in(memoryview(data), at, len(data) if end is None else end)
    return [(opaque, following, bytes(records)) for opaque, following, records in answers], at


def read(data: bytes) -> list[tuple[int, int, bytes]]:
    frames = FrameReader().feed(data)
    return [(frame.opaque, int(frame.fields["nextBeginOffset"]), frame.body) for frame in frames]


def with_header(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">iI", 4 + len(data), len(data)) + data


@given(st.lists(FOUND, max_size=5))
def test_answers_that_found_messages_are_taken(frames: list[Frame]) -> None:
    data = b"".join(map(encode, frames))
    answers, at = found(data)
    assert answers == read(data)[: len(answers)]
    if not any("\\u" in encode(frame).decode(errors="replace") for frame in frames):  # those are left to Python
        assert (len(answers), at) == (len(frames), len(data))


@given(FOUND, st.data())
def test_what_is_taken_of_damaged_bytes_is_what_a_reader_reads(frame: Frame, data: st.DataObject) -> None:
    damaged = bytearray(encode(frame))
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(8, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    answers, at = found(bytes(damaged))
    assert answers == (read(bytes(damaged)) if at else [])


OTHERS = [
    encode(Frame(19, FIELDS, flag=RESPONSE)),
    encode(Frame(0, FIELDS)),
    encode(Frame(0, {"minOffset": "0"}, flag=RESPONSE)),
    encode(Frame(0, FIELDS, flag=RESPONSE, serialization=Serialization.ROCKETMQ.value)),
    encode(Frame(0, FIELDS | {"more": "x" * 3000}, flag=RESPONSE)),
    with_header('{"code":0,"flag":1,"opaque":1,"extFields":{"nextBeginOffset":"1x"}}'),
    with_header('{"code":0,"flag":1,"opaque":1,"extFields":{"nextBeginOffset":"1","nextBeginOffset":"2"}}'),
    with_header('{"code":0,"flag":1,"extFields":{"nextBeginOffset":"1"}}'),
    with_header('{"code":0,"code":0,"flag":1,"opaque":1,"extFields":{"nextBeginOffset":"1"}}'),
    with_header('{"code":0,"flag":1,"opaque":1,"extFields":{"nextBeginOffset":"1"}}x'),
    with_header('{"code":0,"flag":1,"opaque":4294967296,"extFields":{"nextBeginOffset":"1"}}'),
    with_header('{"code":0,"flag":1,"opaque":1,"extFields":{}}'),
    with_header(""),
    struct.pack(">iI", 3, 0) + b"{}",
    struct.pack(">iI", 20, 30) + b"{" * 40,
    b"\x16\x03\x01\x02\x00\x00\x00\x00\x00",
]


@pytest.mark.parametrize("other", OTHERS)
def test_any_other_frame_is_left(other: bytes) -> None:
    plain = encode(Frame(0, FIELDS, b"records", 5, RESPONSE))
    assert found(plain + other + plain) == ([(5, 1032, b"records")], len(plain))


def test_a_frame_that_is_not_complete_is_left() -> None:
    plain = encode(Frame(0, FIELDS, b"records", 5, RESPONSE))
    for end in range(len(plain), 2 * len(plain)):
        assert found(2 * plain, end=end) == ([(5, 1032, b"records")], len(plain))


@pytest.mark.parametrize("written", ["1032", '"1032"'])
def test_a_number_is_read_as_other_languages_write_it(written: str) -> None:
    header = f'{{"code":0,"extFields":{{"a":true,"nextBeginOffset":{written}}},"flag":1,"opaque":-3,"remark":"FOUND"}}'
    assert json.loads(header)["opaque"] == -3
    assert found(with_header(header))[0] == [(-3, 1032, b"")]


@pytest.mark.parametrize(("at", "end"), [(-1, 5), (6, 5), (0, 11)])
def test_a_place_outside_of_the_buffer_is_refused(at: int, end: int) -> None:
    with pytest.raises(ValueError, match="are not in a buffer of 10"):
        found_in(memoryview(bytes(10)), at, end)
