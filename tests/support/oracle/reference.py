"""A second, slow reader and writer of store directories: the oracle for the compiled kernel and for recovery.

Written from the description of RocketMQ 4.9's format with ``struct``, ``zlib`` and what opens bodies. It shares nothing
with the package :mod:`rmqclient.store`, not even constants, so that one mistake cannot hide itself by being made on
both sides. It believes nothing: whatever is not exactly right is ``None``, a :class:`BadStore` or a line of
:func:`check_store`.

All integers on disk are big-endian and signed.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count, dropwhile
from pathlib import Path

import lz4.frame
import zstandard

ENTRY = struct.Struct(">qiq")
PRE_BLANK_ENTRY = (0, 0x7FFFFFFF, 0)
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
TIMER_TOPIC = "rmq_sys_wheel_timer"
"""The tags code of its entries is a delivery time."""

DELAY_SECONDS = (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)

_RECORD_MAGIC = 0xDAA320A7 - 2**32
_BLANK_MAGIC = 0xCBD43194 - 2**32
_BLANK_SIZE = 8
_SMALLEST_RECORD = 91
_CRC_NAME = b"__CRC32#\x01"
_CRC_PROPERTY_SIZE = 20
_TRANSACTION_BITS = 0xC
_NOT_IN_A_QUEUE = (0x4, 0xC)  # prepared, rolled back


class BadStore(Exception):
    """Something is not as the format says; ``position`` is the byte in the file at ``path``."""

    def __init__(self, path: Path, position: int, reason: str) -> None:
        super().__init__(f"{path}, byte {position}: {reason}")
        self.path = path
        self.position = position


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceRecord:
    """Every field of a record of message version 1. Times are epoch milliseconds."""

    topic: str
    body: bytes = b""
    properties: bytes = b""
    """As on disk, without the ``__CRC32#`` property."""
    queue_id: int = 0
    flag: int = 0
    queue_offset: int = 0
    commit_log_offset: int = 0
    sys_flag: int = 0
    born_timestamp: int = 0
    born_host: bytes = b"\x7f\x00\x00\x01"
    """4 bytes, or 16 with bit 0x10 of ``sys_flag``."""
    born_port: int = 0
    store_timestamp: int = 0
    store_host: bytes = b"\x7f\x00\x00\x01"
    """4 bytes, or 16 with bit 0x20 of ``sys_flag``."""
    store_port: int = 10911
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    size: int = field(default=0, compare=False)
    """Bytes on disk; set by :func:`decode`."""
    has_crc: bool = field(default=False, compare=False)
    """Whether the record ended with a ``__CRC32#`` property; set by :func:`decode`."""

    @property
    def property_map(self) -> dict[str, str]:
        """The properties as RocketMQ's reader sees them."""
        return parse_properties(self.properties)

    @property
    def opened_body(self) -> bytes:
        """The body as it was sent."""
        return opened(self.body, self.sys_flag)

    @property
    def tags_code(self) -> int:
        """The tags code of an ordinary topic's entry."""
        return java_hash(self.property_map.get("TAGS", ""))

    @property
    def entry_code(self) -> int:
        """The tags code of its entry: of a delayed message that waits, the time at which to deliver it."""
        level = int(self.property_map.get("DELAY", "0"))
        if self.topic == SCHEDULE_TOPIC and level > 0:
            return self.store_timestamp + 1000 * DELAY_SECONDS[min(level, 18) - 1]
        if self.topic == TIMER_TOPIC and "TIMER_DEL_UNIQKEY" not in self.property_map:
            return int(self.property_map.get("TIMER_OUT_MS", self.tags_code))
        return self.tags_code

    @property
    def in_a_queue(self) -> bool:
        """Whether the record has a consume queue entry."""
        return self.sys_flag & _TRANSACTION_BITS not in _NOT_IN_A_QUEUE


@dataclass(frozen=True, slots=True)
class Blank:
    """The end of a file."""

    size: int
    """Bytes left in the file, its own 8 included."""
    zeros: bool
    """Whether the bytes after those 8 are zeros, as they normally are."""


# --- one record -----------------------------------------------------------------------------------


