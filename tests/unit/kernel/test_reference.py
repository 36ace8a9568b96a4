"""The oracle is right about the format: against values from real brokers, and about everything that can be wrong."""

from __future__ import annotations

import ast
import struct
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.support.oracle import reference
from tests.support.oracle.reference import BadStore, Blank, ReferenceRecord

INT = st.integers(-(2**31), 2**31 - 1)
LONG = st.integers(-(2**63), 2**63 - 1)
PROPERTY_TEXT = st.text(st.characters(exclude_characters="\x01\x02", codec="utf-8"), min_size=1, max_size=20)


@st.composite
def records(draw: st.DrawFn) -> ReferenceRecord:
    born_v6, store_v6 = draw(st.booleans()), draw(st.booleans())
    flags = draw(INT) & ~0x30
    properties = draw(st.dictionaries(PROPERTY_TEXT, PROPERTY_TEXT, max_size=4))
    return ReferenceRecord(
        topic=draw(st.text("%|aZ9_-", min_size=1, max_size=127)),
        body=draw(st.binary(max_size=200)),
        properties=reference.format_properties(properties),
        queue_id=draw(INT),
        flag=draw(INT),
        queue_offset=draw(LONG),
        commit_log_offset=draw(LONG),
        sys_flag=flags | 0x10 * born_v6 | 0x20 * store_v6,
        born_timestamp=draw(LONG),
        born_host=draw(st.binary(min_size=16, max_size=16) if born_v6 else st.binary(min_size=4, max_size=4)),
        born_port=draw(INT),
        store_timestamp=draw(LONG),
        store_host=draw(st.binary(min_size=16, max_size=16) if store_v6 else st.binary(min_size=4, max_size=4)),
        store_port=draw(INT),
        reconsume_times=draw(INT),
        prepared_transaction_offset=draw(LONG),
    )


def test_it_shares_nothing_with_the_store() -> None:
    tree = ast.parse(Path(reference.__file__).read_text(encoding="utf-8"))
    modules = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    modules |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert not {module for module in modules if module.split(".")[0] in ("store", "rmqclient", "workers", "tests")}


# --- values from RocketMQ -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("TagA", 2598919),
        ("TagB", 2598920),
        ("T0", 2652),
        ("d", 100),
        ("中文", 646394),
        ("", 0),
        ("polygenelubricants", -2147483648),
        ("TopicA#k1", -1903240649),
        ("\U0001f600", 0xD83D * 31 + 0xDE00),
    ],
)
def test_the_hash_is_javas(text: str, value: int) -> None:
    assert reference.java_hash(text) == value


def test_the_id_of_a_message_is_its_address_and_offset() -> None:
    assert reference.offset_message_id(b"\x7f\0\0\x01", 10911, 0x96E) == "7F00000100002A9F000000000000096E"
    assert len(reference.offset_message_id(bytes(16), 10911, 0)) == 56


def test_a_record_of_a_4_9_8_broker_is_encoded_to_the_same_bytes() -> None:
    record = ReferenceRecord(
        topic="TopicA",
        body=b"hello",
        properties=b"KEYS\x01k1 k2\x02UNIQ_KEY\x017F000001000000000000000000000001\x02TAGS\x01TagA",
        flag=7,
        born_timestamp=1700000000123,
        born_host=bytes([10, 1, 2, 3]),
        born_port=54321,
        store_timestamp=1795208144813,
    )
    assert reference.encode(record, crc_property=False) == bytes.fromhex(
        "000000a4 daa320a7 3610a686 00000000 00000007 0000000000000000 0000000000000000 00000000 0000018bcfe5687b"
        "0a010203 0000d431 000001a1fabe67ad 7f000001 00002a9f 00000000 0000000000000000 00000005 68656c6c6f"
        "06 546f70696341 003e 4b455953 01 6b31206b32 02 554e49515f4b4559 01"
        "3746303030303031303030303030303030303030303030303030303030303031 02 54414753 01 54616741"
    )


def test_the_crc_property_holds_ten_digits_the_least_significant_first() -> None:
    encoded = reference.encode(ReferenceRecord(topic="T", properties=b"a\x01b"))
    assert encoded[-24:-10] == b"a\x01b\x02__CRC32#\x01" + encoded[-11:-10]
    digits = str(zlib.crc32(encoded[:-20]) & 0x7FFFFFFF).rjust(10, "0")
    assert encoded[-11:-1].decode() == "".join(reversed(digits))
    assert encoded[-1:] == b"\x02"
    assert struct.unpack_from(">i", encoded) == (len(encoded),)


