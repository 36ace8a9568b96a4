"""The limits of a process, of mappings and of open files, with more queues than they allow for."""

from __future__ import annotations

import pickle
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from rmqclient import Message, Producer, StoreConfig
from rmqclient.store import MessageStore, TagSet, open_store
from rmqclient.store.errors import LimitReached
from rmqclient.store.message_queue import MessageQueue
from tests.support.oracle import reference

SMALL = StoreConfig(commit_log_file_bytes=36_864, max_body_bytes=2_048, consume_queue_file_entries=64)
QUEUES = 200
MANY = 500
FEW = 4
OWN = 4
"""Besides: the runtime file, and the commit log files that a producer and its preparer hold."""


def mapped(directory: Path) -> int:
    """Count this process's mappings of files below a directory."""
    return Path("/proc/self/maps").read_text(encoding="utf-8").count(f"{directory}/")


def take_all(store: MessageStore, group: str = "readers") -> dict[MessageQueue, list[bytes]]:
    """Take a message from each queue in turns, so that every grant comes back to files that others have pushed out."""
    queues = store.topics.all_queues()
    slots = [store.groups.find_or_add(group, store.topics.slot(queue), 0) for queue in queues]
    grants = [store.grants.grant(slot, 0, TagSet(())) for slot in slots]
    taken: dict[MessageQueue, list[bytes]] = {queue: [] for queue in queues}
    while any(grant.has_more for grant in grants):
        for grant in grants:
            taken[grant.queue] += [message.body for message in grant.take(1, 2_048)]
        assert mapped(store.root) <= store.config.max_mapped_files + OWN
    return taken


def test_a_store_maps_no_more_files_than_its_setting_allows_whatever_its_queues(tmp_path: Path) -> None:
    config = replace(SMALL, max_mapped_files=FEW)
    with open_store(tmp_path, config, housekeeping=False) as store, Producer(store) as producer:
        producer.create_topic("t", QUEUES)
        for round_number in range(3):
            for _ in range(QUEUES):
                producer.send(Message("t", b"%d" % round_number))
                assert mapped(tmp_path / "consumequeue") <= FEW
        assert [len(bodies) for bodies in take_all(store).values()] == [3] * QUEUES
    assert reference.check_store(tmp_path) == []


def test_a_batch_that_needs_two_files_is_stored_where_only_one_mapping_is_kept(tmp_path: Path) -> None:
    config = replace(SMALL, max_mapped_files=1)
    with open_store(tmp_path, config, housekeeping=False) as store, Producer(store) as producer:
        producer.create_topic("t", 1)
        producer.send_batch([Message("t", b"x")] * 60)
        results = producer.send_batch([Message("t", b"y")] * 60)
        assert [result.queue_offset for result in results] == list(range(60, 120))
        assert len(take_all(store)[MessageQueue("t", 0)]) == 120
    assert reference.check_store(tmp_path) == []


def test_an_appender_and_a_grant_share_the_mapping_of_a_queue(tmp_path: Path) -> None:
    with open_store(tmp_path, SMALL, housekeeping=False) as store, Producer(store) as producer:
        producer.create_topic("t", 50)
        for _ in range(50):
            producer.send(Message("t", b"x"))
        take_all(store)
        assert mapped(tmp_path / "consumequeue") == 50


def test_too_many_mappings_has_the_limit_and_what_to_do_and_can_be_sent_to_another_process() -> None:
    error = pickle.loads(pickle.dumps(LimitReached("x: 7 of at most 8")))
    assert (error.retryable, error.stored, str(error)) == (True, False, "x: 7 of at most 8")


# --- limits of the kernel, which only a process of its own can have ------------------------------

PRELUDE = """
import resource, sys
from pathlib import Path
from rmqclient import Message, Producer, StoreConfig
from rmqclient.store import open_store
from rmqclient.store.errors import LimitReached
root = Path(sys.argv[1])
config = StoreConfig(commit_log_file_bytes=1 << 20, max_body_bytes=2_048, consume_queue_file_entries=52_500)
def fill_address_space(left):
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + left, resource.RLIM_INFINITY))
"""


def run(script: str, root: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + script, root], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_mappings_that_the_kernel_has_no_room_for_make_room_for_each_other(tmp_path: Path) -> None:
    script = """
with open_store(root, config, housekeeping=False) as store, Producer(store) as producer:
    producer.create_topic("t", 64)
    producer.send(Message("t", b"first"))
    fill_address_space(left=32 << 20)  # for some 24 files of a queue, and what the interpreter takes
    for _ in range(200):
        producer.send(Message("t", b"x"))
    print(sum(store.topics.max_offsets()))
"""
    assert run(script, tmp_path) == "201\n"
    assert reference.check_store(tmp_path) == []


def test_a_mapping_that_the_kernel_refuses_is_an_error_that_names_the_limit(tmp_path: Path) -> None:
    script = """
with open_store(root, config, housekeeping=False) as store, Producer(store) as producer:
    producer.create_topic("t", 4)
    fill_address_space(left=512 << 10)
    try:
        producer.send(Message("t", b"x"))
    except LimitReached as error:
        print(error)
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    producer.send(Message("t", b"x"))
    print(sum(store.topics.max_offsets()))
"""
    message, stored = run(script, tmp_path).splitlines()
    limit = Path("/proc/sys/vm/max_map_count").read_text(encoding="ascii").strip()
    assert re.search(
        rf"commitlog/0+ of \d+ bytes cannot be mapped: .*max_map_count, now {limit} \(this process has \d+ mappings",
        message,
    )
    assert stored == "1"
    assert reference.check_store(tmp_path) == []


def test_the_kernel_s_own_limit_of_mappings_is_met_by_giving_some_back(tmp_path: Path) -> None:
    script = """
import mmap
taken = []
with open_store(root, config, housekeeping=False) as store, Producer(store) as producer:
    producer.create_topic("t", 64)
    producer.send(Message("t", b"first"))
    try:
        while True:  # every second page is another mapping, which the kernel cannot join to its neighbours
            taken.append(mmap.mmap(-1, 4096, prot=mmap.PROT_READ if len(taken) % 2 else mmap.PROT_WRITE))
    except OSError:
        del taken[-20:]
    for _ in range(200):
        producer.send(Message("t", b"x"))
    print(sum(store.topics.max_offsets()))
    del taken
"""
    limit = int(Path("/proc/sys/vm/max_map_count").read_text(encoding="ascii"))
    if limit > 200_000:
        pytest.skip(f"the limit is {limit} here, too many to fill in a test")
    assert run(script, tmp_path) == "201\n"


def test_few_open_files_are_enough_for_many_queues_and_none_stays_open(tmp_path: Path) -> None:
    script = f"""
import gc
import os
from dataclasses import replace
config = replace(config, consume_queue_file_entries=64)
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
for round_number in range(2):
    with open_store(root, config) as store, Producer(store) as producer:
        producer.create_topic("t", {MANY})
        for _ in range({MANY}):
            producer.send(Message("t", b"x"))
        for queue in store.topics.all_queues():
            assert store.messages.at(queue, round_number).body == b"x"
        print(len(store.topics), len(os.listdir("/proc/self/fd")) < 40)
gc.collect()  # the first store, whose runtime file is mapped, and its owner alive, until then
print(len(os.listdir("/proc/self/fd")) <= 5)
"""
    assert run(script, tmp_path) == f"{MANY} True\n{MANY} True\nTrue\n"
