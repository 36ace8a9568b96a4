"""The option ``where``: exactly the rows that meet its conditions are read, and what it cannot tell is refused."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rmqclient.arrow.where import Where, parse_where
from rmqclient.errors import FilterError
from rmqclient.spark.scan.read_options import ReadOptions, parse
from rmqclient.store import MessageQueue

TAGS = ["paid", "refunded", "it's", None]
ROWS: list[dict[str, Any]] = [
    {"topic": topic, "partition": queue_id, "offset": offset, "tags": TAGS[offset % len(TAGS)]}
    for topic in ("orders", "payments")
    for queue_id in range(3)
    for offset in range(5, 30)
]
THERE = {MessageQueue(topic, queue_id): range(5, 30) for topic in ("orders", "payments") for queue_id in range(3)}
ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}

Condition = tuple[str, Callable[[dict[str, Any]], bool]]


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


@st.composite
def conditions(draw: st.DrawFn) -> Condition:
    """Return a comparison as text, and as a function of a row."""
    name = draw(st.sampled_from(["topic", "tags", "partition", "offset"]))
    if name in ("topic", "tags"):
        texts = draw(st.lists(st.sampled_from(["orders", "payments", "paid", "it's", "none"]), min_size=1, max_size=3))
        if len(texts) == 1:
            return f"{name} = {quoted(texts[0])}", lambda row: row[name] == texts[0]
        return f"{name} IN ({', '.join(map(quoted, texts))})", lambda row: row[name] in texts
    number, kind = draw(st.integers(-2, 32)), draw(st.sampled_from([*ORDERS, "BETWEEN", "mirrored"]))
    if kind == "BETWEEN":
        return f"{name} BETWEEN {number} AND {number + 7}", lambda row: number <= row[name] <= number + 7
    if kind == "mirrored":
        return f"{number} < {name}", lambda row: number < row[name]
    return f"{name} {kind} {number}", lambda row: ORDERS[kind](row[name], number)


def options(where: str, tags: str = "*") -> ReadOptions:
    return parse({"path": "store", "subscribe": "orders", "where": where, "subExpression": tags}, streaming=False)


def read(asked: ReadOptions) -> list[dict[str, Any]]:
    """Return the rows that a read with these options has: its ranges, and of them what its tags match."""
    ranges = asked.where.apply(THERE)
    return [
        row
        for row in ROWS
        if row["offset"] in ranges.get(MessageQueue(row["topic"], row["partition"]), ())
        and asked.tags.matches(row["tags"])
    ]


@given(st.lists(conditions(), min_size=1, max_size=5))
@example([("tags = 'paid'", lambda row: row["tags"] == "paid"), ("tags = 'it''s'", lambda row: row["tags"] == "it's")])
def test_exactly_the_rows_that_meet_all_conditions_are_read(given_: list[Condition]) -> None:
    where = " AND ".join(text for text, _ in given_)
    assert read(options(where)) == [row for row in ROWS if all(meets(row) for _, meets in given_)]


@pytest.mark.parametrize("tags", ["paid", "paid || refunded", "none"])
def test_tags_of_both_options_are_asked_for(tags: str) -> None:
    found = read(options("tags IN ('paid', 'it''s')", tags))
    assert found == [row for row in ROWS if row["tags"] == "paid" and "paid" in tags]


def test_without_the_option_every_row_is_read() -> None:
    assert parse_where(None) == Where()
    assert Where().apply(THERE) == THERE


@pytest.mark.parametrize(
    "text",
    [
        "tags = 'paid' OR offset < 3",
        "tags <> 'paid'",
        "tags NOT IN ('paid')",
        "tags IS NULL",
        "tags > 'a'",
        "offset = '3'",
        "offset < 3.5",
        "key = 'k'",
        "timestamp > 5",
        "tags = topic",
        "TRUE",
    ],
)
def test_a_condition_that_does_not_spare_reading_is_refused_and_named(text: str) -> None:
    with pytest.raises((ValueError, FilterError)) as refused:
        options(text)
    assert text in str(refused.value)
