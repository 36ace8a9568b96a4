"""One Spark session for all tests, quick to start and to run small things, on this machine only.

Tests that need it come last, so that nothing else runs beside its Java, which has ended when the last of them has.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rmqclient.spark import session
from tests.support.java import QUICK_JAVA, why_no_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
QUICK = {
    "spark.driver.extraJavaOptions": QUICK_JAVA,
    "spark.log.level": "ERROR",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.showConsoleProgress": "false",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=needs_spark)
    needing = [item for item in items if needs_spark(item)]
    for item in needing:
        item.add_marker(pytest.mark.spark)
    if needing and (reason := why_no_spark()):
        for item in needing:
            item.add_marker(pytest.mark.skip(reason=reason))


def needs_spark(item: pytest.Item) -> bool:
    return "spark" in getattr(item, "fixturenames", ())


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    warehouse = tmp_path_factory.mktemp("warehouse")
    with pytest.MonkeyPatch.context() as patch:
        # What a test defines is imported in Spark's Python workers by its name.
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))))
        made = session("local[2]", "tests", **QUICK, **{"spark.sql.warehouse.dir": str(warehouse)})
    yield made
    made.stop()
    end_java()


def end_java() -> None:
    """End the Java that pyspark would let go on until this process ends."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    assert gateway is not None
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(timeout=60)
    SparkContext._gateway = SparkContext._jvm = None
