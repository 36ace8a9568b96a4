"""Config files: topics and offsets, in the files of ``<root>/config`` that RocketMQ reads too.

===============================  ==========================================================  =====================
file                             what it says                                                RocketMQ's class
===============================  ==========================================================  =====================
``config/topics.json``           every topic: queues, permission                             ``TopicConfigManager``
``config/consumerOffset.json``   committed offset of each group in each message queue        ``ConsumerOffsetManager``
``config/delayOffset.json``      next message to deliver, of each delay level                ``ScheduleMessageService``
===============================  ==========================================================  =====================

Each is a document (:mod:`rmqclient.store.settings.document`). This module keeps every topic, group
and field of a broker that it does not know.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rmqclient.store import clock, layout
from rmqclient.store.crash_points import CrashPoint
from rmqclient.store.errors import InvalidName, StoreCorrupt
from rmqclient.store.message_queue import is_name
from rmqclient.store.settings import document

TOPICS_FILE = Path("config", "topics.json")
DELAY_OFFSETS_FILE = Path("config", "delayOffset.json")
CONSUMER_OFFSETS_FILE = Path("config", "consumerOffset.json")

REPLY_SUFFIX = "_REPLY_TOPIC"
"""Suffix of the topic that a broker keeps for the replies of its cluster. [MixAll.getReplyTopic]"""


READABLE = 4
WRITABLE = 2
"""Bits of a topic's permission. [PermName]"""


# --- topics ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """One topic as RocketMQ's ``TopicConfig`` has it, with the defaults of that class."""

    read_queue_count: int = 16
    """Queues that consumers see. [readQueueNums]"""

    write_queue_count: int = 16
    """Queues that producers see. [writeQueueNums]"""

    perm: int = 6
    """Bits: 4 read, 2 write, 1 inherit."""

    order: bool = False
    """Whether the topic was made for ordered messages; RocketMQ's store does not look at it."""

    topic_filter_type: str = "SINGLE_TAG"
    """``SINGLE_TAG`` or ``MULTI_TAG``."""

    topic_sys_flag: int = 0
    """Bits: 1 unit, 2 subscription of a unit."""

    cleanup_policy: str = "delete"
    """``delete`` or ``compact``; RocketMQ 5 has it as an attribute of the topic, and 4.9 does not know it."""


_TOPIC_KEYS: tuple[tuple[str, str, type], ...] = (
    ("read_queue_count", "readQueueNums", int),
    ("write_queue_count", "writeQueueNums", int),
    ("perm", "perm", int),
    ("order", "order", bool),
    ("topic_filter_type", "topicFilterType", str),
    ("topic_sys_flag", "topicSysFlag", int),
)


_POLICY = "cleanup.policy"
_POLICIES = {"delete": "DELETE", "compact": "COMPACTION"}
"""RocketMQ 5's words (CleanupPolicy)."""


def read_topics(root: Path) -> dict[str, TopicConfig]:
    """Return the topics of the store by name, in the order of the file; empty without a file.

    A broker also keeps entries for itself and its cluster there, named after hosts. Entries whose name is outside the
    alphabet of topics are left out (and kept in the file).

    Raises:
        StoreCorrupt: damaged without a good ``.bak``, or an entry has a value of the wrong kind.
    """
    path = root / TOPICS_FILE
    table = document.table(path, document.read(path) or {}, "topicConfigTable")
    return {name: _topic_config(path, name, entry) for name, entry in table.items() if is_name(name)}


def write_topics(root: Path, topics: Mapping[str, TopicConfig], *, now_ms: int | None = None) -> None:
    """Write ``topics`` over the entries of the same name and keep all others; count the data version up by one.

    Args:
        root: the store directory.
        topics: what to add or to change; the other topics stay.
        now_ms: timestamp of the new data version, epoch milliseconds; the present by default.

    Raises:
        InvalidName: nothing was written.
        StoreCorrupt: the present file is damaged without a good ``.bak``; nothing was written.
        StoreFull: no room; the present file is untouched.
    """
    for name in topics:
        if not is_name(name):
            raise InvalidName(f"topic {name!r}: not 1 to 127 characters of %|a-zA-Z0-9_-")
    path = root / TOPICS_FILE
    whole = document.read(path) or {}
    table = document.table(path, whole, "topicConfigTable")
    for name, config in topics.items():
        fields = {key: getattr(config, attribute) for attribute, key, _ in _TOPIC_KEYS}
        kept = document.fields(path, name, table.get(name, {}))
        table[name] = {**kept, **fields, **_attributes(path, name, kept, config), "topicName": name}
    whole["topicConfigTable"] = table
    whole["dataVersion"] = _next_version(path, whole, clock.wall_ms() if now_ms is None else now_ms)
    document.write(path, document.render(whole))


