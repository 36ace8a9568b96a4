"""The compiled kernel against the slow reference codec, which was written from the format alone."""

from __future__ import annotations

import string
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rmqclient import Message, Producer, StoreConfig
from rmqclient.errors import BatchTooLarge, BodyTooLarge, PropertiesTooLarge
from rmqclient.store import MessageStore, java_hash, layout, open_store
from rmqclient.store.kernel._kernel import RESERVED_PROPERTIES, ReceivedMessage, crc32, decode
from rmqclient.store.layout import FOUND
from tests.support.oracle import reference
from tests.support.sweeps import share_of

SMALL = StoreConfig(commit_log_file_bytes=150_000, consume_queue_file_entries=16, max_body_bytes=100_000)
UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with open_store(tmp_path / "store", SMALL, housekeeping=False) as opened:
        yield opened


@pytest.fixture
def producer(store: MessageStore) -> Iterator[Producer]:
    with Producer(store) as made:
        yield made


def stored_text(*, without: str = "", smallest: int = 1) -> st.SearchStrategy[str]:
    """Text that can be a property: no separators, nothing that UTF-8 cannot hold."""
    alphabet = st.characters(codec="utf-8", exclude_characters="\x01\x02" + without)
    return st.text(alphabet, min_size=smallest, max_size=40)


TOPICS = st.text(string.ascii_letters + string.digits + "%_-", min_size=1, max_size=127).filter(
    lambda name: not name.startswith(("%RETRY%", "%DLQ%"))
)
KEYS = st.lists(
    stored_text(without=" \t\n\x0b\x0c\r\x1c\x1d\x1e\x1f\x85\xa0").filter(lambda key: not key.isspace()), max_size=5
)
PROPERTIES = st.dictionaries(
    stored_text().filter(lambda name: name not in RESERVED_PROPERTIES), stored_text(), max_size=8
)
TAGS = stored_text().filter(lambda tag: tag != "*" and "||" not in tag and min(tag[0], tag[-1]) > " ")
MESSAGES = st.builds(
    lambda topic, body, tags, keys, properties, flag: Message(
        topic, body, tags=tags, keys=keys, properties=properties, flag=flag
    ),
    topic=TOPICS,
    body=st.binary(max_size=2_000),
    tags=st.none() | TAGS,
    keys=KEYS,
    properties=PROPERTIES,
    flag=st.integers(-(2**31), 2**31 - 1),
)


def bytes_at(store: MessageStore, start: int, end: int) -> bytes:
    """Read the commit log as a stranger would, from its files."""
    base = start - start % SMALL.commit_log_file_bytes
    path = store.root / "commitlog" / f"{base:020d}"
    return path.read_bytes()[start - base : end - base]


@UNHURRIED
@given(message=MESSAGES, sharding_key=st.none() | stored_text())
@pytest.mark.guarantee("G10")
def test_a_record_is_what_the_reference_codec_reads_and_writes(
    store: MessageStore, producer: Producer, message: Message, sharding_key: str | None
) -> None:
    result = producer.send(message, sharding_key)
    content = bytes_at(store, result.commit_log_offset, result.commit_log_end)
    record = reference.decode(content, 0)
    assert isinstance(record, reference.ReferenceRecord)
    assert record.has_crc
    assert reference.encode(record) == content
    assert (record.topic, record.body, record.flag) == (message.topic, message.body, message.flag)
    assert (record.queue_id, record.queue_offset) == (result.queue.queue_id, result.queue_offset)
    assert record.commit_log_offset == result.commit_log_offset
    assert abs(record.store_timestamp - record.born_timestamp) < 60_000
    expected = dict(message.properties or {}) | {"UNIQ_KEY": result.message_id}
    if message.tags:
        expected["TAGS"] = message.tags
    if message.keys:
        expected["KEYS"] = " ".join(message.keys)
    if sharding_key:
        expected["__SHARDINGKEY"] = sharding_key
    found = record.property_map
    found.pop("__CRC32#", None)
    assert found == expected


@UNHURRIED
@given(message=MESSAGES, sharding_key=st.none() | stored_text())
def test_what_is_sent_is_what_is_received(
    store: MessageStore, producer: Producer, message: Message, sharding_key: str | None
) -> None:
    result = producer.send(message, sharding_key)
    received = store.messages.at(result.queue, result.queue_offset)
    assert (received.topic, received.body, received.flag) == (message.topic, message.body, message.flag)
    assert (received.tags, received.keys, received.sharding_key) == (message.tags, message.keys, sharding_key)
    assert received.message_id == result.message_id
    assert {name: received.properties[name] for name in message.properties or {}} == (message.properties or {})
    assert received.tags_code == (reference.java_hash(message.tags) if message.tags else 0)


@UNHURRIED
@given(sizes=st.lists(st.integers(0, 60_000), min_size=1, max_size=12), batch=st.booleans())
def test_rolling_to_the_next_file_leaves_a_blank_record_and_nothing_else(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], batch: bool
) -> None:
    root = tmp_path_factory.mktemp("rolls")
    with open_store(root, SMALL, housekeeping=False) as store, Producer(store) as producer:
        for size in sizes:
            message = Message("t", bytes(size))
            if batch:
                producer.send_batch([message, Message("t", b"second")])
            else:
                producer.send(message)
    assert reference.check_store(root) == []
    assert len(reference.read_commit_log(root)) == len(sizes) * (2 if batch else 1)


