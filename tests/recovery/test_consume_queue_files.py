"""Consume queue files that are lost, cut short, grown, swapped, or brought from elsewhere: they are made again.

They are derived from the log, so nothing is lost, whatever happens to them.
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from rmqclient.store import MessageQueue
from tests.recovery.scenes import (
    FILE_BYTES,
    QUEUE_FILE_BYTES,
    QUEUES,
    Expected,
    Written,
    check,
    copy,
    log_path,
    queue_path,
    truncate,
)
from tests.support.oracle import reference
from tests.support.sweeps import crossed
from tests.support.written import ORDERS, PAYMENTS

ORDERS_0 = MessageQueue(ORDERS, 0)

AGAIN = "dispatch 0 to"
"""In the plan: every entry is compared with its record."""


def files_of(root: Path, queue: MessageQueue) -> list[Path]:
    return sorted((root / "consumequeue" / queue.topic / str(queue.queue_id)).iterdir())


def check_made_again(root: Path, written: Written, original: Path) -> None:
    """Everything is served, and the files hold byte by byte what they held."""
    check(root, Expected(written=written, plan=[AGAIN]))
    assert reference.check_store(root) == []
    for queue in QUEUES:
        for path in files_of(original, queue):
            content, before = (root / path.relative_to(original)).read_bytes(), path.read_bytes()
            assert content[: len(before.rstrip(b"\0"))] == before.rstrip(b"\0")


@pytest.mark.parametrize("numbers", [[0], [1], [-1], [0, 1], [1, 2], [0, 1, 2, 3]])
def test_lost_files_are_made_again(
    original: Path, written: Written, target: Path, way: str, numbers: list[int]
) -> None:
    root = copy(original, way, target)
    files = files_of(root, ORDERS_0)
    assert len(files) == 4
    for number in numbers:
        files[number].unlink()
    check_made_again(root, written, original)


@pytest.mark.parametrize("what", [f"consumequeue/{ORDERS}", f"consumequeue/{PAYMENTS}/1"])
def test_lost_directories_are_made_again(original: Path, written: Written, target: Path, way: str, what: str) -> None:
    root = copy(original, way, target)
    shutil.rmtree(root / what)
    check_made_again(root, written, original)


@pytest.mark.parametrize("way", ["closed", "copied"])
def test_a_lost_directory_of_all_queues_is_made_again(original: Path, written: Written, target: Path, way: str) -> None:
    # Not for a store of a broker, where nothing else says how large its files were
    root = copy(original, way, target)
    shutil.rmtree(root / "consumequeue")
    check_made_again(root, written, original)


@crossed("number, size", [0, 1, -1], [0, 1, 20, 19, 640, QUEUE_FILE_BYTES - 20, QUEUE_FILE_BYTES - 1])
def test_files_cut_short_are_filled_again(
    original: Path, written: Written, target: Path, way: str, number: int, size: int
) -> None:
    root = copy(original, way, target)
    truncate(files_of(root, ORDERS_0)[number], size)
    check_made_again(root, written, original)


def test_a_file_that_grew_is_cut_and_its_surplus_kept(original: Path, written: Written, target: Path, way: str) -> None:
    root = copy(original, way, target)
    grown = files_of(root, ORDERS_0)[1]
    with grown.open("ab") as file:
        file.write(b"surplus")
    name = f"consumequeue-{ORDERS}-0-{grown.name}.surplus-"
    check(root, Expected(written=written, put_away=[name]))


@pytest.mark.parametrize("pair", [(0, 1), (0, 3), (2, 3)])
def test_swapped_files_of_a_queue_are_found_out(
    original: Path, written: Written, target: Path, way: str, pair: tuple[int, int]
) -> None:
    root = copy(original, way, target)
    one, other = (files_of(root, ORDERS_0)[number] for number in pair)
    swap(one, other)
    check_made_again(root, written, original)


def test_swapped_files_of_two_queues_are_found_out(original: Path, written: Written, target: Path, way: str) -> None:
    root = copy(original, way, target)
    swap(queue_path(root, MessageQueue(PAYMENTS, 0), 0), queue_path(root, MessageQueue(PAYMENTS, 1), 0))
    check_made_again(root, written, original)


@pytest.mark.parametrize("number", [0, 2, 3])
def test_a_file_of_rubbish_is_written_again(
    original: Path, written: Written, target: Path, way: str, number: int
) -> None:
    root = copy(original, way, target)
    queue_path(root, ORDERS_0, number).write_bytes(random.Random(number).randbytes(QUEUE_FILE_BYTES))
    check_made_again(root, written, original)


@pytest.mark.parametrize("number", [4, 9])
def test_a_foreign_file_behind_the_last_one_gives_no_offsets(
    original: Path, written: Written, target: Path, way: str, number: int
) -> None:
    root = copy(original, way, target)
    queue_path(root, ORDERS_0, number).write_bytes(random.Random(number).randbytes(QUEUE_FILE_BYTES))
    check_made_again(root, written, original)
    assert not queue_path(root, ORDERS_0, number).exists()


def test_a_file_of_another_store_gives_no_offsets(original: Path, written: Written, target: Path, way: str) -> None:
    root = copy(original, way, target)
    shutil.copy(queue_path(original, MessageQueue(PAYMENTS, 0), 0), queue_path(root, ORDERS_0, 4))
    check_made_again(root, written, original)


@pytest.mark.parametrize("name", ["orders/0/notes.txt", "orders/0/1", f"orders/0/{7:020d}", "orders/7", "README"])
def test_a_file_of_a_foreign_name_is_passed_over_and_left_alone(
    original: Path, written: Written, target: Path, way: str, name: str
) -> None:
    root = copy(original, way, target)
    foreign = root / "consumequeue" / name
    foreign.parent.mkdir(parents=True, exist_ok=True)
    foreign.write_bytes(bytes(QUEUE_FILE_BYTES - 1) + b"x")
    check(root, Expected(written=written))
    assert foreign.read_bytes() == bytes(QUEUE_FILE_BYTES - 1) + b"x"


@pytest.mark.parametrize("name", ["orders/00", "orders/²", "orders/2147483648", "a b/0", f"{'x' * 128}/0", ".hidden/0"])
def test_a_directory_of_a_foreign_name_is_no_queue(
    original: Path, written: Written, target: Path, way: str, name: str
) -> None:
    root = copy(original, way, target)
    foreign = root / "consumequeue" / name / f"{0:020d}"
    foreign.parent.mkdir(parents=True)
    foreign.write_bytes(bytes(QUEUE_FILE_BYTES - 1) + b"x")
    check(root, Expected(written=written))
    assert foreign.read_bytes() == bytes(QUEUE_FILE_BYTES - 1) + b"x"


@pytest.mark.parametrize("number", [0, 1, 3])
def test_lost_log_and_queue_files_together_leave_the_rest(
    original: Path, written: Written, target: Path, way: str, number: int
) -> None:
    # Given a middle file of the log and a file of a queue that are both lost: of some entries nothing is left
    root = copy(original, way, target)
    base = 2 * FILE_BYTES
    log_path(root, base).unlink()
    queue_path(root, ORDERS_0, number).unlink()
    lost = {offset for offset, _ in written if base <= offset < base + FILE_BYTES}
    check(
        root,
        Expected(
            written=written,
            lost=lost,
            quarantined=[(base, base + FILE_BYTES)],
            problems={1, 6} | ({5} if number == 1 else set()),
            places_are_known=False,
        ),
    )


def test_a_first_file_that_is_made_again_begins_with_pre_blank_entries(
    original: Path, written: Written, target: Path, way: str
) -> None:
    # Given the first files lost, of the log and of the queue: the first entries have no records any more
    root = copy(original, way, target)
    log_path(root, 0).unlink()
    queue_path(root, ORDERS_0, 0).unlink()
    lost = {offset for offset, _ in written if offset < FILE_BYTES}
    check(root, Expected(written=written, lost=lost, forgotten=lost))

    # Then a broker, which takes an empty entry for the end of a queue, does not find one
    entries = reference.read_consume_queue(root, ORDERS, 0)
    assert entries[0] == reference.PRE_BLANK_ENTRY
    assert reference.check_store(root) == []


def swap(one: Path, other: Path) -> None:
    between = one.with_name("between")
    one.rename(between)
    other.rename(one)
    between.rename(other)
