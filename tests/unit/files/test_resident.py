"""A process lets go of the pages that it has passed: its memory does not grow with the log."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqclient.store import Collector, Columns, Message, MessageStore, StoreConfig, open_store
from rmqclient.store.inspect.view import LocalView
from rmqclient.store.kernel._kernel import Mapping, Words, limit_resident
from rmqclient.store.log import consume_queue
from tests.support.stores import QUEUE, TOPIC, appender_of, body_of, grant_of, number_of

MIB = 1 << 20
BODY_BYTES = 64 << 10
MESSAGES = 1_000
A_LOOK = 16 * MIB
"""How many bytes are touched between two looks."""

CONFIG = StoreConfig(commit_log_file_bytes=8 * MIB, max_body_bytes=MIB, consume_queue_file_entries=100)


@pytest.fixture(autouse=True)
def _nothing_may_stay() -> Iterator[None]:
    """Let the process let go at every look; the interpreter's own files alone are above the limit."""
    before = limit_resident(0)
    yield
    limit_resident(before)


def resident(directory: Path) -> int:
    """Bytes of the files of a directory that are in the page table of this process."""
    found, size = False, 0
    for line in Path("/proc/self/smaps").read_text(encoding="utf-8").splitlines():
        if re.match("[0-9a-f]+-[0-9a-f]+ ", line):
            found = str(directory) in line
        elif found and line.startswith("Rss:"):
            size += int(line.split()[1]) << 10
    return size


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with open_store(tmp_path, CONFIG, housekeeping=False) as opened:
        yield opened


def fill(store: MessageStore) -> None:
    """Store 64 MB, in eight files of the log and ten of the queue."""
    appender = appender_of(store)
    for number in range(MESSAGES):
        appender.append(Message(TOPIC, body_of(number, BODY_BYTES), keys=[str(number)]))
    store.appenders.end(appender)


@pytest.mark.parametrize("prepare", [True, False])
def test_a_sender_has_the_end_of_the_log_resident_and_no_more(store: MessageStore, prepare: bool) -> None:
    appender = store.appenders.make(
        lambda topic: store.topics.create(topic, 1), lambda body: str(body).encode(), prepare=prepare
    )
    most = 0
    for number in range(MESSAGES):
        appender.append(Message(TOPIC, body_of(number, BODY_BYTES)))
        if number % 100 == 99:
            most = max(most, resident(store.root))
    assert MIB <= most < 2 * A_LOOK + 4 * MIB, "what is populated ahead, and what was written since the last look"


def test_what_reads_a_whole_log_has_little_of_it_resident(store: MessageStore) -> None:
    # Given a log that nobody has mapped
    fill(store)
    store.log_files._mappings.clear()
    assert resident(store.root) < A_LOOK

    # When a group takes all of it
    grant = grant_of(store)
    numbers: list[int] = []
    most = 0
    while messages := grant.take(100, 2_000):
        numbers += [number_of(message.body) for message in messages]
        grant.acknowledge_offsets([message.queue_offset for message in messages])
        del messages
        most = max(most, resident(store.root))

    # Then it was whole, and never in memory as a whole
    assert numbers == list(range(MESSAGES))
    assert most < 2 * A_LOOK

    # And so is it with the index
    store.index.catch_up()
    assert resident(store.root) < 2 * A_LOOK


def test_a_scan_of_the_log_has_little_of_it_resident(store: MessageStore) -> None:
    fill(store)
    store.log_files._mappings.clear()
    view, collector = LocalView(store.root), Collector(Columns(("offset", "size"), rows=100, size=MIB))
    collector.want([(TOPIC.encode(), 0, 0, MESSAGES)])
    offset, end, most, rows = 0, store.state.published_to, 0, 0
    while offset < end:
        part = view.log(offset, MIB)
        offset, *_ = collector.add_log(part.content, part.base, part.file_end, offset, end)
        rows += collector.columns.rows
        collector.columns.take()
        most = max(most, resident(store.root))
    assert rows == MESSAGES
    assert most < 2 * A_LOOK + CONFIG.commit_log_file_bytes


def test_recovery_of_the_queues_has_little_of_them_resident(tmp_path: Path) -> None:
    # Given a store whose queues are gone
    with open_store(tmp_path, CONFIG, housekeeping=False) as store:
        fill(store)
    for path in (tmp_path / consume_queue.DIRECTORY / TOPIC / "0").iterdir():
        path.unlink()

    # When it is opened
    with open_store(tmp_path, CONFIG, housekeeping=False) as store:
        # Then they are there again
        assert store.topics.max_offset(QUEUE) == MESSAGES
        assert number_of(store.messages.at(QUEUE, 777).body) == 777
        assert resident(store.root) < A_LOOK


def test_pages_that_were_populated_ahead_stay(store: MessageStore) -> None:
    # Given a sender whose thread has populated the pages of its next messages
    appender = appender_of(store)
    appender.append(Message(TOPIC, b"first"))
    log_file = store.log_files.mapping(0)
    path = store.log_files.path(0)
    until = threading.Event()
    for _ in range(3_000):
        if resident(path) >= MIB:
            break
        until.wait(0.01)
    ahead = resident(path)
    assert ahead >= MIB

    # When the process lets go of what it has used
    log_file.use(A_LOOK)

    # Then they are still there
    assert resident(path) >= ahead


def test_who_writes_and_reads_meanwhile_loses_nothing(tmp_path: Path) -> None:
    # Given a mapped file whose first words another thread counts up
    size = 4 * MIB
    with (tmp_path / "words").open("w+b") as file:
        file.truncate(size)
        mapping = Mapping(file.fileno(), size)
    words, ends = Words(mapping), threading.Event()

    def count() -> None:
        while not ends.is_set():
            for at in range(0, size, 4_096):
                words.add(at, 1)

    counting = threading.Thread(target=count)
    counting.start()

    # When this one lets go of its pages again and again
    seen = 0
    for _ in range(300):
        mapping.use(A_LOOK)
        assert words.load(0) >= seen
        seen = words.load(0)
    ends.set()
    counting.join()

    # Then every count is there, in memory and in the file
    counts = [words.load(at) for at in range(0, size, 4_096)]
    assert set(counts) == {counts[0]}
    assert counts[0] > 0
    mapping.use(A_LOOK)
    assert resident(tmp_path) == 0
    content = (tmp_path / "words").read_bytes()
    assert [int.from_bytes(content[at : at + 8], "little") for at in range(0, size, 4_096)] == counts
