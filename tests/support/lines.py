"""What RocketMQ says of a store, line by line, and what it must say by the oracle that reads the bytes."""

from __future__ import annotations

from base64 import b64encode
from collections import defaultdict
from collections.abc import Iterable, Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from tests.support.oracle import reference
from tests.support.oracle.reference import ReferenceRecord

Line = dict[str, Any]
"""One line of JSON that the Java program of ``tests/interop`` printed."""

CRC = "__CRC32#"

_SET_ON_DELIVERY = {"MIN_OFFSET", "MAX_OFFSET", "CONSUME_START_TIME"}
"""Properties that a client adds to what it received.

A record can have them, too: when a broker is too slow to take a message back, RocketMQ's consumer sends it to the retry
topic as a new message, with all properties that it then has [DefaultMQPushConsumerImpl.sendMessageBack].
"""


def line_of(record: ReferenceRecord) -> Line:
    """Return a record as the Java program prints it, but for its kind and without its ``__CRC32#``."""
    return {
        "topic": record.topic,
        "queue_id": record.queue_id,
        "queue_offset": record.queue_offset,
        "commit_log_offset": record.commit_log_offset,
        "size": record.size,
        "flag": record.flag,
        "sys_flag": record.sys_flag,
        "born_timestamp": record.born_timestamp,
        "born_host": f"{ip_address(record.born_host)}:{record.born_port}",
        "store_timestamp": record.store_timestamp,
        "store_host": f"{ip_address(record.store_host)}:{record.store_port}",
        "reconsume_times": record.reconsume_times,
        "prepared_transaction_offset": record.prepared_transaction_offset,
        "body_crc": reference.body_crc(record.body),
        "body": b64encode(record.body).decode(),
        "properties": record.property_map,
    }


def stripped(line: Line) -> Line:
    """Return what the Java program printed, without what is not in the record or not in :func:`line_of`.

    A line of the kind ``record`` is the store's own, which no client has added anything to.
    """
    added = {CRC} if line.get("kind") == "record" else {CRC, *_SET_ON_DELIVERY}
    properties = {name: value for name, value in line["properties"].items() if name not in added}
    return {name: value for name, value in line.items() if name != "kind"} | {"properties": properties}


def lines_of(root: Path) -> list[Line]:
    """Return every record of a store, oldest first."""
    return [line_of(record) for _, record in reference.read_commit_log(root)]


def of_kind(lines: Iterable[Line], kind: str) -> list[Line]:
    """Return the lines of one kind."""
    return [line for line in lines if line["kind"] == kind]


def by_place(lines: Iterable[Line]) -> list[Line]:
    """Return messages in the order of the log."""
    return sorted(map(stripped, lines), key=lambda line: line["commit_log_offset"])


def keys_of(lines: Iterable[Line]) -> dict[tuple[str, str], list[int]]:
    """Return ``{(topic, key): commit log offsets}`` of everything that messages are to be found by."""
    found: dict[tuple[str, str], set[int]] = defaultdict(set)
    for line in lines:
        properties: Mapping[str, Any] = line["properties"]
        for key in [properties.get("UNIQ_KEY", ""), *properties.get("KEYS", "").split(" ")]:
            if key:
                found[line["topic"], key].add(line["commit_log_offset"])
    return {key: sorted(offsets) for key, offsets in found.items()}


def keys_found(lines: Iterable[Line]) -> dict[tuple[str, str], list[int]]:
    """Return what RocketMQ found by each key."""
    return {(line["topic"], line["key"]): line["commit_log_offsets"] for line in of_kind(lines, "key")}


def committed_by_workload(manifest: Iterable[Line]) -> dict[tuple[str, int], int]:
    """Return what the broker's workload committed for the group "halfway", by the ends of the queues in RocketMQ.

    Half of each queue of Plain, and one message of each queue of Batch that has any (Workload.java).
    """
    queues = of_kind(manifest, "queue")
    plain = {("Plain", queue["queue_id"]): queue["end"] // 2 for queue in queues if queue["topic"] == "Plain"}
    batch = {("Batch", queue["queue_id"]): 1 for queue in queues if queue["topic"] == "Batch"}
    return plain | batch
