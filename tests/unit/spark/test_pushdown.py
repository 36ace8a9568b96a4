"""Filter pushdown: no row that meets the filters is dropped, and what Spark is not given back is applied exactly."""

from __future__ import annotations

import operator
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

pytest.importorskip("pyspark", reason="Spark comes with make install-all")

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from rmqclient.filters.tag import TagFilter, parse_tags
from rmqclient.spark.files.store_files import StoreFiles
from rmqclient.spark.reading import pushdown
from rmqclient.spark.reading.pushdown import Pushed, push
from rmqclient.spark.scan.read_options import parse
from rmqclient.store import MessageQueue
from rmqclient.store.inspect.view import LocalView
from tests.support.oracle import reference
from tests.support.oracle.reference import ReferenceRecord
from tests.support.sweeps import share_of

MINUTE_MS = 60_000
BEGIN_MS = 1_700_000_000_000
BEGIN = datetime.fromtimestamp(BEGIN_MS / 1000, UTC)
TAGS = [None, "paid", "refunded", "Aa", "BB"]
"""The last two have one hash."""

Row = dict[str, Any]
_BOUNDS: dict[type[Filter], Callable[[Any, Any], bool]] = {
    EqualTo: operator.eq,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
}
_OPTIONS = parse({"path": "store", "subscribePattern": ".*"}, streaming=False)


def record(number: int) -> ReferenceRecord:
    """Return message ``number``: one each ten minutes, by a clock that is set back for a while now and then."""
    tag = TAGS[number % len(TAGS)]
    back = 55 * MINUTE_MS if number % 40 in range(20, 24) else 0
    return ReferenceRecord(
        topic=("orders", "payments")[number % 2],
        queue_id=number // 2 % 2,
        queue_offset=number // 4,
        properties=b"" if tag is None else f"TAGS\x01{tag}".encode(),
        store_timestamp=BEGIN_MS + number * 10 * MINUTE_MS - back,
    )


@pytest.fixture(scope="module")
def view(tmp_path_factory: pytest.TempPathFactory) -> LocalView:
    """A store as a broker writes it, of three days."""
    root = tmp_path_factory.mktemp("pushdown")
    log = bytearray()
    entries: dict[tuple[str, int], bytes] = {}
    for number in range(400):
        found = record(number)
        encoded = bytearray(reference.encode(found, crc_property=False))
        encoded[28:36] = len(log).to_bytes(8, "big")  # its commit log offset
        entry = reference.ENTRY.pack(len(log), len(encoded), found.tags_code)
        entries[found.topic, found.queue_id] = entries.get((found.topic, found.queue_id), b"") + entry
        log += encoded
    write(root / "commitlog", bytes(log), 1 << 16)
    for (topic, queue_id), content in entries.items():
        write(root / "consumequeue" / topic / str(queue_id), content, 200 * reference.ENTRY.size)
    assert reference.check_store(root) == []
    return LocalView(root)


def write(directory: Path, content: bytes, size: int) -> None:
    directory.mkdir(parents=True)
    (directory / f"{0:020}").write_bytes(content.ljust(size, b"\0"))


@pytest.fixture(scope="module")
def rows(view: LocalView) -> list[Row]:
    return [row_of(each) for _, each in reference.read_commit_log(view.root)]


def row_of(found: ReferenceRecord) -> Row:
    return {
        "topic": found.topic,
        "partition": found.queue_id,
        "offset": found.queue_offset,
        "tags": found.property_map.get("TAGS"),
        "timestamp": BEGIN + timedelta(milliseconds=found.store_timestamp - BEGIN_MS),
        "key": None,
    }


def meets(row: Row, each: Filter) -> bool:
    """Tell whether Spark would keep a row: what is compared with null is not true."""
    if isinstance(each, Not):
        return not meets(row, each.child)
    value = row[each.attribute[0]]  # type: ignore[attr-defined]
    if value is None:
        return False
    if isinstance(each, In):
        return value in each.value
    if isinstance(each, IsNotNull):
        return True
    if isinstance(each, StringStartsWith):
        return str(value).startswith(each.value)
    return _BOUNDS[type(each)](value, each.value)  # type: ignore[attr-defined]


@st.composite
def filters(draw: st.DrawFn) -> Filter:
    name = draw(st.sampled_from(["topic", "partition", "offset", "tags", "timestamp", "key"]))
    values: dict[str, st.SearchStrategy[Any]] = {
        "topic": st.sampled_from(["orders", "payments", "returns"]),
        "partition": st.integers(-1, 3),
        "offset": st.integers(-2, 110) | st.sampled_from([-(1 << 63), (1 << 63) - 1]),
        "tags": st.sampled_from(["paid", "refunded", "Aa", "BB", "nobody's", ""]),
        "key": st.just("k"),
        # Spark has microseconds, which no message has
        "timestamp": st.integers(-100, 4_100 * MINUTE_MS * 1000).map(lambda each: BEGIN + timedelta(microseconds=each)),
    }
    value = values[name]
    kinds: list[Callable[..., Filter]] = [*_BOUNDS, In, IsNotNull]
    kind = draw(st.sampled_from(kinds))
    if kind is In:
        return kind((name,), draw(st.lists(value | st.none(), max_size=3).map(tuple)))

    return IsNotNull((name,)) if kind is IsNotNull else kind((name,), draw(value))