@pytest.mark.parametrize("left", range(24))
def test_a_record_that_leaves_less_than_eight_bytes_goes_to_the_next_file(tmp_path: Path, left: int) -> None:
    with open_store(tmp_path, SMALL, housekeeping=False) as store, Producer(store) as producer:
        producer.create_topic("t", 1)
        overhead = producer.send(Message("t", b"")).commit_log_end
        filler = SMALL.commit_log_file_bytes - overhead - left
        producer.send(Message("t", bytes(80_000)))
        producer.send(Message("t", bytes(filler - 80_000 - 2 * overhead)))
        rolled = store.state.published_to > SMALL.commit_log_file_bytes
        assert rolled == (left < 8)
        producer.send(Message("t", b"after"))
    assert reference.check_store(tmp_path) == []


@pytest.mark.parametrize("count", [1, 15, 16, 17, 31, 32, 33, 100])
def test_entries_cross_from_file_to_file(tmp_path: Path, count: int) -> None:
    with open_store(tmp_path, SMALL, housekeeping=False) as store, Producer(store) as producer:
        producer.create_topic("t", 1)
        for _ in range(count):
            producer.send(Message("t", b""))
        producer.send_batch([Message("t", b"")] * 16)
    assert reference.check_store(tmp_path) == []
    assert len(reference.read_consume_queue(tmp_path, "t", 0)) == count + 16


@pytest.mark.guarantee("G9")
def test_limits_are_exact(store: MessageStore, producer: Producer) -> None:
    producer.send(Message("t", bytes(SMALL.max_body_bytes)))
    with pytest.raises(BodyTooLarge, match="100001"):
        producer.send(Message("t", bytes(SMALL.max_body_bytes + 1)))
    own = len("UNIQ_KEY") + 1 + 32 + 1 + layout.CRC_PROPERTY_SIZE
    fits = layout.MAX_SENT_PROPERTIES_BYTES - own - len("k\x01\x02")
    result = producer.send(Message("t", b"", properties={"k": "v" * fits}))
    assert store.messages.read(result.commit_log_offset).properties["k"] == "v" * fits
    with pytest.raises(PropertiesTooLarge):
        producer.send(Message("t", b"", properties={"k": "v" * (fits + 1)}))


@pytest.mark.guarantee("G9")
def test_a_batch_that_no_file_holds_is_refused_as_a_whole(store: MessageStore, producer: Producer) -> None:
    producer.create_topic("t", 1)
    before = store.state.published_to
    with pytest.raises(BatchTooLarge, match="149992"):
        producer.send_batch([Message("t", bytes(50_000))] * 3)
    with pytest.raises(BatchTooLarge, match="entries"):
        producer.send_batch([Message("t", b"")] * (SMALL.consume_queue_file_entries + 1))
    assert store.state.published_to == before


@pytest.mark.guarantee("G5")
def test_every_flipped_bit_of_a_record_is_noticed(store: MessageStore, producer: Producer) -> None:
    message = Message("topic", b"a body", tags="tag", keys=["one", "two"], properties={"name": "value"})
    result = producer.send(message, "key")
    content = bytearray(bytes_at(store, result.commit_log_offset, result.commit_log_end))
    assert isinstance(decode(bytes(content), 0, result.commit_log_offset), ReceivedMessage)
    for bit in range(8 * len(content)):
        content[bit // 8] ^= 1 << bit % 8
        assert isinstance(decode(bytes(content), 0, result.commit_log_offset), int), f"bit {bit} flipped unnoticed"
        content[bit // 8] ^= 1 << bit % 8


@pytest.mark.guarantee("G5")
def test_every_torn_length_of_a_record_is_noticed(store: MessageStore, producer: Producer) -> None:
    result = producer.send(Message("topic", b"a body", tags="tag"))
    content = bytes_at(store, result.commit_log_offset, result.commit_log_end)
    for length in range(len(content)):
        assert isinstance(decode(content[:length], 0, result.commit_log_offset), int)
        if length:
            torn = content[:length] + bytes(len(content) - length + 64)
            assert isinstance(decode(torn, 0, result.commit_log_offset), int)
    assert decode(content, 0, result.commit_log_offset + 1) == FOUND["BAD_OFFSET"]


@settings(max_examples=share_of(300), deadline=None)
@given(content=st.binary(max_size=400), position=st.integers(0, 400), offset=st.integers(-(2**63), 2**63 - 1))
def test_arbitrary_bytes_are_never_a_record_nor_a_crash(content: bytes, position: int, offset: int) -> None:
    if position > len(content):
        with pytest.raises(ValueError, match="not inside"):
            decode(content, position, offset)
    else:
        assert isinstance(decode(content, position, offset), int)


@settings(deadline=None)
@given(text=st.text(max_size=60))
def test_the_java_hash_is_that_of_utf16_units(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        return
    assert java_hash(text) == reference.java_hash(text)


def test_the_crc_is_that_of_zlib_for_every_size_and_alignment() -> None:
    content = bytes(range(256)) * 16
    for start in range(17):
        for size in range(700):
            piece = content[start : start + size]
            assert crc32(piece) == zlib.crc32(piece)
    for cut in (0, 1, 63, 64, 1_279, 1_280, 4_000):
        assert crc32(content[cut:], crc32(content[:cut])) == zlib.crc32(content)
