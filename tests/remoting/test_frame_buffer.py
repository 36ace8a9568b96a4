"""A frame buffer reads the frames that a frame reader reads, and copies no body."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqclient.remoting.errors import FrameError
from rmqclient.remoting.frame import MAX_FRAME_BYTES, Frame, FrameReader, encode
from rmqclient.remoting.frame_buffer import FrameBuffer
from tests.remoting.test_frame import FRAMES


def take_nothing(_data: memoryview, at: int, _end: int) -> tuple[list[bytes], int]:
    return [], at


def buffer_of(turns: int = 1) -> FrameBuffer[bytes]:
    return FrameBuffer(turns, take_nothing)


def receive(buffer: FrameBuffer[bytes], stream: bytes, most: int = MAX_FRAME_BYTES) -> list[Frame]:
    """Put bytes into the buffer, so many at once at most, and return the frames, each with a copy of its body."""
    frames = []
    while stream:
        space = buffer.space()[:most]
        part, stream = stream[: len(space)], stream[len(space) :]
        space[: len(part)] = part
        for frame, body in buffer.frames(len(part))[1]:
            frame.body = bytes(body)
            frames.append(frame)
    return frames


@given(st.lists(FRAMES, max_size=6), st.integers(1, 200))
def test_frames_are_read_however_their_bytes_come(frames: list[Frame], most: int) -> None:
    stream = b"".join(encode(frame) for frame in frames)
    assert receive(buffer_of(), stream, most) == FrameReader().feed(stream) == frames


@pytest.mark.parametrize("size", [250_000, 262_000, 263_000, MAX_FRAME_BYTES - 200])
def test_frames_that_are_longer_than_the_buffer_make_it_longer(size: int) -> None:
    frames = [Frame(10, body=bytes([number]) * size) for number in range(3)]
    assert receive(buffer_of(), b"".join(encode(frame) for frame in frames)) == frames


@pytest.mark.parametrize("turns", [1, 2, 3])
def test_a_body_stays_until_its_buffer_has_its_turn_again(turns: int) -> None:
    buffer, bodies = buffer_of(turns), []
    for number in range(turns + 1):
        data = encode(Frame(10, body=b"body %d" % number))
        buffer.space()[: len(data)] = data
        bodies += [body for _, body in buffer.frames(len(data))[1]]
    assert [bytes(body) for body in bodies] == [b"body %d" % number for number in [turns, *range(1, turns + 1)]]


@pytest.mark.parametrize("most", [1, 7, 1000])
def test_frames_of_a_kind_are_taken_and_the_others_read(most: int) -> None:
    eleven, ten = encode(Frame(11, body=b"x")), encode(Frame(10))

    def take_eleven(data: memoryview, at: int, end: int) -> tuple[list[bytes], int]:
        taken = []
        while end - at >= len(eleven) and bytes(data[at : at + len(eleven)]) == eleven:
            taken.append(b"eleven")
            at += len(eleven)
        return taken, at

    stream = eleven + ten + eleven + eleven + ten + ten
    buffer, taken, others = FrameBuffer(1, take_eleven), 0, 0
    for at in range(0, len(stream), most):
        part = stream[at : at + most]
        buffer.space()[: len(part)] = part
        found, read = buffer.frames(len(part))
        taken, others = taken + len(found), others + len(read)
    assert (taken, others) == (3, 3)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x16\x03\x01\x02", "TLS"),
        (b"\x00\x00\x00\x03", "3 bytes is announced"),
        (b"\x01\x00\x00\x00", "16,777,216 bytes is announced"),
        (b"\x00\x00\x00\x06\x00\x00\x00\x09{}", "9 bytes does not fit"),
        (b"\x00\x00\x00\x06\x00\x00\x00\x02{}", "code of a header is None"),
    ],
)
def test_bytes_that_are_no_frame_are_refused(data: bytes, reason: str) -> None:
    with pytest.raises(FrameError, match=reason):
        receive(buffer_of(), data)