def encode(record: ReferenceRecord, crc_property: bool = True) -> bytes:
    """Return the bytes of a record, ending with the ``__CRC32#`` property if asked for.

    Raises ``ValueError`` when an address does not have the length that ``sys_flag`` says, ``struct.error`` when a field
    is out of range.
    """
    properties = record.properties
    if crc_property:
        separator = b"\x02" if properties and not properties.endswith(b"\x02") else b""
        properties += separator + b"?" * _CRC_PROPERTY_SIZE
    topic = record.topic.encode()
    after_size = b"".join(
        (
            struct.pack(">iIiiqq", _RECORD_MAGIC, body_crc(record.body), record.queue_id, record.flag,
                        record.queue_offset, record.commit_log_offset),
            struct.pack(">iq", record.sys_flag, record.born_timestamp),
            _host(record.born_host, record.born_port, bool(record.sys_flag & 0x10)),
            struct.pack(">q", record.store_timestamp),
            _host(record.store_host, record.store_port, bool(record.sys_flag & 0x20)),
            struct.pack(">iq", record.reconsume_times, record.prepared_transaction_offset),
            struct.pack(">i", len(record.body)) + record.body,
            struct.pack(">b", len(topic)) + topic,
            struct.pack(">h", len(properties)) + properties,
        )
    )  # fmt: skip
    whole = struct.pack(">i", 4 + len(after_size)) + after_size
    if not crc_property:
        return whole
    covered = whole[:-_CRC_PROPERTY_SIZE]
    return covered + _crc_property(covered)


def decode(buffer: bytes | bytearray | memoryview, position: int) -> ReferenceRecord | Blank | None:
    """Return the valid record or blank record at ``position``; ``None`` for anything else, zeros included.

    ``commit_log_offset`` is returned as it is stored: only the caller knows what it must be.
    """
    left = len(buffer) - position
    if position < 0 or left < _BLANK_SIZE:
        return None
    size, magic = struct.unpack_from(">ii", buffer, position)
    if magic == _BLANK_MAGIC and _BLANK_SIZE <= size <= left:
        return Blank(size, is_zeros(bytes(buffer[position + _BLANK_SIZE : position + size])))
    if magic != _RECORD_MAGIC or not _SMALLEST_RECORD <= size <= left:
        return None
    try:
        return _decode_whole(bytes(buffer[position : position + size]))
    except (struct.error, UnicodeDecodeError):
        return None


def _decode_whole(frame: bytes) -> ReferenceRecord | None:
    _, _, stored_body_crc, queue_id, flag, queue_offset, commit_log_offset, sys_flag, born_timestamp = (
        struct.unpack_from(">iiiiiqqiq", frame)
    )
    at = 48
    born_size, store_size = (16 if sys_flag & 0x10 else 4), (16 if sys_flag & 0x20 else 4)
    born_host, born_port = struct.unpack_from(f">{born_size}si", frame, at)
    at += born_size + 4
    (store_timestamp,) = struct.unpack_from(">q", frame, at)
    at += 8
    store_host, store_port = struct.unpack_from(f">{store_size}si", frame, at)
    at += store_size + 4
    reconsume_times, prepared_transaction_offset = struct.unpack_from(">iq", frame, at)
    at += 12
    body, at = _sized(frame, at, ">i")
    topic, at = _sized(frame, at, ">b")
    properties, at = _sized(frame, at, ">h")
    if at != len(frame) or stored_body_crc != body_crc(body):
        return None
    before, last = properties[:-_CRC_PROPERTY_SIZE], properties[-_CRC_PROPERTY_SIZE:]
    has_crc = last.startswith(_CRC_NAME)
    if _is_damaged(frame, topic + properties, has_crc):
        return None
    return ReferenceRecord(
        topic=topic.decode(),
        body=body,
        properties=before if has_crc else properties,
        queue_id=queue_id,
        flag=flag,
        queue_offset=queue_offset,
        commit_log_offset=commit_log_offset,
        sys_flag=sys_flag,
        born_timestamp=born_timestamp,
        born_host=born_host,
        born_port=born_port,
        store_timestamp=store_timestamp,
        store_host=store_host,
        store_port=store_port,
        reconsume_times=reconsume_times,
        prepared_transaction_offset=prepared_transaction_offset,
        size=len(frame),
        has_crc=has_crc,
    )


def _is_damaged(frame: bytes, text: bytes, has_crc: bool) -> bool:
    """Judge a record by its CRC; one without a CRC by what a torn or flipped one with a CRC would look like."""
    right = _crc_property(frame[:-_CRC_PROPERTY_SIZE])
    if has_crc:
        return frame[-_CRC_PROPERTY_SIZE:] != right
    return frame.endswith(right[len(_CRC_NAME) :]) or b"\0" in text or not _is_utf8(text)


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _sized(frame: bytes, at: int, size_format: str) -> tuple[bytes, int]:
    (size,) = struct.unpack_from(size_format, frame, at)
    at += struct.calcsize(size_format)
    if not 0 <= size <= len(frame) - at:
        raise struct.error("does not fit")
    return frame[at : at + size], at + size


