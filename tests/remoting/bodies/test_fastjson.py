"""fastjson: what Java writes into bodies that is not quite JSON."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqclient.remoting.bodies import fastjson
from rmqclient.remoting.errors import BodyError
from rmqclient.store import MessageQueue

QUEUE = '{"brokerName":"b","queueId":0,"topic":"T"}'

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
scalars = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
)
queues = st.builds(MessageQueue, texts, st.integers(0, 99), texts)
keys = texts.filter(lambda text: text != "$ref") | st.integers() | queues
values = st.recursive(
    scalars | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=20,
)


def as_read(value: Any) -> Any:
    """The same value as ``read`` gives it: every key is a text."""
    if isinstance(value, dict):
        return {as_key(key): as_read(item) for key, item in value.items()}
    return [as_read(item) for item in value] if isinstance(value, list) else value


def as_key(key: object) -> str:
    if isinstance(key, MessageQueue):
        return json.dumps(fastjson.queue_json(key), ensure_ascii=False, separators=(",", ":"))
    return str(key)


@given(values, st.booleans())
def test_what_is_written_is_read_again(value: Any, as_fastjson: bool) -> None:
    assert fastjson.read(fastjson.write(value, as_fastjson=as_fastjson)) == as_read(value)


@given(values)
def test_by_default_a_body_is_strict_json(value: Any) -> None:
    assert json.loads(fastjson.write(value)) == as_read(value)


def test_numbers_and_objects_stand_as_keys_without_quotes() -> None:
    body = b'{"brokerAddrs":{0:"10.0.0.1:10911",-1:"x"},"offsetTable":{' + QUEUE.encode() + b":5}}"
    value = {
        "brokerAddrs": {"0": "10.0.0.1:10911", "-1": "x"},
        "offsetTable": {QUEUE: 5},
    }
    assert fastjson.read(body) == value
    queue = MessageQueue("T", 0, "b")
    again = {"brokerAddrs": {0: "10.0.0.1:10911", -1: "x"}, "offsetTable": {queue: 5}}
    assert fastjson.write(again, as_fastjson=True) == body
    assert json.loads(fastjson.write(again)) == value


def test_blanks_and_line_ends_stand_anywhere() -> None:
    assert fastjson.read(b' {\n\t0 : [ 1 , {} , [ ] ] , { "a" : 1 } : null }\r\n') == {
        "0": [1, {}, []],
        '{"a":1}': None,
    }


@pytest.mark.parametrize("path", ["$.a[0]", "$['a'][0]", '$["a"][0]'])
def test_a_reference_gives_the_object_again(path: str) -> None:
    body = json.dumps({"a": [{"x": 1}], "b": {"$ref": path}}).encode()
    assert fastjson.read(body) == {"a": [{"x": 1}], "b": {"x": 1}}


def test_a_reference_finds_a_name_with_dots() -> None:
    assert fastjson.read(b'{"a":{"x.y":{"z":1}},"b":{"$ref":"$.a.x\\\\.y"}}') == {
        "a": {"x.y": {"z": 1}},
        "b": {"z": 1},
    }


def test_a_reference_stands_beside_bare_keys() -> None:
    assert fastjson.read(b'{"a":{0:{"x":1}},"b":{"$ref":"$.a.0"}}') == {"a": {"0": {"x": 1}}, "b": {"x": 1}}


def test_a_reference_leads_to_the_object_itself_its_parent_and_the_whole() -> None:
    found: Any = fastjson.read(b'{"a":{"me":{"$ref":"@"},"up":{"$ref":".."},"all":{"$ref":"$"}}}')
    assert found["a"]["me"] is found["a"]
    assert found["a"]["up"] is found
    assert found["a"]["all"] is found


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"this is not json",
        b'{"a"}',
        b'{"a":}',
        b'{"a":1,,"b":2}',
        b'{{"a":1}:2}x',
        b"[1 2]",
        b'{0:"x',
        b'{0:"\\q"}',
        b"{:1}",
        b"\xff",
        b"[" * 100_000,
        b"{" * 100_000,
        b'{{{"a":1}:2}:3}',
        b'{{"a":[1]}:2}',
        b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
        b"{0:" + b"9" * 5_000 + b"}",
        b'{"$ref":"$.a"}',
        b'{"a":[{"$ref":"$.a[7]"}]}',
        b'{"a":[{"$ref":"$.a.0"}]}',
        b'{"a":{"$ref":"elsewhere"}}',
    ],
)
def test_what_is_no_body_is_refused(body: bytes) -> None:
    with pytest.raises(BodyError):
        fastjson.read(body)


@given(st.binary(max_size=60) | st.text('{}[]:,"0123456789abc\\$ref.-', max_size=60).map(str.encode))
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    with contextlib.suppress(BodyError):
        fastjson.read(body)
