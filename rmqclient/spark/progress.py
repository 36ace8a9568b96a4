"""Progress: how far a stream is behind, from what Spark reports of it.

Spark's Kafka source puts these numbers into ``metrics``. A source in Python has no way to (up to Spark 4.3), so its
``metrics`` are empty, but the report has the offsets of each queue::

    offsets_behind(query.lastProgress["sources"][0])
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from rmqclient.arrow.ranges import Offsets
from rmqclient.spark.scan.queue_json import from_json


def offsets_behind(source: Mapping[str, Any]) -> dict[str, float]:
    """Return how many offsets the queues are behind, named as in Kafka's source: the least, the most, and the mean.

    ``source`` is one of the sources in a report: of ``query.lastProgress``, or of ``event.progress`` in a
    StreamingQueryListener. Empty if it has no offsets yet. A queue that was not read yet is behind by all it has.
    """
    end, latest = _offsets(source.get("endOffset")), _offsets(source.get("latestOffset"))
    behind = [max(0, stop - end.get(queue, 0)) for queue, stop in latest.items()]
    if not behind:
        return {}
    return {
        "minOffsetsBehindLatest": min(behind),
        "maxOffsetsBehindLatest": max(behind),
        "avgOffsetsBehindLatest": sum(behind) / len(behind),
    }


def _offsets(text: object) -> Offsets:
    found = json.loads(text) if isinstance(text, str) and text.startswith("{") else text
    return from_json(found) if isinstance(found, Mapping) else {}
