"""One bit at random of everything in a store, and what was found by flipping all of them."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from rmqclient.store import Message, MessageQueue, MessageStore, TagSet, layout, open_store
from rmqclient.store.errors import ConfigMismatch
from rmqclient.store.inspect.verify import verify
from rmqclient.store.layout import IDLE
from rmqclient.store.log import index_file
from rmqclient.store.settings import checkpoint
from rmqclient.store.settings.store_settings import StoreSettings, write_store_settings
from tests.support.oracle import reference
from tests.support.stores import abandon
from tests.torture.damage import flips, sandbox, specimens
from tests.torture.damage.specimens import FILE_BYTES, GROUP, SETTINGS, Specimen, deliver

LEFT = MessageQueue("left", 0)


@pytest.fixture
def specimen(tmp_path: Path) -> Specimen:
    return specimens.make(tmp_path / "store")


@pytest.mark.guarantee("G5")
@pytest.mark.sweep
def test_no_flipped_bit_leads_to_a_wrong_message_a_crash_or_a_hang(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    result = flips.run(seed, 1, tmp_path)
    assert result.problems == []
    assert sum(bool(count) for count in result.figures.values()) > 20


def test_a_case_that_dies_or_hangs_is_an_outcome() -> None:
    def case(number: int) -> str:
        if number == 1:
            import ctypes  # noqa: PLC0415 - in the child only

            ctypes.string_at(0)
        while number == 2:
            pass
        return str(10 // (4 - number))

    found = dict(sandbox.outcomes(6, case, 3.0))
    assert (found[0], found[1], found[3], found[5]) == ("2", "signal 11", "10", "-10")
    assert found[2].startswith("hang")
    assert found[4].startswith("traceback ZeroDivisionError")


# --- what was found -------------------------------------------------------------------------------


def test_an_entry_that_points_to_a_record_of_another_topic_delivers_nothing(specimen: Specimen) -> None:
    # Given that the records of two topics alternate, with the same queue offsets and sizes
    path = specimen.root / "consumequeue" / "left" / "0" / f"{0:020d}"
    content = bytearray(path.read_bytes())
    before, size, _ = reference.ENTRY.unpack_from(content, 5 * reference.ENTRY.size)
    content[5 * reference.ENTRY.size + 7] ^= 0x80
    after, _, _ = reference.ENTRY.unpack_from(content, 5 * reference.ENTRY.size)
    other = specimen.records[after]
    assert (other.topic, other.queue_offset, other.size, after - before) == ("rght", 5, size, 128)
    path.write_bytes(content)
    with open_store(specimen.root, housekeeping=False) as store:
        found = deliver(store, specimen.messages)
    assert found.wrong == []
    assert specimen.messages.keys() - found.places == {("left", 0, 5)}
    assert found.damaged == 1


def damaged_runtime_file(specimen: Specimen, at: int, change: Callable[[int], int]) -> None:
    with specimen.shared.open("r+b") as file:
        file.seek(at)
        value = int.from_bytes(file.read(8), "little")
        file.seek(at)
        file.write(change(value).to_bytes(8, "little"))


def everything_is_there(specimen: Specimen) -> MessageStore:
    store = open_store(specimen.root, housekeeping=False)
    found = deliver(store, specimen.messages)
    assert (found.wrong, specimen.messages.keys() - found.places) == ([], set())
    return store


@pytest.mark.guarantee("G1")
def test_a_damaged_stage_does_not_undo_the_last_append(specimen: Specimen) -> None:
    damaged_runtime_file(specimen, layout.RUNTIME_HEADER.at["append_stage"], lambda stage: stage ^ 1)
    store = everything_is_there(specimen)
    assert store.state.append_stage == IDLE
    abandon(store)


@pytest.mark.parametrize("bit", [3, 11, 20, 40, 63])
@pytest.mark.parametrize("field", ["committed_offset", "advance_to"])
def test_a_group_that_is_ahead_of_its_queue_goes_on_from_its_file(specimen: Specimen, field: str, bit: int) -> None:
    at = layout.GROUP_QUEUE_TABLE_AT + layout.GROUP_QUEUE_SLOT.at[field]
    damaged_runtime_file(specimen, at, lambda offset: offset | 1 << bit | 1 << 6)
    store = everything_is_there(specimen)
    slot = store.groups.find(GROUP, store.topics.slot(LEFT))
    assert slot is not None
    assert slot.committed_offset == 10
    abandon(store)


@pytest.mark.parametrize(
    "at",
    [
        layout.RUNTIME_HEADER.at["queue_count"] + 7,
        layout.RUNTIME_HEADER.at["group_queue_count"] + 7,
        layout.QUEUE_TABLE_AT + layout.QUEUE_SLOT.at["topic"],
        layout.QUEUE_TABLE_AT + layout.QUEUE_SLOT.at["topic_size"],
        layout.GROUP_QUEUE_TABLE_AT + layout.GROUP_QUEUE_SLOT.at["group"],
        layout.GROUP_QUEUE_TABLE_AT + layout.GROUP_QUEUE_SLOT.at["group_size"],
        layout.GROUP_QUEUE_TABLE_AT + layout.GROUP_QUEUE_SLOT.at["queue_slot"] + 3,
    ],
)
def test_a_table_with_a_slot_that_nobody_wrote_is_not_believed(specimen: Specimen, at: int) -> None:
    damaged_runtime_file(specimen, at, lambda word: word ^ 0x80)
    abandon(everything_is_there(specimen))


@pytest.mark.parametrize("is_open", [False, True], ids=["while nobody has it open", "while it is open"])
def test_a_time_of_an_index_file_that_no_clock_gives_is_not_believed(specimen: Specimen, *, is_open: bool) -> None:
    before = open_store(specimen.root, housekeeping=False) if is_open else None
    (path,) = index_file.paths(specimen.root)
    with path.open("r+b") as file:
        file.seek(layout.INDEX_HEADER.at["end_timestamp"])
        file.write(b"\x80")
    store = before or everything_is_there(specimen)
    store.close()
    assert checkpoint.read(specimen.root)[0].index_timestamp == 0
    everything_is_there(specimen).close()


def test_an_acknowledgement_of_a_message_to_come_does_not_hide_it(specimen: Specimen) -> None:
    number = max(place[2] for place in specimen.messages if place[:2] == ("left", 0)) + 1
    word = layout.GROUP_QUEUE_TABLE_AT + layout.GROUP_QUEUE_SLOT.at["acknowledged"] + number // 64 * 8
    damaged_runtime_file(specimen, word, lambda bits: bits | 1 << number % 64)
    with open_store(specimen.root, housekeeping=False) as store:
        slot = store.groups.find(GROUP, store.topics.slot(LEFT))
        assert slot is not None
        store.appenders.make(store.topics.queues, lambda _: b"", prepare=False).append(Message("left", b"to come"))
        grant = store.grants.grant(slot, slot.load("epoch"), TagSet(()))
        assert grant.take(100, layout.ACK_WINDOW)[-1].body == b"to come"


@pytest.mark.parametrize(
    "settings",
    [replace(SETTINGS, commit_log_file_bytes=FILE_BYTES - 4), replace(SETTINGS, consume_queue_file_entries=25)],
    ids=["of the commit log", "of the consume queues"],
)
def test_settings_that_fit_no_file_are_refused(specimen: Specimen, settings: StoreSettings) -> None:
    write_store_settings(specimen.root, settings)
    specimen.shared.unlink()
    with pytest.raises(ConfigMismatch, match=r"as store\.json says"):
        open_store(specimen.root)


@pytest.mark.parametrize("bit", [33, 36, 40])
def test_a_frontier_that_is_far_off_is_told_at_once(specimen: Specimen, bit: int) -> None:
    at = layout.RUNTIME_HEADER.at["published_to"] + bit // 8
    with specimen.shared.open("r+b") as file:
        file.seek(at)
        (byte,) = file.read(1)
        file.seek(at)
        file.write(bytes([byte ^ 1 << bit % 8]))
    ((_, outcome),) = sandbox.outcomes(1, lambda _: "told" if verify(specimen.root) else "nothing")
    assert outcome == "told"


@pytest.mark.parametrize("kind", ["left 0", "retry", "dead letter", "late 0"])
@pytest.mark.parametrize("bit", [3, 4, 13, 44])
def test_a_flipped_queue_offset_in_a_queue_s_first_record_makes_no_hole(tmp_path: Path, kind: str, bit: int) -> None:
    specimen = specimens.scanned(tmp_path / "scanned", specimens.make(tmp_path / "store", with_crc=False))
    at = specimen.kinds[kind] % FILE_BYTES + layout.RECORD_HEADER.at["queue_offset"] + 7 - bit // 8
    path = specimen.log_path(specimen.kinds[kind])
    content = bytearray(path.read_bytes())
    content[at] ^= 1 << bit % 8
    path.write_bytes(content)
    hit = specimen.records[specimen.kinds[kind]]
    with open_store(specimen.root, housekeeping=False) as store:
        found = deliver(store, specimen.messages)
    others = specimen.messages.keys() - {(hit.topic, hit.queue_id, hit.queue_offset)}
    assert others <= found.places


@pytest.mark.parametrize("bit", [5, 12, 40, 62])
def test_a_far_queue_offset_in_a_record_by_a_broker_makes_no_hole(tmp_path: Path, bit: int) -> None:
    specimen = specimens.scanned(tmp_path / "scanned", specimens.make(tmp_path / "store", with_crc=False))
    at = specimen.kinds["last"] % FILE_BYTES + layout.RECORD_HEADER.at["queue_offset"]
    path = specimen.log_path(specimen.kinds["last"])
    content = bytearray(path.read_bytes())
    content[at + 7 - bit // 8] |= 1 << bit % 8
    path.write_bytes(content)
    with open_store(specimen.root, housekeeping=False) as store:
        assert store.topics.max_offset(LEFT) == 31, "the number that it must have had is not given again"