def what_is_read(pushed: Pushed, view: LocalView, rows: list[Row], expression: str | None = None) -> list[Row]:
    """Return the rows that the source hands to Spark."""
    ranges = pushed.apply(StoreFiles(view), {queue: view.offsets(queue) for queue in view.queues()})
    tags = pushed.narrow(parse({"path": "s", "subscribe": "a", "subExpression": expression or "*"}, streaming=False))
    return [
        row
        for row in rows
        if row["offset"] in ranges.get(MessageQueue(row["topic"], row["partition"]), ())
        and tags.tags.matches(row["tags"])
    ]


@settings(max_examples=share_of(300))
@given(given_=st.lists(filters(), max_size=5))
@example([EqualTo(("tags",), "Aa"), EqualTo(("tags",), "BB")])
@example([In(("tags",), (None,))])
@example([LessThan(("timestamp",), BEGIN), GreaterThan(("timestamp",), BEGIN + timedelta(days=1))])
def test_no_row_is_dropped_and_what_is_not_given_back_is_applied(
    view: LocalView, rows: list[Row], given_: list[Filter]
) -> None:
    pushed, left = push(given_)
    read = what_is_read(pushed, view, rows)
    applied = [each for each in given_ if not any(each is other for other in left)]
    wanted = [row for row in rows if all(meets(row, each) for each in given_)]
    assert [row for row in read if all(meets(row, each) for each in left)] == wanted
    assert all(meets(row, each) for row in read for each in applied)


@given(st.lists(filters(), max_size=3), st.sampled_from(["paid", "paid || Aa", "nobody's", "*"]))
def test_tags_that_the_options_ask_for_are_asked_for_still(
    view: LocalView, rows: list[Row], given_: list[Filter], expression: str
) -> None:
    pushed, left = push(given_)
    taken = parse_tags(expression)
    found = [row for row in what_is_read(pushed, view, rows, expression) if all(meets(row, each) for each in left)]
    assert found == [row for row in rows if taken.matches(row["tags"]) and all(meets(row, each) for each in given_)]


@pytest.mark.parametrize(
    "each",
    [
        EqualTo(("topic",), "orders"),
        In(("topic",), ("orders", "returns")),
        EqualTo(("partition",), 1),
        In(("partition",), [0, 2]),  # type: ignore[arg-type]  # so Spark hands it over
        EqualTo(("tags",), "paid"),
        In(("tags",), ("paid", "Aa")),
        *(kind(("offset",), 50) for kind in _BOUNDS),  # type: ignore[call-arg]
    ],
    ids=str,
)
def test_what_is_applied_to_the_last_row_is_not_looked_at_again_by_spark(
    each: Filter, view: LocalView, rows: list[Row]
) -> None:
    pushed, left = push([each])
    assert left == []
    assert 0 < len(what_is_read(pushed, view, rows)) < len(rows)


@pytest.mark.parametrize(
    "each",
    [
        EqualTo(("key",), "k"),
        EqualTo(("orders", "topic"), "topic"),
        IsNotNull(("tags",)),
        StringStartsWith(("topic",), "ord"),
        LessThan(("topic",), "p"),
        LessThan(("partition",), 1),
        In(("offset",), (1, 2)),
        Not(EqualTo(("topic",), "orders")),
    ],
    ids=str,
)
def test_what_is_not_understood_is_left_to_spark(each: Filter) -> None:
    assert push([each]) == (Pushed(), [each])


def test_a_time_spares_reading_and_is_looked_at_again(view: LocalView, rows: list[Row]) -> None:
    hours = (BEGIN + timedelta(hours=24), BEGIN + timedelta(hours=30))
    noon = [GreaterThan(("timestamp",), hours[0]), LessThan(("timestamp",), hours[1])]
    pushed, left = push(noon)
    assert left == noon
    read = what_is_read(pushed, view, rows)
    assert len([row for row in rows if all(meets(row, each) for each in noon)]) <= len(read) < len(rows) / 6


@pytest.mark.parametrize("kind", [EqualTo, GreaterThanOrEqual, LessThanOrEqual])
def test_a_message_is_found_by_its_time_where_the_clock_was_set_back(
    view: LocalView, rows: list[Row], kind: Callable[..., Filter]
) -> None:
    times = [row["timestamp"] for row in rows if (row["topic"], row["partition"]) == ("orders", 0)]
    assert times != sorted(times)
    for row in rows[:80]:
        pushed, _ = push([kind(("timestamp",), row["timestamp"])])
        assert row in what_is_read(pushed, view, rows)


def test_a_filter_is_given_back_by_identity_as_spark_expects() -> None:
    each = StringStartsWith(("topic",), "ord")
    assert push([each])[1][0] is each


def test_outside_of_spark_nobody_asks_for_pushdown() -> None:
    assert not pushdown.is_asked_for()


def test_no_message_can_have_the_tag_of_those_that_contradict_each_other() -> None:
    pushed, _ = push([EqualTo(("tags",), "a"), EqualTo(("tags",), "b")])
    (tag,) = pushed.narrow(_OPTIONS).tags.tags
    with pytest.raises(ValueError, match="no tag contains the separators"):
        parse_tags(tag)
    assert pushed.narrow(_OPTIONS).tags == TagFilter(frozenset({tag}))
