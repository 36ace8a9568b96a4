"""Compacted files beside retention and readers, and what damage to them costs."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqclient import Message, Producer, PullConsumer
from rmqclient.store import MessageStore, TagSet, layout, open_store
from rmqclient.store.config import CompactionConfig
from rmqclient.store.errors import MessageExpired, StoreCorrupt, StoreFull
from rmqclient.store.files.compacted_file import CompactedWriter, open_compacted, path_of
from rmqclient.store.inspect.verify import verify
from rmqclient.store.settings.disk import Usage
from rmqclient.store.upkeep import compaction, compaction_pass
from tests.support.stores import abandon
from tests.unit.upkeep.compacted import CONFIG, QUEUE, compact, pulled, send

FULL = Usage(99.0, 1 << 30)
SPAN = 2_000


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def store(root: Path) -> Iterator[MessageStore]:
    with open_store(root, CONFIG, housekeeping=False) as opened:
        yield opened


@pytest.fixture
def producer(store: MessageStore) -> Producer:
    made = Producer(store)
    made.create_topic("prices", 1, cleanup_policy="compact")
    return made


def send_others(producer: Producer, count: int) -> None:
    """Fill the log with messages of another topic."""
    for _ in range(count):
        producer.send(Message("others", b"x" * 2_000))


def clean(store: MessageStore) -> int:
    """Remove all but the newest commit log file, as on a full disk; return how many."""
    store.flusher.flush_thorough()
    before = store.disk.usage
    store.disk.usage = lambda: FULL  # type: ignore[method-assign]
    removed = 0
    while passed := store.retention.clean():
        removed += len(passed)
    store.disk.usage = before  # type: ignore[method-assign]
    return removed


def latest(messages: list[tuple[int, str, bytes]]) -> dict[str, bytes]:
    return {key: value for _, key, value in messages if value}


@pytest.mark.guarantee("G40")
def test_the_latest_value_of_each_key_survives_retention_with_its_queue_offset(
    root: Path, store: MessageStore, producer: Producer
) -> None:
    send(producer, *((f"k{number % 10}", b"%d" % (number // 10)) for number in range(100)))
    producer.send(Message("prices", b"", keys=["k3"]))
    send_others(producer, 60)
    assert clean(store) > 3
    assert store.compaction.log_low(QUEUE) == 101
    found = pulled(store)
    assert found == [(number, f"k{number % 10}", b"9") for number in range(90, 100) if number != 93] + [
        (100, "k3", b"")
    ]
    assert store.topics.min_offset(QUEUE) == 90
    assert store.messages.at(QUEUE, 95).body == b"9" * 1_000
    with pytest.raises(MessageExpired, match=r"message 93 .* was compacted"):
        store.messages.at(QUEUE, 93)
    assert verify(root) == []


@pytest.mark.guarantee("G40")
def test_readers_go_from_the_compacted_file_into_the_log(root: Path, store: MessageStore, producer: Producer) -> None:
    send(producer, *((f"k{number % 7}", b"%d" % (number % 10)) for number in range(150)))
    clean(store)
    low = store.compaction.log_low(QUEUE)
    assert 100 < low < 150
    found = pulled(store)
    assert [offset for offset, _, _ in found if offset >= low] == list(range(low, 150))
    assert latest(found) == {f"k{number % 7}": b"%d" % (number % 10) for number in range(150)}
    abandon(store)
    with open_store(root, CONFIG, housekeeping=False) as again:
        assert pulled(again) == found
        assert verify(root) == []


def test_a_grant_gives_the_compacted_messages_and_steps_over_the_gaps(store: MessageStore, producer: Producer) -> None:
    for number in range(3_000):
        producer.send(Message("prices", b"%d" % number, keys=["seldom" if number in (3, 1_500) else "often"], tags="t"))
    producer.send(Message("prices", b"last", keys=["late"], tags="other"))
    send_others(producer, 60)
    clean(store)
    slot = store.groups.find_or_add("g", store.topics.slot(QUEUE), 0)
    slot.restore(0, 0, 1, (0, 0), paused=False)
    grant = store.grants.grant(slot, 1, TagSet(()))
    taken = []
    while grant.has_more:
        for message in grant.take(32, SPAN + 1):
            taken.append((message.queue_offset, message.body))
            assert grant.acknowledge(message)
    assert taken == [(1_500, b"1500"), (2_999, b"2999"), (3_000, b"last")]
    assert slot.committed_offset == 3_001
    assert (grant.expired, grant.damaged) == (0, [])

    slot = store.groups.find_or_add("h", store.topics.slot(QUEUE), 0)
    slot.restore(0, 0, 1, (0, 0), paused=False)
    grant = store.grants.grant(slot, 1, TagSet(("other",)))
    taken = []
    while grant.has_more:
        taken += [(message.queue_offset, message.body) for message in grant.take(32, SPAN + 1)]
    assert taken == [(3_000, b"last")]


def test_an_opening_finds_a_queue_of_which_the_log_has_nothing_any_more(
    root: Path, store: MessageStore, producer: Producer
) -> None:
    send(producer, ("a", b"1"), ("b", b"2"), ("a", b"3"))
    send_others(producer, 100)
    clean(store)
    abandon(store)
    (root / "shared").unlink()
    with open_store(root, CONFIG, housekeeping=False) as again:
        assert [value for _, _, value in pulled(again)] == [b"2", b"3"]
        send(Producer(again), ("b", b"4"))
        assert pulled(again) == [(1, "b", b"2"), (2, "a", b"3"), (3, "b", b"4")]
        assert verify(root) == []


@pytest.mark.guarantee("G40")
def test_a_commit_log_file_waits_for_the_compaction_of_what_it_holds(
    store: MessageStore, producer: Producer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    send_others(producer, 60)
    send(producer, ("a", b"1"), ("b", b"2"), ("a", b"3"))
    send_others(producer, 60)

    def fail(*_: object) -> None:
        raise StoreFull("no room")

    with monkeypatch.context() as patch:
        patch.setattr(compaction_pass, "CompactedWriter", fail)
        removed = clean(store)
    assert removed > 0
    assert "cannot be compacted, and no commit log file that it needs is removed: no room" in caplog.text
    assert [value for _, _, value in pulled(store)] == [b"1", b"2", b"3"]
    assert clean(store) > 0
    assert [value for _, _, value in pulled(store)] == [b"2", b"3"]


@pytest.mark.guarantee("G41")
def test_a_pass_without_room_leaves_the_file_that_was_there(
    root: Path, store: MessageStore, producer: Producer
) -> None:
    send(producer, *((f"k{number}", b"1") for number in range(20)))
    compact(store)
    before = path_of(root, QUEUE).read_bytes()
    send(producer, ("a", b"2"))
    store.flusher.flush_thorough()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    for most_bytes in (0, 5_000, len(before) + 100):
        resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, hard))
        try:
            with pytest.raises(StoreFull):
                store.compaction.compact(QUEUE)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert path_of(root, QUEUE).read_bytes() == before
        assert [path.name for path in path_of(root, QUEUE).parent.iterdir()] == ["compacted"]
    assert compact(store) == 21


def test_the_housekeeper_compacts_a_queue_when_half_of_it_is_new(
    root: Path, store: MessageStore, producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "LEAST_NEW", 4)
    compacted_to = []
    for number in range(12):
        send(producer, (f"k{number}", b"1"), fill=1)
        store.flusher.flush_thorough()
        store.compaction.run()
        file = open_compacted(root, QUEUE)
        compacted_to.append(file.compacted_to if file else 0)
    assert compacted_to == [0, 0, 0, 4, 4, 4, 4, 4, 9, 9, 9, 9]


def test_a_reader_goes_on_in_the_file_that_it_has_and_then_in_the_next_one(
    store: MessageStore, producer: Producer
) -> None:
    send(producer, *((f"k{number}", b"1") for number in range(100)))
    clean(store)
    consumer = PullConsumer(store, group="g")
    reader = store.compaction.reader(QUEUE)
    assert reader is not None
    assert [reader(number)[0] for number in range(10)] == list(range(10))
    send(producer, *((f"k{number}", b"2") for number in range(50)))
    send_others(producer, 60)
    clean(store)
    # What it meets next is of the old file or of the new one, and whatever the new one has comes
    found, offset = [], 10
    while (following := reader(offset))[1] is not None:
        found.append(following[0])
        offset = following[0] + 1
    assert found[-100:] == list(range(50, 150))
    assert consumer.min_offset(QUEUE) == 50


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Write down what is flushed, renamed and removed, in order."""
    done: list[str] = []
    fsync, rename, unlink = os.fsync, Path.rename, Path.unlink

    def flush(descriptor: int) -> None:
        done.append(f"flush {Path(f'/proc/self/fd/{descriptor}').readlink().name}")
        fsync(descriptor)

    def move(path: Path, target: Path) -> Path:
        done.append(f"rename {path.name}")
        return rename(path, target)

    def remove(path: Path, missing_ok: bool = False) -> None:
        if path.parent.name == "commitlog":
            done.append("remove")
        unlink(path, missing_ok)

    monkeypatch.setattr(os, "fsync", flush)
    monkeypatch.setattr(Path, "rename", move)
    monkeypatch.setattr(Path, "unlink", remove)
    return done