def test_sizes_are_those_of_the_format() -> None:
    assert len(reference.encode(ReferenceRecord(topic="", body=b""), crc_property=False)) == 91
    v6 = ReferenceRecord(topic="T", body=b"xy", sys_flag=0x30, born_host=bytes(16), store_host=bytes(16))
    assert len(reference.encode(v6, crc_property=False)) == 91 + 1 + 2 + 24
    assert len(reference.encode(v6)) == 91 + 1 + 2 + 24 + 20


def test_properties_are_parsed_as_the_broker_does() -> None:
    assert reference.parse_properties(b"a\x011\x02b\x01x\x01y\x02\x01v\x02n\x01\x02n\x02\x02a\x012") == {
        "a": "2",
        "b": "x\x01y",
    }
    assert reference.format_properties({"a": "1", "b": "2"}) == b"a\x011\x02b\x012\x02"
    assert reference.format_properties({"a": "1", "b": "2"}, trailing_separator=False) == b"a\x011\x02b\x012"
    assert reference.format_properties({}) == b""


# --- records --------------------------------------------------------------------------------------


@given(records(), st.booleans(), st.integers(0, 9))
def test_what_is_encoded_is_decoded_to_the_same_record(record: ReferenceRecord, crc: bool, before: int) -> None:
    assume(crc or b"\0" not in record.properties + record.topic.encode())
    encoded = reference.encode(record, crc_property=crc)
    decoded = reference.decode(b"\xee" * before + encoded + b"\xee", before)
    assert decoded == record
    assert isinstance(decoded, ReferenceRecord)
    assert (decoded.size, decoded.has_crc) == (len(encoded), crc)
    assert reference.encode(decoded, crc_property=crc) == encoded


