"""Recovery of damage: quarantined records, consume queues, copies and missing files."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqclient.store import Message, MessageQueue, MessageStore, open_store
from tests.support.oracle import reference
from tests.support.oracle.views import bodies, queued_records, stored_bodies
from tests.support.stores import QUEUE, SMALL, SPAN, TOPIC, appender_of, body_of, grant_of
from tests.unit.recovery.cut import (
    BODIES,
    BODY,
    FLUSHED,
    MESSAGES,
    check_cut,
    content_of,
    delete_all,
    flip,
    places,
    survey_of,
)


def reboot(root: Path) -> None:
    (root / "shared").unlink()


def same_boot(_: Path) -> None:
    """The runtime file is there and is believed: everything published must be whole."""


def clean_close(root: Path) -> None:
    open_store(root, housekeeping=False).close()


@pytest.mark.guarantee("G5")
@pytest.mark.parametrize("number", [0, 1, 17, FLUSHED - 1])
@pytest.mark.parametrize("at", [0, 4, 20, 30, 88, 600, -25, -1])
@pytest.mark.parametrize("left", [reboot, same_boot, clean_close])
def test_a_damaged_record_is_kept_and_reported_and_the_rest_is_served(
    written: Path,
    opened: Callable[[Path], MessageStore],
    caplog: pytest.LogCaptureFixture,
    number: int,
    at: int,
    left: Callable[[Path], None],
) -> None:
    # Given a byte of a record below the durable mark that is another one
    left(written)
    offset, size = places(written)[number]
    flip(written, offset + at % size)
    damaged = content_of(written)

    # When somebody opens the store, and looks at the whole log
    (written / "checkpoint").unlink()
    if left is clean_close:
        reboot(written)
    with caplog.at_level(logging.ERROR, logger="rmqclient.store"):
        store = opened(written)

    # Then it says which bytes are damaged, and leaves them as they are
    assert f"bytes {offset} to {offset + size}" in caplog.text
    commit_log = {name: text for name, text in content_of(written).items() if name.startswith("commitlog")}
    assert commit_log == {name: text for name, text in damaged.items() if name.startswith("commitlog")}

    # And every other message is delivered
    grant = grant_of(store)
    delivered = [message.body for message in grant.take(SPAN, SPAN)]
    assert delivered == [*BODIES[:number], *BODIES[number + 1 :]]
    assert [(found[0], found[1]) for found in grant.damaged] == [(number, offset)]

    # And the log goes on behind the last one
    assert appender_of(store).append(Message(TOPIC, b"after")).queue_offset == MESSAGES


@pytest.mark.guarantee("G5")
def test_a_record_damaged_while_the_store_is_open_is_stepped_over(
    written: Path, opened: Callable[[Path], MessageStore]
) -> None:
    store = opened(written)
    offset, size = places(written)[5]
    flip(written, offset + size // 2)
    grant = grant_of(store)
    assert [message.body for message in grant.take(SPAN, SPAN)] == [*BODIES[:5], *BODIES[6:]]
    assert len(grant.damaged) == 1
    assert grant.acknowledge_offsets([0, 1, 2, 3, 4])
    assert grant.committed_offset == 6


@pytest.mark.guarantee("G5")
def test_the_bits_of_an_entry_can_flip_and_no_wrong_message_is_delivered(
    written: Path, opened: Callable[[Path], MessageStore]
) -> None:
    store = opened(written)
    path = written / "consumequeue" / TOPIC / "0" / f"{0:020d}"
    intact = path.read_bytes()
    for bit in range(160):
        content = bytearray(intact)
        content[5 * 20 + bit // 8] ^= 1 << bit % 8
        with path.open("r+b") as file:
            file.write(content)
        grant = grant_of(store, f"group{bit}")
        delivered = [message.body for message in grant.take(SPAN, SPAN)]
        rest = [*BODIES[:5], *BODIES[6:]]
        assert delivered == (rest if bit < 96 else BODIES), f"bit {bit}"
    with path.open("r+b") as file:
        file.write(intact)


def delete_the_queue(root: Path) -> None:
    shutil.rmtree(root / "consumequeue" / TOPIC / "0")


def empty_the_queue(root: Path) -> None:
    for path in (root / "consumequeue" / TOPIC / "0").iterdir():
        path.unlink()


@pytest.mark.parametrize("lose", [delete_all, delete_the_queue, empty_the_queue])
@pytest.mark.parametrize("left", [reboot, same_boot, clean_close])
@pytest.mark.parametrize("with_group", [False, True])
def test_lost_consume_queues_are_made_again(
    written: Path,
    opened: Callable[[Path], MessageStore],
    lose: Callable[[Path], None],
    left: Callable[[Path], None],
    with_group: bool,
) -> None:
    if with_group:
        with open_store(written, housekeeping=False) as store:
            assert grant_of(store).acknowledge_offsets([0, 1, 2])
    left(written)
    lose(written)
    store = opened(written)
    assert bodies(queued_records(store)) == BODIES
    assert appender_of(store).append(Message(TOPIC, b"after")).queue_offset == MESSAGES
    assert len(grant_of(store).take(SPAN, SPAN)) == MESSAGES + 1 - 3 * with_group
    store.close()
    assert reference.check_store(written) == []


def test_queues_that_were_never_used_do_not_make_an_opening_slow(written: Path) -> None:
    with open_store(written, housekeeping=False) as store:
        store.topics.create("unused", 8)
    assert survey_of(written).scan_from == sum(places(written)[-1])


def test_damage_and_lost_queues_together_leave_the_rest(written: Path) -> None:
    clean_close(written)
    flip(written, places(written)[5][0] + 100)
    delete_all(written)
    for opening in range(3):  # a gap in a queue must not be taken for its end by the openings that follow
        with open_store(written, housekeeping=False) as store:
            assert store.topics.max_offset(QUEUE) == MESSAGES
            grant = grant_of(store, f"group{opening}")
            assert [message.body for message in grant.take(SPAN, SPAN)] == [*BODIES[:5], *BODIES[6:]]
            assert [queue_offset for queue_offset, _, _ in grant.damaged] == [5]


@pytest.mark.guarantee("G3")
def test_a_copy_of_a_store_in_use_opens_as_it_was_at_some_moment(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with open_store(root, SMALL, housekeeping=False) as store:
        appender = appender_of(store)
        for number in range(60):
            appender.append(Message(TOPIC, body_of(number, BODY)))
            if number % 10 == 3:
                store.flusher.flush_thorough()
            if number % 6 == 0:
                copy = shutil.copytree(root, tmp_path / f"copy{number}")
                with open_store(copy, housekeeping=False) as copied:
                    assert bodies(queued_records(copied)) == [body_of(each, BODY) for each in range(number + 1)]
                    appender_of(copied).append(Message(TOPIC, b"into the copy"))
                assert reference.check_store(copy) == []
    assert len(stored_bodies(root)) == 60


def test_a_moved_store_opens(written: Path, tmp_path: Path) -> None:
    written.rename(tmp_path / "moved")
    check_cut(tmp_path / "moved", BODIES)


@pytest.mark.guarantee("G5")
def test_a_missing_first_file_costs_its_messages_only(written: Path, opened: Callable[[Path], MessageStore]) -> None:
    second = [body for body, (offset, _) in zip(BODIES, places(written), strict=True) if offset >= 36_864]
    reboot(written)
    (written / "commitlog" / f"{0:020d}").unlink()
    store = opened(written)
    assert store.topics.max_offset(QUEUE) == MESSAGES
    assert [message.body for message in grant_of(store).take(SPAN, SPAN)] == second
    assert appender_of(store).append(Message(TOPIC, b"after")).queue_offset == MESSAGES


def test_a_scratch_file_of_a_killed_process_goes(written: Path) -> None:
    (written / ".allocating-1-abc").write_bytes(bytes(100))
    open_store(written, housekeeping=False).close()
    assert list(written.glob(".*")) == []


def test_other_fixed_settings_are_those_of_the_directory(written: Path) -> None:
    with open_store(written, housekeeping=False) as store:
        assert store.config.commit_log_file_bytes == SMALL.commit_log_file_bytes
        assert store.config.consume_queue_file_entries == SMALL.consume_queue_file_entries
        assert store.topics.queues(TOPIC) == [MessageQueue(TOPIC, 0)]
