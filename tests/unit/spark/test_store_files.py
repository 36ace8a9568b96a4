"""Store files in a worker process of Spark, which reads the same store in every query."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="Spark comes with make install-all")

from rmqclient.spark.files.store_files import MOST_RESIDENT, kept_store_place
from rmqclient.spark.scan.read_options import parse
from rmqclient.store import limit_resident
from tests.support.written import written_store


def test_a_worker_of_spark_keeps_more_pages_than_other_processes(tmp_path: Path) -> None:
    before = limit_resident(128 << 20)
    try:
        root = written_store(tmp_path / "store")
        kept_store_place(parse({"path": str(root), "subscribe": "orders"}, streaming=False))
        assert limit_resident(before) == MOST_RESIDENT
    finally:
        limit_resident(before)