def remove_topic(root: Path, topic: str, *, now_ms: int | None = None) -> bool:
    """Take a topic out of the file; return whether it was there. Counts the data version up by one.

    Raises:
        StoreCorrupt: the present file is damaged without a good ``.bak``; nothing was written.
        StoreFull: no room; the present file is untouched.
    """
    path = root / TOPICS_FILE
    whole = document.read(path) or {}
    table = document.table(path, whole, "topicConfigTable")
    if topic not in table:
        return False
    del table[topic]
    whole["topicConfigTable"] = table
    whole["dataVersion"] = _next_version(path, whole, clock.wall_ms() if now_ms is None else now_ms)
    document.write(path, document.render(whole))
    return True


def topics_version(root: Path) -> tuple[int, int]:
    """Return the data version of the topics: how often they were changed, and when last, in ms since 1970."""
    path = root / TOPICS_FILE
    version = document.table(path, document.read(path) or {}, "dataVersion")
    counter, timestamp = version.get("counter", 0), version.get("timestamp", 0)
    if type(counter) is not int or type(timestamp) is not int:
        raise StoreCorrupt(path, 0, f"dataVersion is {version!r}")
    return counter, timestamp


def cluster_name(topics: Collection[str]) -> str:
    """Return the name of the cluster of the broker that made some of these topics, or RocketMQ's usual one."""
    clusters = (name.removesuffix(REPLY_SUFFIX) for name in topics if name.endswith(REPLY_SUFFIX))
    return next((name for name in clusters if name in topics), "DefaultCluster")


def _topic_config(path: Path, name: str, entry: object) -> TopicConfig:
    fields = document.fields(path, name, entry)
    values: dict[str, Any] = {}
    for attribute, key, kind in _TOPIC_KEYS:
        if key in fields:
            if not _is_valid(fields[key], kind):
                raise StoreCorrupt(path, 0, f"topic {name}: {key} is {fields[key]!r}")
            if key in ("readQueueNums", "writeQueueNums") and fields[key] > layout.QUEUE_SLOTS:
                raise StoreCorrupt(
                    path, 0, f"topic {name}: {key} is {fields[key]}: a store has at most {layout.QUEUE_SLOTS} queues"
                )
            values[attribute] = fields[key]
    attributes = document.fields(path, f"topic {name}: attributes", fields.get("attributes", {}))
    is_compact = attributes.get(_POLICY) == _POLICIES["compact"]
    return TopicConfig(**values, cleanup_policy="compact" if is_compact else "delete")


def _attributes(path: Path, name: str, kept: dict[str, Any], config: TopicConfig) -> dict[str, Any]:
    attributes = document.fields(path, f"topic {name}: attributes", kept.get("attributes", {}))
    if config.cleanup_policy == "delete" and _POLICY not in attributes:
        return {}  # as a 4.9 broker writes it
    return {"attributes": {**attributes, _POLICY: _POLICIES[config.cleanup_policy]}}


def _is_valid(value: object, kind: type) -> bool:
    return document.is_count(value) if kind is int else type(value) is kind


def _next_version(path: Path, whole: dict[str, Any], now_ms: int) -> dict[str, Any]:
    version = document.table(path, whole, "dataVersion")
    counter = version.get("counter", 0)
    if type(counter) is not int:
        raise StoreCorrupt(path, 0, f"dataVersion: counter is {counter!r}")
    return {**version, "counter": counter + 1, "timestamp": now_ms}


# --- consumer offsets -----------------------------------------------------------------------------


