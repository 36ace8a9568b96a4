"""Disk levels: who is told that the disk is full, and that everybody goes on when it is not."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from rmqclient import Producer
from rmqclient.store import Message, MessageStore, open_store
from rmqclient.store.config import RetentionConfig
from rmqclient.store.errors import StoreFull
from rmqclient.store.settings.disk import Disk, Usage
from tests.client.conftest import wait_for
from tests.support.stores import QUEUE, SMALL, SPAN, TOPIC, appender_of, grant_of

MIB = 1 << 20


def used(percent: float, free_bytes: int = 1 << 40) -> Usage:
    return Usage(percent, free_bytes)


def pretend(disk: Disk, usage: Usage) -> None:
    disk.usage = lambda: usage  # type: ignore[method-assign]


def test_usage_is_what_df_says(tmp_path: Path, store: MessageStore) -> None:
    shown = subprocess.run(["df", "--output=pcent,avail", "-B1", tmp_path], capture_output=True, text=True, check=True)
    percent, free = shown.stdout.splitlines()[1].replace("%", "").split()
    usage = store.disk.usage()
    assert abs(usage.used_percent - int(percent)) < 2  # df rounds up, and others write meanwhile
    assert abs(usage.free_bytes - int(free)) < 2 << 30


@pytest.mark.guarantee("G9")
def test_above_the_level_appends_are_refused_and_consumers_go_on(store: MessageStore) -> None:
    # Given a producer in the middle of a file, with everything mapped
    appender = appender_of(store)
    appender.append(Message(TOPIC, b"before"))
    pretend(store.disk, used(90.1))
    end = store.state.published_to

    # When the housekeeper looks, then the very next append is refused, whole and typed
    store.disk.look()
    with pytest.raises(StoreFull, match=r"90\.1 % used, over the limit of 90 \(disk_full_percent\)") as raised:
        appender.append(Message(TOPIC, b"refused"))
    assert raised.value.retryable
    assert not raised.value.stored
    with pytest.raises(StoreFull):
        appender.append_batch([Message(TOPIC, b"refused")] * 3)
    assert (store.state.published_to, store.topics.max_offset(QUEUE)) == (end, 1)

    # And consumers go on
    grant = grant_of(store)
    assert [message.body for message in grant.take(SPAN, SPAN)] == [b"before"]
    assert grant.acknowledge_offsets([0])
    store.flusher.flush_thorough()

    # And with room again, the next append goes through by itself
    pretend(store.disk, used(90.0))
    appender.append(Message(TOPIC, b"after"))
    assert store.topics.max_offset(QUEUE) == 2


def test_the_reserve_is_kept_whatever_the_percentage(store: MessageStore) -> None:
    wanted = replace(SMALL, retention=RetentionConfig(disk_reserve_bytes=100 * MIB))
    disk = Disk(store.root, store.state, wanted)
    pretend(disk, used(10.0, 100 * MIB - 1))
    with pytest.raises(StoreFull, match="disk_reserve_bytes"):
        disk.check_room()
    pretend(disk, used(10.0, 100 * MIB))
    disk.check_room()


def test_a_hundred_percent_is_never_exceeded(store: MessageStore) -> None:
    disk = Disk(store.root, store.state, replace(SMALL, retention=RetentionConfig(disk_full_percent=100)))
    pretend(disk, used(100.0, 0))
    disk.look()
    assert not store.state.disk_full


def test_a_level_that_a_housekeeper_left_behind_stops_nobody(store: MessageStore) -> None:
    # Given a housekeeper that saw a full disk and died, and nobody who takes its place
    store.state.disk_full = 1
    appender_of(store).append(Message(TOPIC, b"there is room"))
    assert store.state.disk_full == 0


def test_each_change_is_said_once(store: MessageStore, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("WARNING")
    for percent in (95.0, 95.0, 50.0, 50.0):
        pretend(store.disk, used(percent))
        store.disk.look()
    said = [record.levelname for record in caplog.records if record.name.endswith("settings.disk")]
    assert said == ["ERROR", "WARNING"]


SENDER = """
import sys, time
from rmqclient import Message, Producer
from rmqclient.store.errors import StoreFull
from tests.unit.settings.test_disk import LEVEL_85
refused = False
with Producer(sys.argv[1], config=LEVEL_85) as producer:
    while True:
        try:
            producer.send(Message("t", bytes(1_000)))
        except StoreFull:
            if not refused:
                print("refused", flush=True)
            refused = True
        else:
            if refused:
                print("accepted", flush=True)
                break
        time.sleep(0.001)
"""

LEVEL_85 = replace(
    SMALL, retention=RetentionConfig(disk_max_used_percent=85, disk_clean_forcibly_percent=85, disk_full_percent=85)
)


@pytest.mark.crash
def test_a_disk_that_fills_and_empties_stops_senders_of_another_process_and_lets_them_go_on(tmp_path: Path) -> None:
    # Given a file system of its own, a housekeeper, and a sender in another process
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256m", "none", str(tmp_path)], check=False)
    if mounted.returncode:
        pytest.skip("cannot mount a small file system here")
    try:
        with open_store(tmp_path / "store", LEVEL_85) as store, Producer(store) as producer:
            wait_for(lambda: store.housekeeper is not None and store.housekeeper.has_role, "the role")
            producer.send(Message("t", b"first"))
            command = [sys.executable, "-c", SENDER, str(store.root)]
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as sender:
                assert sender.stdout is not None
                # When somebody fills the disk, then the sender is refused, and when it is empty goes on
                with (tmp_path / "filler").open("wb") as filler:
                    os.posix_fallocate(filler.fileno(), 0, 220 * MIB)
                assert sender.stdout.readline() == "refused\n"
                (tmp_path / "filler").unlink()
                assert sender.stdout.readline() == "accepted\n"
                assert sender.wait() == 0
    finally:
        subprocess.run(["umount", "--lazy", str(tmp_path)], check=True)