def _host(address: bytes, port: int, is_v6: bool) -> bytes:
    if len(address) != (16 if is_v6 else 4):
        raise ValueError(f"address of {len(address)} bytes and sys_flag disagree")
    return address + struct.pack(">i", port)


def _crc_property(covered: bytes) -> bytes:
    digits = f"{zlib.crc32(covered) & 0x7FFFFFFF:010d}"
    return _CRC_NAME + digits[::-1].encode() + b"\x02"


# --- parts of a record ----------------------------------------------------------------------------


def body_crc(body: bytes) -> int:
    """Return the CRC-32 of a body as it is stored: the lower 31 bits, 0 when it is empty."""
    return zlib.crc32(body) & 0x7FFFFFFF if body else 0


def opened(body: bytes, sys_flag: int) -> bytes:
    """Return a body as it was sent (MessageSysFlag, CompressionType)."""
    kind = sys_flag >> 8 & 7
    if not sys_flag & 0x1:
        return body
    if kind == 1:
        return bytes(lz4.frame.decompress(body))
    if kind == 2:
        with zstandard.ZstdDecompressor().stream_reader(body) as reader:
            return bytes(reader.read())
    return zlib.decompress(body)


def java_hash(text: str) -> int:
    """Return Java's ``String.hashCode``: over UTF-16 units, wrapped to 32 bits, signed."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for (unit,) in struct.iter_unpack(">H", units):
        value = (value * 31 + unit) & 0xFFFFFFFF
    return value - 2**32 if value >= 2**31 else value


def parse_properties(text: bytes) -> dict[str, str]:
    """Return the properties as RocketMQ's ``MessageDecoder.string2messageProperties`` does.

    Pairs without a separator, with an empty name or with an empty value are dropped; of two with the same name the
    last one counts. A separator at the end is harmless.
    """
    properties: dict[str, str] = {}
    for pair in text.decode().split("\x02"):
        name, _, value = pair.partition("\x01")
        if name and value:
            properties[name] = value
    return properties


def format_properties(properties: Mapping[str, str], trailing_separator: bool = True) -> bytes:
    """Return the bytes of the properties, in the order given; RocketMQ 4.9.1 to 5.1 leave out the last separator."""
    text = "\x02".join(f"{name}\x01{value}" for name, value in properties.items())
    return (text + "\x02" if text and trailing_separator else text).encode()


def offset_message_id(host: bytes, port: int, commit_log_offset: int) -> str:
    """Return the id that a broker gives a message: upper-case hex of address, port and commit log offset."""
    return (host + struct.pack(">iq", port, commit_log_offset)).hex().upper()


def is_zeros(content: bytes) -> bool:
    """Return whether there is nothing but zeros, or nothing at all."""
    return not content.strip(b"\0")


# --- files ----------------------------------------------------------------------------------------


def read_commit_log(root: Path) -> list[tuple[int, ReferenceRecord]]:
    """Return every record with its commit log offset, oldest first.

    Raises :class:`BadStore` for a gap between files, a file without an end, a bad record, a stored
    ``commit_log_offset`` that is not where the record stands, and anything but zeros after the last record.
    """
    return [(offset, found) for offset, found in _walk(root) if isinstance(found, ReferenceRecord)]


def read_consume_queue(root: Path, topic: str, queue_id: int) -> list[tuple[int, int, int]]:
    """Return every entry ``(commit_log_offset, size, tags_code)``, those that only fill the first file included.

    The first one has the queue offset :func:`first_queue_offset`. Raises :class:`BadStore` for a gap between files, a
    file that is not whole entries, and anything but zeros after the last entry.
    """
    entries: list[tuple[int, int, int]] = []
    ended_at: tuple[Path, int] | None = None
    for _, path, content in _files(_queue_directory(root, topic, queue_id)):
        if len(content) % ENTRY.size:
            raise BadStore(path, len(content), f"not a multiple of {ENTRY.size} bytes")
        for position in range(0, len(content), ENTRY.size):
            entry: tuple[int, int, int] = ENTRY.unpack_from(content, position)
            if entry == (0, 0, 0):
                ended_at = ended_at or (path, position)
            elif ended_at is not None or entry[0] < 0 or entry[1] <= 0:
                raise BadStore(path, position, f"entry {entry} after the end, or not a valid one")
            else:
                entries.append(entry)
    return entries


def first_queue_offset(root: Path, topic: str, queue_id: int) -> int:
    """Return the queue offset of the first entry that :func:`read_consume_queue` returns; 0 without files."""
    return next((base // ENTRY.size for base, _, _ in _files(_queue_directory(root, topic, queue_id))), 0)


def queues_on_disk(root: Path) -> list[tuple[str, int]]:
    """Return the topic and queue id of every consume queue directory, sorted."""
    directories = (root / "consumequeue").glob("*/*")
    return sorted((path.parent.name, int(path.name)) for path in directories if re.fullmatch("[0-9]+", path.name))


def _walk(root: Path) -> Iterator[tuple[int, ReferenceRecord | Blank]]:
    ended = False
    for base, path, content in _files(root / "commitlog"):
        if ended:
            if not is_zeros(content):
                raise BadStore(path, 0, "bytes in a file after the end of the log")
            continue
        ended = yield from _walk_file(base, path, content)


def _walk_file(base: int, path: Path, content: bytes) -> Generator[tuple[int, ReferenceRecord | Blank], None, bool]:
    """Yield what the file holds, and return whether the log ends in it."""
    position = 0
    while True:
        found = decode(content, position)
        if found is None:
            if not is_zeros(content[position:]):
                raise BadStore(path, position, "no valid record, and not the end of the log either")
            return True
        if isinstance(found, Blank):
            if found.size != len(content) - position:
                raise BadStore(path, position, f"blank record of {found.size} bytes before the end of the file")
            yield base + position, found
            return False
        if found.commit_log_offset != base + position:
            raise BadStore(path, position, f"the record says that it stands at {found.commit_log_offset}")
        yield base + position, found
        position += found.size
        if len(content) - position < _BLANK_SIZE:
            raise BadStore(path, position, "no room is left for a blank record")


def _files(directory: Path) -> Iterator[tuple[int, Path, bytes]]:
    """Yield start offset, path and content of the mapped files in a directory; they must follow each other."""
    first: tuple[int, int] | None = None
    for number, path in enumerate(sorted(directory.iterdir()) if directory.exists() else ()):
        if not re.fullmatch("[0-9]{20}", path.name):
            raise BadStore(path, 0, "not a mapped file")
        base, content = int(path.name), path.read_bytes()
        first = first or (base, len(content))
        if len(content) != first[1] or not content:
            raise BadStore(path, len(content), f"{len(content)} bytes long, the first file {first[1]}")
        if base != first[0] + number * first[1]:
            raise BadStore(path, 0, f"a gap: the file before it ends at {first[0] + number * first[1]}")
        yield base, path, content


def _queue_directory(root: Path, topic: str, queue_id: int) -> Path:
    return root / "consumequeue" / topic / str(queue_id)


# --- a whole store --------------------------------------------------------------------------------


def check_store(root: Path) -> list[str]:
    """Return what is wrong with a store that nobody writes to; nothing when it is as it must be.

    - The commit log can be walked from the first byte to the last record, there are only zeros after that and
      after blank records.
    - The entries of each queue match its records one to one: offset, size, tags code, and
      the queue offset. Entries for records that retention deleted may stand before them.
    """
    problems: list[str] = []
    queues: dict[tuple[str, int], list[ReferenceRecord]] = {queue: [] for queue in queues_on_disk(root)}
    try:
        for offset, found in _walk(root):
            if isinstance(found, Blank):
                if not found.zeros:
                    problems.append(f"commit log offset {offset}: bytes after the blank record")
            elif found.in_a_queue:
                queues.setdefault((found.topic, found.queue_id), []).append(found)
    except BadStore as problem:
        problems.append(str(problem))
    for (topic, queue_id), records in sorted(queues.items()):
        problems += _check_queue(root, topic, queue_id, records)
    return problems


def _check_queue(root: Path, topic: str, queue_id: int, records: Sequence[ReferenceRecord]) -> list[str]:
    name = f"queue {queue_id} of {topic}"
    try:
        entries = read_consume_queue(root, topic, queue_id)
        log_start = next((base for base, _, _ in _files(root / "commitlog")), 0)
    except BadStore as problem:
        return [f"{name}: {problem}"]
    numbered = zip(count(first_queue_offset(root, topic, queue_id)), entries, strict=False)
    present = list(dropwhile(lambda item: item[1] == PRE_BLANK_ENTRY or item[1][0] < log_start, numbered))
    problems = []
    if len(present) != len(records):
        problems.append(f"{name}: {len(present)} entries for {len(records)} records")
    for (queue_offset, entry), record in zip(present, records, strict=False):
        expected = (record.queue_offset, (record.commit_log_offset, record.size, record.entry_code))
        if (queue_offset, entry) != expected:
            problems.append(f"{name}: entry {queue_offset} is {entry}, but the record asks for {expected}")
            break  # what follows is most likely shifted by the same
    return problems
