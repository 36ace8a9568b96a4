"""A compressed batch in Arrow: a row for each of its messages, in both ways of reading, whatever limits a batch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from rmqclient import Message, Producer
from rmqclient.arrow.batches import BatchReader
from rmqclient.arrow.columns import METADATA, PROPERTIES, USUAL, schema_of
from rmqclient.filters.tag import parse_tags
from rmqclient.store import MessageQueue
from rmqclient.store.bodies import Compression
from rmqclient.store.errors import BodyUnreadable
from rmqclient.store.inspect.view import LocalView

QUEUE = MessageQueue("flights", 0)
SCHEMA = schema_of(USUAL | PROPERTIES | METADATA)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with Producer(tmp_path / "store") as producer:
        producer.create_topic("flights", 1)
        producer.send(Message("flights", b"0", tags="a"))
        for start, tags in ((1, "a"), (41, "b"), (81, "a")):
            messages = [
                Message("flights", b"%d" % number, tags=tags, keys=(f"k{number}",), properties={"n": str(number)})
                for number in range(start, start + 40)
            ]
            producer.send_batch(messages, compression=Compression.ZSTD)
        producer.send(Message("flights", b"121", tags="b"))
    return tmp_path / "store"


def rows(reader: BatchReader, view: LocalView, way: str) -> list[dict[str, object]]:
    known = view.offsets(QUEUE)
    found: Iterator[pa.RecordBatch] = (
        reader.read_queue(QUEUE, known.start, known.stop)
        if way == "entries"
        else reader.read_log(view.log_range().start, view.log_range().stop, {QUEUE: known})
    )
    return [row for batch in found for row in batch.to_pylist()]


def never(what: str) -> None:
    raise AssertionError(what)


@pytest.mark.guarantee("G39")
@pytest.mark.parametrize("way", ["entries", "log"])
@pytest.mark.parametrize("limits", [(10_000, 4 << 20), (7, 4 << 20), (1, 4 << 20), (10_000, 100)])
def test_each_message_of_a_batch_is_a_row(root: Path, way: str, limits: tuple[int, int]) -> None:
    view = LocalView(root)
    found = rows(BatchReader(view, SCHEMA, rows=limits[0], size=limits[1], on_lost=never), view, way)
    assert [row["value"] for row in found] == [b"%d" % number for number in range(122)]
    assert [row["offset"] for row in found] == [0, *[1] * 40, *[2] * 40, *[3] * 40, 4]
    assert [row["key"] for row in found[1:121]] == [f"k{number}" for number in range(1, 121)]
    assert [dict(row["properties"])["n"] for row in found[1:121]] == [str(number) for number in range(1, 121)]  # type: ignore[call-overload]
    assert len({row["msg_id"] for row in found}) == 122
    assert {row["sys_flag"] for row in found} == {0}


@pytest.mark.parametrize("way", ["entries", "log"])
def test_rows_of_batches_are_selected_by_their_tag(root: Path, way: str) -> None:
    view = LocalView(root)
    found = rows(BatchReader(view, SCHEMA, rows=9, tags=parse_tags("b"), on_lost=never), view, way)
    assert [row["value"] for row in found] == [*(b"%d" % number for number in range(41, 81)), b"121"]


@pytest.mark.parametrize("way", ["entries", "log"])
def test_a_batch_that_cannot_be_opened_fails_the_read_or_is_one_row_without_a_value(root: Path, way: str) -> None:
    view = LocalView(root)
    with pytest.raises(BodyUnreadable, match=r"flights, queue 0, offset 1, at \d+ of the commit log"):
        rows(BatchReader(view, SCHEMA, max_opened_body_bytes=1_000, on_lost=never), view, way)
    found = rows(BatchReader(view, SCHEMA, max_opened_body_bytes=1_000, null_unreadable=True, on_lost=never), view, way)
    assert [row["value"] for row in found] == [b"0", None, None, None, b"121"]
