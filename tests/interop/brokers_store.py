"""A store that a real broker writes: everything that a broker keeps, in small files, stopped or killed."""

from __future__ import annotations

import gzip
import io
import shutil
import tarfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import orjson

from rmqclient.store import SCHEDULE_TOPIC
from rmqclient.store.kernel._kernel import delay_ms
from rmqclient.store.settings import config_file, document
from tests.interop.rocketmq import BROKER_4_9_7, STORE_4_9_8, Java, broker
from tests.support.lines import Line, of_kind
from tests.support.oracle import reference

MESSAGES = 200
"""Of the topic Plain: enough for a second file of the log."""

CONF = """brokerClusterName=DefaultCluster
brokerName=broker-a
brokerIP1=127.0.0.1
storePathRootDir={root}
storePathCommitLog={root}/commitlog
mappedFileSizeCommitLog=65536
mappedFileSizeConsumeQueue=1280
maxHashSlotNum=64
maxIndexNum=64
waitTimeMillsInSendQueue=3000
"""
"""Small files, and patience with a busy host: a broker refuses a send that waited for 200 ms otherwise."""

GOLDEN = Path(__file__).parents[1] / "compat" / "golden"


@dataclass(frozen=True, slots=True)
class Written:
    """A broker's store, and what RocketMQ's own store reads in it."""

    root: Path
    left: str
    manifest: list[Line]


def write(scratch: Path, left: str) -> Written:
    """Let a broker write a store in ``scratch``, and leave it ``stopped`` or ``killed``."""
    root = scratch / "store"
    conf = CONF.format(root=root)
    with broker(Java(BROKER_4_9_7, scratch / "home"), conf) as running:
        running.run("workload", MESSAGES)
        if left == "killed":
            _wait_until_persisted(root)
            running.kill()
        else:
            running.stop()
    assert (root / "abort").exists() == (left == "killed")
    return Written(root, left, _manifest(root, scratch, conf))


def keep(written: Written) -> None:
    """Make the store and what it holds a fixture, for tests without RocketMQ."""
    name = f"{BROKER_4_9_7}-{written.left}"
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.add(written.root, name)
    _keep(GOLDEN / f"{name}.tgz", packed.getvalue())
    _keep(GOLDEN / f"{name}.jsonl.gz", b"".join(orjson.dumps(line) + b"\n" for line in written.manifest))


def _keep(path: Path, content: bytes) -> None:
    path.write_bytes(gzip.compress(content, 9, mtime=0))


def _manifest(root: Path, scratch: Path, conf: str) -> list[Line]:
    copy = Path(shutil.copytree(root, scratch / "copy"))  # RocketMQ's store changes what it reads
    path = scratch / "copy.conf"
    path.write_text(conf.replace(str(root), str(copy)), encoding="utf-8")
    lines = Java(STORE_4_9_8, scratch / "home").run("read-store", path)
    records, queues = of_kind(lines, "record"), of_kind(lines, "queue")
    assert sum(len(queue["commit_log_offsets"]) for queue in queues) == len(records) > MESSAGES
    return lines


def _wait_until_persisted(root: Path) -> None:
    """Wait until the broker has written what was committed and what was delivered late, every 5 and every 10 seconds.

    A broker that is killed earlier delivers delayed messages again, and what is in the store is then a matter of luck.
    """
    deadline = time.monotonic() + 60
    while not (_committed(root) and _delivered(root)):
        assert time.monotonic() < deadline, sorted((root / "config").iterdir())
        time.sleep(0.1)


def _committed(root: Path) -> bool:
    return any(config_file.read_consumer_offsets(root).get(("Batch", "halfway"), {}).values())


def _delivered(root: Path) -> bool:
    """Tell whether the broker has written down, for every level, that all whose time has come are delivered."""
    whole = document.read(root / "config" / "delayOffset.json") or {}
    try:
        records = [record for _, record in reference.read_commit_log(root)]
    except reference.BadStore:  # a record is being written just now
        return False
    now = time.time() * 1000
    due = Counter(
        level
        for record in records
        if record.topic == SCHEDULE_TOPIC and record.store_timestamp + delay_ms(level := record.queue_id + 1) < now
    )
    return bool(due) and all(whole.get("offsetTable", {}).get(str(level)) == count for level, count in due.items())
