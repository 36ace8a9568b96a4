"""Frames: their bytes, and a reader that no bytes bring out of step."""

from __future__ import annotations

import json
import struct
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqclient.remoting.codes import Language
from rmqclient.remoting.errors import FrameError
from rmqclient.remoting.frame import MAX_FRAME_BYTES, ONEWAY, RESPONSE, Frame, FrameReader, Serialization, encode

INT16 = st.integers(-(2**15), 2**15 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
FRAMES = st.builds(
    Frame,
    code=INT16,
    fields=st.dictionaries(TEXT, TEXT, max_size=4),
    body=st.binary(max_size=50),
    opaque=INT32,
    flag=INT32,
    remark=st.none() | TEXT.filter(bool),
    language=st.sampled_from([language.value for language in Language]),
    version=INT16,
    serialization=st.sampled_from([kind.value for kind in Serialization]),
)


def header(text: str, total: int | None = None, mark: int | None = None) -> bytes:
    """Return a frame whose header is ``text``; the numbers before it can be wrong."""
    data = text.encode()
    return struct.pack(">iI", 4 + len(data) if total is None else total, len(data) if mark is None else mark) + data


def binary(header: bytes) -> bytes:
    return struct.pack(">iI", 4 + len(header), 1 << 24 | len(header)) + header


def read(data: bytes) -> Frame:
    (frame,) = FrameReader().feed(data)
    return frame


@given(FRAMES)
def test_a_frame_is_read_as_it_was_written(frame: Frame) -> None:
    assert read(encode(frame)) == frame


@given(st.lists(FRAMES, max_size=6), st.data())
def test_frames_are_read_however_their_bytes_are_split(frames: list[Frame], data: st.DataObject) -> None:
    stream = b"".join(encode(frame) for frame in frames)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=10)))
    reader = FrameReader()
    pieces = [stream[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert [frame for piece in pieces for frame in reader.feed(piece)] == frames


def test_frames_are_read_byte_by_byte() -> None:
    frames = [Frame(10, {"a": "b"}, b"body"), Frame(11, serialization=Serialization.ROCKETMQ)]
    reader = FrameReader()
    stream = b"".join(encode(frame) for frame in frames)
    assert [frame for byte in stream for frame in reader.feed(bytes([byte]))] == frames


@pytest.mark.parametrize("count", [1, 3, 40, 41, 200])
def test_frames_keep_nothing_of_a_buffer_that_is_filled_again(count: int) -> None:
    frames = [Frame(10, {"a": "b"}, b"body"), Frame(11, {"c": "d"}, b"more", serialization=Serialization.ROCKETMQ)]
    stream, buffer, reader, read = b"".join(encode(frame) for frame in 3 * frames), bytearray(count), FrameReader(), []
    for at in range(0, len(stream), count):
        part = stream[at : at + count]
        buffer[:] = part.ljust(count, b"!")
        read += reader.feed(memoryview(buffer)[: len(part)])
    assert read == 3 * frames
    assert reader.held == 0


def test_a_frame_of_json_has_the_bytes_that_java_writes() -> None:
    expected = {"code": 105, "extFields": {"topic": "T"}, "flag": 0, "language": "JAVA", "opaque": 3, "version": 407}
    data = encode(Frame(105, {"topic": "T"}, b"xyz", opaque=3, language=Language.JAVA))
    total, mark = struct.unpack(">iI", data[:8])
    assert total == len(data) - 4
    assert mark == len(data) - 8 - 3
    assert json.loads(data[8:-3]) == expected
    assert data[-3:] == b"xyz"


def test_a_binary_frame_has_the_bytes_that_java_writes() -> None:
    frame = Frame(105, {"topic": "wire_topic"}, language=Language.JAVA, serialization=Serialization.ROCKETMQ)
    fixed = "0069 00 0197 00000000 00000000 00000000"
    expected = f"0000002e 0100002a {fixed} 00000015 0005 746f706963 0000000a 776972655f746f706963"
    assert encode(frame) == bytes.fromhex(expected)


def test_a_frame_knows_whether_it_is_an_answer_and_whether_anybody_waits_for_one() -> None:
    assert not Frame(34).is_response
    assert not Frame(34).is_oneway
    assert Frame(0, flag=RESPONSE).is_response
    assert Frame(40, flag=ONEWAY).is_oneway


@pytest.mark.parametrize(
    ("written", "text"),
    [("0", "0"), ("true", "true"), ("false", "false"), ("-7", "-7"), ("1.5", "1.5"), ('["a"]', '["a"]'), ('""', "")],
)
def test_values_that_other_languages_write_are_read_as_text(written: str, text: str) -> None:
    assert read(header(f'{{"code":10,"extFields":{{"a":"b","e":{written}}}}}')).fields == {"a": "b", "e": text}


def test_what_a_header_leaves_out_has_javas_default() -> None:
    expected = Frame(10, {}, b"", 0, 0, None, Language.UNKNOWN, 0)
    assert read(header('{"code":10}')) == expected
    assert read(header('{"code":10,"extFields":null,"remark":"","language":"KLINGON","more":[1]}')) == expected
    assert read(header('{"code":10,"extFields":{"a":null}}')) == expected


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (header("hello"), "not JSON"),
        (header("[1]"), "not a JSON object"),
        (header("{}"), "code of a header is None"),
        (header('{"code":"10"}'), "code of a header is '10'"),
        (header('{"code":true}'), "code of a header is True"),
        (header('{"code":10,"opaque":2147483648}'), "32 bits"),
        (header('{"code":10,"extFields":[1]}'), "not a JSON object"),
        (header('{"code":10}', mark=100), "100 bytes does not fit"),
        (header('{"code":10}', mark=2 << 24 | 11), "kind 2"),
        (header("", total=0), "0 bytes is announced"),
        (header("", total=3), "3 bytes is announced"),
        (header("", total=-1), "-1 bytes is announced"),
        (header("", total=MAX_FRAME_BYTES - 3), "16,777,213 bytes is announced"),
        (b"\x16\x03\x01\x02\x00", "TLS"),
        (binary(b"\x00\x0a\x00"), "3 bytes cannot be read"),
        (binary(struct.pack(">hbhiiii", 10, 0, 1, 1, 0, 5, 0)), "5 bytes does not fit"),
        (binary(struct.pack(">hbhiiii", 10, 0, 1, 1, 0, -1, 0)), "-1 bytes does not fit"),
        (binary(struct.pack(">hbhiiii", 10, 0, 1, 1, 0, 0, 9)), "9 bytes do not fit"),
        (binary(struct.pack(">hbhiiii", 10, 0, 1, 1, 0, 0, -9)), "-9 bytes do not fit"),
        (binary(struct.pack(">hbhiiiih", 10, 0, 1, 1, 0, 0, 2, 7)), "7 bytes does not fit"),
        (binary(struct.pack(">hbhiiiihsi", 10, 0, 1, 1, 0, 0, 3, 1, b"a", 0)), "4 bytes behind their length"),
        (binary(struct.pack(">hbhiiii", 10, 0, 1, 1, 0, 1, 0)[:17] + b"\xff" + bytes(4)), "cannot be read"),
    ],
)
def test_bytes_that_are_no_frame_are_refused(data: bytes, reason: str) -> None:
    with pytest.raises(FrameError, match=reason):
        FrameReader().feed(data)


