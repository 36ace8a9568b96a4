"""Spark reads what is archived on S3, alone or as one log with what the store still has."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rmqclient.archive.archiver import archive
from rmqclient.store import open_store
from rmqclient.store.inspect.view import LocalView
from tests.support.archived import Row, force, more, rows
from tests.support.s3_server import BUCKET, S3Server, s3_server
from tests.support.written import ORDERS, PAYMENTS, SMALL

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytest.importorskip("moto", reason="an S3 server comes with the extra test")

TOPICS = f"{ORDERS},{PAYMENTS}"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("s3")) as running:
        yield running


@pytest.mark.guarantee("G27")
def test_a_store_and_its_archive_on_s3_are_read_as_one_log(
    spark: SparkSession, tmp_path: Path, server: S3Server
) -> None:
    # Given a store whose older half is archived and was removed
    root, url = tmp_path / "store", f"s3://{BUCKET}/orders"
    options = {f"archive.{name}": value for name, value in server.options.items()}
    with open_store(root, SMALL, housekeeping=False) as store:
        more(store, 200)
        archived_to = archive(root, url, server.options).log_range.stop
        more(store, 20)
        every = places(rows(LocalView(root)))
        archived = places(rows(LocalView(root), log_end=archived_to))
        force(store, keep=2)
        assert len(rows(LocalView(root))) < len(every)

    # Then all of it is read, whether its tasks follow the queues or the log, and the archive by itself
    for split in ("queue", "log"):
        wanted = {"subscribe": TOPICS, "split": split, "minPartitions": "3", "includeMetadata": "true", **options}
        assert read(spark.read.format("rmq").options(archive=url, **wanted).load(str(root))) == every
        assert read(spark.read.format("rmq").options(**wanted).load(url)) == archived


def places(found: list[Row]) -> list[tuple[str, int, int, int]]:
    return sorted((queue.topic, queue.queue_id, offset, len(record)) for queue, offset, _, record in found)


def read(frame: DataFrame) -> list[tuple[str, int, int, int]]:
    assert not frame.filter("value is null").count()
    return sorted((row.topic, row.partition, row.offset, row.size) for row in frame.toLocalIterator())