def read_consumer_offsets(root: Path) -> dict[tuple[str, str], dict[int, int]]:
    """Return ``{(topic, group): {queue id: next queue_offset to consume}}``; empty without a file.

    Keys other than ``topic@group`` with names of the usual alphabet are left out. So are negative offsets, which mean
    that nothing was committed.

    Raises:
        StoreCorrupt: damaged without a good ``.bak``, or an offset is not an integer.
    """
    path = root / CONSUMER_OFFSETS_FILE
    offsets: dict[tuple[str, str], dict[int, int]] = {}
    for key, entry in document.table(path, document.read(path) or {}, "offsetTable").items():
        names = key.split("@")
        if len(names) == 2 and all(is_name(name) for name in names):
            offsets[names[0], names[1]] = queue_offsets(path, key, entry)
    return offsets


def write_consumer_offsets(
    root: Path,
    offsets: Mapping[tuple[str, str], Mapping[int, int]],
    announce: Callable[[int], None] = lambda _: None,
    forgotten: Collection[str] = (),
) -> int:
    """Write ``offsets`` over those of the same queues, keep all others, and return the digest of the new file.

    What the file says of ``forgotten`` groups is left out.

    The digest is what :func:`consumer_offsets_digest` returns until another program writes the file. ``announce`` gets
    the digest before the file is written, so that a process killed in between leaves a file whose digest was announced.

    Raises:
        InvalidName: a topic or group with characters that would break the key; nothing was written.
        StoreCorrupt: the present file is damaged without a good ``.bak``; nothing was written.
        StoreFull: no room; the present file is untouched.
    """
    path = root / CONSUMER_OFFSETS_FILE
    whole = document.read(path) or {}
    table = document.table(path, whole, "offsetTable")
    table = {key: queues for key, queues in table.items() if key.partition("@")[2] not in forgotten}
    for (topic, group), queues in offsets.items():
        if not (is_name(topic) and is_name(group)):
            raise InvalidName(f"topic {topic!r}, group {group!r}: not 1 to 127 characters of %|a-zA-Z0-9_-")
        key = f"{topic}@{group}"
        kept = document.fields(path, key, table.get(key, {}))
        table[key] = {**kept, **{str(queue_id): offset for queue_id, offset in queues.items()}}
    whole["offsetTable"] = table
    text = document.render(whole)
    if text == document.content(path):  # a full disk has room for what is there already
        return _digest(text)
    announce(_digest(text))
    document.write(path, text, CrashPoint.OFFSETS_TEMPORARY)
    return _digest(text)


def consumer_offsets_digest(root: Path) -> int:
    """Return a 64-bit digest of the bytes of ``consumerOffset.json``, 0 only if the file is missing or empty.

    The digest tells whether another program, such as a broker, wrote the file since this library last read or wrote it.
    Take the digest before reading the file, so that the next look sees a change in between.
    """
    return _digest(document.content(root / CONSUMER_OFFSETS_FILE))


def queue_offsets(path: Path, key: str, entry: object) -> dict[int, int]:
    """Return the offsets by queue id that ``entry`` holds under ``key``. Raises StoreCorrupt."""
    offsets: dict[int, int] = {}
    for queue_id, offset in document.fields(path, key, entry).items():
        if type(offset) is not int or not re.fullmatch("[0-9]{1,10}", queue_id):
            raise StoreCorrupt(path, 0, f"{key}: queue {queue_id!r} has offset {offset!r}")
        if offset >= 0:
            offsets[int(queue_id)] = offset
    return offsets


def _digest(text: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big") or 1 if text else 0


# --- delay levels ---------------------------------------------------------------------------------


def read_delay_offsets(root: Path) -> dict[int, int]:
    """Return ``{delay level: queue_offset of the next message to deliver}``; empty without a file.

    Raises:
        StoreCorrupt: damaged without a good ``.bak``, or an offset is not an integer.
    """
    path = root / DELAY_OFFSETS_FILE
    return queue_offsets(path, "offsetTable", document.table(path, document.read(path) or {}, "offsetTable"))


def write_delay_offsets(root: Path, offsets: Mapping[int, int]) -> None:
    """Write ``offsets`` over those of the same delay levels, and keep all others.

    Raises:
        StoreCorrupt: the present file is damaged without a good ``.bak``; nothing was written.
        StoreFull: no room; the present file is untouched.
    """
    path = root / DELAY_OFFSETS_FILE
    whole = document.read(path) or {}
    kept = document.table(path, whole, "offsetTable")
    whole["offsetTable"] = {**kept, **{str(level): offset for level, offset in offsets.items()}}
    document.write(path, document.render(whole), CrashPoint.DELAY_OFFSETS_TEMPORARY)
