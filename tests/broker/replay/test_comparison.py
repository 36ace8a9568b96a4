"""What counts as the same in two answers."""

from __future__ import annotations

from rmqclient.remoting.frame import Frame
from tests.broker.replay.comparison import difference, shape_of_body


def test_values_are_not_compared() -> None:
    one, other = (
        Frame(0, {"offset": "1"}, b'{"a": 1, "b": [{"c": 2}]}'),
        Frame(0, {"offset": "2"}, b'{"b":[{"c":3}],"a":9}'),
    )
    assert difference("s", 105, one, other, one.body) is None


def test_a_code_a_field_and_a_key_at_any_depth_are_compared() -> None:
    one = Frame(0, {"offset": "1"}, b'{"a": 1, "b": [{"c": 2}]}')
    for other, what in (
        (Frame(1, one.fields, one.body), "code"),
        (Frame(0, {"offset": "1", "more": ""}, one.body), "fields"),
        (Frame(0, one.fields, b'{"a": 1, "b": [{"d": 2}]}'), "body"),
        (Frame(0, one.fields, b'{"a": 1}'), "body"),
        (Frame(0, one.fields, b""), "body"),
    ):
        found = difference("s", 105, one, other, one.body)
        assert found is not None
        assert found.what == what


def test_the_keys_of_tables_are_values() -> None:
    one = b'{"offsetTable": {"a@b": 1}, "brokerAddrs": {0: "x"}}'
    other = b'{"offsetTable": {"c": 2, "d": 3}, "brokerAddrs": {"0": "y"}}'
    assert shape_of_body(one) == shape_of_body(other)
    assert shape_of_body(b'{"offsetTable": {}}') != shape_of_body(b'{"offsetTable": {"c": 2}}')


def test_properties_are_compared_by_their_names() -> None:
    assert shape_of_body(b"a=1\nb=2\n") == shape_of_body(b"b=3\na=")
    assert shape_of_body(b"a=1\n") != shape_of_body(b"b=1\n")
