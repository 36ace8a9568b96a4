"""``broker.conf``: the settings with which a RocketMQ broker opens a directory of ours, or its own again.

==========================  =====================================================================================
line                        from
==========================  =====================================================================================
storePathRootDir,           the directory, as an absolute path
storePathCommitLog
mappedFileSizeCommitLog,    the fixed settings; a broker refuses a directory whose files have another size
mappedFileSizeConsumeQueue
maxHashSlotNum, maxIndexNum the same for index files; a broker does not check their size
brokerClusterName,          the names that a broker left in ``topics.json``, which has a topic for each
brokerName
listenPort                  the port in every offset message id that was given here
timerWheelEnable            ``false``, for RocketMQ 5 only: its timer would deliver the delayed messages again
enableCompaction            ``false``, for RocketMQ 5 only: it would serve compact topics from its own, empty files
==========================  =====================================================================================

It is a Java properties file in ISO 8859-1 (BrokerStartup); see ``docs/guide/interop.md`` for handing a directory over.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from rmqclient.store import layout
from rmqclient.store.errors import StoreUnusable
from rmqclient.store.log import commit_log
from rmqclient.store.log.sizes import settings_of
from rmqclient.store.settings import config_file, document

_LIKE_A_BROKERS = {"perm": 7, "readQueueNums": 1}
"""The permissions that TopicConfigManager gives to the topic that is named after the broker."""

_LISTEN_PORT = 10_911
_RESERVED_HOURS = 87_600


def broker_conf(root: Path) -> str:
    """Return the text of a ``broker.conf`` for the store in ``root``; only reads the store.

    Raises StoreUnusable if there is no store or RocketMQ could not name its directory; ConfigMismatch,
    StoreCorrupt for settings or topics that cannot be read.
    """
    path = root.absolute()
    settings = settings_of(path)
    if "," in str(path):
        raise StoreUnusable(f"{path}: RocketMQ reads a comma as the end of the directory's name; move the store")
    cluster, broker = _names(path)
    lines = {
        "brokerClusterName": cluster,
        "brokerName": broker,
        "brokerId": 0,
        "brokerRole": "ASYNC_MASTER",
        "brokerIP1": "127.0.0.1",
        "listenPort": _LISTEN_PORT,
        "storePathRootDir": path,
        "storePathCommitLog": path / commit_log.DIRECTORY,
        "mappedFileSizeCommitLog": settings.commit_log_file_bytes,
        "mappedFileSizeConsumeQueue": settings.consume_queue_file_entries * layout.CONSUME_QUEUE_ENTRY.size,
        "maxHashSlotNum": settings.index_slots,
        "maxIndexNum": settings.index_entries,
        "fileReservedTime": _RESERVED_HOURS,
        "timerWheelEnable": "false",
        "enableCompaction": "false",
    }
    return "".join(f"{name}={_escaped(str(value))}\n" for name, value in lines.items())


def _names(root: Path) -> tuple[str, str]:
    """Return the names of the cluster and of the broker that used the directory, or RocketMQ's usual ones."""
    whole = document.read(root / config_file.TOPICS_FILE) or {}
    table = whole.get("topicConfigTable", {})
    topics: dict[str, Any] = table if isinstance(table, dict) else {}
    cluster = config_file.cluster_name(topics)
    brokers = (
        name
        for name, entry in topics.items()
        if name != cluster and isinstance(entry, dict) and _LIKE_A_BROKERS.items() <= entry.items()
    )
    return cluster, next(brokers, "broker-a")


def _escaped(value: str) -> str:
    """Return a value as java.util.Properties reads it back."""
    escaped = re.sub(r"^ |[\\\n\r]", lambda found: "\\" + {"\n": "n", "\r": "r"}.get(found[0], found[0]), value)
    units = (int.from_bytes(unit, "big") for unit in _utf_16(escaped))
    return "".join(chr(unit) if 32 <= unit < 127 else f"\\u{unit:04x}" for unit in units)


def _utf_16(text: str) -> list[bytes]:
    encoded = text.encode("utf-16-be", "surrogatepass")
    return [encoded[at : at + 2] for at in range(0, len(encoded), 2)]