@pytest.mark.guarantee("G41")
def test_a_compacted_file_is_on_the_disk_before_its_name_and_that_before_a_commit_log_file_goes(
    store: MessageStore, producer: Producer, disk: list[str]
) -> None:
    send(producer, ("a", b"1"), ("a", b"2"))
    send_others(producer, 60)
    assert clean(store) > 0
    begin = disk.index("flush compacted.tmp")
    assert disk[begin : begin + 3] == ["flush compacted.tmp", "rename compacted.tmp", "flush 0"]
    assert disk.index("remove") > begin + 2


@pytest.mark.guarantee("G41")
def test_retention_makes_the_name_durable_that_somebody_else_gave_and_did_not_live_to(
    root: Path, store: MessageStore, producer: Producer, disk: list[str]
) -> None:
    send(producer, ("a", b"1"), ("a", b"2"))
    compact(store)
    send_others(producer, 60)
    with open_store(root, CONFIG, housekeeping=False) as other:
        disk.clear()
        assert other.compaction.make_removable(1 << 40) > 0
        assert disk == ["flush 0"]


def compacted_bytes(root: Path, store: MessageStore, producer: Producer) -> bytearray:
    send(producer, ("a", b"1"), ("b", b"2"), ("c", b"3"), ("d", b"4"))
    send_others(producer, 60)
    clean(store)
    assert len(pulled(store)) == 4
    return bytearray(path_of(root, QUEUE).read_bytes())


