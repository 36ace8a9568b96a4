"""A slow reader of index files: the oracle for the compiled one, written from the format text."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

from tests.support.oracle import reference

HEADER = struct.Struct(">qqqqii")
ENTRY = struct.Struct(">iqii")
_ROLLED_BACK = 0xC


@dataclass(frozen=True, slots=True)
class ReferenceIndex:
    """One index file, decoded."""

    name: str
    header: tuple[int, int, int, int, int, int]
    slots: list[int]
    entries: list[tuple[int, int, int, int]]
    """Those that are counted, from number 1 on."""

    def chain(self, key_hash: int) -> list[int]:
        """Return the commit log offsets of a hash, the newest first."""
        number, found = self.slots[key_hash % len(self.slots)], []
        while number:
            entry_hash, offset, _, previous = self.entries[number - 1]
            if entry_hash == key_hash:
                found.append(offset)
            assert previous < number
            number = previous
        return found


def read_indexes(root: Path, slots: int) -> list[ReferenceIndex]:
    """Decode the index files of a store, from the oldest to the newest."""
    return [_decode(path.name, path.read_bytes(), slots) for path in sorted((root / "index").iterdir())]


def _decode(name: str, content: bytes, slots: int) -> ReferenceIndex:
    header = HEADER.unpack_from(content, 0)
    numbers = list(struct.unpack_from(f">{slots}i", content, HEADER.size))
    at = HEADER.size + 4 * slots
    entries = [ENTRY.unpack_from(content, at + number * ENTRY.size) for number in range(1, header[5])]
    return ReferenceIndex(name, header, numbers, entries)


def keys_of(record: reference.ReferenceRecord) -> list[str]:
    """Return the keys of a record in the order in which they are put: the unique key first."""
    if record.sys_flag & _ROLLED_BACK == _ROLLED_BACK:
        return []
    properties = record.property_map
    unique = [properties["UNIQ_KEY"]] if properties.get("UNIQ_KEY") else []
    return unique + [key for key in properties.get("KEYS", "").split(" ") if key]


def key_hash(topic: str, key: str) -> int:
    """Return the hash of a key, without its sign."""
    value = reference.java_hash(f"{topic}#{key}")
    return 0 if value == -(2**31) else abs(value)


def check_index(root: Path, slots: int) -> list[str]:
    """Compare the index of a store with its commit log: every key once for its record, and nothing else."""
    files = read_indexes(root, slots)
    found = [(entry[0], entry[1]) for file in files for entry in file.entries]
    expected = [
        (key_hash(record.topic, key), record.commit_log_offset)
        for _, record in reference.read_commit_log(root)
        for key in keys_of(record)
    ]
    problems = [f"{len(found)} entries for {len(expected)} keys"] if found != expected else []
    for file in files:
        used = sum(number != 0 for number in file.slots)
        if used != file.header[4]:
            problems.append(f"{file.name}: {used} slots are used, the header says {file.header[4]}")
        in_chains = sorted(number for slot in file.slots for number in _numbers(file, slot))
        if in_chains != list(range(1, file.header[5])):
            problems.append(f"{file.name}: {len(in_chains)} entries are in chains, of {file.header[5] - 1}")
        if file.entries and (file.header[2], file.header[3]) != (file.entries[0][1], file.entries[-1][1]):
            problems.append(f"{file.name}: the header's offsets are not those of the first and the last entry")
    return problems


def _numbers(file: ReferenceIndex, number: int) -> list[int]:
    numbers = []
    while number:
        numbers.append(number)
        number = file.entries[number - 1][3]
    return numbers
