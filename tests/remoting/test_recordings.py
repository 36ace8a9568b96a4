"""Every recorded frame of real clients and servers is read, and written again with the same header and body."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from rmqclient.remoting.codes import Language
from rmqclient.remoting.errors import FrameError, HeaderError
from rmqclient.remoting.frame import Frame, FrameReader, encode
from rmqclient.remoting.table import REQUESTS, RequestCode, request, request_fields, response, response_fields
from tests.remoting.recordings import BUNDLES, RecordedFrame, recorded_damage, recorded_frames

OF_HOOKS = {"ReqT", "AccessKey", "Signature", "OnsChannel"}
"""Fields that hooks add to any request: a lite pull consumer's type, and those of access control. No table has them."""

NEVER_DECLARED = {9999, None}
"""A code that a probe made up, and answers whose request was not recorded."""

PROBED = ("probe", "probe-5.3.3")
"""Sessions that leave out required fields on purpose."""


@pytest.mark.parametrize("bundle", BUNDLES)
def test_a_recorded_frame_reads_as_the_proxy_read_it(bundle: str) -> None:
    for recorded in recorded_frames(bundle):
        frame = read(recorded.raw)
        assert header_of(frame) == plain(recorded.header), recorded
        assert recorded.body in {None, frame.body}


@pytest.mark.parametrize("bundle", BUNDLES)
def test_a_recorded_frame_is_written_with_the_same_header_and_body(bundle: str) -> None:
    for recorded in recorded_frames(bundle):
        frame = read(recorded.raw)
        again = encode(frame)
        assert plain(json_header_of(again) or header_of(read(again))) == plain(recorded.header), recorded
        assert read(again) == frame
        if frame.serialization:
            assert again == recorded.raw


@pytest.mark.parametrize("bundle", BUNDLES)
def test_a_recorded_connection_reads_as_one_stream(bundle: str) -> None:
    streams: dict[tuple[str, int, bool], list[RecordedFrame]] = {}
    for recorded in recorded_frames(bundle):
        streams.setdefault((recorded.session, recorded.connection, recorded.is_from_client), []).append(recorded)
    for stream in streams.values():
        together = b"".join(recorded.raw for recorded in stream)
        reader = FrameReader()
        pieces = [together[at : at + 1000] for at in range(0, len(together), 1000)]
        frames = [frame for piece in pieces for frame in reader.feed(piece)]
        assert frames == [read(recorded.raw) for recorded in stream]


@pytest.mark.parametrize("bundle", BUNDLES)
def test_every_recorded_field_is_declared(bundle: str) -> None:
    for recorded in recorded_frames(bundle):
        if recorded.request_code not in NEVER_DECLARED:
            declared = REQUESTS[recorded.request_code or 0]
            header = declared.answer if recorded.is_response else declared.header
            names = {field.wire_name for field in header.fields}
            assert read(recorded.raw).fields.keys() - OF_HOOKS <= names, recorded


@pytest.mark.parametrize("bundle", BUNDLES)
def test_recorded_requests_are_the_same_after_a_way_through_the_table(bundle: str) -> None:
    for recorded in recorded_frames(bundle):
        if not recorded.is_response and recorded.request_code not in NEVER_DECLARED:
            frame = read(recorded.raw)
            try:
                values = request_fields(frame)
            except HeaderError:
                assert recorded.session in PROBED
                continue
            assert request(RequestCode(frame.code), **values).fields == as_java_writes(frame), recorded


@pytest.mark.parametrize("bundle", BUNDLES)
def test_recorded_answers_are_the_same_after_a_way_through_the_table(bundle: str) -> None:
    for recorded in recorded_frames(bundle):
        frame = read(recorded.raw)
        if recorded.is_response and frame.code == 0 and recorded.request_code not in NEVER_DECLARED:
            code = RequestCode(recorded.request_code or 0)
            values = response_fields(code, frame)
            assert response(Frame(code), **values).fields == frame.fields, recorded


@pytest.mark.parametrize("damage", recorded_damage())
def test_what_real_servers_hang_up_for_is_no_frame(damage: bytes) -> None:
    with pytest.raises(FrameError):
        FrameReader().feed(damage)


def test_the_recordings_are_there() -> None:
    frames = [frame for bundle in BUNDLES for frame in recorded_frames(bundle)]
    assert len(frames) == 9470
    assert len({frame.request_code for frame in frames}) > 70
    assert sum(frame.body is None for frame in frames) == 23


def read(raw: bytes) -> Frame:
    (frame,) = FrameReader().feed(raw)
    return frame


def json_header_of(raw: bytes) -> dict[str, Any] | None:
    """Return the header of JSON as it stands in the bytes; None for a binary one."""
    if raw[4]:
        return None
    found: dict[str, Any] = orjson.loads(raw[8 : 8 + int.from_bytes(raw[5:8])])
    return found


def header_of(frame: Frame) -> dict[str, Any]:
    """Return the header of a frame in the form of the recordings."""
    language = Language(frame.language)
    found = {
        "code": frame.code,
        "extFields": frame.fields,
        "flag": frame.flag,
        "language": None if language is Language.UNKNOWN else language.name,
        "opaque": frame.opaque,
        "remark": frame.remark,
        "version": frame.version,
    }
    return plain(found)


def plain(header: dict[str, Any]) -> dict[str, Any]:
    """Return a header with one form for what readers take for the same.

    No text, no field and none at all are the same; the serialization is written by Java only and read by nobody; a
    number or a boolean in a field of JSON is its text; the name of a language that nobody knows is none.
    """
    fields = header.get("extFields") or {}
    found = {name: value for name, value in header.items() if name not in {"extFields", "serializeTypeCurrentRPC"}}
    found = {name: value for name, value in found.items() if value is not None and value != ""}
    found["extFields"] = {name: value if isinstance(value, str) else json_text(value) for name, value in fields.items()}
    if found.get("language") not in Language.__members__:
        found.pop("language", None)
    return found


def json_text(value: object) -> str:
    return orjson.dumps(value).decode()


def as_java_writes(frame: Frame) -> dict[str, str]:
    """Return the fields of a request without those of hooks; C++ writes 0 for a boolean, and Java reads it as false."""
    booleans = {field.wire_name for field in REQUESTS[frame.code].header.fields if field.type.letter == "b"}
    return {
        name: "false" if name in booleans and value == "0" else value
        for name, value in frame.fields.items()
        if name not in OF_HOOKS
    }