def test_any_flipped_bit_of_a_record_with_a_crc_is_noticed() -> None:
    record = ReferenceRecord(topic="TopicA", body=b"body", properties=b"TAGS\x01TagA\x02", queue_offset=5)
    encoded = reference.encode(record)
    for bit in range(len(encoded) * 8):
        flipped = bytearray(encoded)
        flipped[bit // 8] ^= 1 << bit % 8
        assert reference.decode(flipped, 0) is None


def test_a_record_whose_last_bytes_were_never_written_is_noticed() -> None:
    encoded = reference.encode(ReferenceRecord(topic="TopicA", body=b"body", properties=b"TAGS\x01TagA\x02"))
    for written in range(len(encoded)):
        assert reference.decode(encoded[:written] + bytes(len(encoded) - written), 0) is None


@given(records(), st.data())
def test_a_record_cut_anywhere_is_none(record: ReferenceRecord, data: st.DataObject) -> None:
    encoded = reference.encode(record)
    assert reference.decode(encoded[: data.draw(st.integers(0, len(encoded) - 1))], 0) is None


@given(st.binary(max_size=300), st.integers(-5, 305))
def test_any_bytes_are_decoded_to_something_or_none(content: bytes, position: int) -> None:
    reference.decode(struct.pack(">ii", len(content) + 8, 0xDAA320A7 - 2**32) + content, 0)
    reference.decode(content, position)


def test_message_version_2_is_none_as_for_a_4_9_broker() -> None:
    encoded = reference.encode(ReferenceRecord(topic="T"))
    assert reference.decode(encoded[:4] + bytes.fromhex("daa320ab") + encoded[8:], 0) is None


def test_a_blank_record_is_told_from_a_record_and_from_zeros() -> None:
    blank = struct.pack(">iI", 20, 0xCBD43194)
    assert reference.decode(blank + bytes(12), 0) == Blank(20, zeros=True)
    assert reference.decode(blank + bytes(11) + b"x", 0) == Blank(20, zeros=False)
    assert reference.decode(blank + bytes(11), 0) is None
    assert reference.decode(struct.pack(">iI", 7, 0xCBD43194), 0) is None
    assert reference.decode(bytes(100), 0) is None


def test_an_address_that_contradicts_the_flags_is_refused() -> None:
    with pytest.raises(ValueError, match="sys_flag"):
        reference.encode(ReferenceRecord(topic="T", born_host=bytes(16)))
    with pytest.raises(struct.error):
        reference.encode(ReferenceRecord(topic="x" * 128))


# --- stores ---------------------------------------------------------------------------------------

FILE_SIZE = 512
QUEUE_FILE_SIZE = 60


class SmallStore:
    """Three files of records for queue 1 of topic T, and their consume queue, made by hand."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.log = b""
        self.entries = b""
        for number in range(9):
            self.add(ReferenceRecord(topic="T", queue_id=1, queue_offset=number, properties=b"TAGS\x01d\x02"))
        self.save()

    def add(self, record: ReferenceRecord) -> None:
        size = len(reference.encode(record))
        left = FILE_SIZE - len(self.log) % FILE_SIZE
        if size + 8 > left:
            self.log += struct.pack(">iI", left, 0xCBD43194).ljust(left, b"\0")
        record = replace(record, commit_log_offset=len(self.log))
        self.entries += struct.pack(">qiq", len(self.log), size, 100)
        self.log += reference.encode(record)

    def save(self) -> None:
        self.save_files(self.root / "commitlog", self.log, FILE_SIZE)
        self.save_files(self.root / "consumequeue/T/1", self.entries, QUEUE_FILE_SIZE)

    @staticmethod
    def save_files(directory: Path, content: bytes, size: int) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        for start in range(0, len(content), size):
            (directory / f"{start:020d}").write_bytes(content[start : start + size].ljust(size, b"\0"))

    def log_file(self, number: int) -> Path:
        return self.root / "commitlog" / f"{number * FILE_SIZE:020d}"

    def queue_file(self, number: int) -> Path:
        return self.root / "consumequeue/T/1" / f"{number * QUEUE_FILE_SIZE:020d}"


@pytest.fixture
def small(tmp_path: Path) -> SmallStore:
    return SmallStore(tmp_path)


def patch(path: Path, position: int, content: bytes) -> None:
    with path.open("rb+") as file:
        file.seek(position)
        file.write(content)


def test_a_good_store_has_no_problems_and_all_its_records(small: SmallStore) -> None:
    assert reference.check_store(small.root) == []
    log = reference.read_commit_log(small.root)
    assert [record.queue_offset for _, record in log] == list(range(9))
    assert all(offset == record.commit_log_offset for offset, record in log)
    entries = reference.read_consume_queue(small.root, "T", 1)
    assert entries == [(offset, record.size, 100) for offset, record in log]
    assert reference.queues_on_disk(small.root) == [("T", 1)]


def test_an_empty_directory_is_a_good_store(tmp_path: Path) -> None:
    assert reference.check_store(tmp_path) == []
    assert reference.read_commit_log(tmp_path) == []
    assert reference.read_consume_queue(tmp_path, "T", 0) == []
    assert reference.first_queue_offset(tmp_path, "T", 0) == 0


def test_a_file_allocated_ahead_is_no_problem(small: SmallStore) -> None:
    small.log_file(3).write_bytes(bytes(FILE_SIZE))
    small.queue_file(3).write_bytes(bytes(QUEUE_FILE_SIZE))
    assert reference.check_store(small.root) == []


def test_records_that_retention_deleted_may_keep_their_entries(small: SmallStore) -> None:
    kept = len(reference.read_commit_log(small.root))
    small.log_file(0).unlink()
    assert reference.check_store(small.root) == []
    assert 0 < len(reference.read_commit_log(small.root)) < kept
    # And the consume queue may begin later, too, filled up to the first entry
    small.queue_file(0).unlink()
    assert reference.first_queue_offset(small.root, "T", 1) == 3
    patch(small.queue_file(1), 0, struct.pack(">qiq", *reference.PRE_BLANK_ENTRY))
    assert reference.check_store(small.root) == []


@pytest.mark.parametrize(("bits", "in_a_queue"), [(0x0, True), (0x4, False), (0x8, True), (0xC, False)])
def test_prepared_and_rolled_back_records_have_no_entry(small: SmallStore, bits: int, in_a_queue: bool) -> None:
    entries = small.entries
    small.add(ReferenceRecord(topic="T", queue_id=1, queue_offset=9, properties=b"TAGS\x01d", sys_flag=bits))
    if not in_a_queue:
        small.entries = entries
    small.save()
    assert reference.check_store(small.root) == []


LOG_DAMAGE: dict[str, Callable[[SmallStore], object]] = {
    "a flipped bit": lambda small: patch(small.log_file(1), 60, b"\xff"),
    "bytes between records": lambda small: patch(small.log_file(2), len(small.log) % FILE_SIZE + 3, b"x"),
    "bytes after the last record": lambda small: patch(small.log_file(2), FILE_SIZE - 1, b"x"),
    "bytes in the file after the end": lambda small: small.log_file(3).write_bytes(bytes(FILE_SIZE - 1) + b"x"),
    "a missing file": lambda small: small.log_file(1).unlink(),
    "a short file": lambda small: small.log_file(2).write_bytes(bytes(100)),
    "swapped files": lambda small: small.log_file(0).write_bytes(small.log_file(1).read_bytes()),
    "another file": lambda small: (small.root / "commitlog/readme").write_bytes(bytes(FILE_SIZE)),
    "no blank record": lambda small: patch(small.log_file(0), small.log.index(bytes.fromhex("cbd43194")) - 4, bytes(8)),
    "a blank record too early": lambda small: patch(
        small.log_file(2), len(small.log) % FILE_SIZE, struct.pack(">iI", 8, 0xCBD43194)
    ),
}


@pytest.mark.parametrize("damage", LOG_DAMAGE)
def test_every_damage_of_the_commit_log_is_found(small: SmallStore, damage: str) -> None:
    LOG_DAMAGE[damage](small)
    with pytest.raises(BadStore):
        reference.read_commit_log(small.root)
    assert reference.check_store(small.root) != []


def test_bytes_behind_a_blank_record_can_be_read_over_but_are_a_problem(small: SmallStore) -> None:
    patch(small.log_file(0), FILE_SIZE - 1, b"x")
    assert len(reference.read_commit_log(small.root)) == 9
    assert len(reference.check_store(small.root)) == 1


def test_the_place_of_the_damage_is_told(small: SmallStore) -> None:
    second = reference.read_commit_log(small.root)[1][0]
    patch(small.log_file(0), second + 90, b"\xff")
    with pytest.raises(BadStore) as raised:
        reference.read_commit_log(small.root)
    assert (raised.value.path, raised.value.position) == (small.log_file(0), second)


def move_records_by_one_byte(small: SmallStore) -> None:
    small.log_file(0).write_bytes((b"\0" + small.log)[:FILE_SIZE])


def drop_a_record(small: SmallStore) -> None:
    """Leave out one record and keep its entry."""
    (first, size, _), *_ = reference.read_consume_queue(small.root, "T", 1)
    rest = small.log[first + size : FILE_SIZE]
    small.log_file(0).write_bytes(rest.ljust(FILE_SIZE, b"\0"))


@pytest.mark.parametrize("damage", [move_records_by_one_byte, drop_a_record])
def test_a_record_that_does_not_stand_where_it_says_is_found(
    small: SmallStore, damage: Callable[[SmallStore], None]
) -> None:
    damage(small)
    with pytest.raises(BadStore):
        reference.read_commit_log(small.root)


QUEUE_DAMAGE: dict[str, Callable[[SmallStore], object]] = {
    "a flipped offset": lambda small: patch(small.queue_file(1), 7, b"\xff"),
    "a flipped size": lambda small: patch(small.queue_file(1), 11, b"\xff"),
    "a flipped tags code": lambda small: patch(small.queue_file(1), 19, b"\xff"),
    "a negative offset": lambda small: patch(small.queue_file(1), 0, b"\xff"),
    "an entry too few": lambda small: patch(small.queue_file(2), 0, bytes(20)),
    "a hole": lambda small: patch(small.queue_file(1), 20, bytes(20)),
    "an entry twice": lambda small: patch(small.queue_file(2), 20, small.entries[-20:]),
    "a missing file": lambda small: small.queue_file(1).unlink(),
    "a short file": lambda small: small.queue_file(2).write_bytes(bytes(50)),
    "another queue": lambda small: small.save_files(small.root / "consumequeue/T/2", small.entries, QUEUE_FILE_SIZE),
    "no queue": lambda small: small.queue_file(0).parent.rename(small.root / "elsewhere"),
    "filled up too far": lambda small: patch(small.queue_file(0), 0, struct.pack(">qiq", *reference.PRE_BLANK_ENTRY)),
}


@pytest.mark.parametrize("damage", QUEUE_DAMAGE)
def test_every_damage_of_a_consume_queue_is_found(small: SmallStore, damage: str) -> None:
    QUEUE_DAMAGE[damage](small)
    assert len(reference.check_store(small.root)) > 0
    assert len(reference.read_commit_log(small.root)) == 9


def test_a_record_with_a_wrong_queue_offset_is_found(small: SmallStore) -> None:
    small.add(ReferenceRecord(topic="T", queue_id=1, queue_offset=10, properties=b"TAGS\x01d\x02"))
    small.save()
    assert len(reference.check_store(small.root)) == 1
