"""Java for tests: whether Spark can be started, and how it starts soonest."""

from __future__ import annotations

from rmqclient.errors import SparkUnavailable
from rmqclient.spark.java import java_home
from rmqclient.spark.session import check_installed

QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Options that let Java compile soon rather than well: a third off the time of many small jobs."""


def why_no_spark() -> str | None:
    """Return why Spark cannot be started here; None when it can."""
    try:
        check_installed()
        java_home()
    except SparkUnavailable as error:
        return str(error)
    return None
