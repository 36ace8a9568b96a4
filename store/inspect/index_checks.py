"""Index checks: what is wrong with index files, for :mod:`rmqclient.store.inspect.verify`.

Each check has the number of its invariant there. The kernel says up to where a file is right; what stands there is
looked at here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from rmqclient.store import layout
from rmqclient.store.errors import StoreCorrupt
from rmqclient.store.inspect.found import Found, Problem
from rmqclient.store.kernel._kernel import chains_right_to, keys_right_to, slots_right_to
from rmqclient.store.log.commit_log import describe
from rmqclient.store.log.index_file import IndexFile, key_hashes
from rmqclient.store.log.record import Record

_HEADER = layout.INDEX_HEADER


def check_chains(found: Found) -> Iterator[Problem]:
    """11: the slots, and the chains behind them."""
    for file in _files(found):
        slot = 0
        while (slot := slots_right_to(file.mapping, file.slots, file.entries, slot)) < file.slots:
            position = _HEADER.size + slot * layout.INDEX_SLOT_SIZE
            yield Problem(11, file.path, position, f"slot {slot} points to entry {file.slot(slot)}, which is not there")
            slot += 1
        number, stop = 1, max(1, min(file.header.next_number, file.entries))
        while (number := chains_right_to(file.mapping, file.slots, file.entries, number, stop)) < stop:
            words = f"entry {number} follows entry {file.entry(number).previous}"
            yield Problem(11, file.path, file.position(number), words)
            number += 1


def check_entries_point_to_their_records(found: Found) -> Iterator[Problem]:
    """12: every entry whose record is still in the log and not in a damaged part."""
    for file in _files(found):
        number, stop = 1, max(1, min(file.header.next_number, file.entries))
        while number < stop:
            right_to = _right_to(found, file, number, stop)
            if right_to == number:
                yield from _problem(found, file, number)
                number += 1
            else:
                number = right_to


def _right_to(found: Found, file: IndexFile, number: int, stop: int) -> int:
    """Return the first entry from ``number`` on that is not seen to be right, with the part of the log behind it."""
    reader, at = found.reader, file.entry(number).commit_log_offset
    content = reader.part_at(at) if at >= reader.begin else b""
    return keys_right_to(content, at, reader.begin, file.mapping, file.slots, file.entries, number, stop)


def _problem(found: Found, file: IndexFile, number: int) -> Iterator[Problem]:
    """Look at one entry."""
    entry, reader = file.entry(number), found.reader
    at = entry.commit_log_offset
    if at < reader.begin or any(bad.start <= at < bad.end for bad in found.log.damaged):
        return
    outcome = reader.outcome(at)
    if not isinstance(outcome, Record):
        words = f"entry {number} points to no record: {describe(outcome)}"
        yield Problem(12, file.path, file.position(number), words)
    elif entry.key_hash not in key_hashes(outcome.message):
        words = f"entry {number} points to a record without a key of that hash"
        yield Problem(12, file.path, file.position(number), words)


def _files(found: Found) -> Iterator[IndexFile]:
    """Map each index file. One that is missing or cannot be mapped is left out: it is made again when it is needed."""
    files = found.reader.index_files
    for path in files.paths():
        with suppress(FileNotFoundError, StoreCorrupt):
            yield files.open(path)
