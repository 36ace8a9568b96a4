"""Rows that Spark returned, and what they must be by the reader that shares nothing with the store's."""

from __future__ import annotations

import tarfile
from base64 import b64decode
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.lines import Line, line_of
from tests.support.oracle import reference
from tests.support.oracle.reference import ReferenceRecord

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Row = dict[str, Any]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
GOLDEN = Path(__file__).parents[1] / "compat" / "golden"


def load(spark: SparkSession, root: Path | str, schema: str | None = None, **options: object) -> DataFrame:
    """Return what a batch reads, every topic that a pattern gives unless something is named."""
    usual = {} if {"subscribe", "assign", "subscribePattern"} & set(options) else {"subscribePattern": ".*"}
    reading = spark.read.format("rmq").options(**usual, **{name: str(value) for name, value in options.items()})
    return (reading.schema(schema) if schema else reading).load(str(root))


def rows_of(frame: DataFrame) -> list[Row]:
    """Return the rows, sorted by place."""
    found = frame.toArrow().to_pylist()
    for row in found:
        if "properties" in row:
            row["properties"] = dict(row["properties"])
    return sorted(found, key=lambda row: (row["topic"], row["partition"], row["offset"]))


def expected(root: Path, *topics: str) -> list[Row]:
    """Return the rows of some topics or all, with every column, sorted by place."""
    found = [
        row_of(record)
        for _, record in reference.read_commit_log(root)
        if record.in_a_queue and (not topics or record.topic in topics)
    ]
    return sorted(found, key=lambda row: (row["topic"], row["partition"], row["offset"]))


def row_of(record: ReferenceRecord) -> Row:
    """Return the row of a record."""
    return row_of_line(line_of(record))


def row_of_line(line: Line) -> Row:
    """Return the row of a record that the Java program printed."""
    properties = line["properties"]
    host, _, port = line["store_host"].rpartition(":")
    return {
        "key": properties.get("KEYS"),
        "value": reference.opened(b64decode(line["body"]), line["sys_flag"]),
        "topic": line["topic"],
        "partition": line["queue_id"],
        "offset": line["queue_offset"],
        "timestamp": EPOCH + timedelta(milliseconds=line["store_timestamp"]),
        "born_timestamp": EPOCH + timedelta(milliseconds=line["born_timestamp"]),
        "tags": properties.get("TAGS"),
        "properties": properties,
        "commit_log_offset": line["commit_log_offset"],
        "size": line["size"],
        "flag": line["flag"],
        "sys_flag": line["sys_flag"],
        "reconsume_times": line["reconsume_times"],
        "born_host": line["born_host"],
        "store_host": line["store_host"],
        "msg_id": properties.get("UNIQ_KEY")
        or reference.offset_message_id(ip_address(host).packed, int(port), line["commit_log_offset"]),
        "broker_name": "",
        "index": 0,
    }


def unpacked(name: str, scratch: Path) -> Path:
    """Unpack a store that a broker wrote, and return its directory."""
    with tarfile.open(GOLDEN / f"{name}.tgz") as archive:
        archive.extractall(scratch, filter="data")
    (root,) = scratch.iterdir()
    return root
