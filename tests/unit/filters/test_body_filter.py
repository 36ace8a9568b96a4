"""JMESPath over JSON bodies: what matches, what does not, and what cannot be told."""

from __future__ import annotations

import pickle
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqclient.errors import FilterError
from rmqclient.filters.body import MAX_BODY_BYTES, MAX_CHARACTERS, MAX_DEPTH, MAX_GROWTH, MAX_PARTS, BodyFilter


@pytest.mark.guarantee("G15")
@pytest.mark.parametrize(
    ("expression", "body", "expected"),
    [
        ("total > `100`", b'{"total": 101}', True),
        ("total > `100`", b'{"total": 100}', False),
        ("total > `100`", b'{"total": "101"}', None),
        ("total > `100`", b"{}", False),
        ("a.b[0].c == 'x'", b'{"a": {"b": [{"c": "x"}]}}', True),
        ("items[?price > `10`]", b'{"items": [{"price": 11}]}', True),
        ("items[?price > `10`]", b'{"items": [{"price": 9}]}', False),
        ("contains(tags, 'new') && !deleted", b'{"tags": ["new"]}', True),
        ("contains(tags, 'new') && !deleted", b'{"tags": ["new"], "deleted": true}', False),
        ("a", b'{"a": 0}', True),  # as JMESPath has it: only these five are false
        ("a", b'{"a": false}', False),
        ("a", b'{"a": null}', False),
        ("a", b'{"a": ""}', False),
        ("a", b'{"a": []}', False),
        ("a", b'{"a": {}}', False),
        ("@", b"3", True),
        ("[" + ", ".join(f"a{n}" for n in range(100)) + "][0] == `1`", b'{"a0": 1}', True),
        ("items[?a == 'x' && b == 'y' || c].{a: a, b: b, d: length(d)}", b'{"items": []}', False),
        ("a", b"no json", None),
        ("a", b"", None),
        ("a", b"\xff", None),
        ("a", b'{"a": NaN}', None),
        ("length(a) > `0`", b'{"a": 3}', None),
        ("length(a, a)", b'{"a": []}', None),
        ("a[::0]", b'{"a": [1]}', None),
        ("a", b"[" * 100_000, None),
        ("a", b'{"a": 1}' + b" " * MAX_BODY_BYTES, None),
        ("a", b'{"a": 1}' + b" " * (MAX_BODY_BYTES - 8), True),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_a_body_matches_does_not_or_cannot_be_told(expression: str, body: bytes, expected: bool | None) -> None:
    assert BodyFilter(expression).matches(body) is expected


@pytest.mark.guarantee("G15")
@pytest.mark.parametrize(
    ("expression", "column", "problem"),
    [
        ("a[", 3, "not JMESPath"),
        ("a == 'x", 6, "Unclosed"),
        ("a ? b", 3, "not JMESPath"),
        ("a = b", 3, "not JMESPath"),
        ("nope(a)", 0, "there is no function nope()"),
        ("items[].nope(@)", 0, "there is no function nope()"),
        ("a == `paid`", 0, "deprecated string literal"),
        ("", 0, "the expression is empty"),
        (" \n", 0, "the expression is empty"),
        ("a" * (MAX_CHARACTERS + 1), MAX_CHARACTERS + 1, f"at most {MAX_CHARACTERS:,}"),
        ("(" * 500 + "a", MAX_DEPTH + 1, f"more than {MAX_DEPTH} levels of brackets"),
        ("!" * 500 + "a", MAX_DEPTH + 1, f"more than {MAX_DEPTH} levels of brackets"),
        ("|".join("a" * 100), 0, f"{MAX_DEPTH} levels"),
        ("|".join(["[a]"] + ["[@,@][]"] * 7), 0, f"more than {MAX_GROWTH} times"),
        ("|".join(["a"] + ["join('', [@, @])"] * 7), 0, f"more than {MAX_GROWTH} times"),
        ("[" + ",".join("a" * (MAX_PARTS + 1)) + "]", 0, f"more than {MAX_PARTS} parts"),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_a_bad_expression_is_refused(expression: str, column: int, problem: str) -> None:
    with pytest.raises(FilterError, match=re.escape(problem)) as refused:
        BodyFilter(expression)
    assert refused.value.column == column
    assert len(str(refused.value)) < 400


def test_an_expression_is_a_str() -> None:
    with pytest.raises(FilterError, match="a str, not int"):
        BodyFilter(5)  # type: ignore[arg-type]


def test_brackets_in_literals_and_unequal_signs_are_no_levels() -> None:
    assert BodyFilter("a == '" + "(" * 100 + "'").matches(b'{"a": "' + b"(" * 100 + b'"}')
    assert BodyFilter(" && ".join(["a != `1`"] * 30)).matches(b'{"a": 2}')


def test_a_filter_can_be_sent_to_another_process() -> None:
    again = pickle.loads(pickle.dumps(BodyFilter("a")))
    assert again == BodyFilter("a")
    assert again.matches(b'{"a": 1}')


WORDS = [
    "a",
    "b",
    ".",
    "[",
    "]",
    "(",
    ")",
    "{",
    "}",
    "*",
    "@",
    "&",
    "&&",
    "||",
    "|",
    "!",
    "==",
    "<",
    "`1`",
    "'x'",
    "?",
    ",",
    ":",
]
CALLS = ["length(", "sort_by(", "to_number(", "map(", "keys(", "join(", "-1", "0", '"', "`", "'", "\\", "`[`", "sum("]


@given(
    st.one_of(st.text(max_size=40), st.lists(st.sampled_from([*WORDS, *CALLS]), max_size=25).map("".join)),
    st.one_of(st.binary(max_size=20), st.sampled_from([b"{}", b'{"a": [1, "x", null]}', b"[[{}]]", b"1", b'"x"'])),
)
def test_any_text_is_a_filter_or_a_filter_error_and_any_body_is_answered(expression: str, body: bytes) -> None:
    try:
        compiled = BodyFilter(expression)
    except FilterError as error:
        assert str(error)
    else:
        assert compiled.matches(body) in {True, False, None}