@given(st.lists(st.binary(max_size=40), max_size=8), st.lists(FRAMES, max_size=2))
def test_garbage_is_refused_or_waited_for(pieces: list[bytes], before: list[Frame]) -> None:
    reader = FrameReader()
    frames = [frame for frame in before for frame in reader.feed(encode(frame))]
    assert frames == before
    fed = 0
    for piece in pieces:
        fed += len(piece)
        try:
            for frame in reader.feed(piece):
                assert read(encode(frame)) == frame
        except FrameError as error:
            assert reader.damage is error
            return


@given(FRAMES, st.data())
def test_a_frame_with_a_changed_byte_is_refused_waited_for_or_another_frame(frame: Frame, data: st.DataObject) -> None:
    changed = bytearray(encode(frame))
    at = data.draw(st.integers(0, len(changed) - 1))
    changed[at] = data.draw(st.integers(0, 255))
    try:
        FrameReader().feed(bytes(changed))
    except FrameError as error:
        assert str(error)


def test_a_length_that_is_too_great_is_refused_before_the_bytes_come() -> None:
    with pytest.raises(FrameError, match="from 4 to 16,777,212"):
        FrameReader().feed(struct.pack(">i", MAX_FRAME_BYTES - 3))


def test_a_reader_holds_no_more_than_one_frame() -> None:
    reader = FrameReader()
    chunk = bytes(1 << 16)
    tracemalloc.start()
    try:
        reader.feed(struct.pack(">iI", MAX_FRAME_BYTES - 4, 0))
        assert tracemalloc.get_traced_memory()[1] < 1 << 16  # what is announced is not reserved
        with pytest.raises(FrameError):
            for _ in range(1000):
                reader.feed(chunk)
        assert tracemalloc.get_traced_memory()[1] < 2.5 * MAX_FRAME_BYTES  # the buffer and its copy
    finally:
        tracemalloc.stop()


def test_frames_before_the_damage_are_returned_and_then_the_damage_is_raised() -> None:
    frame = Frame(10)
    reader = FrameReader()
    assert reader.feed(encode(frame) + b"\xff" * 8) == [frame]
    assert reader.damage is not None
    for data in (b"", encode(frame)):
        with pytest.raises(FrameError, match="announced"):
            reader.feed(data)


def test_the_longest_frame_is_written_and_read() -> None:
    room = MAX_FRAME_BYTES - len(encode(Frame(10)))
    longest = Frame(10, body=bytes(room))
    assert read(encode(longest)) == longest
    with pytest.raises(FrameError, match="takes 16,777,217 bytes"):
        encode(Frame(10, body=bytes(room + 1)))


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (Frame(200050, serialization=1), "cannot be written"),  # POP: the binary header has 16 bits for a code
        (Frame(10, {"a" * 40_000: "b"}, serialization=1), "cannot be written"),
        (Frame(10, {"a": "\ud800"}, serialization=1), "cannot be written"),
        (Frame(10, {"a": "\ud800"}), "cannot be written"),
        (Frame(10, {"a": "b" * (1 << 24)}), "takes 16,777,"),
    ],
)
def test_what_has_no_room_in_a_frame_is_refused(frame: Frame, reason: str) -> None:
    with pytest.raises(FrameError, match=reason):
        encode(frame)


def test_frames_are_independent() -> None:
    one, other = Frame(10), Frame(10)
    one.fields["a"] = "b"
    assert other.fields == {}
    read_twice: list[Any] = FrameReader().feed(encode(one) * 2)
    read_twice[0].fields["c"] = "d"
    assert read_twice[1].fields == {"a": "b"}
