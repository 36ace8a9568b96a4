"""How far a stream is behind, from the reports that Spark makes of it."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("pyspark", reason="Spark comes with make install-all")

from rmqclient.spark.progress import offsets_behind


def test_a_report_tells_how_far_the_queues_are_behind() -> None:
    end = json.dumps({"@store": "a", "orders": {"0": 10, "1": 4}})
    latest = json.dumps({"@store": "a", "orders": {"0": 10, "1": 9}, "payments": {"0": 1}})
    behind = offsets_behind({"endOffset": end, "latestOffset": latest})
    assert behind == {"minOffsetsBehindLatest": 0, "maxOffsetsBehindLatest": 5, "avgOffsetsBehindLatest": 2}


@pytest.mark.parametrize("latest", [None, "null", "None", ""])
def test_a_report_without_offsets_tells_nothing(latest: str | None) -> None:
    assert offsets_behind({"endOffset": '{"orders": {"0": 1}}', "latestOffset": latest}) == {}
