"""What the first opener makes of a directory: torn tails cut, damage kept and stepped over, queues made again."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rmqclient.store import Message, MessageQueue, MessageStore, open_store
from rmqclient.store.layout import COPYING
from rmqclient.store.log import record
from rmqclient.store.recovery import recovery
from rmqclient.store.recovery.recovery import ABORT
from rmqclient.store.settings import checkpoint
from tests.support.oracle import reference
from tests.support.oracle.views import bodies, published_records, queued_records, stored_bodies
from tests.support.stores import SMALL, SPAN, TOPIC, abandon, appender_of, grant_of
from tests.support.sweeps import each_step, is_taken, share_of
from tests.unit.recovery.cut import (
    BODIES,
    FLUSHED,
    MESSAGES,
    check_cut,
    content_of,
    delete_all,
    flip,
    overwrite,
    places,
    survey_of,
)


@pytest.fixture
def after_reboot(written: Path) -> Path:
    """Leave what stands there after another boot, when everything had reached the disk."""
    (written / "shared").unlink()
    return written


@pytest.mark.guarantee("G1")
@pytest.mark.guarantee("G5")
@each_step
def test_a_tail_torn_at_any_length_is_cut(after_reboot: Path, tmp_path: Path, steps: frozenset[int]) -> None:
    offset, size = places(after_reboot)[-1]
    for length in [*range(100), *range(100, size - 60, 37), *range(size - 60, size)]:
        if not is_taken(length, steps):
            continue
        image = shutil.copytree(after_reboot, tmp_path / "image")
        overwrite(image, offset + length, bytes(size - length))
        check_cut(image, BODIES[:-1])
        shutil.rmtree(image)


@pytest.mark.guarantee("G5")
@pytest.mark.parametrize("sector", range(3))
def test_a_tail_with_a_sector_missing_is_cut(after_reboot: Path, sector: int) -> None:
    offset, size = places(after_reboot)[-1]
    start = offset + 512 * sector
    overwrite(after_reboot, start, bytes(min(512, offset + size - start)))
    check_cut(after_reboot, BODIES[:-1])


@pytest.mark.parametrize("length", [1, 8, 50, 500])
def test_rubbish_behind_the_last_record_is_zeroed(after_reboot: Path, length: int) -> None:
    offset, size = places(after_reboot)[-1]
    overwrite(after_reboot, offset + size, random.Random(length).randbytes(length))
    check_cut(after_reboot, BODIES)


def test_an_old_record_behind_the_last_one_does_not_come_back(after_reboot: Path) -> None:
    (first, size), (last, last_size) = places(after_reboot)[0], places(after_reboot)[-1]
    stale = (after_reboot / "commitlog" / f"{0:020d}").read_bytes()[first : first + size]
    overwrite(after_reboot, last + last_size, stale)
    check_cut(after_reboot, BODIES)


@pytest.mark.guarantee("G1")
def test_what_is_above_the_durable_mark_is_cut_at_the_first_bad_record(after_reboot: Path) -> None:
    offset, _ = places(after_reboot)[FLUSHED + 4]
    flip(after_reboot, offset + 200)
    check_cut(after_reboot, BODIES[: FLUSHED + 4])


@pytest.mark.guarantee("G5")
def test_the_first_power_cut_of_a_store_that_never_flushed_leaves_no_damage(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # Given a new store, and a power cut that lets the pages of later records survive without those of the first one
    root = tmp_path / "new"
    store = open_store(root, SMALL, housekeeping=False)
    for number in range(5):
        appender_of(store).append(Message(TOPIC, BODIES[number]))
    abandon(store)
    (root / "shared").unlink()
    overwrite(root, 0, bytes(places(root)[0][1]))

    # Then that is a torn tail
    with open_store(root, housekeeping=False) as again:
        appender_of(again).append(Message(TOPIC, b"after"))
    assert stored_bodies(root) == [b"after"]
    assert reference.check_store(root) == []
    assert caplog.text == ""


@settings(max_examples=share_of(40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32))
@pytest.mark.guarantee("G1")
@pytest.mark.guarantee("G2")
def test_after_a_power_cut_everything_flushed_is_there_and_nothing_is_damaged(
    after_reboot: Path, tmp_path: Path, seed: int
) -> None:
    # Given that of the pages above the durable mark some have reached the disk and some have not
    chance = random.Random(seed)
    image = shutil.copytree(after_reboot, tmp_path / "image")
    mark = places(after_reboot)[FLUSHED][0]
    end = sum(places(after_reboot)[-1])
    for start in range(mark - mark % 512, end, 512):
        if chance.random() < 0.1:
            lost = max(start, mark)
            overwrite(image, lost, bytes(min(start + 512, end) - lost))
    lose_pages(image / "consumequeue" / TOPIC / "0", chance)

    # Then the flushed messages are there, and of the others those before the first one that is not whole
    with open_store(image, housekeeping=False) as store:
        found = bodies(published_records(store))
        assert len(found) >= FLUSHED
        assert found == BODIES[: len(found)]
        assert bodies(queued_records(store)) == found
        appender_of(store).append(Message(TOPIC, b"after"))
    assert reference.check_store(image) == []
    shutil.rmtree(image)


def lose_pages(queue: Path, chance: random.Random) -> None:
    """Zero some of the entries above the durable mark, as when their page was not written back."""
    path = queue / f"{0:020d}"
    content = bytearray(path.read_bytes())
    for number in range(FLUSHED, MESSAGES):
        if chance.random() < 0.3:
            content[number * 20 : number * 20 + 20] = bytes(20)
    path.write_bytes(content)


@pytest.mark.guarantee("G1")
def test_a_store_that_was_never_flushed_has_a_torn_tail_and_no_damage(tmp_path: Path) -> None:
    root = tmp_path / "new"
    store = open_store(root, SMALL, housekeeping=False)
    appender = appender_of(store)
    for number in range(5):
        appender.append(Message(TOPIC, BODIES[number]))
    abandon(store)
    (root / "shared").unlink()
    flip(root, places(root)[2][0] + 200)
    check_cut(root, BODIES[:2])


def test_a_blank_record_that_reached_the_disk_in_part_is_a_torn_tail(after_reboot: Path) -> None:
    (after_reboot / "checkpoint").unlink()
    checkpoint.write(after_reboot, checkpoint.Checkpoint(), checkpoint.LowWater(1, 0, 0, 0))
    records = places(after_reboot)
    kept = [place for place in records if place[0] < SMALL.commit_log_file_bytes]
    overwrite(after_reboot, sum(kept[-1]), bytes(4))  # its size
    (after_reboot / "commitlog" / f"{SMALL.commit_log_file_bytes:020d}").unlink()
    check_cut(after_reboot, BODIES[: len(kept)])


def test_an_entry_that_reached_the_disk_in_part_is_none(written: Path) -> None:
    """The entry behind the last one has a size, and zeros where its offset should be."""
    (end, _), (_, size) = places(written)[FLUSHED], places(written)[0]
    (written / "shared").unlink()
    for path in (written / "commitlog").iterdir():
        base = int(path.name)
        overwrite(written, max(base, end), bytes(max(0, base + SMALL.commit_log_file_bytes - max(base, end))))
    entries = written / "consumequeue" / TOPIC / "0" / f"{0:020d}"
    content = entries.read_bytes()[: FLUSHED * 20]
    torn = content + bytes(8) + size.to_bytes(4, "big") + bytes(8)
    entries.write_bytes(torn.ljust(SMALL.consume_queue_file_bytes, b"\0"))
    check_cut(written, BODIES[:FLUSHED])


def noted_syncs(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """From now on, note every file and directory that is synced."""
    synced: list[Path] = []

    def note(file: int) -> None:
        synced.append(Path(f"/proc/self/fd/{file}").readlink())

    monkeypatch.setattr(os, "fsync", note)
    monkeypatch.setattr(os, "fdatasync", note)
    return synced


def test_what_the_repair_of_an_append_undoes_is_undone_on_disk(
    written: Path, opened: Callable[[Path], MessageStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a process that died while it copied a record
    store = opened(written)
    end = store.state.published_to
    overwrite(written, end, b"half a record")
    store.state.append_from, store.state.written_to = end, end + 100
    store.state.append_stage = COPYING

    # When the next one appends
    synced = noted_syncs(monkeypatch)
    appender_of(store).append(Message(TOPIC, b"after"))

    # Then the old bytes had gone from the disk before the new ones came
    assert synced[0] == written / "commitlog" / f"{end - end % SMALL.commit_log_file_bytes:020d}"


def test_a_store_is_open_on_disk_before_it_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    was_marked: list[bool] = []
    monkeypatch.setattr(os, "fsync", lambda _: was_marked.append((tmp_path / ABORT).exists()))
    abandon(open_store(tmp_path, SMALL, housekeeping=False))
    assert was_marked[-1]


@pytest.mark.parametrize("left", ["rubbish", "a file of rubbish", "an entry"])
def test_what_recovery_cuts_is_cut_on_disk(written: Path, monkeypatch: pytest.MonkeyPatch, left: str) -> None:
    # Given a clean store, and behind its end what a power cut can leave
    open_store(written, housekeeping=False).close()
    (written / "shared").unlink()
    end = sum(places(written)[-1])
    log = written / "commitlog"
    queue = written / "consumequeue" / TOPIC / "0"
    if left == "rubbish":
        overwrite(written, end, b"rubbish")
    elif left == "a file of rubbish":
        following = end - end % SMALL.commit_log_file_bytes + SMALL.commit_log_file_bytes
        (log / f"{following:020d}").write_bytes(b"rubbish".ljust(SMALL.commit_log_file_bytes, b"\0"))
    else:
        content = (queue / f"{0:020d}").read_bytes()[: MESSAGES * 20] + reference.ENTRY.pack(end, 100, 0)
        (queue / f"{0:020d}").write_bytes(content.ljust(SMALL.consume_queue_file_bytes, b"\0"))

    # When it is opened
    synced = noted_syncs(monkeypatch)
    store = open_store(written, housekeeping=False)

    # Then it is gone, and cannot come back
    expected = {
        "rubbish": {log / f"{end - end % SMALL.commit_log_file_bytes:020d}"},
        "a file of rubbish": {log},
        "an entry": {queue / f"{0:020d}"},
    }[left]
    assert expected <= set(synced)
    abandon(store)


def test_progress_that_a_power_cut_took_back_is_taken_back_on_disk(written: Path) -> None:
    # Given a group that has finished everything, and a power cut that took the last messages
    with open_store(written, housekeeping=False) as store:
        grant = grant_of(store)
        grant.take(SPAN, SPAN)
        assert grant.acknowledge_offsets(list(range(MESSAGES)))
        store.offsets.persist()
    (written / "shared").unlink()
    (written / "checkpoint").unlink()
    overwrite(written, places(written)[-1][0], bytes(200))

    # When others come in their place, and the power goes again before the offsets are written
    store = open_store(written, housekeeping=False)
    for number in range(3):
        appender_of(store).append(Message(TOPIC, BODIES[number]))
    store.flusher.flush_thorough()
    abandon(store)
    (written / "shared").unlink()

    # Then the group gets all of them
    with open_store(written, housekeeping=False) as store:
        assert [message.body for message in grant_of(store).take(SPAN, SPAN)] == BODIES[:3]


def test_a_record_whose_properties_were_overwritten_is_no_record_without_a_crc() -> None:
    whole = reference.encode(reference.ReferenceRecord(topic=TOPIC, body=b"body", properties=b"a\x01b\x02"))
    accented = reference.ReferenceRecord(topic=TOPIC, body=b"body", properties=b"a\x01\xc3\xa9\x02")
    older = reference.encode(accented, crc_property=False)
    chance = random.Random(1)
    assert isinstance(record.decode(older, 0, 0), record.Record)
    for _ in range(100):
        rubbish = bytes(chance.randrange(1, 256) for _ in range(20))
        torn = whole[:-20] + rubbish
        assert isinstance(record.decode(torn, 0, 0), record.Corrupt)
        assert reference.decode(torn, 0) is None


@pytest.mark.parametrize("at", range(9))
def test_a_crc_that_is_written_otherwise_is_wrong(at: int) -> None:
    """Ten of a digit and one of the next are the same number; only one of the two is how a CRC is written."""
    for number in range(100):
        whole = bytearray(reference.encode(reference.ReferenceRecord(topic=TOPIC, body=bytes((number,)))))
        lower, higher = len(whole) - 11 + at, len(whole) - 10 + at
        if whole[higher] > ord("0"):
            assert isinstance(record.decode(bytes(whole), 0, 0), record.Record)
            whole[lower] += 10
            whole[higher] -= 1
            assert isinstance(record.decode(bytes(whole), 0, 0), record.Corrupt)


def test_looking_and_planning_change_nothing(after_reboot: Path) -> None:
    overwrite(after_reboot, sum(places(after_reboot)[-1]), b"rubbish")
    before = {path: (path.stat().st_mtime_ns, path.stat().st_ino) for path in after_reboot.rglob("*")}
    content = content_of(after_reboot)
    found = survey_of(after_reboot)
    chosen = recovery.plan(found)
    assert recovery.plan(found) == chosen
    assert survey_of(after_reboot) == found
    assert content_of(after_reboot) == content
    assert {path: (path.stat().st_mtime_ns, path.stat().st_ino) for path in after_reboot.rglob("*")} == before
    assert any("cut" in line for line in chosen.lines())


def test_a_log_whose_entries_are_right_is_not_dispatched(after_reboot: Path) -> None:
    (after_reboot / "checkpoint").unlink()
    chosen = recovery.plan(survey_of(after_reboot))
    assert chosen.scanned_ranges == ((0, sum(places(after_reboot)[-1])),)
    assert chosen.dispatch_ranges == ()
    assert chosen.queue_ends == {MessageQueue(TOPIC, 0): MESSAGES}


@pytest.mark.parametrize("number", [0, 1, 17, MESSAGES - 1])
@pytest.mark.parametrize("at", [7, 11, 19])
def test_entries_are_written_again_from_the_first_one_that_is_not_right(
    after_reboot: Path, number: int, at: int
) -> None:
    (after_reboot / "checkpoint").unlink()
    before = content_of(after_reboot)
    path = after_reboot / "consumequeue" / TOPIC / "0" / f"{0:020d}"
    content = bytearray(path.read_bytes())
    content[20 * number + at] ^= 0x10
    path.write_bytes(content)
    begin, end = places(after_reboot)[number][0], sum(places(after_reboot)[-1])
    chosen = recovery.plan(survey_of(after_reboot))
    assert chosen.dispatch_ranges == ((begin, end),)
    assert chosen.queue_ends == ({MessageQueue(TOPIC, 0): number} if number else {})
    abandon(open_store(after_reboot, housekeeping=False))
    assert content_of(after_reboot) == before


def test_a_queue_all_of_whose_entries_are_right_is_kept_beside_one_that_lost_some(tmp_path: Path) -> None:
    store = open_store(tmp_path, SMALL, housekeeping=False)
    appender = appender_of(store)
    for topic in ["Whole"] * 3 + [TOPIC] * 3:
        appender.append(Message(topic, b"body"))
    abandon(store)
    for name in "shared", "checkpoint":
        (tmp_path / name).unlink()
    lost = tmp_path / "consumequeue" / TOPIC / "0" / f"{0:020d}"
    lost.write_bytes(bytes(SMALL.consume_queue_file_bytes))
    with open_store(tmp_path, housekeeping=False) as store:
        assert [store.topics.max_offset(MessageQueue(topic, 0)) for topic in ("Whole", TOPIC)] == [3, 3]
        assert len(stored_bodies(tmp_path)) == 6
    assert reference.check_store(tmp_path) == []


def test_recovering_twice_is_recovering_once(after_reboot: Path) -> None:
    overwrite(after_reboot, sum(places(after_reboot)[-1]), b"rubbish" * 100)
    delete_all(after_reboot)
    abandon(open_store(after_reboot, housekeeping=False))
    once = content_of(after_reboot)
    for _ in range(2):
        (after_reboot / "shared").unlink()
        abandon(open_store(after_reboot, housekeeping=False))
        assert content_of(after_reboot) == once
    assert recovery.plan(survey_of(after_reboot)).cut_reason is None


def test_an_empty_directory_is_an_empty_store(tmp_path: Path) -> None:
    with open_store(tmp_path, SMALL, housekeeping=False) as store:
        assert store.state.published_to == 0
        assert store.topics.topics() == []
    assert reference.check_store(tmp_path) == []
    assert not (tmp_path / ABORT).exists()


def test_a_prepared_file_that_nobody_has_used_goes(written: Path) -> None:
    store = open_store(written, housekeeping=False)
    store.appenders.prepare_next_file()
    prepared = store.log_files.bases()[-1]
    abandon(store)
    with open_store(written, housekeeping=False) as again:
        assert prepared not in again.log_files.bases()
    assert reference.check_store(written) == []
    assert stored_bodies(written) == BODIES