@pytest.mark.parametrize(
    ("place", "invariant", "readable"),
    [
        ("first header", None, [0, 1, 2, 3]),
        ("record", 15, [0, 2, 3]),
        ("entry", 14, [0, 2, 3]),
    ],
)
@pytest.mark.guarantee("G41")
def test_of_a_damaged_file_what_is_whole_is_read_and_the_rest_is_told(
    root: Path,
    store: MessageStore,
    producer: Producer,
    caplog: pytest.LogCaptureFixture,
    place: str,
    invariant: int | None,
    readable: list[int],
) -> None:
    content = compacted_bytes(root, store, producer)
    file = open_compacted(root, QUEUE)
    assert file is not None
    second = file.entry(1)
    assert second is not None
    at = {"first header": 9, "record": second.position + 300, "entry": file.position(1) + 3}[place]
    content[at] ^= 0xFF
    path_of(root, QUEUE).write_bytes(content)
    assert [offset for offset, _, _ in pulled(store)] == readable
    assert {problem.invariant for problem in verify(root)} == ({invariant} if invariant else set())
    if invariant:
        assert "is damaged; it was stepped over" in caplog.text
        send(producer, ("e", b"5"))
        compact(store)
        assert len(list(path_of(root, QUEUE).parent.glob("*.damaged-*"))) == 1
        assert verify(root) == []


def test_a_file_of_which_nothing_can_be_read_stops_compaction_and_retention(
    root: Path, store: MessageStore, producer: Producer
) -> None:
    content = compacted_bytes(root, store, producer)
    size = layout.COMPACTED_HEADER.size
    content[:size] = content[-size:] = bytes(size)
    path_of(root, QUEUE).write_bytes(content)
    assert {problem.invariant for problem in verify(root)} == {14}
    with pytest.raises(StoreCorrupt, match="both of its headers"):
        pulled(store)
    send(producer, ("a", b"5"))
    send_others(producer, 60)
    assert clean(store) == 0


def test_two_records_of_one_key_are_a_problem(root: Path, store: MessageStore, producer: Producer) -> None:
    send(producer, ("a", b"1"), ("a", b"2"))
    with CompactedWriter(root, QUEUE) as writer:
        writer.add(store.messages.at(QUEUE, 0), 0)
        writer.add(store.messages.at(QUEUE, 1), 0)
        writer.finish(2, 0)
    assert [problem.invariant for problem in verify(root)] == [16]


def test_settings_that_cannot_be_are_refused() -> None:
    with pytest.raises(ValueError, match=r"min_cleanable_dirty_ratio=1\.0: must be at least 0 and below 1"):
        CompactionConfig(min_cleanable_dirty_ratio=1.0)
    with pytest.raises(ValueError, match="delete_retention_ms=-1"):
        CompactionConfig(delete_retention_ms=-1)
